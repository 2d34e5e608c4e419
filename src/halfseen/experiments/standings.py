"""From finished cells to standings: every agent beside the yardstick, world by world. Plain data in, plain data out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from halfseen.experiments.cells import POINTS, CellResult, change_windows
from halfseen.experiments.plan import Experiment
from halfseen.experiments.result import microseconds_per_round, settled_mean, standard_error
from halfseen.kernels.random import Floats
from halfseen.statistics.estimates import holm, log_grid, paired_p_value, ratio_of_means
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


class Season(NamedTuple):
    """One agent on all seeds of one world."""

    regret: Floats  # R(T) (S,)
    curve: Floats  # R(t) (S, G)
    before: Floats  # regret per round around the world's change (S,), empty where there is none
    after: Floats
    micros: float
    wall_seconds: float


def standings(plan: Experiment, results: Mapping[tuple[str, str], Sequence[CellResult]]) -> dict[str, Any]:
    """By world: its settings, its change if it has one, and an entry for every agent with the `FIELDS`.

    `results` holds the cells of every (world, agent) in the order of the seeds. An agent that failed on any of them has
    an error there, and no figures: a mean over fewer seeds than the others had would be no comparison.
    """
    return {
        world.name: {
            "settings": world.settings(),
            "change": _change(world, plan.rounds),
            "agents": _world_standings(plan, {a.label: results[world.name, a.label] for a in plan.agents}),
        }
        for world in plan.worlds
    }


def overall_ratios(worlds: Mapping[str, Any], agent: str) -> float | None:
    """The geometric mean over worlds of an agent's ratio to the yardstick; None where one is missing."""
    ratios = [world["agents"][agent]["ratio"] for world in worlds.values()]
    if any(ratio is None for ratio in ratios):
        return None
    return float(np.exp(np.mean(np.log([ratio["value"] for ratio in ratios]))))


def _change(world: World, rounds: int) -> dict[str, Any] | None:
    """When the world changes, and which rounds, counted from 1, are averaged on each side."""
    windows = change_windows(world, rounds)
    if windows is None:
        return None
    before, after = ([part.start + 1, part.stop] for part in windows)
    return {"after_round": world.changes_after, "rounds_before": before, "rounds_after": after}


def _world_standings(plan: Experiment, cells: Mapping[str, Sequence[CellResult]]) -> dict[str, dict[str, Any]]:
    entries = {agent: _failed(own) for agent, own in cells.items() if any(cell.error for cell in own)}
    seasons = {agent: _season(plan, own) for agent, own in cells.items() if agent not in entries}
    baseline = seasons.get(BASELINE)
    rivals = [agent for agent in seasons if agent != BASELINE and baseline is not None]
    p_values = [paired_p_value(seasons[agent].regret, seasons[BASELINE].regret) for agent in rivals]
    tests = dict(zip(rivals, zip(p_values, holm(p_values), strict=True), strict=True))
    for agent, season in seasons.items():
        compared = {} if baseline is None else _compared(plan, season, baseline)
        p_value, p_holm = tests.get(agent, (None, None))
        entries[agent] = _blank() | _alone(plan, season) | compared | {"p_value": p_value, "p_holm": p_holm}
    return {agent: entries[agent] for agent in cells}


def _blank() -> dict[str, Any]:
    return dict.fromkeys(FIELDS)


def _failed(cells: Sequence[CellResult]) -> dict[str, Any]:
    error = next(cell.error for cell in cells if cell.error)
    return _blank() | {"error": error, "wall_seconds": sum(cell.wall_seconds for cell in cells)}


def _season(plan: Experiment, cells: Sequence[CellResult]) -> Season:
    seconds = np.array([cell.seconds for cell in cells])
    return Season(
        regret=np.concatenate([cell.regret_by_seed for cell in cells]),
        curve=np.concatenate([cell.curve_by_seed for cell in cells]),
        before=np.concatenate([cell.before_by_seed or [] for cell in cells]),
        after=np.concatenate([cell.after_by_seed or [] for cell in cells]),
        micros=settled_mean(microseconds_per_round(seconds, len(plan.seeds), plan.rounds)),
        wall_seconds=sum(cell.wall_seconds for cell in cells),
    )


def _alone(plan: Experiment, season: Season) -> dict[str, Any]:
    """What can be said of an agent without looking at others."""
    change = None
    if len(season.before):
        ratio = ratio_of_means(season.after, season.before).as_dict()
        change = {"before": float(season.before.mean()), "after": float(season.after.mean()), "ratio": ratio}
    return {
        "regret_mean": float(season.regret.mean()),
        "regret_standard_error": standard_error(season.regret),
        "regret_median": float(np.median(season.regret)),
        "regret_by_seed": season.regret.tolist(),
        "change": change,
        "curve": {
            "rounds": log_grid(plan.rounds, POINTS).tolist(),
            "mean": season.curve.mean(axis=0).tolist(),
            "standard_error": [standard_error(column) for column in season.curve.T],
        },
        "microseconds_per_round": season.micros,
        "wall_seconds": season.wall_seconds,
    }


def _compared(plan: Experiment, season: Season, baseline: Season) -> dict[str, Any]:
    """What can be said of an agent beside the yardstick, on the seeds they share."""
    if baseline.regret.min() <= 0:  # it made no mistake on some seed: no ratio has a meaning
        return {}
    by_seed = season.regret / baseline.regret
    worst = int(by_seed.argmax())
    return {
        "ratio": ratio_of_means(season.regret, baseline.regret).as_dict(),
        "median_ratio": float(np.median(season.regret) / np.median(baseline.regret)),
        "worst_seed": {"seed": plan.seeds[worst], "ratio": float(by_seed[worst])},
    }
