"""What experiments leave on disk. Every file is written whole or not at all."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.errors import invalid
from halfseen.savefile import write_atomically


def make_folder(folder: str | Path) -> Path:
    """The folder, made if it is not there."""
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise invalid("out", f"'{target}'", f"a folder that can be written to ({error.strerror})") from None
    return target


def write_json(path: Path, content: Any) -> None:
    """Plain JSON: what is not a number is written as null."""
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
