"""Play every agent in every world and compare them with one baseline, `kf-ts`."""

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
    """The progress of a leaderboard, counted in slices."""

    done: int  # including the slices of an earlier run
    total: int
    resumed: int  # slices of an earlier run
    failed: int  # slices whose agent raised an exception
    others: int  # unusable slices in the folder, which come from other settings or other code
    seconds_left: float | None  # None while there is no estimate


@dataclass(frozen=True, repr=False)
class Leaderboard:
    """The result of `hs.leaderboard`.

    Attributes
    ----------
    plan : Experiment
        The agents, worlds, seeds and number of rounds.
    summary : dict
        All results as plain data, as in `leaderboard.json`.

    Examples
    --------
    >>> import halfseen as hs
    >>> board = hs.leaderboard("random", worlds="orbit", rounds=50, seeds=2)
    >>> board.agents
    ['kf-ts', 'random']
    >>> board.entry("orbit", "kf-ts")["ratio"]["value"]
    1.0
    """

    plan: Experiment
    summary: dict[str, Any]

    @property
    def worlds(self) -> list[str]:
        """The names of the worlds."""
        return list(self.summary["worlds"])

    @property
    def agents(self) -> list[str]:
        """The labels of the agents, in ascending order of their overall ratio."""
        return ranked_agents(self.summary)

    def entry(self, world: str, agent: str) -> dict[str, Any]:
        """Return all results of one agent in one world.

        Parameters
        ----------
        world : str
            Name of the world.
        agent : str
            Label of the agent.

        Returns
        -------
        dict
        """
        entry: dict[str, Any] = self.summary["worlds"][world]["agents"][agent]
        return entry

    def matrix(self) -> Table:
        """Return the mean R(T) divided by the mean R(T) of `kf-ts`, with one row per agent and one column per world."""
        return matrix_table(self.summary)

    def table(self, world: str) -> Table:
        """Return the results of all agents in one world.

        Parameters
        ----------
        world : str
            Name of the world.

        Returns
        -------
        Table
            One row per agent.
        """
        return world_table(self.summary, world)

    def markdown(self, command: str | None = None) -> str:
        """Return the leaderboard as a Markdown page.

        Parameters
        ----------
        command : str, optional
            The command that reproduces the page, if it differs from `summary["command"]`.

        Returns
        -------
        str
        """
        return leaderboard_markdown(self.summary, command or self.summary["command"], SEEDS_PER_SLICE)

    def save(self, folder: str | Path) -> None:
        """Write `leaderboard.json`, `leaderboard.html` and `leaderboard.md`.

        Parameters
        ----------
        folder : str or Path
            Folder for the files. It is created if it does not exist.
        """
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
    """Play every agent in every world with common random numbers, and compare the agents with `kf-ts`.

    Parameters
    ----------
    agents : sequence of str or AgentSpec, optional
        The agents, as in `run`. By default, all agents of the catalogue. `kf-ts` is always added.
    worlds : str, World, or sequence of them, optional
        The worlds, as in `run`. By default, ten simulated worlds.
    rounds : int, default 3000
        Number of rounds.
    seeds : int or iterable of int, default 50
        Number of replications, or their seeds.
    jobs : int, default 1
        Number of processes that share the work.
    cluster : str, optional
        A Dask cluster that shares the work, as in `run`.
    out : str or Path, optional
        Folder for the tables. Every finished slice (one agent in one world on ten seeds) is saved in `out/cells`, and
        a later call with the same settings and the same code continues from these slices.
    fresh : bool, default False
        Discard the slices in `out/cells` and start again.
    progress : callable, optional
        Called after every slice, with the number of finished slices and an estimate of the remaining time.

    Returns
    -------
    Leaderboard
        If an agent raises an exception, only its own slices are missing. They are listed in `summary["failures"]`, and
        a later call plays them again.

    Raises
    ------
    HalfseenError
        If an argument is invalid, or if worker processes fail.

    Examples
    --------
    >>> import halfseen as hs
    >>> board = hs.leaderboard(["ts-pco", "random"], worlds="orbit", rounds=50, seeds=2)
    >>> board.summary["baseline"]
    'kf-ts'
    >>> len(board.table("orbit").rows)
    3
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
    """Check the arguments of `leaderboard`, add the baseline, and return them as an `Experiment`."""
    given = list(CATALOG) if agents is None else [agents] if isinstance(agents, str) else list(agents)
    if given and BASELINE not in [agent_spec(agent).label for agent in given]:
        given = [BASELINE, *given]
    return experiment(given, list(WORLDS) if worlds is None else worlds, rounds, seeds)


class Schedule:
    """The slices to play. The slowest slice comes first, so that no worker plays it alone at the end.

    The duration of a slice is estimated from finished slices of the same agent in the same world, or else from finished
    slices of the same agent in other worlds. For each agent without a finished slice, one of its slices
    comes before all these.
    """

    def __init__(self, slices: Iterable[Slice]) -> None:
        self._unstarted = list(slices)
        self._running: dict[int, Slice] = {}  # by `id`, because slices with arrays as options cannot be compared
        self._started_agents: set[str] = set()
        self._spent: dict[str | tuple[str, str], tuple[float, int]] = {}  # seconds and stream-rounds

    def __iter__(self) -> Iterator[Slice]:
        """Yield the slices. The next slice is chosen only when it is requested."""
        while self._unstarted:
            task = self._unstarted.pop(
                max(range(len(self._unstarted)), key=lambda index: self._priority(self._unstarted[index]))
            )
            self._running[id(task)] = task
            self._started_agents.add(task.agents[0].label)
            yield task

    def finished(self, task: Slice, seconds: float) -> None:
        """Record the duration of a finished slice of this run or of an earlier run."""
        self._running.pop(id(task), None)
        self._started_agents.add(task.agents[0].label)
        for key in (world_and_agent(task), task.agents[0].label):
            spent, size = self._spent.get(key, (0.0, 0))
            self._spent[key] = spent + seconds, size + task.size

    def seconds_left(self) -> float | None:
        """Return the remaining time, summed over workers, or None while some agent has no finished slice."""
        expected = [self._expected_seconds(task) for task in [*self._unstarted, *self._running.values()]]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) if len(known) == len(expected) else None

    def _priority(self, task: Slice) -> float:
        is_first = task.agents[0].label not in self._started_agents
        return float("inf") if is_first else self._expected_seconds(task) or 0.0

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
    """Return the summary of every slice in the given order, and the number of summaries read from the store."""
    results: dict[int, SliceSummary] = {}  # by `id` of the slice
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
    except TypeError:  # a slice that was saved by `run`
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
    """Return the command that reproduces the leaderboard, or None if an agent or a world was given as an object."""
    options = {}
    for option, given in (("--agents", agents), ("--worlds", worlds)):
        names = [given] if given is None or isinstance(given, str | World) else list(given)
        if not all(name is None or isinstance(name, str) for name in names):
            return None
        options[option] = None if given is None else ",".join(map(str, names))
    return rerun_command(["leaderboard"], rounds=plan.rounds, seeds=plan.seeds, options=options)
