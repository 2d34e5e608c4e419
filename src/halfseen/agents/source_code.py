"""Hashes of the source code of user-defined classes and functions. The keys of saved results contain these hashes."""

from __future__ import annotations

import functools
import hashlib
import inspect
import uuid
from pathlib import Path
from typing import Any

_UNKNOWN = f"unknown source code {uuid.uuid4()}"  # differs in every process, so results of such code are not reused


def source_hash_of(thing: Any) -> str:
    """Return a hash of the file that defines a class or a function, or of only its own lines if there is no file."""
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
