"""Synthetic results with known properties, and helpers for comparing results."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from halfseen.experiments.plan import CHUNK, Slice, experiment
from halfseen.experiments.play import OnProgress, Trajectories, checkpoints
from halfseen.experiments.result import Result
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.worlds import World, linear_gaussian

ROLES = {"observed": ["a"], "hidden": ["c"], "rewards": ["up <b>", "down", "flat"]}


def unstable_world() -> World:
    """Return a world whose contexts grow beyond all limits within a few rounds."""
    model = LinearGaussianModel(transition=[[1e20]], process_cov=[[1.0]], observation_cov=[[1.0]])
    return linear_gaussian(model=model, arm_params=[[1.0], [-1.0]])


def recorded_columns(useful: float = 1.0, rows: int = 500) -> dict[str, np.ndarray]:
    """Return a table for the `ROLES`. Rewards depend on the context, but with `useful=0` they are only noise."""
    rng = np.random.default_rng(2)
    slow = np.cumsum(rng.normal(size=rows)) * 0.2
    a, c = rng.normal(size=rows), rng.normal(size=rows) + slow
    gain = useful * (a + c) + rng.normal(size=rows)
    return {"a": a, "c": c, "up <b>": gain, "down": -gain, "flat": np.zeros(rows)}


def power(exponent: float, *, scale: float = 1.0, rounds: int = 2000) -> np.ndarray:
    """Return regrets per round whose sum up to round t is scale · t^exponent."""
    return scale * np.diff(np.arange(rounds + 1.0) ** exponent)


def fabricate(
    agents: list[str],
    regret: Callable[[str, str, int], np.ndarray],  # maps a world, an agent and a seed to (rounds,)
    *,
    worlds: tuple[str, ...] = ("paper:noise=0.1", "orbit"),
    rounds: int = 2000,
    seeds: int = 6,
    seconds: Callable[[np.ndarray], np.ndarray] = np.ones_like,  # maps the last rounds of the chunks to seconds
) -> Result:
    plan = experiment(agents, list(worlds), rounds, seeds)
    noise = np.random.default_rng(7)
    ends = np.minimum(np.arange(CHUNK, rounds + CHUNK, CHUNK), rounds)
    marks = checkpoints(rounds)

    def track(world: str, agent: str) -> Trajectories:
        shape = (seeds, rounds)
        return Trajectories(
            regret=np.stack([regret(world, agent, seed) for seed in range(seeds)]),
            reward=noise.normal(size=shape),
            arm=noise.integers(0, 5, size=shape).astype(np.int16),
            error=np.abs(noise.normal(size=shape)),
            context_norm=1.0 + noise.random(shape),
            arm_norm=np.full(seeds, 3.0),
            checkpoints=marks,
            gram=np.tile(marks**0.5, (seeds, 1)),
            seconds=seconds(ends.astype(float)),
        )

    tracks = {
        (world.name, agent.label): track(world.name, agent.label) for world in plan.worlds for agent in plan.agents
    }
    return Result(plan, tracks, wall_seconds=1.5, jobs=2)


def assert_same_result(one: Result, other: Result) -> None:
    """Check that everything except the timings is exactly equal."""
    assert one.tracks.keys() == other.tracks.keys()
    for key, track in one.tracks.items():
        for name in ("regret", "reward", "arm", "error", "context_norm", "gram", "arm_norm"):
            np.testing.assert_array_equal(
                getattr(track, name), getattr(other.tracks[key], name), err_msg=f"{key} {name}"
            )


def record_calls(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[Slice]:
    """Return a list that collects the slices with which a function of a module is called."""
    slices, function = list[Slice](), getattr(module, name)

    def recording(task: Slice, on_progress: OnProgress) -> Any:
        slices.append(task)
        return function(task, on_progress)

    monkeypatch.setattr(module, name, recording)
    return slices
