"""Where the time of `hs.run` goes: the world, filtering, choosing and learning; what is left keeps the record.

Flops as in benchmarks/monte_carlo.py, of the whole for every part.
"""

from __future__ import annotations

import time

import numpy as np

import halfseen as hs
from benchmarks.harness import Contender, Job
from benchmarks.monte_carlo import QUICK_ROUNDS, ROUNDS, SEEDS, flops
from benchmarks.settings import ARMS, LATENT, OBSERVED
from halfseen.agents.catalogue import AgentSpec
from halfseen.components import Payoffs
from halfseen.experiments.plan import CHUNK
from halfseen.experiments.play import build_policy
from halfseen.kernels.choice import NORMAL
from halfseen.worlds import named

AGENT = "kf-ts"


def job(quick: bool = False) -> Job:
    total, seeds, world = QUICK_ROUNDS if quick else ROUNDS, tuple(range(SEEDS)), named("orbit")

    def whole() -> np.ndarray:
        return hs.run(AGENT, world="orbit", rounds=total, seeds=SEEDS).tracks["orbit", AGENT].arm

    def the_world() -> int:
        episodes = world.begin(seeds)
        return sum(len(episodes.advance(min(CHUNK, total - start)).contexts) for start in range(0, total, CHUNK))

    episodes = world.begin(seeds)
    chunks = [episodes.advance(min(CHUNK, total - start)) for start in range(0, total, CHUNK)]

    def played() -> tuple[float, float, np.ndarray]:
        """Seconds of filtering, seconds of choosing and learning, and the arms (S, T)."""
        policy = build_policy(AgentSpec(AGENT), world, episodes, seeds, total)
        filtering = choosing = 0.0
        arms, clock, start = np.empty((SEEDS, total), dtype=np.int64), time.thread_time, 1
        for rounds in chunks:
            shape = rounds.reward_noise.T.shape
            payoffs = Payoffs(*(np.ascontiguousarray(one.swapaxes(0, 1)) for one in rounds[2:]), 1.0)
            features = np.empty((*shape, policy.estimator.dimension))
            first, chosen, rewards = np.full(SEEDS, start), np.empty(shape, dtype=np.int64), np.empty(shape)
            widths = policy.chooser.widths(policy.everyone, first, policy.learner)
            began = clock()
            policy.estimator.observe_ahead(rounds.observations, first, None, features)
            filtered = clock()
            policy.learner.play_ahead(
                features, widths, NORMAL, policy.streams.keys, first, policy.active, payoffs, chosen, rewards
            )
            filtering, choosing = filtering + filtered - began, choosing + clock() - filtered
            arms[:, start - 1 : start - 1 + shape[1]] = chosen
            start += shape[1]
        return filtering, choosing, arms

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
            Contender("filter", played, units, "", lambda: played()[2], lambda one: one[0]),
            Contender(
                "choose and learn", played, units, "scores, draws, choice", lambda: played()[2], lambda one: one[1]
            ),
        ],
        np.testing.assert_array_equal,
        repeats=3,
    )
