"""Saves finished slices (`plan.Slice`), so that an interrupted run can continue with any number of workers.

The key of a slice is everything that its results depend on, except the seeds: the agents, the world, the number of
rounds, the versions of Python and the packages, and the source code.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.agents import saving
from halfseen.errors import SaveFileError, invalid
from halfseen.experiments.plan import Experiment, Slice
from halfseen.reports.files import make_folder
from halfseen.worlds.world import all_settings

FORM, SUFFIX = "halfseen slice", ".slice"
_PACKAGE = Path(__file__).parents[1]


class SliceStore:
    """A folder with one file per finished slice.

    A file contains plain data and arrays by name. Slices that differ only in their seeds have the same key, so they
    can be read together even if another run divided the seeds differently.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._code = {"versions": versions(), "source": source_hash()}

    def key(self, task: Slice) -> dict[str, Any]:
        """Return everything that the results depend on, except the seeds, as data that JSON preserves."""
        content = {
            "agents": [
                {"name": spec.name, "options": spec.options} | ({"source": spec.source_hash} if spec.is_own else {})
                for spec in task.agents
            ],
            "world": {"type": type(task.world).__qualname__} | all_settings(task.world),
            "rounds": task.rounds,
        }
        key: dict[str, Any] = json.loads(json.dumps(_plain(content | self._code)))
        return key

    def read(self, task: Slice) -> dict[str, Any] | None:
        """Return the outcome of the slice, or None if it is missing, was played by other code, or is damaged."""
        content = _read(self._path(task))
        return None if content is None or content[0] != self._header(task) else content[1]

    def read_same_key(self, task: Slice) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """Yield the seeds and the outcome of every stored slice with the key of `task`."""
        key = self.key(task)
        for path in sorted(self.folder.glob(f"*.{_hash(key)[:16]}.*{SUFFIX}")):
            content = _read(path)
            if content is not None and content[0]["key"] == key:
                yield content[0]["seeds"], content[1]

    def write(self, task: Slice, outcome: Mapping[str, Any]) -> None:
        """Store a finished slice atomically."""
        make_folder(self.folder)
        saving.write(self._path(task), self._header(task), outcome, kind=FORM)

    def others(self, tasks: Iterable[Slice]) -> set[Path]:
        """Return the files of all stored slices that are not among `tasks`."""
        return set(self.folder.glob(f"*{SUFFIX}")) - {self._path(task) for task in tasks}

    def discard(self, keeping: Iterable[Slice] = ()) -> None:
        """Delete all stored slices except those in `keeping`."""
        interrupted_writes = self.folder.glob(f".*{SUFFIX}.*")
        for path in [*self.others(keeping), *interrupted_writes]:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def check_resumable(self, plan: Experiment) -> None:
        """Raise if the run folder contains files but no slice of this experiment."""
        run_folder = self.folder.parent
        if not run_folder.exists() or not any(run_folder.iterdir()):
            return
        stored = [content[0]["key"] for path in sorted(self.others([])) if (content := _read(path)) is not None]
        expected = "the folder of an interrupted run of this experiment"
        if not stored:
            raise invalid("resume", expected, f"no slice of this experiment in '{run_folder}'")
        ours = [self.key(plan.slice_of(world)) for world in plan.worlds]
        raise invalid("resume", expected, f"another experiment ({_difference(stored, ours)}) in '{run_folder}'")

    def _header(self, task: Slice) -> dict[str, Any]:
        return {"key": self.key(task), "seeds": list(task.seeds)}

    def _path(self, task: Slice) -> Path:
        agents = task.agents[0].label if len(task.agents) == 1 else f"{len(task.agents)}-agents"
        parts = (task.world.name, agents, f"{task.seeds[0]}-{task.seeds[-1]}")
        readable = ".".join(re.sub(r"[^A-Za-z0-9.=-]+", "-", part)[:40] for part in parts)
        hashes = f"{_hash(self.key(task))[:16]}.{_hash(list(task.seeds))[:8]}"
        return self.folder / f"{readable}.{hashes}{SUFFIX}"


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the header and the outcome in a file, or None if the file is damaged."""
    with contextlib.suppress(SaveFileError):
        header, outcome = saving.read(path, kind=FORM)
        if isinstance(header, dict) and isinstance(outcome, dict) and {"key", "seeds"} <= header.keys():
            return header, outcome
    return None


def _plain(value: Any) -> Any:
    """Convert an option to JSON data such that different options give different data."""
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


def _difference(stored: list[dict[str, Any]], ours: list[dict[str, Any]]) -> str:
    """Return the first setting in which the stored experiment differs from this experiment."""
    first, mine = stored[0], ours[0]
    if first["rounds"] != mine["rounds"]:
        return f"with {first['rounds']} rounds"
    if first["agents"] != mine["agents"]:
        names = [", ".join(agent["name"] for agent in one["agents"]) for one in (first, mine)]
        return f"with {names[0]}" if names[0] != names[1] else "with other options of the agents"
    if not any(one["world"] == other["world"] for one in stored for other in ours):
        return f"in the world '{first['world'].get('name', first['world']['type'])}'"
    if first["versions"] != mine["versions"]:
        name = next(name for name, version in mine["versions"].items() if first["versions"].get(name) != version)
        return f"played with {name} {first['versions'].get(name)}"
    return "played by other code" if first["source"] != mine["source"] else "with other seeds"


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute the results."""
    installed = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("halfseen", "numpy", "scipy", "numba"):
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = "not installed"
    return installed


@cache
def source_hash() -> str:
    """Hash every module that is imported to play a slice, because only these modules can change the results."""
    digest = hashlib.sha256()
    for name, path in sorted(reachable("halfseen.experiments.slice_summary").items()):
        digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def reachable(start: str) -> dict[str, Path]:
    """Return `start` and the modules of this package that it imports, directly, indirectly or inside functions."""
    modules: dict[str, Path] = {}
    to_visit = [start]
    while to_visit:
        name = to_visit.pop()
        path = _file_of(name)
        if path is not None and name not in modules:
            modules[name] = path
            to_visit += _imported_by(path)
    return modules


def _file_of(name: str) -> Path | None:
    """Return the file of a module of this package, or None.

    For the package itself the result is also None, because its `__init__.py` only re-exports names.
    """
    first, *rest = name.split(".")
    if first != _PACKAGE.name or not rest:
        return None
    module = _PACKAGE.joinpath(*rest)
    candidates = (module.with_name(f"{module.name}.py"), module / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def _imported_by(path: Path) -> Iterator[str]:
    """Yield every name that a file imports, with its parent packages. Some of the names are not modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            # Importing a module also runs the `__init__.py` of its parent packages.
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))
