"""Calibration: predictions against a dense Gaussian, coverage, wrong noise variances, starved arms."""

import numpy as np
import pytest

from halfseen.diagnostics.calibration import arm_uncertainty, coverage, measure_calibration, predict_sequentially
from halfseen.diagnostics.examination_data import ExaminationData
from halfseen.diagnostics.explained_rewards import cross_validate


def test_predictions_are_conditional_moments_of_the_joint_gaussian():
    rng = np.random.default_rng(1)
    n, K, p = 14, 2, 3
    c, arms = rng.normal(size=(n, p)), rng.integers(K, size=n)
    rewards, noise = rng.normal(size=n), np.array([0.4, 1.7])
    rewards[4] = np.nan
    root = rng.normal(size=(p, p))
    prior, baseline = root @ root.T + 0.3 * np.eye(p), 0.6
    means, variances = predict_sequentially(c, arms, rewards, noise, prior, baseline)
    cov = np.where(arms[:, None] == arms, c @ prior @ c.T, 0.0) + np.diag(noise[arms])
    mean = baseline * c[:, 0]
    for t in range(n):
        past = np.flatnonzero(~np.isnan(rewards[:t]))
        gain = np.linalg.solve(cov[np.ix_(past, past)], cov[past, t])
        assert means[t] == pytest.approx(mean[t] + gain @ (rewards[past] - mean[past]), rel=1e-9)
        assert variances[t] == pytest.approx(cov[t, t] - gain @ cov[past, t], rel=1e-9)


def random_data(rng, n=3000, K=4, p=3, noise=0.8):
    x, slopes = rng.normal(size=(n, p)), rng.normal(size=(K, p))
    arms = rng.integers(K, size=n)
    rewards = (x * slopes[arms]).sum(axis=1) + noise * rng.normal(size=n)
    return x, ExaminationData.from_arrays(x, arms, rewards, features=p)


def test_correct_predictions_have_nominal_coverage():
    x, data = random_data(np.random.default_rng(2))
    found = measure_calibration(x, data.observed_rewards(), cross_validate(data, x, data.observed_rewards()).fit)
    for one in found.coverages:
        assert abs(one.share - one.level) < 3.5 * one.error
        assert one.error < 0.025
    assert found.histogram.sum() == pytest.approx(1.0)
    assert np.abs(found.histogram - 0.1).max() < 4 * np.sqrt(0.09 / 3000)


@pytest.mark.parametrize(("factor", "sign"), [(0.3, -1), (4.0, 1)])
def test_wrong_noise_variances_are_detected(factor, sign):
    x, data = random_data(np.random.default_rng(3))
    fit = cross_validate(data, x, data.observed_rewards()).fit
    found = measure_calibration(x, data.observed_rewards(), fit._replace(noise=factor * fit.noise))
    for one in found.coverages:
        assert sign * (one.share - one.level) > 3 * one.error


def test_autocorrelated_errors_cause_few_false_alarms():
    from scipy import stats

    rng, alarms, runs = np.random.default_rng(4), 0, 300
    for _ in range(runs):
        z = np.zeros(1500)
        shocks = rng.normal(size=1500)
        for t in range(1, 1500):
            z[t] = 0.8 * z[t - 1] + 0.6 * shocks[t]
        one = coverage(stats.norm.cdf(z), 0.5, np.arange(1500))
        alarms += abs(one.share - 0.5) > 2.6 * one.error
    assert alarms / runs < 0.04


def test_an_arm_with_few_rewards_that_may_be_best_is_starved():
    rng = np.random.default_rng(5)
    n, p = 800, 3
    x, slopes = rng.normal(size=(n, p)), rng.normal(size=(4, p))
    arms = rng.integers(3, size=n)
    arms[[10, 50]] = 3
    rewards = (x * slopes[arms]).sum(axis=1) + 0.4 * rng.normal(size=n)
    data = ExaminationData.from_arrays(x, arms, rewards, features=p)
    known = arm_uncertainty(x, data.observed_rewards(), cross_validate(data, x, data.observed_rewards()).fit)
    np.testing.assert_array_equal(known.starved, [3])
    assert known.rewards.tolist()[3] == 2
    assert known.unknown[3] > 0.25
    assert known.unknown[:3].max() < 0.05


def test_an_arm_that_is_clearly_bad_is_not_starved():
    rng = np.random.default_rng(6)
    n = 800
    x = rng.normal(size=(n, 2))
    arms = rng.integers(2, size=n)
    arms[::40] = 2
    rewards = np.where(arms == 2, -200.0, x[:, 0]) + 0.3 * rng.normal(size=n)
    data = ExaminationData.from_arrays(x, arms, rewards, features=2)
    known = arm_uncertainty(x, data.observed_rewards(), cross_validate(data, x, data.observed_rewards()).fit)
    assert 2 not in known.starved


def test_arms_are_not_compared_with_a_retired_arm():
    rng, n = np.random.default_rng(1), 300
    x = rng.normal(size=(n, 2))
    arms = np.where(np.arange(n) < 3, 2, np.arange(n) % 2)
    rewards = np.array([12.0, 0.0, 1.0])[arms] + x[:, 0] + 0.3 * rng.normal(size=n)
    data = ExaminationData.from_arrays(x, arms, rewards, features=2, arm_names=["old", "dull", "rare"])
    fit = cross_validate(data, x, data.observed_rewards()).fit
    assert arm_uncertainty(x, data.observed_rewards(), fit).contending[1] < 0.1
    assert arm_uncertainty(x, data.observed_rewards(), fit, retired={0}).contending[1] > 0.1


def test_predictions_of_large_rewards_are_finite():
    """The squares of rewards within ±1e100 are finite, but not their fourth powers."""
    rng = np.random.default_rng(3)
    features, arms = rng.normal(size=(20, 2)), np.zeros(20, dtype=np.int64)
    rewards, unit = rng.normal(size=20), 1e100
    means, variances = predict_sequentially(features, arms, rewards, np.ones(1), np.eye(2), 0.0)
    large = predict_sequentially(features, arms, unit * rewards, np.full(1, unit**2), unit**2 * np.eye(2), 0.0)
    np.testing.assert_allclose(large[0] / unit, means, rtol=1e-9)
    np.testing.assert_allclose(large[1] / unit**2, variances, rtol=1e-9)
