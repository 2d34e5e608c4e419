"""Compares agents that know that rewards are clicks with the same agents that treat the rewards 0 and 1 as numbers.

    python -m benchmarks.families                                   # about half an hour on one core
    python -m benchmarks.families --agent ts-pco --seeds 5          # a first impression
    python -m benchmarks.families --figure clicks-and-counts.png    # the figure of docs/how-to/clicks-and-counts.md

The world is `clicks` with several base rates. For the regret, each agent makes its own decisions, on the same seeds.
The Brier score is the mean squared difference between an expected reward and the reward. For this score, the agent that
treats rewards as numbers replays the decisions of the agent that knows the family, so that both predict the same
rewards.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import halfseen as hs
from halfseen.agents.catalogue import agent_spec
from halfseen.experiments.play import build_policy
from halfseen.kernels.random import Floats
from halfseen.reports.tables import Table
from halfseen.statistics.confidence_intervals import ratio_of_means

AGENTS = ("adaptive", "kf-ts", "ts-pco", "lag-ts")
RIVALS = ("glm-ucb", "glm-ts")
RATES = (0.01, 0.03, 0.1, 0.3)


def predictions(world: hs.worlds.World, agent: str, rounds: int, seeds: Sequence[int]) -> tuple[Floats, Floats, Floats]:
    """Return the rewards that the agent expects with and without the family, and the actual rewards, each (T, S)."""
    numbers = tuple(seeds)
    episodes = world.begin(numbers)
    labels = (f"{agent}:reward_family=binary", f"{agent}:reward_family=gaussian")
    binary, gaussian = (build_policy(agent_spec(label), world, episodes, numbers, rounds) for label in labels)
    played, rows = episodes.advance(rounds), np.arange(len(numbers))
    expected, rewards = np.empty((2, rounds, len(numbers))), np.empty((rounds, len(numbers)))
    for t in range(rounds):
        choices = binary.decide(played.observations[t])
        replayed = gaussian.replay(played.observations[t], choices.arms)
        rewards[t] = played.reward_of(t, rows, choices.arms)
        for policy, made, row in ((binary, choices, 0), (gaussian, replayed, 1)):
            expected[row, t] = policy.learner.expected_rewards(made)[rows, choices.arms]
            policy.learn(made.rounds, made.features, choices.arms, rewards[t])
    return expected[0], expected[1], rewards


def compare(agents: Sequence[str], rate: float, rounds: int, seeds: Sequence[int]) -> list[dict[str, str]]:
    """Return one row per agent."""
    world = hs.worlds.named("clicks", rate=rate)
    families = [f"{agent}:reward_family={family}" for agent in agents for family in ("binary", "gaussian")]
    result = hs.run([*families, *RIVALS, "random"], world=world, rounds=rounds, seeds=seeds)
    regret = {label: result.total_regret(world.name, label) for label in result.agents}
    rows = []
    for agent in agents:
        binary, gaussian = (regret[f"{agent}:reward_family={family}"] for family in ("binary", "gaussian"))
        with_family, without, rewards = predictions(world, agent, rounds, seeds)
        scores = [((expected - rewards) ** 2).mean(axis=0) for expected in (with_family, without)]
        row = {
            "base rate": f"{rate:g}",
            "agent": agent,
            "regret": f"{binary.mean():,.1f}",
            "on numbers": f"{gaussian.mean():,.1f}",
            "ratio": f"{ratio_of_means(binary, gaussian):.3f}",
            "Brier score": f"{scores[0].mean():.5f}",
            "Brier score on numbers": f"{scores[1].mean():.5f}",
            "Brier ratio": f"{ratio_of_means(*scores):.3f}",
        }
        row |= {f"over {rival}": f"{ratio_of_means(binary, regret[rival]):.2f}" for rival in RIVALS}
        rows.append(row | {"random": f"{regret['random'].mean():,.1f}"})
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def calibration_curve(expected: Floats, rewards: Floats, bins: int = 12) -> tuple[Floats, Floats]:
    """Sort decisions by expected reward into bins of equal count. Return each bin's mean expected and actual reward."""
    order = np.argsort(expected.ravel(), kind="stable")
    parts = np.array_split(order, bins)
    return tuple(np.array([values.ravel()[part].mean() for part in parts]) for values in (expected, rewards))


def draw(path: Path, rounds: int, seeds: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(7.6, 3.6), layout="constrained")
    for axes, rate in zip(panels, (0.03, 0.3), strict=True):
        world = hs.worlds.named("clicks", rate=rate)
        binary, gaussian, rewards = predictions(world, "ts-pco", rounds, range(seeds))
        late = slice(rounds // 4, None)
        top = 0.0
        for expected, label in ((binary, 'reward_family="binary"'), (gaussian, "0 and 1 as numbers")):
            predicted, observed = calibration_curve(expected[late], rewards[late])
            axes.plot(predicted, observed, "o-", markersize=3.5, linewidth=1.2, label=label)
            top = max(top, predicted.max(), observed.max())
        axes.plot([0.0, top], [0.0, top], color="grey", linewidth=0.8)
        axes.axvline(0.0, color="grey", linewidth=0.5, linestyle=":")
        axes.set(title=f"base rate {rate:g}", xlabel="expected reward", ylabel="share of clicks")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--agent", choices=AGENTS, action="append")
    parser.add_argument("--rate", type=float, action="append")
    parser.add_argument("--figure", type=Path, help="draw calibration curves instead of measuring regret")
    given = parser.parse_args(arguments)
    if given.figure is not None:
        draw(given.figure, given.rounds, given.seeds)
        return
    rows: list[dict[str, str]] = []
    for rate in given.rate or RATES:
        rows += compare(given.agent or AGENTS, rate, given.rounds, range(given.seeds))
    print(Table(rows).markdown())


if __name__ == "__main__":
    main(sys.argv[1:])
