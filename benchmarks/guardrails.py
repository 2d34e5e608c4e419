"""Measures the regret that a floor causes, and how the interval of the lift over a control arm narrows over time.

    python -m benchmarks.guardrails                                # about five minutes on one core
    python -m benchmarks.guardrails --figure guardrails.png        # the figure of docs/how-to/guardrails.md

With K arms and a floor f, the share K f of the decisions is uniform. If these decisions had no effect on the others,
the regret would be (1 - K f) times the regret without a floor plus K f times the regret of uniform play. The table
gives the ratio of the regret with a floor to this sum, on the same seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import halfseen as hs
from halfseen.kernels.random import Floats
from halfseen.reports.tables import Table
from halfseen.statistics.confidence_intervals import ratio_of_means

AGENTS = ("ts-pco", "kf-ts", "adaptive")
WORLDS = ("orbit", "keyhole", "fog")


def cost_of_a_floor(world: str, floor: float, rounds: int, seeds: Sequence[int]) -> list[dict[str, str]]:
    """Return one row per agent, with the regret and its ratio to the predicted regret."""
    guarded = [f"{agent}:floor={floor}" for agent in AGENTS]
    result = hs.run([*AGENTS, *guarded, "random"], world=world, rounds=rounds, seeds=seeds)
    share, uniform = floor * hs.worlds.named(world).arms, result.total_regret(world, "random")
    rows = []
    for agent in AGENTS:
        free, floored = (result.total_regret(world, label) for label in (agent, f"{agent}:floor={floor}"))
        expected = (1.0 - share) * free + share * uniform
        rows.append(
            {
                "world": world,
                "agent": agent,
                "regret": f"{free.mean():,.0f}",
                f"with floor {floor:g}": f"{floored.mean():,.0f}",
                "predicted regret": f"{expected.mean():,.0f}",
                "ratio": f"{ratio_of_means(floored, expected):.3f}",
            }
        )
    return rows


def lift_over_time(rounds: int, points: Sequence[int]) -> Floats:
    """Return the lift over the control arm with its interval after each of `points` rounds, (n, 3).

    The agent is `adaptive` in `keyhole`, with a floor of 0.01, and 5 % of the other decisions play the arm with the
    highest mean reward.
    """
    world = hs.worlds.named("keyhole")
    played = world.begin([0]).advance(rounds)
    control = int(played.expected[:, 0].mean(axis=0).argmax())
    agent = hs.make("adaptive", observed=world.observed, arms=world.arms, seed=0, floor=0.01, control=(control, 0.05))
    lifts = []
    for t in range(rounds):
        decision = agent.decide(played.observations[t, 0])
        agent.learn(decision, float(played.expected[t, 0, decision.index] + played.reward_noise[t, 0]))
        if t + 1 in points:
            lifts.append(agent.health().facts.get("lift over control, low, high", [np.nan] * 3))
    return np.array(lifts)


def draw(path: Path, rounds: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points = np.arange(100, rounds + 1, 50)
    value, low, high = lift_over_time(rounds, points.tolist()).T
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    axes.axhline(0.0, color="grey", linewidth=0.8)
    axes.fill_between(points, low, high, alpha=0.25, linewidth=0, label="95 % interval")
    axes.plot(points, value, label="lift over control")
    axes.set(xlabel="decisions", ylabel="reward per decision", xlim=(0, rounds))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--floor", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--world", choices=WORLDS, action="append")
    parser.add_argument("--figure", type=Path, help="draw lift over time instead of measuring the cost of a floor")
    given = parser.parse_args(arguments)
    if given.figure is not None:
        draw(given.figure, given.rounds)
        return
    rows: list[dict[str, str]] = []
    for world in given.world or WORLDS:
        rows += cost_of_a_floor(world, given.floor, given.rounds, range(given.seeds))
    print(Table(rows).markdown())


if __name__ == "__main__":
    main(sys.argv[1:])
