"""Play every agent in every world and compare them with one baseline, `kf-ts`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfseen.agents.catalogue import CATALOG, AgentLike, AgentSpec, agent_spec
from halfseen.experiments.cache import SliceStore, source_hash, versions
from halfseen.experiments.engines import choose_executor
from halfseen.experiments.leaderboard_summary import BASELINE, overall_ratio, summarise_worlds
from halfseen.experiments.plan import Experiment, Slice, as_list, experiment
from halfseen.experiments.report import agent_settings, facts_from_worlds, world_settings
from halfseen.experiments.slice_schedule import Progress, play_slices
from halfseen.experiments.slice_summary import SEEDS_PER_SLICE, SliceSummary, one_agent_slices, world_and_agent
from halfseen.reports.commands import rerun_command
from halfseen.reports.figures import ratio_figure, render_figure
from halfseen.reports.files import check_folder, staged, write_atomically, write_json
from halfseen.reports.frames import data_frame, number_or_nan
from halfseen.reports.pages import render
from halfseen.reports.tables import (
    Table,
    agent_entries,
    html_block,
    leaderboard_markdown,
    matrix_note,
    matrix_table,
    ranked_agents,
    world_table,
)
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
    "clicks",
    "counts",
)
ROUNDS, SEEDS = 3_000, 50
FILES = ("leaderboard.html", "leaderboard.json", "leaderboard.md")
Agents = Sequence[AgentLike] | AgentLike | None
Worlds = Sequence[str | World] | str | World | None


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

    def to_frame(self, library: str | None = None) -> Any:
        """Return the results as a DataFrame with one row per world and agent.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            The library of the DataFrame. By default, the first of them that is installed.

        Returns
        -------
        DataFrame
            The columns are `world`, `agent`, `regret_mean`, `regret_standard_error`, `regret_median`, the `ratio` to
            the baseline with `ratio_low` and `ratio_high`, `p` (with Holm's correction) and `microseconds_per_round`.
            Numbers that do not exist are NaN, such as those of agents that failed.

        Raises
        ------
        HalfseenError
            If the library is not installed.
        """
        rows = agent_entries(self.summary)
        columns: dict[str, list[Any]] = {"world": [row[0] for row in rows], "agent": [row[1] for row in rows]}
        names = {"p": "p_holm"} | {
            name: name for name in ("regret_mean", "regret_standard_error", "regret_median", "microseconds_per_round")
        }
        for column, field in names.items():
            columns[column] = [number_or_nan(entry[field]) for _, _, entry in rows]
        for column, end in (("ratio", "value"), ("ratio_low", "low"), ("ratio_high", "high")):
            columns[column] = [number_or_nan((entry["ratio"] or {}).get(end)) for _, _, entry in rows]
        return data_frame(columns, library)

    def _repr_html_(self) -> str:
        return html_block(matrix_note(self.summary), self.matrix())

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
    agents : sequence of str, AgentSpec, class, callable or tuple, optional
        The agents, as in `run`. By default, all agents of the catalogue. `kf-ts` is always added.
    worlds : str, World, or sequence of them, optional
        The worlds, as in `run`. By default, ten simulated worlds. One of them, `paper`, is played at three
        noise levels.
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
        results, resumed = play_slices(slices, executor, store, progress or (lambda _: None))
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
    given = list(CATALOG) if agents is None else as_list(agents)
    if given and BASELINE not in [agent_spec(agent).label for agent in given]:
        given = [BASELINE, *given]
    return experiment(given, list(WORLDS) if worlds is None else worlds, rounds, seeds)


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
    entry = spec.entry
    return {
        "name": spec.name,
        "options": dict(spec.options),
        "context": entry.summary,
        "source": entry.source,
        "told": [*(["the true context"] if entry.reveals_context else []), *facts_from_worlds(plan, spec)],
        "overall_ratio": overall_ratio(worlds, spec.label),
    }


def _command(agents: Agents, worlds: Worlds, plan: Experiment) -> str | None:
    """Return the command that reproduces the leaderboard, or None if an agent or a world is not part of the package."""
    if any(spec.is_own for spec in plan.agents) or any(world.is_own for world in plan.worlds):
        return None
    options = {}
    for option, given in (("--agents", agents), ("--worlds", worlds)):
        names = as_list(given)
        if not all(name is None or isinstance(name, str) for name in names):
            return None
        options[option] = None if given is None else ",".join(map(str, names))
    return rerun_command(["leaderboard"], rounds=plan.rounds, seeds=plan.seeds, options=options)
