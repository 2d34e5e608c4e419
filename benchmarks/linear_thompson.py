"""Linear Thompson sampling on a context that is fully seen, through public APIs: decide + learn.

Flops of a round: every arm scored and one of them taught, `score(d, K) + learn(d)`.
"""

from __future__ import annotations

import numpy as np

import halfseen as hs
from benchmarks.bandit_peers import Record, enter_all
from benchmarks.flops import learn, score
from benchmarks.harness import Contender, Job
from benchmarks.peers import Entrants
from benchmarks.settings import ARMS, LATENT

ROUNDS = 300


class NumpyLinTS:
    """Vectorised over arms: scores from B⁻¹, rank-one updates."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.inverse = np.tile(np.eye(LATENT), (ARMS, 1, 1))
        self.f = np.zeros((ARMS, LATENT))

    def decide(self, c: np.ndarray) -> int:
        image = self.inverse @ c
        means, stds = (image * self.f).sum(axis=1), np.sqrt(image @ c)
        return int(np.argmax(means + stds * self.rng.standard_normal(ARMS)))

    def learn(self, c: np.ndarray, arm: int, reward: float) -> None:
        image = self.inverse[arm] @ c
        self.inverse[arm] -= np.outer(image, image) / (1.0 + c @ image)
        self.f[arm] += reward * c


def flops(d: int, arms: int) -> int:
    return score(d, arms) + learn(d)


def job(quick: bool = False) -> Job:
    rng = np.random.default_rng(1)
    record = Record(rng.normal(size=(ROUNDS, LATENT)), rng.integers(ARMS, size=ROUNDS), rng.normal(size=ROUNDS), ARMS)
    contexts, rewards = record.contexts, record.rewards.tolist()

    agent = hs.make("ts-pco", observed=LATENT, arms=ARMS).fold(contexts, record.arms, record.rewards)
    learner = NumpyLinTS()

    def ours() -> None:
        for c, reward in zip(contexts, rewards, strict=True):
            agent.learn(agent.decide(c).id, reward)

    def with_propensities() -> None:
        for c, reward in zip(contexts, rewards, strict=True):
            decision = agent.decide(c)
            _ = decision.propensities
            agent.learn(decision.id, reward)

    def our_arms() -> np.ndarray:
        return (
            hs.make("ts-pco", observed=LATENT, arms=ARMS)
            .fold(contexts, record.arms, record.rewards)
            .policy.learner.mean[0]
        )

    def numpy_loop() -> None:
        for c, reward in zip(contexts, rewards, strict=True):
            learner.learn(c, learner.decide(c), reward)

    def numpy_arms() -> np.ndarray:
        fresh = NumpyLinTS()
        for c, arm, reward in zip(contexts, record.arms, record.rewards, strict=True):
            fresh.learn(c, arm, reward)
        return np.einsum("aij,aj->ai", fresh.inverse, fresh.f)

    entrants = Entrants(
        Contender("halfseen", ours, ROUNDS, "`ts-pco`, propensities not asked for", our_arms),
        Contender("halfseen, with propensities", with_propensities, ROUNDS, "exact, of all arms", our_arms),
        Contender("NumPy, vectorised over arms", numpy_loop, ROUNDS, "no checks, no record of decisions", numpy_arms),
    )
    enter_all(entrants, record)
    return Job(
        "LinTS decide + learn, public API",
        "round",
        flops(LATENT, ARMS),
        entrants.contenders,
        lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6),
        entrants.absent,
    )
