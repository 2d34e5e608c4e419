"""The source code of classes and functions that users define, as part of the key of saved results."""

from __future__ import annotations

import functools
import hashlib
import inspect
import uuid
from pathlib import Path
from typing import Any

_UNKNOWN = f"unknown source code {uuid.uuid4()}"  # equal within this process only, so that nothing else is taken for it


def source_hash_of(thing: Any) -> str:
    """Return a hash of the file that defines a class or a function, or of its own lines if there is no such file."""
    if isinstance(thing, functools.partial):
        arguments = repr((thing.args, sorted(thing.keywords.items())))
        return hashlib.sha256((source_hash_of(thing.func) + arguments).encode()).hexdigest()[:16]
    return hashlib.sha256(_source_of(thing).encode()).hexdigest()[:16]


def _source_of(thing: Any) -> str:
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        thing = type(thing)
    try:
        file = Path(inspect.getsourcefile(thing) or "")
        return file.read_text(encoding="utf-8") if file.is_file() else inspect.getsource(thing)
    except (OSError, TypeError):
        return _UNKNOWN
