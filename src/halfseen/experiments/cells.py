"""A cell of the leaderboard: one agent on some seeds of one world. The unit of work, and of what is kept."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from halfseen.experiments.plan import AgentSpec, Experiment, Slice
from halfseen.experiments.play import Stopped, play
from halfseen.statistics.estimates import log_grid
from halfseen.worlds.world import World

SEEDS = 10  # of a cell: enough to make a batch worth while, few enough that little is lost when a run is cut short
WINDOW, AFTERMATH = 300, 1500  # rounds averaged on each side of a change; rounds after it that are looked at
POINTS = 60  # on a curve


@dataclass(frozen=True)
class Cell:
    """One agent on some seeds of one world."""

    world: World
    agent: AgentSpec
    seeds: tuple[int, ...]
    rounds: int

    @property
    def place(self) -> tuple[str, str]:
        """Names of the world and the agent."""
        return self.world.name, self.agent.label

    @property
    def size(self) -> int:
        """Stream-rounds to play."""
        return len(self.seeds) * self.rounds

    @property
    def slice(self) -> Slice:
        return Slice(self.world, (self.agent,), self.seeds, self.rounds)


@dataclass(frozen=True)
class CellResult:
    """What a summary needs of a cell, as plain data; of one that failed only the error and the time."""

    wall_seconds: float
    error: str | None = None
    regret_by_seed: list[float] = field(default_factory=list)  # R(T)
    curve_by_seed: list[list[float]] = field(default_factory=list)  # R(t) at the rounds of `log_grid(rounds, POINTS)`
    before_by_seed: list[float] | None = None  # regret per round before the world's change, and well after it
    after_by_seed: list[float] | None = None
    seconds: list[float] = field(default_factory=list)  # of processor time to decide and learn, per chunk of rounds


def cells_of(plan: Experiment) -> list[Cell]:
    """Every cell of an experiment. They do not depend on how many seeds there are, so that more may be added later."""
    return [
        Cell(world, agent, plan.seeds[at : at + SEEDS], plan.rounds)
        for world in plan.worlds
        for agent in plan.agents
        for at in range(0, len(plan.seeds), SEEDS)
    ]


def change_windows(world: World, rounds: int) -> tuple[slice, slice] | None:
    """The rounds, counted from 0, averaged before the world's change and after it; None if it does not come."""
    at = world.changes_after
    if at is None or at >= rounds:
        return None
    end = min(rounds, at + AFTERMATH)
    return slice(max(0, at - WINDOW), at), slice(max(at, end - WINDOW), end)


def play_cell(cell: Cell, tick: Callable[[int], None]) -> CellResult:
    """Play the cell. An agent that raises spoils its own cell and no other."""
    began = time.perf_counter()
    try:
        track = play(cell.slice, tick)[cell.agent.label]
    except Stopped:
        raise
    except Exception as error:
        return CellResult(time.perf_counter() - began, _in_one_line(error))
    windows = change_windows(cell.world, cell.rounds)
    before, after = (None, None) if windows is None else (track.regret[:, part].mean(axis=1) for part in windows)
    cumulative = np.cumsum(track.regret, axis=1)[:, log_grid(cell.rounds, POINTS) - 1]
    return CellResult(
        wall_seconds=time.perf_counter() - began,
        regret_by_seed=track.regret.sum(axis=1).tolist(),
        curve_by_seed=cumulative.tolist(),
        before_by_seed=None if before is None else before.tolist(),
        after_by_seed=None if after is None else after.tolist(),
        seconds=track.seconds.sum(axis=0).tolist(),
    )


def _in_one_line(error: Exception) -> str:
    """What was raised and where, in words short enough for a table."""
    text = " ".join(str(error).split())
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    return f"{type(error).__name__}: {text[:150]} ({where})"
