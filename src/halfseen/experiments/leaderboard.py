"""Every agent in every world, compared with one baseline. Finished slices are saved, so that a run can continue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from halfseen.agents.catalogue import CATALOG, AgentSpec, agent_spec
from halfseen.experiments.cache import SliceStore, source_hash, versions
from halfseen.experiments.engines import choose_executor
from halfseen.experiments.engines.executor import ParallelExecutor
from halfseen.experiments.engines.local import SerialExecutor
from halfseen.experiments.leaderboard_summary import (
    BASELINE,
    SEEDS_PER_SLICE,
    SliceSummary,
    one_agent_slices,
    overall_ratio,
    play_and_summarise,
    summarise_worlds,
    world_and_agent,
)
from halfseen.experiments.plan import Experiment, Slice, experiment
from halfseen.experiments.report import agent_settings, facts_from_worlds, world_settings
from halfseen.reports.commands import rerun_command
from halfseen.reports.figures import ratio_figure, render_figure
from halfseen.reports.files import check_folder, staged, write_atomically, write_json
from halfseen.reports.pages import render
from halfseen.reports.tables import Table, leaderboard_markdown, matrix_table, ranked_agents, world_table
from halfseen.worlds.world import World

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

    done: int  # slices, those of an earlier run included
    total: int
    resumed: int  # slices of an earlier run
    failed: int  # slices whose agent raised
    others: int  # slices in the folder that are of other settings or other code, and of no use
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
        return leaderboard_markdown(self.summary, command or self.summary["command"], SEEDS_PER_SLICE)

    def save(self, folder: str | Path) -> None:
        """Write `leaderboard.json`, `leaderboard.html` and `leaderboard.md`."""
        page = render(
            "leaderboard.html",
            summary=self.summary,
            batch=SEEDS_PER_SLICE,
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

    `kf-ts`, which the others are measured against, always takes part. With `out`, a folder, every finished slice
    (one agent in one world on ten seeds) is saved in `out/cells`, a later call with the same settings and the same code
    continues from there, and the tables are written at the end; `fresh` discards what was saved. An agent that raises
    spoils only its own slices: `summary["failures"]` names them, and a later call tries them again. `jobs` processes
    or the workers of a `cluster` share the work, as in `run`; `progress` is called after every slice.
    """
    plan = leaderboard_plan(agents, worlds, rounds, seeds)
    slices = one_agent_slices(plan)
    executor = choose_executor(jobs, cluster, most=len(slices))
    store = None
    if out is not None:
        check_folder(out)
        store = SliceStore(Path(out) / "cells")
    began = time.perf_counter()
    with executor:
        if fresh and store is not None:
            store.discard()
        results, resumed = _play_slices(slices, executor, store, progress or (lambda _: None))
    board = Leaderboard(
        plan,
        {
            "command": _command(agents, worlds, plan),
            "rounds": plan.rounds,
            "seeds": list(plan.seeds),
            "jobs": executor.workers,
            "baseline": BASELINE,
            "wall_seconds": time.perf_counter() - began,
            "cells": {"total": len(slices), "resumed": resumed},
            "versions": dict(versions()),
            "source": source_hash(),
            **_summarise(plan, slices, results),
        },
    )
    if out is not None:
        board.save(out)
    return board


def leaderboard_plan(agents: Agents, worlds: Worlds, rounds: int, seeds: int | Iterable[int]) -> Experiment:
    """Check and assemble. None stands for everything there is; the baseline always takes part."""
    given = list(CATALOG) if agents is None else [agents] if isinstance(agents, str) else list(agents)
    if given and BASELINE not in [agent_spec(agent).label for agent in given]:
        given = [BASELINE, *given]
    return experiment(given, list(WORLDS) if worlds is None else worlds, rounds, seeds)


class Schedule:
    """The slices yet to be played, the slowest first, so that no worker is left alone with them at the end.

    How long a slice takes is estimated from those that are done: of the same agent in the same world, else of the same
    agent. An agent of which nothing is known goes before all others, once.
    """

    def __init__(self, slices: Iterable[Slice]) -> None:
        self._waiting = list(slices)
        self._running: dict[int, Slice] = {}  # by identity: options may be arrays, which have no plain equality
        self._started: set[str] = set()
        self._spent: dict[str | tuple[str, str], tuple[float, int]] = {}  # seconds and stream-rounds

    def __iter__(self) -> Iterator[Slice]:
        """Yield the slices; which is next is decided when it is asked for."""
        while self._waiting:
            at = max(range(len(self._waiting)), key=lambda at: self._urgency(self._waiting[at]))  # the first of equals
            task = self._waiting.pop(at)
            self._running[id(task)] = task
            self._started.add(task.agents[0].label)
            yield task

    def finished(self, task: Slice, seconds: float) -> None:
        """Learn from a slice that is done, in this run or an earlier one."""
        self._running.pop(id(task), None)
        self._started.add(task.agents[0].label)
        for key in (world_and_agent(task), task.agents[0].label):
            spent, size = self._spent.get(key, (0.0, 0))
            self._spent[key] = spent + seconds, size + task.size

    def seconds_left(self) -> float | None:
        """Return the time of the work left, summed over workers; None while an agent is unknown."""
        expected = [self._expected_seconds(task) for task in [*self._waiting, *self._running.values()]]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) if len(known) == len(expected) else None

    def _urgency(self, task: Slice) -> float:
        unknown = task.agents[0].label not in self._started
        return float("inf") if unknown else self._expected_seconds(task) or 0.0

    def _expected_seconds(self, task: Slice) -> float | None:
        for key in (world_and_agent(task), task.agents[0].label):
            if key in self._spent:
                seconds, size = self._spent[key]
                return seconds * task.size / size
        return None


def _play_slices(
    slices: Sequence[Slice],
    executor: SerialExecutor | ParallelExecutor,
    store: SliceStore | None,
    progress: Callable[[Progress], None],
) -> tuple[list[SliceSummary], int]:
    """Return the summary of every slice, in the order given, and how many of them were there before."""
    results: dict[int, SliceSummary] = {}  # by identity of the slice
    if store is not None:
        results = {id(task): saved for task in slices if (saved := _read_summary(store, task)) is not None}
    todo = [task for task in slices if id(task) not in results]
    resumed, others = len(results), 0 if store is None else len(store.others(slices))
    schedule = Schedule(todo)
    for task in slices:
        if id(task) in results:
            schedule.finished(task, results[id(task)].wall_seconds)
    workers = max(1, min(executor.workers, len(todo)))

    def report() -> None:
        left = schedule.seconds_left()
        failed = sum(result.error is not None for result in results.values())
        left_per_worker = None if left is None else left / workers
        progress(Progress(len(results), len(slices), resumed, failed, others, left_per_worker))

    report()
    if todo:
        executor.prepare(list({task.agents[0].label: task for task in todo}.values()))
        for task, result in executor.run(play_and_summarise, schedule, lambda _: None):
            if store is not None and result.error is None:
                store.write(task, asdict(result))
            results[id(task)] = result
            schedule.finished(task, result.wall_seconds)
            report()
    return [results[id(task)] for task in slices], resumed


def _read_summary(store: SliceStore, task: Slice) -> SliceSummary | None:
    outcome = store.read(task)
    try:
        return None if outcome is None else SliceSummary(**outcome)
    except TypeError:  # a slice of another kind of run
        return None


def _summarise(plan: Experiment, slices: Sequence[Slice], results: Sequence[SliceSummary]) -> dict[str, Any]:
    by_world_and_agent: dict[tuple[str, str], list[SliceSummary]] = {}
    failures = []
    for task, result in zip(slices, results, strict=True):
        world, agent = world_and_agent(task)
        by_world_and_agent.setdefault((world, agent), []).append(result)
        if result.error is not None:
            seeds = f"{task.seeds[0]} to {task.seeds[-1]}"
            failures.append({"world": world, "agent": agent, "seeds": seeds, "error": result.error})
    worlds = summarise_worlds(plan, by_world_and_agent)
    return {
        "failures": failures,
        "agents": {spec.label: _describe_agent(plan, spec, worlds) for spec in plan.agents},
        "worlds": worlds,
    }


def _describe_agent(plan: Experiment, spec: AgentSpec, worlds: dict[str, Any]) -> dict[str, Any]:
    entry = CATALOG[spec.name]
    return {
        "name": spec.name,
        "options": dict(spec.options),
        "context": entry.summary,
        "source": entry.source,
        "told": [*(["the true context"] if entry.reveals_context else []), *facts_from_worlds(plan, spec)],
        "overall_ratio": overall_ratio(worlds, spec.label),
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
