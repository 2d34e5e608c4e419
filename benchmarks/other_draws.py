"""Measures how much the regrets of two copies of an agent differ if only their random draws differ.

    python -m benchmarks.other_draws --agent kf-ts --seeds 50

The worlds, the noise and the agent are the same. So the result shows how much the ratio of two regrets varies by
chance. It includes the ratios on the worst and the best seed.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from halfseen.agents.catalogue import AgentSpec, agent_spec
from halfseen.experiments.leaderboard import leaderboard_plan
from halfseen.experiments.plan import CHUNK
from halfseen.experiments.play import Player, build_policy
from halfseen.kernels.random import Floats
from halfseen.reports.tables import Table
from halfseen.worlds.world import World

SEED_OFFSET = 1_000_000  # added to the seeds of the second copy


def total_regret(spec: AgentSpec, world: World, seeds: tuple[int, ...], rounds: int, offset: int) -> Floats:
    """Return R(T) (S,) in the worlds of `seeds`, for an agent with the seeds `seeds + offset`."""
    episodes = world.begin(seeds)
    player = Player(build_policy(spec, world, episodes, tuple(seed + offset for seed in seeds), rounds), world)
    regret = np.zeros(len(seeds))
    for start in range(0, rounds, CHUNK):
        chunk = episodes.advance(min(CHUNK, rounds - start))
        arms, _, _ = player.play_round_by_round(chunk)
        expected = np.take_along_axis(chunk.expected, arms.T[:, :, None], axis=2)[:, :, 0]
        regret += (chunk.expected.max(axis=2) - expected).sum(axis=0)
    return regret


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="kf-ts")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3000)
    given = parser.parse_args()
    seeds = tuple(range(given.first_seed, given.first_seed + given.seeds))
    spec, rows = agent_spec(given.agent), []
    for world in leaderboard_plan([given.agent], None, given.rounds, seeds).worlds:
        one, other = (total_regret(spec, world, seeds, given.rounds, offset) for offset in (0, SEED_OFFSET))
        ratio = other / one
        rows.append(
            {
                "world": world.name,
                "ratio of means": f"{other.mean() / one.mean():.2f}",
                "median ratio": f"{np.median(ratio):.2f}",
                "worst seed": f"{ratio.max():.2f}",
                "best seed": f"{ratio.min():.2f}",
                "above 1.5": f"{(ratio > 1.5).sum()} of {len(seeds)}",
            }
        )
        print(world.name, file=sys.stderr)
    print(Table(rows).markdown())


if __name__ == "__main__":
    main()
