"""Linear Thompson sampling on a context that is fully seen, through public APIs: decide + learn."""

from __future__ import annotations

import numpy as np

import halfseen as hs
from benchmarks.harness import Contender, Job, peer
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


def job() -> Job:
    rng = np.random.default_rng(1)
    contexts, rewards = rng.normal(size=(ROUNDS, LATENT)), rng.normal(size=ROUNDS)
    played = rng.integers(ARMS, size=ROUNDS)  # for the comparison: all learn from the same history
    missing: list[str] = []

    def ours() -> None:
        agent = hs.make("ts-pco", observed=LATENT, arms=ARMS)
        for c, reward in zip(contexts, rewards, strict=True):
            agent.learn(agent.decide(c).id, reward)

    def our_arms() -> np.ndarray:
        agent = hs.make("ts-pco", observed=LATENT, arms=ARMS).fold(contexts, played, rewards)
        return agent.policy.learner.mean[0]

    def numpy_loop() -> None:
        learner = NumpyLinTS()
        for c, reward in zip(contexts, rewards, strict=True):
            learner.learn(c, learner.decide(c), reward)

    def numpy_arms() -> np.ndarray:
        learner = NumpyLinTS()
        for c, arm, reward in zip(contexts, played, rewards, strict=True):
            learner.learn(c, arm, reward)
        return np.einsum("aij,aj->ai", learner.inverse, learner.f)

    contenders = [
        Contender("halfseen", ours, ROUNDS, result=our_arms),
        Contender("NumPy, vectorised over arms", numpy_loop, ROUNDS, result=numpy_arms),
    ]
    mabwiser, label = peer("mabwiser.mab", "mabwiser", missing)
    if mabwiser is not None:
        policy = mabwiser.LearningPolicy.LinTS(alpha=1.0, l2_lambda=1.0)

        def fitted():
            mab = mabwiser.MAB(list(range(ARMS)), policy)
            mab.fit(played.tolist(), rewards.tolist(), contexts)
            return mab

        trained = fitted()

        def with_mabwiser() -> None:
            for c, reward in zip(contexts[:60], rewards[:60], strict=True):
                trained.partial_fit([trained.predict(c[None])], [reward], c[None])

        def mabwiser_arms() -> np.ndarray:
            return np.stack([fitted()._imp.arm_to_model[arm].beta for arm in range(ARMS)])

        contenders.append(Contender(label, with_mabwiser, 60, result=mabwiser_arms))

    return Job(
        "LinTS decide + learn, public API",
        "round",
        contenders,
        lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6),
        missing,
    )
