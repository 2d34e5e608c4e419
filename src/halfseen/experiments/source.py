"""Which code the numbers come from."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


@cache
def source_hash(start: str = "halfseen.experiments.cells") -> str:
    """A hash of every module that `start` can reach: of what may change its numbers, not of what only shows them."""
    digest = hashlib.sha256()
    for name, path in sorted(reachable(start).items()):
        digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def reachable(start: str) -> dict[str, Path]:
    """The modules of this package that `start` imports, whether directly, at last, or in a function; and itself."""
    found: dict[str, Path] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        path = _file_of(name)
        if path is not None and name not in found:
            found[name] = path
            waiting += _imported_by(path)
    return found


def _file_of(name: str) -> Path | None:
    """The file of a module, if it is one of ours; the package itself only hands out names."""
    first, *rest = name.split(".")
    if first != _PACKAGE.name or not rest:
        return None
    place = _PACKAGE.joinpath(*rest)
    candidates = (place.with_name(f"{place.name}.py"), place / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def _imported_by(path: Path) -> Iterator[str]:
    """Names of all that may be modules in the imports of a file; those that are not have no file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))  # a module's packages run too
