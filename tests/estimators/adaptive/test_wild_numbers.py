"""Weights on numbers far from their prediction: a single wild number costs little, and ordinary ones change nothing."""

import copy

import numpy as np
import pytest

import halfseen as hs
from halfseen.agents.catalogue import AgentSpec
from halfseen.estimators.adaptive.estimator import without_spikes
from halfseen.experiments.play import build_policy
from halfseen.kernels.adaptive import kalman_step, weight
from halfseen.worlds import named

WILD_ROUND, ROUNDS = 400, 700


def test_the_weight_is_exactly_1_within_three_standard_deviations_and_continuous():
    for e in np.linspace(-3, 3, 61):
        assert weight(2.0 * e, 4.0) == 1.0
    assert weight(3.0 + 1e-9, 1.0) == pytest.approx(1.0, abs=1e-8)
    assert weight(10.0, 1.0) == pytest.approx(13 / 104)
    assert weight(1e200, 1.0) > 0.0


def test_innovations_within_three_standard_deviations_change_nothing():
    rng = np.random.default_rng(5)
    d, k = 3, 2
    D, Q = (0.9 * np.linalg.qr(rng.normal(size=(d, d)))[0]).reshape(1, -1), 0.2 * np.eye(d).reshape(1, -1)
    R, outside = 0.1 * np.eye(k).reshape(1, -1), 0
    beliefs = [(np.zeros((1, d)), np.eye(d).reshape(1, -1).copy()) for _ in range(2)]
    for _ in range(500):
        y, weights = 0.7 * rng.normal(size=k), np.empty(k)
        for robust, (x, P) in zip((True, False), beliefs, strict=True):
            kalman_step(0, d, D, Q, R, x, P, y, robust, weights if robust else np.empty(k))
        if (weights < 1.0).any():
            outside += 1
            beliefs[1] = tuple(array.copy() for array in beliefs[0])
        for one, other in zip(*beliefs, strict=True):
            np.testing.assert_array_equal(one, other)
    assert outside < 50


@pytest.mark.parametrize(("deviation", "unchanged"), [(-2.9, True), (0.5, True), (2.9, True), (3.5, False)])
def test_rewards_within_three_standard_deviations_are_learnt_without_weights(deviation, unchanged):
    """The weight is 1 at the prediction of the last fit, so moving this prediction to the reward removes the weight."""
    rng = np.random.default_rng(6)
    agent = hs.make("adaptive", observed=2, arms=2, seed=1, refit="manual")
    ys = rng.normal(size=(40, 2))
    agent.fold(ys, rng.integers(2, size=40), ys[:, 0] + 0.3 * rng.normal(size=40))
    agent.refit()
    weighted, row, arm = agent.policy.learner, np.array([0]), np.array([1])
    p = int(weighted.latent_dims[0]) + 1
    features = np.zeros((1, weighted.mean.shape[1] // 2))
    features[0, :p] = [1.0, *rng.normal(size=p - 1)]
    c, at = features[0, :p], slice(p, 2 * p)
    variance = weighted.replacement_data(row, arm)[0, 0] + weighted.fit_var[0, at] @ c**2
    predicted = weighted.fit_mean[0, at] @ c
    reward = predicted + deviation * np.sqrt(variance)
    unweighted = copy.deepcopy(weighted)
    unweighted.fit_mean[0, p] += reward - predicted
    for learner in (weighted, unweighted):
        learner.learn(row, features, arm, np.array([reward + learner.reward_origin[0]]))
    assert np.array_equal(weighted.mean, unweighted.mean) == unchanged
    assert np.array_equal(weighted.cov, unweighted.cov) == unchanged


def test_a_wild_entry_is_nearly_ignored_and_the_belief_becomes_less_certain():
    D, Q, R = 0.9 * np.eye(2).reshape(1, -1), 0.1 * np.eye(2).reshape(1, -1), 0.1 * np.eye(2).reshape(1, -1)
    results = []
    for y in ([0.2, 0.1], [0.2, 1e4], [0.2, np.nan]):
        x, P = np.zeros((1, 2)), np.eye(2).reshape(1, -1).copy()
        kalman_step(0, 2, D, Q, R, x, P, np.array(y), True, np.empty(2))
        results.append((x[0], P.reshape(2, 2)))
    (_, P_good), (x_wild, P_wild), (x_missing, P_missing) = results
    np.testing.assert_allclose(x_wild, x_missing, atol=0.01)
    np.testing.assert_allclose(P_wild, P_missing, atol=1e-5)
    assert P_wild[1, 1] > 5 * P_good[1, 1]


def regret_after(number: str | None, seed: int, at: int = WILD_ROUND) -> tuple[float, object]:
    world = named("keyhole")
    episodes = world.begin([seed])
    policy = build_policy(AgentSpec("adaptive", {}, "adaptive"), world, episodes, (seed,), ROUNDS)
    played, regret = episodes.advance(ROUNDS), 0.0
    for t in range(ROUNDS):
        y = played.observations[t].copy()
        if number == "observation" and t == at:
            y[0, 1] += 100.0
        choices = policy.decide(y)
        expected = played.expected[t, 0]
        reward = expected[choices.arms] + played.reward_noise[t]
        if number == "reward" and t == at:
            reward += 500.0
        policy.learn(choices.rounds, choices.features, choices.arms, reward)
        regret += (expected.max() - expected[choices.arms[0]]) * (t >= at)
    return regret, policy


@pytest.mark.parametrize("number", ["reward", "observation"])
def test_a_single_wild_number_costs_little(number):
    """Without weights, the regret of the rounds that follow was several times that without the wild number."""
    wild, usual = 0.0, 0.0
    for seed in (1100, 1101, 1102):
        regret, policy = regret_after(number, seed)
        wild, usual = wild + regret, usual + regret_after(None, seed)[0]
        assert policy.estimator.detected_changes[0] == 0
        facts = policy.health(0)[0]
        counted = "rewards far from their prediction" if number == "reward" else "entries far from their prediction"
        assert facts[counted] >= 1
    assert wild < 1.15 * usual


def test_a_wild_number_in_the_first_rounds_is_forgotten():
    wild, usual = (sum(regret_after(number, seed, at=12)[0] for seed in (1100, 1101)) for number in ("reward", None))
    assert wild < 1.5 * usual


def test_spikes_are_left_out_and_everything_else_is_kept():
    rng = np.random.default_rng(2)
    ys = np.cumsum(rng.normal(size=(300, 3)), axis=0)
    assert without_spikes(ys) is ys
    spiked = ys.copy()
    spiked[100, 1] += 500.0
    got = without_spikes(spiked)
    assert np.isnan(got).sum() == 1
    assert np.isnan(got[100, 1])
    stepped = ys.copy()
    stepped[150:, 0] += 500.0  # a change of the level is not a spike
    assert without_spikes(stepped) is stepped
    pulses = 0.01 * rng.normal(size=(300, 1))
    pulses[::20] += 1.0  # neither are pulses that come again and again
    assert without_spikes(pulses) is pulses


def test_rare_rewards_are_not_wild():
    """One of 250 rewards is 1, and the others are 0."""
    rng = np.random.default_rng(4)
    agent = hs.make("adaptive", observed=2, arms=2, seed=1, refit="manual")
    rewards = np.zeros(2000)
    rewards[100::250] = 1.0
    agent.fold(rng.normal(size=(2000, 2)), rng.integers(2, size=2000), rewards)
    agent.refit()
    learner, history = agent.policy.learner, agent.policy.estimator.history
    kept = learner.without_wild(0, history.features[0, :2000], history.arms[0, :2000], history.rewards[0, :2000])
    assert not np.isnan(kept).any()
