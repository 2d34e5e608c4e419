"""Calibrated arms: what they say of a reward is as often right as they say."""

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


def simulated(seed, n, noise=0.7):
    """θ ~ N((5, 0, ..), Λ) for each arm, features and rewards; then a fresh feature and each arm's reward there."""
    rng = np.random.default_rng([seed, 31])
    theta = rng.multivariate_normal([5.0, 0, 0, 0], PRIOR, size=ARMS)
    features = np.hstack([np.ones((n + 1, 1)), rng.normal(size=(n + 1, D))])
    arms = rng.integers(ARMS, size=n)
    rewards = (features[:-1] * theta[arms]).sum(axis=1) + noise * rng.normal(size=n)
    return features[:-1], arms, rewards, features[-1], theta @ features[-1] + noise * rng.normal(size=ARMS)


def uniform_enough(ranks):
    counts = np.histogram(ranks, bins=10, range=(0, 1))[0]
    return stats.chisquare(counts).pvalue


@pytest.mark.parametrize("n", [3, 12, 60])
def test_simulation_based_calibration_with_the_hyperparameters_known(n):
    """One arm a simulation: arms share a feature. Few rewards, so the prior counts."""
    ranks, noise_var = [], 0.49
    for seed in range(1500):
        features, arms, rewards, c, truth = simulated(seed, n)
        mine, a = arms == seed % ARMS, seed % ARMS
        F, r = features[mine], rewards[mine]
        G, h = np.zeros((ARMS, P, P)), np.zeros((ARMS, P))
        G[a], h[a] = F.T @ F, F.T @ r
        squares, counts = np.zeros(ARMS), np.zeros(ARMS)
        squares[a], counts[a] = r @ r, len(r)
        mean, cov = np.empty((ARMS, P)), np.empty((ARMS, P, P))
        fit_arms(G, h, squares, counts, np.full(ARMS, noise_var), PRIOR.copy(), 5.0, mean, cov, 0, 0.0)
        ranks.append(stats.norm.cdf((truth[a] - mean[a] @ c) / np.sqrt(c @ cov[a] @ c + noise_var)))
    assert uniform_enough(ranks) > 1e-3
    assert uniform_enough(np.clip((np.array(ranks) - 0.5) * 0.85 + 0.5, 0, 1)) < 1e-3  # 15 % too wide would be seen


@pytest.mark.parametrize("n", [60, 300])
def test_simulation_based_calibration_with_the_hyperparameters_found(n):
    ranks = []
    for seed in range(600):
        features, arms, rewards, c, truth = simulated(seed, n)
        found, a = fit_rewards(features, arms, rewards, ARMS), seed % ARMS
        spread = np.sqrt(c @ found.cov[a] @ c + found.noise[a])
        ranks.append(stats.norm.cdf((truth[a] - found.origin - found.mean[a] @ c) / spread))
    assert uniform_enough(ranks) > 1e-3


def learner(count=1, arms=ARMS, width=P + 3):
    return Calibrated(StreamBatch(stream_keys(np.arange(count)), 2, arms), width)


def padded(features, width):
    wide = np.full((len(features), width), 1e3)  # what lies behind a stream's own dimension must not matter
    wide[:, : features.shape[1]] = features
    return wide


def test_reward_by_reward_is_the_fit_of_all_with_its_hyperparameters():
    features, arms, rewards, c, _ = simulated(3, 80)
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


def test_before_any_fit_all_arms_look_alike():
    one = learner()
    means, variances = one.score(np.array([0]), padded(np.ones((1, 3)), P + 3))
    assert means.tolist() == [[0.0] * ARMS]
    assert variances.tolist() == [[1.0] * ARMS]
    assert one.fit(0, np.ones((5, 3)), np.zeros(5, dtype=int), np.full(5, np.nan), warm=False) is None
    assert one.health(0) == ({}, [])


def test_an_added_arm_is_one_without_a_reward():
    features, arms, rewards, _, _ = simulated(4, 60)
    few, many = learner(arms=ARMS), learner(arms=ARMS + 1)
    for one in (few, many):
        one.use_fit(0, D, one.fit(0, features, arms, rewards, warm=False))
    few.add_arm(None)
    for name, value in few.state().items():
        np.testing.assert_array_equal(value, many.state()[name], err_msg=name)
    assert few.arms_without_reward(0).tolist() == list(range(ARMS + 1))
    with pytest.raises(hs.HalfseenError, match=r"^params: expected nothing, got 3.0"):
        few.add_arm(3.0)
    assert few.arms == ARMS + 1


def test_leave_one_out_error_is_that_of_arms_fitted_again_without_each_reward():
    """One by one, with the hyperparameters of all: on other features than the arms were learnt on."""
    features, arms, rewards, *_ = simulated(5, 40)
    rewards[[3, 17]] = np.nan
    asked = features + 0.3 * np.random.default_rng(9).normal(size=features.shape)
    whole = fit_rewards(features, arms, rewards, ARMS)
    errors = []
    for t in np.flatnonzero(~np.isnan(rewards)):
        mine = (arms == arms[t]) & ~np.isnan(rewards) & (np.arange(40) != t)
        noise, precision = whole.noise[arms[t]], np.linalg.inv(whole.prior)
        start = np.array([whole.baseline, 0, 0, 0])
        system = precision + features[mine].T @ features[mine] / noise
        mean = np.linalg.solve(system, precision @ start + features[mine].T @ (rewards[mine] - whole.origin) / noise)
        errors.append((rewards[t] - whole.origin - asked[t] @ mean) ** 2)
    got = RewardHistory(arms, rewards, ARMS)
    assert got.count == 38
    np.testing.assert_allclose(got.leave_one_out_error(features, asked), np.mean(errors), rtol=1e-8)
