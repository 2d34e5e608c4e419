"""The posterior by rank-one updates against the normal equations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfseen.components import StreamBatch
from halfseen.errors import HalfseenError
from halfseen.kernels.random import stream_keys
from halfseen.kernels.regression import score_known
from halfseen.learners.ridge import Ridge


def ridge(streams=2, arms=3, dimension=4, regularisation=2.5):
    return Ridge(StreamBatch(stream_keys(range(streams)), 1, arms), dimension, regularisation=regularisation)


def normal_equations(features, arms, rewards, arm, regularisation):
    of_arm = arms == arm
    precision = regularisation * np.eye(features.shape[1]) + features[of_arm].T @ features[of_arm]
    return np.linalg.solve(precision, features[of_arm].T @ rewards[of_arm]), np.linalg.inv(precision)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    dimension=st.integers(1, 9),
    rounds=st.integers(0, 60),
    regularisation=st.floats(0.05, 20),
)
def test_the_posterior_is_the_ridge_solution(seed, dimension, rounds, regularisation):
    rng = np.random.default_rng(seed)
    learner = ridge(dimension=dimension, regularisation=regularisation)
    features, arms, rewards = (
        rng.normal(size=(rounds, dimension)),
        rng.integers(3, size=rounds),
        rng.normal(size=rounds),
    )
    learner.learn(np.ones(rounds, dtype=np.int64), features, arms, rewards)
    probe = rng.normal(size=(1, dimension))
    means, variances = learner.score(np.array([1]), probe)
    for arm in range(3):
        mean, cov = normal_equations(features, arms, rewards, arm, regularisation)
        np.testing.assert_allclose(learner.mean[1, arm], mean, atol=1e-9)
        np.testing.assert_allclose(learner.covariances[1, arm], cov, atol=1e-9)
        assert means[0, arm] == pytest.approx(float(probe[0] @ mean), abs=1e-9)
        assert variances[0, arm] == pytest.approx(float(probe[0] @ cov @ probe[0]), abs=1e-9)
        gained = -np.linalg.slogdet(cov)[1] - dimension * np.log(regularisation)
        assert learner.log_determinants(np.array([1]))[0, arm] == pytest.approx(gained, abs=1e-8)
    np.testing.assert_array_equal(learner.mean[0], 0)  # the other stream has no rewards


def test_twenty_thousand_updates_stay_accurate():
    rng = np.random.default_rng(3)
    learner, rounds = ridge(streams=1, arms=1, dimension=20, regularisation=1.7), 20_000
    features = rng.normal(size=(rounds, 20)) * np.geomspace(0.01, 10, 20)
    rewards, arms = rng.normal(size=rounds), np.zeros(rounds, dtype=np.int64)
    learner.learn(arms, features, arms, rewards)
    mean, cov = normal_equations(features, arms, rewards, 0, 1.7)
    np.testing.assert_allclose(learner.covariances[0, 0], cov, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(learner.mean[0, 0], mean, rtol=1e-6, atol=1e-9)


def test_known_arms_are_scored_by_their_parameters():
    rng = np.random.default_rng(0)
    table, features = rng.normal(size=(3, 4, 5)), rng.normal(size=(2, 5))
    got = np.empty((2, 4))
    score_known(np.array([2, 0]), table, features, got)
    np.testing.assert_allclose(got, [table[2] @ features[0], table[0] @ features[1]])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 3e4, 1e5])
def test_the_mean_is_accurate_at_every_scale_that_is_accepted(scale):
    rng = np.random.default_rng(4)
    learner = ridge(streams=1, arms=1, dimension=3)
    features, rewards, arms = scale * rng.normal(size=(40, 3)), rng.normal(size=40), np.zeros(40, dtype=np.int64)
    learner.learn(arms, features, arms, rewards)
    mean, _ = normal_equations(features, arms, rewards, 0, 2.5)
    np.testing.assert_allclose(scale * learner.mean[0, 0], scale * mean, rtol=1e-3)


def test_a_refused_reward_changes_nothing():
    learner, zeros = ridge(streams=1, arms=1, dimension=3), np.zeros(1, dtype=np.int64)
    before = {name: value.copy() for name, value in learner.state().items()}
    with pytest.raises(HalfseenError) as caught:
        learner.learn(zeros, np.array([[1e8, 0.0, 2.0]]), zeros, np.ones(1))
    assert str(caught.value) == (
        "context: expected smaller entries (rescale the observations, or raise the regularisation, now 2.5), got 1e+08"
    )
    for name, value in learner.state().items():
        np.testing.assert_array_equal(value, before[name])


def test_a_refused_reward_does_not_affect_other_rows():
    learner, zeros = ridge(streams=3, arms=1, dimension=2), np.zeros(3, dtype=np.int64)
    features = np.array([[1.0, 0.0], [1e9, 0.0], [1.0, 0.0]])
    with pytest.raises(HalfseenError):
        learner.learn(np.arange(3), features, zeros, np.ones(3))
    np.testing.assert_allclose(learner.mean[:, 0, 0], [1 / 3.5, 0, 1 / 3.5])


@pytest.mark.parametrize("growth", [2.0, 30.0])
def test_the_covariance_stays_positive_semi_definite_when_features_grow(growth):
    """Each reward is learnt or refused. Without the guard, eigenvalues became as negative as the largest was large."""
    rng, learner, refused = np.random.default_rng(4), ridge(1, 1, 3, 0.01), 0
    for t in range(60):
        feature = rng.normal(size=(1, 3)) * growth ** (t % 30)
        try:
            learner.learn(np.array([0]), feature, np.array([0]), np.array([1.0]))
        except HalfseenError:
            refused += 1
        cov = learner.covariances[0, 0]
        assert np.linalg.eigvalsh(cov / np.abs(cov).max())[0] > -1e-12
    assert refused < 30


def test_a_feature_along_which_the_covariance_has_no_correct_digit_is_refused():
    learner, feature = ridge(1, 1, 2, 1.0), np.array([[1e5, 1e5]])
    learner.learn(np.array([0]), feature, np.array([0]), np.array([1.0]))
    before = learner.cov_packed.copy()
    with pytest.raises(HalfseenError, match=r"^context: expected smaller entries"):
        learner.learn(np.array([0]), 1e16 * feature * [[1.0, 1.0 + 1e-12]], np.array([0]), np.array([1.0]))
    np.testing.assert_array_equal(learner.cov_packed, before)
