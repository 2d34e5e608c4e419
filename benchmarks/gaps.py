"""Measures the regret that gaps (rounds without observation and decision) cause, if agents are told of them and if not.

    python -m benchmarks.gaps                       # about ten minutes on one core
    python -m benchmarks.gaps --seeds 5 --rounds 1000
    python -m benchmarks.gaps --figure time.png     # the figure of docs/how-to/time.md

In each world, 40 % of the rounds are left out at random. Every agent makes the same number of decisions in three
settings: in the complete world, in the world with gaps if the agent is told how many rounds have passed, and in the
world with gaps if the agent is not told and treats the remaining rounds as consecutive. The figures are the ratios of
the mean regret per decision between these settings, with 95 % intervals from the seeds.
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

AGENTS, WORLDS, SHARE = ("kf-ts", "adaptive"), ("orbit", "keyhole"), 0.4
FIRST_SEED = 1000


def regrets(agent: str, world: str, rounds: int, seeds: Sequence[int]) -> tuple[Floats, Floats, Floats]:
    """Return three regrets per seed (S,): in the complete world, with gaps if told, and with gaps if not told."""
    worlds = [hs.worlds.named(world), *(hs.worlds.named("gaps", world=world, told=told) for told in (True, False))]
    result = hs.run([agent], world=worlds, rounds=rounds, seeds=list(seeds))
    complete, told, ignored = (result.total_regret(one.name, agent) for one in worlds)
    return complete, told, ignored


def compare(agent: str, world: str, rounds: int, seeds: Sequence[int]) -> dict[str, str]:
    """Return one row of the table."""
    complete, told, ignored = regrets(agent, world, rounds, seeds)
    return {
        "world": world,
        "agent": agent,
        "regret per decision, complete": f"{complete.mean() / rounds:.3f}",
        "told / complete": f"{ratio_of_means(told, complete):.3f}",
        "ignored / complete": f"{ratio_of_means(ignored, complete):.3f}",
        "told / ignored": f"{ratio_of_means(told, ignored):.3f}",
    }


def draw(path: Path) -> None:
    """Draw an estimated hidden context, with a sensor value every minute, a decision every hour and an outage."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    radius, angle, minutes, outage = 0.998, 2 * np.pi / 240, 720, (320, 500)
    turn = radius * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    model = hs.LinearGaussianModel(transition=turn, process_cov=0.004, observation_cov=[0.3])
    rng, x = np.random.default_rng(7), np.array([1.0, 0.0])
    agent = hs.make("kf-ts", observed=1, arms=["open", "close"], model=model, seed=1)
    tracker = model.tracker()
    truth, seen = np.empty(minutes), np.full(minutes, np.nan)
    mean, std = np.empty(minutes), np.empty(minutes)
    decided: list[int] = []
    for t in range(minutes):
        x = turn @ x + np.sqrt(0.004) * rng.normal(size=2)
        truth[t], y = x[1], x[0] + np.sqrt(0.3) * rng.normal()
        if outage[0] <= t < outage[1]:
            if t == outage[0]:
                ahead = agent.forecast(outage[1] - t)
                mean[t : outage[1]] = ahead.context_means[:, 1]
                std[t : outage[1]] = np.sqrt(ahead.context_covs[:, 1, 1])
            continue
        seen[t], elapsed = y, 1 + (outage[1] - outage[0]) * (t == outage[1])
        if t % 60 == 59:
            decision = agent.decide([y], elapsed=elapsed)
            agent.learn(decision, x[1] * (1 if decision.arm == "open" else -1))
            decided.append(t)
        else:
            agent.observe([y], elapsed=elapsed)
        belief = tracker.step([y], elapsed=elapsed)  # the filter of the agent, which here also returns covariances
        mean[t], std[t] = belief.mean[1], np.sqrt(belief.cov[1, 1])
    hours = np.arange(minutes) / 60
    figure, (above, below) = plt.subplots(2, 1, figsize=(6.4, 4.2), layout="constrained", sharex=True)
    above.plot(hours, seen, ".", markersize=2.5, color="#0072B2")
    above.set(ylabel="sensor")
    below.fill_between(hours, mean - 1.645 * std, mean + 1.645 * std, color="#e3e7ea", label="90 % interval")
    below.plot(hours, mean, color="#0072B2", linewidth=1.1, label="estimate")
    below.plot(hours, truth, color="black", linewidth=0.8, linestyle="--", label="hidden context")
    below.plot(hours[decided], mean[decided], "o", markersize=5, color="#D55E00", label="decision")
    below.set(ylabel="hidden context", xlabel="hours", xlim=(0, hours[-1]))
    below.legend(frameon=False, ncols=4, loc="lower center", fontsize=8)
    below.set_ylim(min(mean.min(), truth.min()) - 2.2, None)
    for axes in (above, below):
        axes.axvspan(outage[0] / 60, outage[1] / 60, color="#E69F00", alpha=0.12, linewidth=0)
        axes.spines[["top", "right"]].set_visible(False)
    above.text(
        (outage[0] + outage[1]) / 120, 0.95, "outage", ha="center", va="top", transform=above.get_xaxis_transform()
    )
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--world", choices=WORLDS, action="append")
    parser.add_argument("--agent", choices=AGENTS, action="append")
    parser.add_argument("--figure", type=Path, help="draw the figure of the how-to page instead of measuring")
    given = parser.parse_args(arguments)
    if given.figure is not None:
        draw(given.figure)
        return
    seeds = np.arange(FIRST_SEED, FIRST_SEED + given.seeds).tolist()
    rows = [
        compare(agent, world, given.rounds, seeds) for world in given.world or WORLDS for agent in given.agent or AGENTS
    ]
    print(Table(rows).markdown())


if __name__ == "__main__":
    main(sys.argv[1:])
