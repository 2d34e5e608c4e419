"""Save files: a zip of one JSON header and plain NumPy arrays. No pickle, so loading a file runs no code.

Written to a temporary file beside the target, flushed to disk and moved into place: at any moment the target
is either the old file or the whole new one.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.errors import SaveFileError, invalid
from halfseen.model import LinearGaussianModel

FORMAT, VERSION = "halfseen agent", 1
_HEADER = "header.json"
_MODEL_FIELDS = ("transition", "process_cov", "observation_cov", "observation", "initial_mean", "initial_cov")


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` at `path`, all of it or nothing. A file that was there lends its permissions."""
    path = path.resolve()  # a link stays a link
    mode = path.stat().st_mode & 0o777 if path.exists() else _usual_mode()
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise SaveFileError(f"path: got '{path}'; cannot write there: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            os.chmod(temporary, mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SaveFileError(f"path: got '{path}'; cannot write there: {error.strerror}") from None
        raise


def _usual_mode() -> int:
    """The permissions a new file gets here; a temporary one is private."""
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def write(path: Path, recipe: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Save how an agent is made (`recipe`) and what it has become (`state`, arrays by name)."""
    write_atomically(path, packed(recipe, state))


def packed(recipe: Mapping[str, Any], state: Mapping[str, Any], *, small: bool = True) -> bytes:
    """The content of a save file; not `small` is larger and quicker."""
    arrays: dict[str, Any] = {}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "recipe": _pack(recipe, arrays),
        "state": _pack(dict(state), arrays),
    }
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method, compresslevel=1) as archive:
        archive.writestr(_HEADER, json.dumps(header))
        for name, array in arrays.items():
            with archive.open(name, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The recipe and state of a save file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise SaveFileError(f"file: got '{path}'; there is no such file") from None
    except OSError as error:
        raise SaveFileError(f"file: got '{path}'; cannot read it: {error.strerror}") from None
    return unpacked(content, str(path))


def unpacked(content: bytes, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The recipe and state in the content of a save file; `path` is what errors call it."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            header = json.loads(archive.read(_HEADER))
            if header.get("format") != FORMAT:
                raise SaveFileError(f"file: got '{path}', which is {header.get('format')!r}; want a {FORMAT} file")
            if header["version"] != VERSION:
                raise SaveFileError(
                    f"file: got '{path}' of save version {header['version']!r}; this halfseen reads version {VERSION}"
                )

            def array(name: str) -> Any:
                return np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)

            return _unpack(header["recipe"], array), _unpack(header["state"], array)
    except (
        zipfile.BadZipFile,
        zlib.error,
        LookupError,
        ValueError,
        TypeError,
        EOFError,
        AttributeError,
        RuntimeError,
        OSError,
    ):
        raise SaveFileError(f"file: got '{path}', truncated or damaged; want a whole {FORMAT} file") from None


def _pack(value: Any, arrays: dict[str, Any]) -> Any:
    """`value` as JSON, its arrays put aside under names of their own."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        name = f"array-{len(arrays)}.npy"
        arrays[name] = value
        return {"$array": name}
    if isinstance(value, LinearGaussianModel):
        return {"$model": {name: _pack(getattr(value, name), arrays) for name in _MODEL_FIELDS}}
    if isinstance(value, Mapping):
        return {str(key): _pack(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(item, arrays) for item in value]
    raise invalid("option", repr(value), "numbers, text, arrays or models, which can be saved")


def _unpack(value: Any, array: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(item, array) for item in value]
    if isinstance(value, dict):
        if "$array" in value:
            return array(value["$array"])
        if "$model" in value:
            return LinearGaussianModel(**{name: _unpack(item, array) for name, item in value["$model"].items()})
        return {key: _unpack(item, array) for key, item in value.items()}
    return value
