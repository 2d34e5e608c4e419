"""Every agent in every world, beside one yardstick; finished parts are kept, so that a run can be gone on with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from halfseen.agents.catalogue import CATALOG
from halfseen.agents.saving import write_atomically
from halfseen.experiments.cache import SliceStore
from halfseen.experiments.cells import SEEDS as SEEDS_PER_CELL
from halfseen.experiments.cells import Cell, CellResult, cells_of, play_cell
from halfseen.experiments.engines.engine import Engine, choose_engine
from halfseen.experiments.files import check_folder, staged, write_json
from halfseen.experiments.plan import AgentSpec, Experiment, agent_spec, experiment
from halfseen.experiments.report import agent_settings, facts_from_worlds, world_settings
from halfseen.experiments.result import versions
from halfseen.experiments.schedule import Schedule
from halfseen.experiments.source import source_hash
from halfseen.experiments.standings import BASELINE, overall_ratios, standings
from halfseen.reports.commands import rerun_command
from halfseen.reports.figures import ratio_figure, render_figure
from halfseen.reports.pages import render
from halfseen.reports.tables import Table, leaderboard_markdown, matrix_table, ranked_agents, world_table
from halfseen.worlds import World

WORLDS = (
    "paper:noise=0.01",
    "paper:noise=0.1",
    "paper:noise=1",
    "orbit",
    "keyhole",
    "foggy-keyhole",
    "fog",
    "switch",
    "regimes",
    "blurred",
)
ROUNDS, SEEDS = 3_000, 50
FILES = ("leaderboard.html", "leaderboard.json", "leaderboard.md")
Agents = Sequence[str | AgentSpec] | str | None
Worlds = Sequence[str | World] | str | World | None


class Progress(NamedTuple):
    """How far a leaderboard is."""

    done: int  # cells, those of an earlier run included
    total: int
    resumed: int  # cells of an earlier run
    failed: int  # cells whose agent raised
    others: int  # cells in the folder that are of other settings or other code, and of no use
    seconds_left: float | None  # None while it cannot be told


@dataclass(frozen=True, repr=False)
class Leaderboard:
    """What was found. `summary` is all of it as plain data: what `leaderboard.json` holds."""

    plan: Experiment
    summary: dict[str, Any]

    @property
    def worlds(self) -> list[str]:
        """Names of the worlds, in order."""
        return list(self.summary["worlds"])

    @property
    def agents(self) -> list[str]:
        """Labels of the agents, the one with the lowest overall ratio first."""
        return ranked_agents(self.summary)

    def entry(self, world: str, agent: str) -> dict[str, Any]:
        """All figures of one agent in one world."""
        found: dict[str, Any] = self.summary["worlds"][world]["agents"][agent]
        return found

    def matrix(self) -> Table:
        """Agents × worlds: mean R(T) as a multiple of that of `kf-ts`."""
        return matrix_table(self.summary)

    def table(self, world: str) -> Table:
        """All figures of one world."""
        return world_table(self.summary, world)

    def markdown(self, command: str | None = None) -> str:
        """A page for the documents; `command` is what makes it again, if other than the one on record."""
        return leaderboard_markdown(self.summary, command or self.summary["command"], SEEDS_PER_CELL)

    def save(self, folder: str | Path) -> None:
        """Write `leaderboard.json`, `leaderboard.html` and `leaderboard.md`."""
        page = render(
            "leaderboard.html",
            summary=self.summary,
            batch=SEEDS_PER_CELL,
            worlds=world_settings(self.plan),
            agents=agent_settings(self.plan),
            ratio_svg=render_figure(ratio_figure(self.summary), "svg"),
        )
        with staged(folder) as stage:
            write_json(stage / "leaderboard.json", self.summary)
            write_atomically(stage / "leaderboard.html", page.encode())
            write_atomically(stage / "leaderboard.md", self.markdown().encode())

    def __repr__(self) -> str:
        return str(self.matrix())


def leaderboard(
    agents: Agents = None,
    *,
    worlds: Worlds = None,
    rounds: int = ROUNDS,
    seeds: int | Iterable[int] = SEEDS,
    jobs: int = 1,
    cluster: str | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Leaderboard:
    """Play every agent (all catalogued ones, if none are given) in every world, on common random numbers.

    `kf-ts`, which the others are measured against, always takes part. With `out`, a folder, every finished cell (an
    agent, a world, ten seeds) is kept in `out/cells`, a later call with the same settings and the same code goes on
    from there, and the tables are written at the end; `fresh` discards what was kept. An agent that raises
    spoils only its own cells: `summary["failures"]` names them, and a later call tries them again. `jobs` processes
    or the workers of a `cluster` share the work, as in `run`; `progress` is told of every cell that is done.
    """
    plan = leaderboard_plan(agents, worlds, rounds, seeds)
    cells = cells_of(plan)
    engine = choose_engine(jobs, cluster, most=len(cells))
    store = None
    if out is not None:
        check_folder(out)
        store = SliceStore(Path(out) / "cells")
    began = time.perf_counter()
    with engine:
        if fresh and store is not None:
            store.discard()
        results, resumed = _play_cells(cells, engine, store, progress or (lambda _: None))
    board = Leaderboard(
        plan,
        {
            "command": _command(agents, worlds, plan),
            "rounds": plan.rounds,
            "seeds": list(plan.seeds),
            "jobs": engine.workers,
            "baseline": BASELINE,
            "wall_seconds": time.perf_counter() - began,
            "cells": {"total": len(cells), "resumed": resumed},
            "versions": versions(),
            "source": source_hash(),
            **_found(plan, cells, results),
        },
    )
    if out is not None:
        board.save(out)
    return board


def leaderboard_plan(agents: Agents, worlds: Worlds, rounds: int, seeds: int | Iterable[int]) -> Experiment:
    """Check and assemble; nothing given is everything there is, and the yardstick is always there."""
    given = list(CATALOG) if agents is None else [agents] if isinstance(agents, str) else list(agents)
    if given and BASELINE not in [agent_spec(agent).label for agent in given]:
        given = [BASELINE, *given]
    return experiment(given, list(WORLDS) if worlds is None else worlds, rounds, seeds)


def _play_cells(
    cells: Sequence[Cell], engine: Engine, store: SliceStore | None, progress: Callable[[Progress], None]
) -> tuple[list[CellResult], int]:
    """What every cell came to, in the order given, and how many of them were done before."""
    results = [None if store is None else _kept(store, cell) for cell in cells]
    todo = [cell for cell, result in zip(cells, results, strict=True) if result is None]
    resumed, others = len(cells) - len(todo), 0 if store is None else len(store.others(cell.slice for cell in cells))
    schedule = Schedule(todo)
    for cell, result in zip(cells, results, strict=True):
        if result is not None:
            schedule.finished(cell, result.wall_seconds)
    at = {id(cell): number for number, cell in enumerate(cells)}
    done = resumed
    workers = max(1, min(engine.workers, len(todo)))
    taken: list[Cell] = []

    def tell() -> None:
        left = schedule.seconds_left()
        failed = sum(result is not None and result.error is not None for result in results)
        progress(Progress(done, len(cells), resumed, failed, others, None if left is None else left / workers))

    def take() -> Iterator[Cell]:
        for cell in schedule:
            taken.append(cell)
            yield cell

    def heard(number: int, result: CellResult) -> None:
        nonlocal done
        cell = taken[number]
        if store is not None and result.error is None:
            store.write(cell.slice, asdict(result))
        results[at[id(cell)]] = result
        schedule.finished(cell, result.wall_seconds)
        done += 1
        tell()

    tell()
    if todo:
        engine.prepare([cell.slice for cell in {cell.agent.label: cell for cell in todo}.values()])
        engine.work_through(play_cell, take(), lambda _: None, heard)
    return [result for result in results if result is not None], resumed


def _kept(store: SliceStore, cell: Cell) -> CellResult | None:
    found = store.read(cell.slice)
    try:
        return None if found is None else CellResult(**found)
    except TypeError:  # a slice of another kind of run
        return None


def _found(plan: Experiment, cells: Sequence[Cell], results: Sequence[CellResult]) -> dict[str, Any]:
    by_place: dict[tuple[str, str], list[CellResult]] = {}
    failures = []
    for cell, result in zip(cells, results, strict=True):
        by_place.setdefault(cell.place, []).append(result)
        if result.error is not None:
            world, agent = cell.place
            seeds = f"{cell.seeds[0]} to {cell.seeds[-1]}"
            failures.append({"world": world, "agent": agent, "seeds": seeds, "error": result.error})
    worlds = standings(plan, by_place)
    return {
        "failures": failures,
        "agents": {spec.label: _about(plan, spec, worlds) for spec in plan.agents},
        "worlds": worlds,
    }


def _about(plan: Experiment, spec: AgentSpec, worlds: dict[str, Any]) -> dict[str, Any]:
    entry = CATALOG[spec.name]
    return {
        "name": spec.name,
        "options": dict(spec.options),
        "context": entry.summary,
        "source": entry.source,
        "told": [*(["the true context"] if entry.reveals_context else []), *facts_from_worlds(plan, spec)],
        "overall_ratio": overall_ratios(worlds, spec.label),
    }


def _command(agents: Agents, worlds: Worlds, plan: Experiment) -> str | None:
    """What to type to get these numbers again; None where things took part that have no name."""
    options = {}
    for option, given in (("--agents", agents), ("--worlds", worlds)):
        names = [given] if given is None or isinstance(given, str | World) else list(given)
        if not all(name is None or isinstance(name, str) for name in names):
            return None
        options[option] = None if given is None else ",".join(map(str, names))
    return rerun_command(["leaderboard"], rounds=plan.rounds, seeds=plan.seeds, options=options)
