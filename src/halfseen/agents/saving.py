"""The format of save files: a zip archive of a JSON header and NumPy arrays.

The arrays contain no pickled objects, so loading a file runs no code. A file is written under a temporary name, flushed
to the disk and then renamed, so at any moment the target is either the old file or the complete new one.

A file may come from anybody. Reading it takes memory in proportion to its size, whatever its archive and its arrays
claim to contain, and any fault of the file raises a SaveFileError.
"""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from halfseen.errors import SaveFileError, invalid
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.reports.files import write_atomically

AGENT_KIND, FLEET_KIND, VERSION = "halfseen agent", "halfseen fleet", 4
OLDEST = 2  # the oldest save version that can be read; `loading` adds the arrays that files of this version lack
_HEADER = "header.json"
_MODEL_FIELDS = ("transition", "process_cov", "observation_cov", "observation", "initial_mean", "initial_cov")
# A file of n bytes may expand to _MAX_EXPANSION·n + _SMALL bytes. Files are written at the lowest level of compression,
# at which zeros shrink to 1/229 of their size.
_MAX_EXPANSION, _SMALL = 300, 1 << 20
_ARRAY_KINDS = "biufUS"  # the dtype kinds that saved arrays can have
# What zipfile, zlib, json and NumPy raise for files that are not what they claim to be.
_FAULTS = (
    zipfile.BadZipFile, zlib.error, struct.error, LookupError, ValueError, TypeError, EOFError, AttributeError,
    RuntimeError, OSError, OverflowError, MemoryError,
)  # fmt: skip


def write(path: Path, recipe: Mapping[str, Any], state: Mapping[str, Any], *, kind: str = AGENT_KIND) -> None:
    """Save the arguments of an agent or a fleet (`recipe`) and its arrays by name (`state`).

    A fleet may fill most of the memory, so it is written to the disk directly and without compression.
    """
    write_atomically(path, lambda file: _write_archive(file, recipe, state, kind, small=kind == AGENT_KIND))


def to_bytes(recipe: Mapping[str, Any], state: Mapping[str, Any], *, small: bool = True) -> bytes:
    """Return the content of a save file. The content is compressed if `small` is true, which takes longer."""
    buffer = io.BytesIO()
    _write_archive(buffer, recipe, state, AGENT_KIND, small=small)
    return buffer.getvalue()


def _write_archive(
    file: IO[bytes], recipe: Mapping[str, Any], state: Mapping[str, Any], kind: str, *, small: bool
) -> None:
    arrays: dict[str, Any] = {}
    header = {
        "format": kind,
        "version": VERSION,
        "recipe": _to_json(recipe, arrays),
        "state": _to_json(dict(state), arrays),
    }
    method = zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method, compresslevel=1) as archive:
        archive.writestr(_HEADER, json.dumps(header))
        for name, array in arrays.items():
            with archive.open(name, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def kind_of(path: Path) -> str | None:
    """Return the format named in the header of a file, such as AGENT_KIND, or None if the header cannot be read."""
    try:
        with path.open("rb") as file:
            return str(_Archive(file).header().get("format"))
    except _FAULTS:
        return None


def same_recipe(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two recipes (arguments of agents or fleets) would be saved as the same bytes."""
    arrays: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    same = _to_json(one, arrays[0]) == _to_json(other, arrays[1])
    return same and all(np.array_equal(array, arrays[1][name]) for name, array in arrays[0].items())


def read(path: Path, *, kind: str = AGENT_KIND) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the recipe and the state from a save file."""
    try:
        with path.open("rb") as file:
            return _read(file, str(path), kind)
    except FileNotFoundError:
        raise SaveFileError(f"There is no file '{path}'.") from None
    except OSError as error:
        raise SaveFileError(f"Cannot read '{path}': {error.strerror}") from None


def from_bytes(content: bytes, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the recipe and the state from the content of a save file. Error messages call the content `path`."""
    return _read(io.BytesIO(content), path, AGENT_KIND)


def _read(file: IO[bytes], path: str, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        archive = _Archive(file)
        header = archive.header()
        if header.get("format") != kind:
            raise SaveFileError(
                f"file: expected a file of format {kind!r}, got '{path}' of format {header.get('format')!r:.60}"
            )
        if header["version"] not in range(OLDEST, VERSION + 1):
            raise SaveFileError(
                f"file: expected save version {OLDEST} to {VERSION}, "
                f"got '{path}' of save version {header['version']!r:.60}"
            )
        recipe, state = (_from_json(header[name], archive.array) for name in ("recipe", "state"))
        if not isinstance(recipe, dict) or not isinstance(state, dict):
            raise TypeError("recipe and state must be objects")
        return recipe, state
    except _FAULTS:
        raise SaveFileError(
            f"file: expected a complete file of format {kind!r}, got '{path}', which is truncated or damaged"
        ) from None


class _Archive:
    """A zip archive of n bytes whose members together expand to at most _MAX_EXPANSION·n + _SMALL bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        size = file.seek(0, io.SEEK_END)
        self._archive = zipfile.ZipFile(file)
        self._bytes_left = _MAX_EXPANSION * size + _SMALL

    def _content(self, name: str) -> bytes:
        """Decompress a member. Whatever size it claims to have, no more than `_bytes_left` is ever decompressed."""
        info = self._archive.getinfo(name)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is compressed by another method")
        with self._archive.open(info) as member:
            content = member.read(self._bytes_left + 1)
        self._bytes_left -= len(content)
        if self._bytes_left < 0:
            raise ValueError("the archive expands to too many bytes")
        return content

    def header(self) -> dict[str, Any]:
        header = json.loads(self._content(_HEADER))
        if not isinstance(header, dict):
            raise TypeError("the header must be an object")
        return header

    def array(self, name: str) -> Any:
        """Return an array. Its shape is compared with the number of bytes before memory is allocated for the array."""
        content = self._content(name)
        file = io.BytesIO(content)
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = read(file)
        count, start = math.prod(shape), file.tell()
        if dtype.kind not in _ARRAY_KINDS or min(shape, default=0) < 0:
            raise TypeError(f"{name} is not an array of numbers or strings")
        if count * dtype.itemsize != len(content) - start:
            raise ValueError(f"{name} is truncated")
        flat = np.frombuffer(content, dtype, count, start) if count else np.empty(0, dtype)
        return flat.reshape(shape, order="F" if fortran_order else "C").copy()


def _to_json(value: Any, arrays: dict[str, Any]) -> Any:
    """Convert `value` to JSON. Arrays are added to `arrays` and replaced by their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        name = f"array-{len(arrays)}.npy"
        arrays[name] = value
        return {"$array": name}
    if isinstance(value, LinearGaussianModel):
        return {"$model": {name: _to_json(getattr(value, name), arrays) for name in _MODEL_FIELDS}}
    if isinstance(value, Mapping):
        return {str(key): _to_json(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item, arrays) for item in value]
    raise invalid("option", "a value that can be saved, such as a number, a string, an array or a model", repr(value))


def _from_json(value: Any, array: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item, array) for item in value]
    if isinstance(value, dict):
        if "$array" in value:
            return array(value["$array"])
        if "$model" in value:
            return LinearGaussianModel(**{name: _from_json(item, array) for name, item in value["$model"].items()})
        return {key: _from_json(item, array) for key, item in value.items()}
    return value
