"""Where the time of `hs.run` goes: the world, decisions, learning; what is left keeps the record.

Flops as in benchmarks/monte_carlo.py, of the whole for every part.
"""

from __future__ import annotations

import time

import numpy as np

import halfseen as hs
from benchmarks.harness import Contender, Job
from benchmarks.monte_carlo import QUICK_ROUNDS, ROUNDS, SEEDS, flops
from benchmarks.settings import ARMS, LATENT, OBSERVED
from halfseen.experiments.play import build_policy
from halfseen.experiments.specs import CHUNK, AgentSpec
from halfseen.worlds import named

AGENT = "kf-ts"


def job(quick: bool = False) -> Job:
    total, seeds, world = QUICK_ROUNDS if quick else ROUNDS, tuple(range(SEEDS)), named("orbit")

    def whole() -> np.ndarray:
        return hs.run(AGENT, world="orbit", rounds=total, seeds=SEEDS).tracks["orbit", AGENT].arm

    def the_world() -> int:
        episodes = world.begin(seeds)
        return sum(len(episodes.advance(min(CHUNK, total - start)).contexts) for start in range(0, total, CHUNK))

    rounds = world.begin(seeds).advance(total)

    def played() -> tuple[float, float, np.ndarray]:
        """Seconds of all decisions, seconds of all learning, and the arms (S, T)."""
        policy = build_policy(AgentSpec(AGENT), world, world.begin(seeds), seeds, total)
        deciding = learning = 0.0
        arms = np.empty((SEEDS, total), dtype=np.int64)
        clock = time.thread_time
        for t in range(total):
            began = clock()
            choices = policy.decide(rounds.observations[t])
            decided = clock()
            paid = rounds.expected[t, policy.everyone, choices.arms] + rounds.reward_noise[t]
            paying = clock()
            policy.learn(choices.rounds, choices.features, choices.arms, paid)
            deciding, learning = deciding + decided - began, learning + clock() - paying
            arms[:, t] = choices.arms
        return deciding, learning, arms

    def all_rounds(count: int) -> None:
        assert count == total

    units = SEEDS * total
    return Job(
        f"Parts of the Monte Carlo of {AGENT}",
        "round",
        flops(LATENT, OBSERVED, ARMS, learns_model=False),
        [
            Contender("hs.run", whole, units, "all of it"),
            Contender("the world", the_world, units, "contexts, payoffs, all draws but the agent's", check=all_rounds),
            Contender(
                "decide", played, units, "filter, scores, draws, choice", lambda: played()[2], lambda one: one[0]
            ),
            Contender("learn", played, units, "", lambda: played()[2], lambda one: one[1]),
        ],
        np.testing.assert_array_equal,
        repeats=3,
    )
