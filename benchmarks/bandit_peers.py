"""Bandit libraries beside `ts-pco`: each decides and learns by its public API, in the cheapest way we found.

All start from the same prior, N(0, I) with unit noise. What is compared is the posterior mean of every arm after one
history that was dealt to all of them; the draws, and so the decisions, are each library's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import Contender
from benchmarks.peers import Entrants

ROUNDS = 60  # of those that take their time


@dataclass(frozen=True)
class Record:
    """A history to learn from: contexts (n, d), the arms played (n,), their rewards (n,)."""

    contexts: np.ndarray
    arms: np.ndarray
    rewards: np.ndarray
    count: int  # of arms


def enter_all(entrants: Entrants, record: Record) -> None:
    entrants.enter("mabwiser", "mabwiser.mab", lambda module, label: _mabwiser(module, label, record))
    entrants.enter(
        "contextualbandits", "contextualbandits.online", lambda module, label: _contextual(module, label, record)
    )
    entrants.enter("bayesianbandits", "bayesianbandits", lambda module, label: _bayesian(module, label, record))
    entrants.enter("river", "river.bandit", lambda module, label: _river(module, label, record))
    entrants.enter("vowpalwabbit", "vowpalwabbit", lambda module, label: _vowpal(module, label, record))


def _mabwiser(module: Any, label: str, record: Record) -> Contender:
    def fitted() -> Any:
        mab = module.MAB(list(range(record.count)), module.LearningPolicy.LinTS(alpha=1.0, l2_lambda=1.0))
        mab.fit(record.arms.tolist(), record.rewards.tolist(), record.contexts)
        return mab

    trained = fitted()

    def play() -> None:
        for c, reward in zip(record.contexts[:ROUNDS], record.rewards[:ROUNDS], strict=True):
            trained.partial_fit([trained.predict(c[None])], [reward], c[None])

    def arms() -> np.ndarray:
        return np.stack([fitted()._imp.arm_to_model[arm].beta for arm in range(record.count)])

    return Contender(label, play, ROUNDS, "LinTS", arms, at_least=100.0)


def _contextual(module: Any, label: str, record: Record) -> Contender:
    def fitted() -> Any:
        policy = module.LinTS(
            record.count, lambda_=1.0, v_sq=1.0, fit_intercept=False, method="chol", random_state=1, njobs=1
        )
        return policy.fit(record.contexts, record.arms, record.rewards)

    trained = fitted()

    def play() -> None:
        for t in range(ROUNDS):
            c = record.contexts[t : t + 1]
            trained.partial_fit(c, trained.predict(c), record.rewards[t : t + 1])

    def arms() -> np.ndarray:
        return np.stack([one.model.coef_.ravel() for one in fitted()._oracles.algos])

    return Contender(label, play, ROUNDS, 'LinTS, method="chol", its fastest here', arms)


def _bayesian(module: Any, label: str, record: Record) -> Contender:
    def fitted() -> Any:
        arms = [module.Arm(a, learner=module.NormalRegressor(alpha=1.0, beta=1.0)) for a in range(record.count)]
        agent = module.ContextualAgent(arms, module.ThompsonSampling(), random_seed=0)
        for t, arm in enumerate(record.arms):
            agent.select_for_update(int(arm)).update(record.contexts[t : t + 1], record.rewards[t : t + 1])
        return agent

    trained = fitted()

    def play() -> None:
        for t in range(ROUNDS):
            c = record.contexts[t : t + 1]
            trained.pull(c)
            trained.update(c, record.rewards[t : t + 1])

    def arms() -> np.ndarray:
        return np.stack([arm.learner.coef_ for arm in fitted().arms])

    return Contender(label, play, ROUNDS, "Thompson sampling on NormalRegressor", arms, at_least=100.0)


def _river(module: Any, label: str, record: Record) -> Contender:
    rows = [dict(enumerate(c)) for c in record.contexts.tolist()]
    names, rewards = list(range(record.count)), record.rewards.tolist()

    def fitted() -> Any:
        policy = module.LinUCBDisjoint(alpha=1.0, beta=1.0, seed=0)
        for arm, row, reward in zip(record.arms.tolist(), rows, rewards, strict=True):
            policy.update(arm, row, reward)
        return policy

    trained = fitted()

    def play() -> None:
        for row, reward in zip(rows[:ROUNDS], rewards[:ROUNDS], strict=True):
            trained.update(trained.pull(names, row), row, reward)

    def arms() -> np.ndarray:
        policy, size = fitted(), record.contexts.shape[1]
        ones = [{at: float(at == one) for at in range(size)} for one in range(size)]
        return np.array([[policy._bayes_lin_regs[arm].predict_one(one) for one in ones] for arm in names])

    return Contender(
        label, play, ROUNDS, "contexts ready as dicts", arms, differs="LinUCB, no sampling; the same posterior"
    )


def _vowpal(module: Any, label: str, record: Record) -> Contender:
    workspace = module.Workspace(f"--cb_explore {record.count} --bag 5 --noconstant --quiet")
    line = "|c " + " ".join(f"{at}:%.9g" for at in range(record.contexts.shape[1]))
    texts = [line % tuple(c) for c in record.contexts.tolist()]
    rewards = record.rewards.tolist()
    uniforms = np.random.default_rng(0).random(len(rewards)).tolist()

    def play() -> list[list[float]]:
        shares_seen = []
        for text, reward, u in zip(texts, rewards, uniforms, strict=True):
            shares = workspace.predict(text)
            arm, below = 0, shares[0]
            while below < u and arm < record.count - 1:
                arm += 1
                below += shares[arm]
            workspace.learn(f"{arm + 1}:{-reward}:{shares[arm]} {text}")
            shares_seen.append(shares)
        return shares_seen

    def check(shares: list[list[float]]) -> None:
        assert np.shape(shares) == (len(rewards), record.count)
        np.testing.assert_allclose(np.sum(shares, axis=1), 1.0, atol=1e-4)
        assert np.ptp(shares[-1]) > 0, "it has learnt nothing"

    return Contender(
        label,
        play,
        len(rewards),
        "`--cb_explore --bag 5`, contexts ready as text",
        differs="not LinTS: 5 bootstrapped gradient learners, which give the probabilities of all arms with the choice",
        check=check,
        at_least=5.0,
    )
