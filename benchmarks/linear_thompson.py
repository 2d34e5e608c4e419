"""Linear Thompson sampling on a fully observed context through public APIs: decide + learn.

A round scores all arms and updates one of them, which takes `score_flops(d, K) + learn_flops(d)`.

Other libraries decide and learn through their public APIs, in the fastest way that was found. All contenders start
from the prior N(0, I) with unit noise. The comparison checks the posterior mean of every arm after the same history.
The random draws, and therefore the decisions, differ between libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import halfseen as hs
from benchmarks.harness import Contender, Job
from benchmarks.problem import ARMS, LATENT, learn_flops, score_flops

ROUNDS, PEER_ROUNDS = 300, 60  # other libraries are slower and play fewer rounds


class NumpyLinTS:
    """Linear Thompson sampling in NumPy, vectorised over arms, with rank-one updates of B⁻¹."""

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
    return score_flops(d, arms) + learn_flops(d)


def job(quick: bool = False) -> Job:
    rng = np.random.default_rng(1)
    history = History(rng.normal(size=(ROUNDS, LATENT)), rng.integers(ARMS, size=ROUNDS), rng.normal(size=ROUNDS), ARMS)
    contexts, rewards = history.contexts, history.rewards.tolist()

    agent = hs.make("ts-pco", observed=LATENT, arms=ARMS).fold(contexts, history.arms, history.rewards)
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
            .fold(contexts, history.arms, history.rewards)
            .policy.learner.mean[0]
        )

    def numpy_loop() -> None:
        for c, reward in zip(contexts, rewards, strict=True):
            learner.learn(c, learner.decide(c), reward)

    def numpy_arms() -> np.ndarray:
        fresh = NumpyLinTS()
        for c, arm, reward in zip(contexts, history.arms, history.rewards, strict=True):
            fresh.learn(c, arm, reward)
        return np.einsum("aij,aj->ai", fresh.inverse, fresh.f)

    job = Job(
        "LinTS decide + learn, public API",
        "round",
        flops(LATENT, ARMS),
        [
            Contender("halfseen", ours, ROUNDS, "`ts-pco`, propensities not computed", our_arms),
            Contender(
                "halfseen, with propensities", with_propensities, ROUNDS, "exact propensities of all arms", our_arms
            ),
            Contender(
                "NumPy, vectorised over arms", numpy_loop, ROUNDS, "no checks, no history of decisions", numpy_arms
            ),
        ],
        lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6),
    )
    for package, module, make in PEERS:
        job.enter(package, module, partial(make, history=history))
    return job


@dataclass(frozen=True)
class History:
    """The history that all contenders learn from."""

    contexts: np.ndarray  # (n, d)
    arms: np.ndarray  # (n,)
    rewards: np.ndarray  # (n,)
    count: int  # number of arms


def _mabwiser(module: Any, label: str, history: History) -> Contender:
    def fitted() -> Any:
        mab = module.MAB(list(range(history.count)), module.LearningPolicy.LinTS(alpha=1.0, l2_lambda=1.0))
        mab.fit(history.arms.tolist(), history.rewards.tolist(), history.contexts)
        return mab

    trained = fitted()

    def play() -> None:
        for c, reward in zip(history.contexts[:PEER_ROUNDS], history.rewards[:PEER_ROUNDS], strict=True):
            trained.partial_fit([trained.predict(c[None])], [reward], c[None])

    def arms() -> np.ndarray:
        return np.stack([fitted()._imp.arm_to_model[arm].beta for arm in range(history.count)])

    return Contender(label, play, PEER_ROUNDS, "LinTS", arms, at_least=100.0)


def _contextual(module: Any, label: str, history: History) -> Contender:
    def fitted() -> Any:
        policy = module.LinTS(
            history.count, lambda_=1.0, v_sq=1.0, fit_intercept=False, method="chol", random_state=1, njobs=1
        )
        return policy.fit(history.contexts, history.arms, history.rewards)

    trained = fitted()

    def play() -> None:
        for t in range(PEER_ROUNDS):
            c = history.contexts[t : t + 1]
            trained.partial_fit(c, trained.predict(c), history.rewards[t : t + 1])

    def arms() -> np.ndarray:
        return np.stack([one.model.coef_.ravel() for one in fitted()._oracles.algos])

    return Contender(label, play, PEER_ROUNDS, 'LinTS, method="chol", its fastest method here', arms)


def _bayesian(module: Any, label: str, history: History) -> Contender:
    def fitted() -> Any:
        arms = [module.Arm(a, learner=module.NormalRegressor(alpha=1.0, beta=1.0)) for a in range(history.count)]
        agent = module.ContextualAgent(arms, module.ThompsonSampling(), random_seed=0)
        for t, arm in enumerate(history.arms):
            agent.select_for_update(int(arm)).update(history.contexts[t : t + 1], history.rewards[t : t + 1])
        return agent

    trained = fitted()

    def play() -> None:
        for t in range(PEER_ROUNDS):
            c = history.contexts[t : t + 1]
            trained.pull(c)
            trained.update(c, history.rewards[t : t + 1])

    def arms() -> np.ndarray:
        return np.stack([arm.learner.coef_ for arm in fitted().arms])

    return Contender(label, play, PEER_ROUNDS, "Thompson sampling on NormalRegressor", arms, at_least=100.0)


def _river(module: Any, label: str, history: History) -> Contender:
    rows = [dict(enumerate(c)) for c in history.contexts.tolist()]
    names, rewards = list(range(history.count)), history.rewards.tolist()

    def fitted() -> Any:
        policy = module.LinUCBDisjoint(alpha=1.0, beta=1.0, seed=0)
        for arm, row, reward in zip(history.arms.tolist(), rows, rewards, strict=True):
            policy.update(arm, row, reward)
        return policy

    trained = fitted()

    def play() -> None:
        for row, reward in zip(rows[:PEER_ROUNDS], rewards[:PEER_ROUNDS], strict=True):
            trained.update(trained.pull(names, row), row, reward)

    def arms() -> np.ndarray:
        policy, size = fitted(), history.contexts.shape[1]
        units = [{entry: float(entry == axis) for entry in range(size)} for axis in range(size)]
        return np.array([[policy._bayes_lin_regs[arm].predict_one(unit) for unit in units] for arm in names])

    return Contender(
        label, play, PEER_ROUNDS, "contexts prepared as dicts", arms, differs="LinUCB without sampling, same posterior"
    )


def _vowpal(module: Any, label: str, history: History) -> Contender:
    workspace = module.Workspace(f"--cb_explore {history.count} --bag 5 --noconstant --quiet")
    line = "|c " + " ".join(f"{entry}:%.9g" for entry in range(history.contexts.shape[1]))
    texts = [line % tuple(c) for c in history.contexts.tolist()]
    rewards = history.rewards.tolist()
    uniforms = np.random.default_rng(0).random(len(rewards)).tolist()

    def play() -> list[list[float]]:
        propensities = []
        for text, reward, u in zip(texts, rewards, uniforms, strict=True):
            probabilities = workspace.predict(text)
            arm, cumulative = 0, probabilities[0]
            while cumulative < u and arm < history.count - 1:
                arm += 1
                cumulative += probabilities[arm]
            workspace.learn(f"{arm + 1}:{-reward}:{probabilities[arm]} {text}")
            propensities.append(probabilities)
        return propensities

    def check(propensities: list[list[float]]) -> None:
        assert np.shape(propensities) == (len(rewards), history.count)
        np.testing.assert_allclose(np.sum(propensities, axis=1), 1.0, atol=1e-4)
        assert np.ptp(propensities[-1]) > 0, "Vowpal Wabbit has learnt nothing"

    return Contender(
        label,
        play,
        len(rewards),
        "`--cb_explore --bag 5`, contexts prepared as text",
        differs="not LinTS but 5 bootstrapped gradient learners, which also return the probabilities of all arms",
        check=check,
        at_least=5.0,
    )


PEERS = (
    ("mabwiser", "mabwiser.mab", _mabwiser),
    ("contextualbandits", "contextualbandits.online", _contextual),
    ("bayesianbandits", "bayesianbandits", _bayesian),
    ("river", "river.bandit", _river),
    ("vowpalwabbit", "vowpalwabbit", _vowpal),
)
