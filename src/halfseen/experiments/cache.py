"""Finished slices on disk, so that a run can be cut short and gone on with, by any number of workers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.agents import saving as savefile
from halfseen.errors import SaveFileError
from halfseen.experiments.plan import Slice
from halfseen.experiments.result import versions
from halfseen.experiments.source import source_hash
from halfseen.reports.files import make_folder

FORM, ENDING = "halfseen slice", ".slice"


class SliceStore:
    """A folder of files, one a finished slice, named by all that its numbers depend on.

    What a slice came to is plain data and arrays by name. Two slices that differ in nothing but their seeds are of the
    same *subject*: their files can be found together, however the seeds were cut.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._common = {"versions": versions(), "source": source_hash()}

    def subject(self, piece: Slice) -> dict[str, Any]:
        """All that the numbers of a seed depend on, as JSON gives it back."""
        content = {
            "agents": [{"name": spec.name, "options": spec.options} for spec in piece.agents],
            "world": {"type": type(piece.world).__qualname__} | piece.world.settings(),
            "rounds": piece.rounds,
        }
        known: dict[str, Any] = json.loads(json.dumps(_plain(content | self._common)))
        return known

    def read(self, piece: Slice) -> dict[str, Any] | None:
        """What the slice came to; None where nothing certain is known: not played, other code, a damaged file."""
        found = _read(self._path(piece))
        return None if found is None or found[0] != self._recipe(piece) else found[1]

    def of_subject(self, piece: Slice) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """Seeds and outcome of every kept slice of the same subject."""
        subject = self.subject(piece)
        for path in sorted(self.folder.glob(f"*.{_hash(subject)[:16]}.*{ENDING}")):
            found = _read(path)
            if found is not None and found[0]["subject"] == subject:
                yield found[0]["seeds"], found[1]

    def write(self, piece: Slice, outcome: Mapping[str, Any]) -> None:
        """Keep a finished slice, whole or not at all."""
        make_folder(self.folder)
        savefile.write(self._path(piece), self._recipe(piece), outcome, kind=FORM)

    def others(self, pieces: Iterable[Slice]) -> set[Path]:
        """Files of other slices than these."""
        return set(self.folder.glob(f"*{ENDING}")) - {self._path(piece) for piece in pieces}

    def subject_of(self, path: Path) -> dict[str, Any] | None:
        """What a file in the folder is about, as far as it can be read."""
        found = _read(path)
        return None if found is None else found[0]["subject"]

    def discard(self, keeping: Iterable[Slice] = ()) -> None:
        """Forget every slice but these, of whatever settings."""
        for path in [*self.others(keeping), *self.folder.glob(f".*{ENDING}.*")]:  # the latter: writes cut short
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _recipe(self, piece: Slice) -> dict[str, Any]:
        return {"subject": self.subject(piece), "seeds": list(piece.seeds)}

    def _path(self, piece: Slice) -> Path:
        agents = piece.agents[0].label if len(piece.agents) == 1 else f"{len(piece.agents)}-agents"
        words = (piece.world.name, agents, f"{piece.seeds[0]}-{piece.seeds[-1]}")
        readable = ".".join(re.sub(r"[^A-Za-z0-9.=-]+", "-", word)[:40] for word in words)
        hashes = f"{_hash(self.subject(piece))[:16]}.{_hash(list(piece.seeds))[:8]}"
        return self.folder / f"{readable}.{hashes}{ENDING}"


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    with contextlib.suppress(SaveFileError):
        recipe, outcome = savefile.read(path, kind=FORM)
        if isinstance(recipe, dict) and isinstance(outcome, dict) and {"subject", "seeds"} <= recipe.keys():
            return recipe, outcome
    return None


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
