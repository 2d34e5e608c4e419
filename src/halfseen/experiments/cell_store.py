"""Finished cells on disk, so that a run can be cut short and gone on with."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.experiments.cells import Cell, CellResult
from halfseen.experiments.files import make_folder
from halfseen.experiments.result import versions
from halfseen.experiments.source import source_hash
from halfseen.savefile import write_atomically


class CellStore:
    """A folder of files, one a finished cell, named by all that its numbers depend on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._common = {"versions": versions(), "source": source_hash()}

    def fingerprint(self, cell: Cell) -> dict[str, Any]:
        """All that the cell's numbers depend on, as JSON gives it back."""
        content = {
            "agent": cell.agent.name,
            "options": cell.agent.options,
            "world": {"type": type(cell.world).__qualname__} | cell.world.settings(),
            "seeds": cell.seeds,
            "rounds": cell.rounds,
        }
        known: dict[str, Any] = json.loads(json.dumps(_plain(content | self._common)))
        return known

    def read(self, cell: Cell) -> CellResult | None:
        """What the cell came to; None where nothing certain is known: not played, other code, a damaged file."""
        try:
            record = json.loads(self._path(cell).read_bytes())
            if record["sha256"] != _hash([record["fingerprint"], record["result"]]):
                return None
            return CellResult(**record["result"]) if record["fingerprint"] == self.fingerprint(cell) else None
        except (OSError, ValueError, TypeError, LookupError):
            return None

    def write(self, cell: Cell, result: CellResult) -> None:
        """Keep a finished cell, whole or not at all."""
        content = {"fingerprint": self.fingerprint(cell), "result": asdict(result)}
        record = content | {"sha256": _hash(list(content.values()))}
        make_folder(self.folder)
        write_atomically(self._path(cell), json.dumps(record).encode())

    def others(self, cells: Iterable[Cell]) -> int:
        """How many files there are of other settings or other code."""
        return len(set(self.folder.glob("*.json")) - {self._path(cell) for cell in cells})

    def discard(self) -> None:
        """Forget every cell, of whatever settings."""
        for pattern in ("*.json", ".*.json.*"):  # the second: what a killed process had begun to write
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _path(self, cell: Cell) -> Path:
        words = (*cell.place, f"{cell.seeds[0]}-{cell.seeds[-1]}")
        readable = ".".join(re.sub(r"[^A-Za-z0-9.=-]+", "-", word)[:40] for word in words)
        return self.folder / f"{readable}.{_hash(self.fingerprint(cell))[:16]}.json"


def _plain(value: Any) -> Any:
    """Any option as JSON that differs when the option does."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):  # a model
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return repr(value)


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
