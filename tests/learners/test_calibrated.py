"""Calibrated arms: the predicted distribution of a reward is the distribution of the rewards."""

import numpy as np
import pytest
from scipy import stats

import halfseen as hs
from halfseen.components import StreamBatch
from halfseen.kernels.evidence import fit_arms
from halfseen.kernels.random import stream_keys
from halfseen.learners.calibrated import Calibrated, RewardHistory, fit_rewards

ARMS, D = 4, 3
P = D + 1
PRIOR = np.diag([0.5, 0.3, 1.0, 2.0])


def simulate(seed, n, noise=0.7):
    """Draw θ_a ~ N((5, 0, ..), Λ), and n features, arms and rewards; then another feature with a reward of each arm."""
    rng = np.random.default_rng([seed, 31])
    theta = rng.multivariate_normal([5.0, 0, 0, 0], PRIOR, size=ARMS)
    features = np.hstack([np.ones((n + 1, 1)), rng.normal(size=(n + 1, D))])
    arms = rng.integers(ARMS, size=n)
    rewards = (features[:-1] * theta[arms]).sum(axis=1) + noise * rng.normal(size=n)
    return features[:-1], arms, rewards, features[-1], theta @ features[-1] + noise * rng.normal(size=ARMS)


def uniformity_p_value(ranks):
    counts = np.histogram(ranks, bins=10, range=(0, 1))[0]
    return stats.chisquare(counts).pvalue


@pytest.mark.parametrize("n", [3, 12, 60])
def test_simulation_based_calibration_with_known_hyperparameters(n):
    """Each simulation tests only one arm, because the arms of a simulation share a feature.

    With few rewards the prior matters.
    """
    ranks, noise_var = [], 0.49
    for seed in range(1500):
        features, arms, rewards, c, truth = simulate(seed, n)
        mine, a = arms == seed % ARMS, seed % ARMS
        F, r = features[mine], rewards[mine]
        G, h = np.zeros((ARMS, P, P)), np.zeros((ARMS, P))
        G[a], h[a] = F.T @ F, F.T @ r
        squares, counts = np.zeros(ARMS), np.zeros(ARMS)
        squares[a], counts[a] = r @ r, len(r)
        mean, cov = np.empty((ARMS, P)), np.empty((ARMS, P, P))
        fit_arms(G, h, squares, counts, np.full(ARMS, noise_var), PRIOR.copy(), 5.0, mean, cov, 0, 0.0)
        ranks.append(stats.norm.cdf((truth[a] - mean[a] @ c) / np.sqrt(c @ cov[a] @ c + noise_var)))
    assert uniformity_p_value(ranks) > 1e-3
    assert (
        uniformity_p_value(np.clip((np.array(ranks) - 0.5) * 0.85 + 0.5, 0, 1)) < 1e-3
    )  # the test detects intervals that are 15 % too wide


@pytest.mark.parametrize("n", [60, 300])
def test_simulation_based_calibration_with_estimated_hyperparameters(n):
    ranks = []
    for seed in range(600):
        features, arms, rewards, c, truth = simulate(seed, n)
        found, a = fit_rewards(features, arms, rewards, ARMS), seed % ARMS
        spread = np.sqrt(c @ found.cov[a] @ c + found.noise[a])
        ranks.append(stats.norm.cdf((truth[a] - found.origin - found.mean[a] @ c) / spread))
    assert uniformity_p_value(ranks) > 1e-3


def learner(count=1, arms=ARMS, width=P + 3):
    return Calibrated(StreamBatch(stream_keys(np.arange(count)), 2, arms), width)


def padded(features, width):
    wide = np.full((len(features), width), 1e3)  # entries beyond the dimension of the model must not matter
    wide[:, : features.shape[1]] = features
    return wide


def test_learning_reward_by_reward_equals_a_fit_with_the_same_hyperparameters():
    features, arms, rewards, c, _ = simulate(3, 80)
    one = learner(2)
    found = one.fit(1, features[:50], arms[:50], rewards[:50], warm=False)
    one.use_fit(1, D, found)
    width, row = P + 3, np.array([1])
    for t in range(50, 80):
        one.learn(row, padded(features[t : t + 1], width), arms[t : t + 1], rewards[t : t + 1])
    means, variances = one.score(row, padded(c[None], width))
    for a in range(ARMS):
        F, r = features[arms == a], rewards[arms == a] - found.origin
        precision = np.linalg.inv(found.prior) + F.T @ F / found.noise[a]
        start = np.linalg.solve(found.prior, [found.baseline, 0, 0, 0])
        want = np.linalg.solve(precision, start + F.T @ r / found.noise[a])
        assert means[0, a] == pytest.approx(want @ c + found.origin, rel=1e-8)
        assert variances[0, a] == pytest.approx(c @ np.linalg.solve(precision, c), rel=1e-8)
    np.testing.assert_allclose(one.noise(row, c[None])[0], found.noise)
    assert one.reward_counts[1].sum() == 30
    assert not one.reward_counts[0].any()


def test_before_the_first_fit_all_arms_have_the_same_prediction():
    one = learner()
    means, variances = one.score(np.array([0]), padded(np.ones((1, 3)), P + 3))
    assert means.tolist() == [[0.0] * ARMS]
    assert variances.tolist() == [[1.0] * ARMS]
    assert one.fit(0, np.ones((5, 3)), np.zeros(5, dtype=int), np.full(5, np.nan), warm=False) is None
    assert one.health(0) == ({}, [])


def test_an_added_arm_equals_an_arm_without_rewards():
    features, arms, rewards, _, _ = simulate(4, 60)
    few, many = learner(arms=ARMS), learner(arms=ARMS + 1)
    for one in (few, many):
        one.use_fit(0, D, one.fit(0, features, arms, rewards, warm=False))
    few.add_arm(None)
    for name, value in few.state().items():
        np.testing.assert_array_equal(value, many.state()[name], err_msg=name)
    assert few.arms_without_reward(0).tolist() == list(range(ARMS + 1))
    with pytest.raises(
        hs.HalfseenError, match=r"^params: expected nothing, as this agent estimates the arm parameters, got 3.0$"
    ):
        few.add_arm(3.0)
    assert few.arms == ARMS + 1


def test_leave_one_out_error_equals_that_of_separate_fits():
    """Each fit leaves out one reward, with the hyperparameters of all rewards, and predicts it on other features."""
    features, arms, rewards, *_ = simulate(5, 40)
    rewards[[3, 17]] = np.nan
    query = features + 0.3 * np.random.default_rng(9).normal(size=features.shape)
    whole = fit_rewards(features, arms, rewards, ARMS)
    errors = []
    for t in np.flatnonzero(~np.isnan(rewards)):
        mine = (arms == arms[t]) & ~np.isnan(rewards) & (np.arange(40) != t)
        noise, precision = whole.noise[arms[t]], np.linalg.inv(whole.prior)
        start = np.array([whole.baseline, 0, 0, 0])
        system = precision + features[mine].T @ features[mine] / noise
        mean = np.linalg.solve(system, precision @ start + features[mine].T @ (rewards[mine] - whole.origin) / noise)
        errors.append((rewards[t] - whole.origin - query[t] @ mean) ** 2)
    got = RewardHistory(arms, rewards, ARMS)
    assert got.count == 38
    np.testing.assert_allclose(got.leave_one_out_error(features, query), np.mean(errors), rtol=1e-8)
