"""The result of an experiment, and what can be said of it."""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.errors import unknown
from halfseen.experiments.plan import CHUNK, Experiment
from halfseen.experiments.play import Track
from halfseen.experiments.rewards import reward_summary
from halfseen.kernels.random import Floats
from halfseen.reports.files import make_folder, save_figure, write_figure, write_json
from halfseen.reports.tables import Table, count, regret_table, rewards_table
from halfseen.statistics.estimates import growth_exponent, log_grid, theorem_quantities
from halfseen.worlds import RecordedWorld, World

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Result:
    """Tracks by (world, agent), with the plan they came from."""

    plan: Experiment
    tracks: dict[tuple[str, str], Track]
    wall_seconds: float
    jobs: int

    def __repr__(self) -> str:
        return f"{count(self.plan.seeds, 'seed')}, {count(self.plan.rounds, 'round')}\n{self.table()}"

    @property
    def worlds(self) -> tuple[str, ...]:
        """Names of the worlds, in order."""
        return tuple(world.name for world in self.plan.worlds)

    @property
    def agents(self) -> tuple[str, ...]:
        """Labels of the agents, in order."""
        return tuple(spec.label for spec in self.plan.agents)

    def total_regret(self, world: str, agent: str) -> Floats:
        """R(T) of every seed, (S,)."""
        if world not in self.worlds:
            raise unknown("world", world, self.worlds)
        if agent not in self.agents:
            raise unknown("agent", agent, self.agents)
        return np.asarray(self.tracks[world, agent].regret.sum(axis=1))

    def microseconds_per_round(self, world: str, agent: str) -> Floats:
        """Time to decide and learn, per stream and round, in every chunk of rounds."""
        track = self.tracks[world, agent]
        return microseconds_per_round(track.seconds, int(track.streams.sum()), self.plan.rounds)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Everything measured, as plain data: what `summary.json` holds."""
        return {
            "rounds": self.plan.rounds,
            "seeds": list(self.plan.seeds),
            "jobs": self.jobs,
            "wall_seconds": self.wall_seconds,
            "versions": versions(),
            "agents": {spec.label: {"name": spec.name, "options": dict(spec.options)} for spec in self.plan.agents},
            "worlds": {
                world.name: {"settings": world.settings(), **self._world_summary(world)} for world in self.plan.worlds
            },
        }

    def _world_summary(self, world: World) -> dict[str, Any]:
        if isinstance(world, RecordedWorld):
            return {"rewards": reward_summary(self, world), "microseconds_per_round": self.speeds(world.name)}
        return {"agents": {agent: self._agent_summary(world.name, agent) for agent in self.agents}}

    def speeds(self, world: str) -> dict[str, float]:
        """Microseconds per stream and round, by agent."""
        return {agent: settled_mean(self.microseconds_per_round(world, agent)) for agent in self.agents}

    def _agent_summary(self, world: str, agent: str) -> dict[str, Any]:
        track = self.tracks[world, agent]
        total = self.total_regret(world, agent)
        cumulative = np.cumsum(track.regret, axis=1)
        at = log_grid(self.plan.rounds, 60)
        place = next(one for one in self.plan.worlds if one.name == world)
        micros = settled_mean(self.microseconds_per_round(world, agent))
        return {
            "regret_mean": float(total.mean()),
            "regret_median": float(np.median(total)),
            "regret_standard_error": standard_error(total),
            "regret_by_seed": total.tolist(),
            "growth_exponent": growth_exponent(track.regret).as_dict(),
            "mean_estimation_error": float(track.error.mean()),
            "microseconds_per_round": micros,
            "rounds_per_second": 1e6 / micros,
            "curve": {
                "rounds": at.tolist(),
                "mean": cumulative[:, at - 1].mean(axis=0).tolist(),
                "standard_error": [standard_error(cumulative[:, t - 1]) for t in at],
            },
            "theory": theorem_quantities(
                regret=track.regret,
                error=track.error,
                context_norm=track.context_norm,
                arm_norm=track.arm_norm,
                checkpoints=track.checkpoints,
                gram=track.gram,
                latent=place.latent,
                arms=place.arms,
            ),
        }

    def table(self) -> Table:
        """One row an agent and world: R(T), its growth, estimation error, speed; what was earned if recorded."""
        if self.recorded:
            return Table([{"world": world} | row for world in self.worlds for row in self.agents_table(world).rows])
        return regret_table(self.summary)

    @property
    def recorded(self) -> bool:
        """Whether the worlds are recorded data: then rewards are shown, not regret."""
        return all(world.recorded for world in self.plan.worlds)

    def agents_table(self, world: str) -> Table:
        """What the agents earned in a recorded world."""
        return rewards_table(self.summary["worlds"][world])

    def plot(self, path: str | Path | None = None) -> Figure:
        """Cumulative and instantaneous regret (reward, if recorded), a column a world; saved to `path` if given."""
        from halfseen.experiments.report import result_figure

        figure = result_figure(self)
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def save(self, folder: str | Path) -> None:
        """Write `summary.json`, `rounds.parquet`, `regret.png` and `regret.svg` into a folder.

        Of recorded worlds: `reward.png` and `.svg`, `arms.png` and `.svg`, `report.html` and `table.md` instead.
        """
        from halfseen.experiments.report import result_figure, write_recorded
        from halfseen.experiments.rounds import write_rounds

        target = make_folder(folder)
        if self.recorded:
            write_recorded(self, target)
        else:
            write_figure(target, "regret", result_figure(self))
        write_rounds(self, target / "rounds.parquet")
        write_json(target / "summary.json", self.summary)


def microseconds_per_round(seconds: Floats, streams: int, rounds: int) -> Floats:
    """Time per stream and round in every chunk, from the `seconds` (slices, chunks) that so many streams took."""
    lengths = np.diff(np.append(np.arange(0, rounds, CHUNK), rounds))
    return np.asarray(1e6 * seconds.sum(axis=0) / (lengths * streams))


def settled_mean(timings: Floats) -> float:
    """The mean over chunks; the first is left out where there are others: kernels may have been compiled in it."""
    return float(np.mean(timings[len(timings) > 1 :]))


def standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else math.nan


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("halfseen", "numpy", "scipy", "llvmlite"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
