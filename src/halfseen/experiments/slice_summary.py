"""Plays a slice with one agent, and reduces its rounds to a summary that is small enough to keep for every seed."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from halfseen.experiments.plan import Experiment, Slice
from halfseen.experiments.play import Cancelled, OnProgress, play
from halfseen.statistics.growth import block_means, log_grid
from halfseen.worlds.world import World

SEEDS_PER_SLICE = 10  # enough for an efficient batch, few enough that an interruption loses little
# Number of rounds in each of two averages: just before a change, and at the end of the ROUNDS_AFTER_CHANGE rounds that
# follow it.
WINDOW = 300
ROUNDS_AFTER_CHANGE = 1500  # rounds examined after a change
CURVE_POINTS = 60


@dataclass(frozen=True)
class SliceSummary:
    """The results of one slice. A slice that failed has only `wall_seconds` and `error`."""

    wall_seconds: float
    error: str | None = None
    regret_by_seed: list[float] = field(default_factory=list)  # R(T)
    curve_by_seed: list[list[float]] = field(default_factory=list)  # R(t) at `log_grid(rounds, CURVE_POINTS)`
    before_by_seed: list[float] | None = None  # mean regret per round before the world's change
    after_by_seed: list[float] | None = None  # mean regret per round well after the world's change
    blocks_by_seed: list[list[float]] = field(default_factory=list)  # `block_means` of the regret per round
    seconds: list[float] = field(default_factory=list)  # processor time to decide and learn, per chunk of rounds


def one_agent_slices(plan: Experiment) -> list[Slice]:
    """Divide a plan into slices of one agent each. Complete slices remain valid if seeds are added later."""
    return [
        Slice(world, (agent,), plan.seeds[start : start + SEEDS_PER_SLICE], plan.rounds)
        for world in plan.worlds
        for agent in plan.agents
        for start in range(0, len(plan.seeds), SEEDS_PER_SLICE)
    ]


def world_and_agent(task: Slice) -> tuple[str, str]:
    """Return the world's name and the agent's label of a slice with one agent."""
    return task.world.name, task.agents[0].label


def change_windows(world: World, rounds: int) -> tuple[slice, slice] | None:
    """Return the rounds, counted from 0, that are averaged before and after the world's change.

    Returns None if the world does not change in the first `rounds` rounds.
    """
    change = world.changes_after
    if change is None or change >= rounds:
        return None
    end = min(rounds, change + ROUNDS_AFTER_CHANGE)
    return slice(max(0, change - WINDOW), change), slice(max(change, end - WINDOW), end)


def play_and_summarise(task: Slice, on_progress: OnProgress) -> SliceSummary:
    """Play a slice with one agent. If the agent raises an exception, the summary has an `error`."""
    began = time.perf_counter()
    try:
        (played,) = play(task, on_progress).values()
    except Cancelled:
        raise
    except Exception as error:
        return SliceSummary(time.perf_counter() - began, _in_one_line(error))
    windows = change_windows(task.world, task.rounds)
    before, after = (
        (None, None) if windows is None else (played.regret[:, window].mean(axis=1).tolist() for window in windows)
    )
    cumulative = np.cumsum(played.regret, axis=1)[:, log_grid(task.rounds, CURVE_POINTS) - 1]
    return SliceSummary(
        wall_seconds=time.perf_counter() - began,
        regret_by_seed=played.regret.sum(axis=1).tolist(),
        curve_by_seed=cumulative.tolist(),
        before_by_seed=before,
        after_by_seed=after,
        blocks_by_seed=block_means(played.regret).tolist(),
        seconds=played.seconds.tolist(),
    )


def _in_one_line(error: Exception) -> str:
    """Return the exception and its position in the code, short enough for a table."""
    text = " ".join(str(error).split())
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text[:150].rstrip()} ({Path(last.filename).name}:{last.lineno})"
