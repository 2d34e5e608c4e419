"""The results of a leaderboard: summaries of slices, and comparisons of every agent with the baseline."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from halfseen.experiments.plan import Experiment, Slice
from halfseen.experiments.play import Cancelled, OnProgress, mean_without_first_chunk, microseconds_per_round, play
from halfseen.kernels.random import Floats
from halfseen.statistics.confidence_intervals import holm, paired_p_value, ratio_of_means, standard_error
from halfseen.statistics.growth import log_grid
from halfseen.worlds.world import World

BASELINE = "kf-ts"
SEEDS_PER_SLICE = 10  # enough for an efficient batch, few enough that an interruption loses little
WINDOW = 300  # rounds of the averages just before a change and at the end of ROUNDS_AFTER_CHANGE
ROUNDS_AFTER_CHANGE = 1500  # rounds examined after a change
CURVE_POINTS = 60
FIELDS = (
    "error",
    "regret_mean",
    "regret_standard_error",
    "regret_median",
    "regret_by_seed",
    "ratio",
    "median_ratio",
    "p_value",
    "p_holm",
    "worst_seed",
    "change",
    "curve",
    "microseconds_per_round",
    "wall_seconds",
)


@dataclass(frozen=True)
class SliceSummary:
    """The results of one slice. A slice that failed has only `wall_seconds` and `error`."""

    wall_seconds: float
    error: str | None = None
    regret_by_seed: list[float] = field(default_factory=list)  # R(T)
    curve_by_seed: list[list[float]] = field(default_factory=list)  # R(t) at `log_grid(rounds, CURVE_POINTS)`
    before_by_seed: list[float] | None = None  # mean regret per round before the world's change
    after_by_seed: list[float] | None = None  # mean regret per round well after the world's change
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

    Returns None if the world does not change in these rounds.
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
        seconds=played.seconds.tolist(),
    )


def _in_one_line(error: Exception) -> str:
    """Return the exception and its position in the code, short enough for a table."""
    text = " ".join(str(error).split())
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text[:150].rstrip()} ({Path(last.filename).name}:{last.lineno})"


class _AgentFigures(NamedTuple):
    """The results of one agent on all seeds of one world."""

    regret: Floats  # R(T) (S,)
    curve: Floats  # R(t) (S, CURVE_POINTS)
    before: Floats  # mean regret per round before the world's change (S,), empty if the world does not change
    after: Floats  # mean regret per round well after the world's change (S,), or empty
    microseconds: float
    wall_seconds: float


def summarise_worlds(plan: Experiment, results: Mapping[tuple[str, str], Sequence[SliceSummary]]) -> dict[str, Any]:
    """Return for every world its settings, its change, and the `FIELDS` of every agent.

    `results` contains the slices of every (world, agent) in the order of the seeds. If one of the slices failed, the
    agent has an error instead of results, because a mean over fewer seeds could not be compared with other agents.
    """
    return {
        world.name: {
            "settings": world.settings(),
            "change": _describe_change(world, plan.rounds),
            "agents": _summarise_agents(plan, {a.label: results[world.name, a.label] for a in plan.agents}),
        }
        for world in plan.worlds
    }


def overall_ratio(worlds: Mapping[str, Any], agent: str) -> float | None:
    """Return the geometric mean over worlds of an agent's ratio to the baseline, or None if a ratio is missing."""
    ratios = [world["agents"][agent]["ratio"] for world in worlds.values()]
    if any(ratio is None for ratio in ratios):
        return None
    return float(np.exp(np.mean(np.log([ratio["value"] for ratio in ratios]))))


def _describe_change(world: World, rounds: int) -> dict[str, Any] | None:
    """Return the round of the world's change and the rounds, counted from 1, averaged before and after it."""
    windows = change_windows(world, rounds)
    if windows is None:
        return None
    before, after = ([window.start + 1, window.stop] for window in windows)
    return {"after_round": world.changes_after, "rounds_before": before, "rounds_after": after}


def _summarise_agents(plan: Experiment, results: Mapping[str, Sequence[SliceSummary]]) -> dict[str, dict[str, Any]]:
    figures = {agent: _join(plan, slices) for agent, slices in results.items() if not any(one.error for one in slices)}
    baseline = figures.get(BASELINE)
    rivals = [agent for agent in figures if agent != BASELINE and baseline is not None]
    p_values = [paired_p_value(figures[agent].regret, figures[BASELINE].regret) for agent in rivals]
    tests = dict(zip(rivals, zip(p_values, holm(p_values), strict=True), strict=True))
    entries: dict[str, dict[str, Any]] = {}
    for agent, slices in results.items():
        entries[agent] = dict.fromkeys(FIELDS)
        if agent in figures:
            p_value, p_holm = tests.get(agent, (None, None))
            entries[agent] |= _own_figures(plan, figures[agent]) | {"p_value": p_value, "p_holm": p_holm}
            entries[agent] |= {} if baseline is None else _compare(plan, figures[agent], baseline)
        else:
            error = next(one.error for one in slices if one.error)
            entries[agent] |= {"error": error, "wall_seconds": sum(one.wall_seconds for one in slices)}
    return entries


def _join(plan: Experiment, slices: Sequence[SliceSummary]) -> _AgentFigures:
    seconds = np.sum([one.seconds for one in slices], axis=0)
    return _AgentFigures(
        regret=np.concatenate([one.regret_by_seed for one in slices]),
        curve=np.concatenate([one.curve_by_seed for one in slices]),
        before=np.concatenate([one.before_by_seed or [] for one in slices]),
        after=np.concatenate([one.after_by_seed or [] for one in slices]),
        microseconds=mean_without_first_chunk(microseconds_per_round(seconds, len(plan.seeds), plan.rounds)),
        wall_seconds=sum(one.wall_seconds for one in slices),
    )


def _own_figures(plan: Experiment, figures: _AgentFigures) -> dict[str, Any]:
    """Return those results of an agent that do not depend on other agents."""
    change = None
    if len(figures.before):
        ratio = ratio_of_means(figures.after, figures.before).as_dict()
        change = {"before": float(figures.before.mean()), "after": float(figures.after.mean()), "ratio": ratio}
    return {
        "regret_mean": float(figures.regret.mean()),
        "regret_standard_error": standard_error(figures.regret),
        "regret_median": float(np.median(figures.regret)),
        "regret_by_seed": figures.regret.tolist(),
        "change": change,
        "curve": {
            "rounds": log_grid(plan.rounds, CURVE_POINTS).tolist(),
            "mean": figures.curve.mean(axis=0).tolist(),
            "standard_error": [standard_error(column) for column in figures.curve.T],
        },
        "microseconds_per_round": figures.microseconds,
        "wall_seconds": figures.wall_seconds,
    }


def _compare(plan: Experiment, figures: _AgentFigures, baseline: _AgentFigures) -> dict[str, Any]:
    """Compare an agent with the baseline on the same seeds."""
    if baseline.regret.min() <= 0:  # a ratio to zero regret would be meaningless
        return {}
    by_seed = figures.regret / baseline.regret
    worst = int(by_seed.argmax())
    return {
        "ratio": ratio_of_means(figures.regret, baseline.regret).as_dict(),
        "median_ratio": float(np.median(figures.regret) / np.median(baseline.regret)),
        "worst_seed": {"seed": plan.seeds[worst], "ratio": float(by_seed[worst])},
    }
