"""Compares the verdicts of `health()` on whether the hidden features are useful with the truth in every named world.

    python -m benchmarks.hidden_block --seeds 20 --first-seed 0

The truth is computed without `health()`. The true model filters the observations. The rewards of every arm are
regressed by least squares on y, on the filtered context and on the true context. The errors are measured on held-out
blocks.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from halfseen.agents.catalogue import AgentSpec
from halfseen.diagnostics.examination_data import subject_of_adaptive
from halfseen.diagnostics.measurements import measure
from halfseen.experiments.play import Player, build_policy
from halfseen.kernels.random import Floats
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.reports.tables import Table
from halfseen.worlds import named
from halfseen.worlds.world import Rounds, World

WORLDS: list[tuple[str, dict[str, Any]]] = [
    *(("paper", {"noise": noise}) for noise in (0.01, 0.1, 1.0)),
    *((name, {}) for name in ("orbit", "keyhole", "foggy-keyhole", "fog", "switch")),
]
BLOCKS = 10


def share_explained(contexts: Floats, rewards: Floats) -> float:
    """Return the share of the variance of rewards (n, K) that linear regressions on contexts predict out of sample."""
    features = np.column_stack([np.ones(len(contexts)), contexts])
    squared_errors = 0.0
    for block in np.array_split(np.arange(len(features)), BLOCKS):
        training = np.setdiff1d(np.arange(len(features)), block)
        slopes = np.linalg.lstsq(features[training], rewards[training], rcond=None)[0]
        squared_errors += float(((rewards[block] - features[block] @ slopes) ** 2).sum())
    return 1.0 - squared_errors / float(((rewards - rewards.mean(axis=0)) ** 2).sum())


def true_shares(world: World, model: LinearGaussianModel, rounds: Rounds, stream: int) -> Floats:
    """Return the shares of the reward variance that four predictors explain.

    The predictors are y, the observed part of the filtered context, the whole filtered context, and the true context.
    Only rounds before a change of the world count.
    """
    until = slice(0, world.changes_after)
    ys, k = rounds.observations[until, stream], world.observed
    rewards = rounds.expected[until, stream] + rounds.reward_noise[until, stream, None]
    filtered = model.filter(ys).means
    described = (ys, filtered[:, :k], filtered, rounds.contexts[until, stream])
    return np.array([share_explained(contexts, rewards) for contexts in described])


def truth_and_verdicts(world: World, seeds: tuple[int, ...], rounds: int) -> tuple[Floats, list[tuple[str, str]]]:
    """Return the true shares (B, 4), and the verdicts of `adaptive` on hidden features and on filtering."""
    episodes = world.begin(seeds)
    policy = build_policy(AgentSpec("adaptive", {}, "adaptive"), world, episodes, seeds, rounds)
    played = episodes.advance(rounds)
    Player(policy, world).play_round_by_round(played)
    verdicts = []
    for row in range(len(seeds)):
        subject = subject_of_adaptive(policy.estimator, row, [f"arm {a}" for a in range(world.arms)])
        explained = None if subject is None else measure(subject, brief=True).explained
        verdicts.append(("none", "none") if explained is None else (explained.hidden_pays, explained.filtering_pays))
    models = episodes.facts()["model"]
    return np.array([true_shares(world, models[row], played, row) for row in range(len(seeds))]), verdicts


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3000)
    given = parser.parse_args(arguments)
    seeds = tuple(range(given.first_seed, given.first_seed + given.seeds))
    rows = []
    for name, options in WORLDS:
        world = named(name, **options)
        print(f"{world.name} …", file=sys.stderr, flush=True)
        truth, verdicts = truth_and_verdicts(world, seeds, given.rounds)
        hidden = truth[:, 2] - truth[:, 1]
        row = {"world": world.name}
        row |= {
            label: f"{100 * truth[:, i].mean():.0f} %"
            for i, label in enumerate(("y", "filtered, observed block", "filtered", "true context"))
        }
        low, high = (round(100 * float(end), 1) + 0.0 for end in (hidden.min(), hidden.max()))  # avoids "-0.0"
        row["hidden features add"] = f"{low:.1f} to {high:.1f} %"
        for i, label in enumerate(("hidden", "filtering")):
            words = [verdict[i] for verdict in verdicts]
            counts = {word: words.count(word) for word in ("much", "some", "little", "none") if word in words}
            row[f"health: {label} pays"] = ", ".join(f"{word} {count}" for word, count in counts.items())
        rows.append(row)
    print(Table(rows).markdown())


if __name__ == "__main__":
    main(sys.argv[1:])
