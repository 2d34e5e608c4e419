"""Writes files and folders atomically."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from halfseen.errors import SaveFileError, invalid
from halfseen.reports.figures import render_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_atomically(path: Path, content: bytes | Callable[[IO[bytes]], None]) -> None:
    """Write a file atomically. `content` is the bytes, or a function that writes them to an open file.

    If the file exists, its permissions are preserved.
    """
    path = path.resolve()  # so that a symbolic link is not replaced by a file
    mode = path.stat().st_mode & 0o777 if path.exists() else _default_mode()
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise SaveFileError(f"Cannot write '{path}': {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            os.chmod(temporary, mode)
            content(file) if callable(content) else file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SaveFileError(f"Cannot write '{path}': {error.strerror}") from None
        raise


def _default_mode() -> int:
    """Return the usual permissions of a new file. Temporary files have stricter permissions."""
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def make_folder(folder: str | Path) -> Path:
    """Create the folder if it does not exist, and return its path."""
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(target, error.strerror) from None
    return target


@contextlib.contextmanager
def staged(folder: str | Path) -> Iterator[Path]:
    """Yield a temporary folder, and move its files to `folder` at the end. If the block raises, no file is moved."""
    is_new = not Path(folder).exists()
    target = make_folder(folder)
    try:
        with tempfile.TemporaryDirectory(dir=target, prefix=".partial-") as stage:
            yield Path(stage)
            for path in Path(stage).iterdir():
                os.replace(path, target / path.name)
    except BaseException as error:
        if is_new:
            with contextlib.suppress(OSError):
                target.rmdir()
        if isinstance(error, OSError):
            raise _unwritable(target, error.strerror) from None
        raise


def check_folder(folder: str | Path, argument: str = "out") -> None:
    """Raise if files cannot be written to the folder, so that a long run does not fail at its end.

    The folder is created for the check and removed again if it did not exist.
    """
    target = Path(folder)
    created: list[Path] = []
    try:
        paths = [target, *target.absolute().parents]
        existing = next(index for index, path in enumerate(paths) if path.exists())
        if not paths[existing].is_dir():
            raise _unwritable(target, f"'{paths[existing]}' is not a folder", argument)
        if not os.access(paths[existing], os.W_OK | os.X_OK):
            raise _unwritable(target, f"'{paths[existing]}' is read-only", argument)
        for path in reversed(paths[:existing]):
            path.mkdir()
            created.append(path)
        with tempfile.TemporaryDirectory(dir=target, prefix=".partial-"):
            pass
    except OSError as error:
        raise _unwritable(target, error.strerror, argument) from None
    finally:
        for path in reversed(created):
            with contextlib.suppress(OSError):
                path.rmdir()


def _unwritable(target: Path, reason: str | None, argument: str = "out") -> Exception:
    return invalid(argument, f"a writable folder ({reason})", f"'{target}'")


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure as PNG (200 dots per inch) or SVG, depending on the suffix of the path."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg"):
        raise invalid("path", "a name ending in .png or .svg", f"'{path}'")
    write_atomically(path, render_figure(figure, kind))


def write_figure(folder: Path, name: str, figure: Figure) -> bytes:
    """Write the figure as PNG and SVG, and return the SVG."""
    for kind in ("png", "svg"):
        content = render_figure(figure, kind)
        write_atomically(folder / f"{name}.{kind}", content)
    return content


def write_json(path: Path, content: Any) -> None:
    """Write JSON. NaN and infinite numbers become null."""
    write_atomically(path, json.dumps(_without_nan(content), indent=1, ensure_ascii=False).encode())


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _without_nan(value.tolist())
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
