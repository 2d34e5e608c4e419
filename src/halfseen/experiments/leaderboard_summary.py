"""The results of a leaderboard: comparisons of every agent with the baseline, from the summaries of slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from halfseen.experiments.plan import Experiment
from halfseen.experiments.play import mean_without_first_chunk, microseconds_per_round
from halfseen.experiments.slice_summary import CURVE_POINTS, SliceSummary, change_windows
from halfseen.kernels.random import Floats
from halfseen.statistics.confidence_intervals import holm, paired_p_value, ratio_of_means, standard_error
from halfseen.statistics.growth import log_grid
from halfseen.worlds.world import World

BASELINE = "kf-ts"
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


class _AgentFigures(NamedTuple):
    """The results of one agent on all seeds of one world."""

    regret: Floats  # R(T) (S,)
    curve: Floats  # R(t) (S, CURVE_POINTS)
    before: Floats  # mean regret per round before the world's change (S,), empty if the world does not change
    after: Floats  # mean regret per round well after the world's change (S,), empty if the world does not change
    microseconds: float  # per round of one stream
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
    """Return the round of the world's change, and the rounds, counted from 1, that are averaged before and after it."""
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
