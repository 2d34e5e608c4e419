"""The selected model is a fitted one unless y itself predicts left-out rewards better."""

import numpy as np
import pytest

from halfseen.models.identification.selection import (
    ENOUGH_REWARDS,
    REJECTION_MARGIN,
    Origins,
    fit_from_scratch,
    select_model,
)

K, D, N = 2, 3, 200


class FakeRewards:
    """Reward evidence that prefers three dimensions and has the given prediction errors."""

    def __init__(self, *, smoothed, filtered, plain, count=ENOUGH_REWARDS):
        self.count = count
        self._errors = {"smoothed": smoothed, "filtered": filtered, "plain": plain}
        self.calls = []

    def evidence(self, features, *, through_zero=False):
        return float(features.shape[1])

    def leave_one_out_error(self, features, query, *, through_zero=False):
        if features.shape[1] == K + 1:
            return self._errors["plain"]
        self.calls.append((features, query))
        return self._errors["filtered" if features is query or np.array_equal(features, query) else "smoothed"]


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(3)
    rotation = 0.95 * np.linalg.qr(rng.normal(size=(D, D)))[0]
    x, ys = np.zeros(D), []
    for _ in range(N):
        x = rotation @ x + 0.3 * rng.normal(size=D)
        ys.append(x[:K] + 0.1 * rng.normal(size=K))
    y = np.array(ys) / np.std(ys, axis=0)
    return y, fit_from_scratch(y, D, np.linalg.qr(rng.normal(size=(D, D)))[0], noisy=False)


def select(fitted, rewards):
    y, fit = fitted
    return select_model(y, {0: fit}, origins=Origins(np.zeros(K), None, True), rewards=rewards)


def test_a_model_that_predicts_well_is_kept_and_arms_learn_on_smoothed_contexts(fitted):
    worse = np.exp(1.9 * REJECTION_MARGIN / ENOUGH_REWARDS)  # a little less than REJECTION_MARGIN nats
    rewards = FakeRewards(smoothed=worse, filtered=0.1, plain=1.0)
    got = select(fitted, rewards)
    assert not got.plain
    assert not np.allclose(got.features[:, 1:], got.filtered[1:], atol=1e-3)
    features, query = rewards.calls[0]
    np.testing.assert_array_equal(features, got.features)
    np.testing.assert_array_equal(query[:, 1:], got.filtered[1:])


def test_arms_learn_on_filtered_contexts_if_smoothed_ones_predict_worse(fitted):
    got = select(fitted, FakeRewards(smoothed=1.5, filtered=0.9, plain=1.0))
    assert not got.plain
    np.testing.assert_array_equal(got.features[:, 1:], got.filtered[1:])
    np.testing.assert_array_equal(got.smooth_cov, got.end_cov)


def test_the_context_is_y_if_filtered_contexts_predict_worse_too(fitted):
    got = select(fitted, FakeRewards(smoothed=1.5, filtered=1.1, plain=1.0))
    assert got.plain
    np.testing.assert_allclose(got.features[:, 1:], fitted[0], atol=1e-4)


def test_few_rewards_cannot_reject_a_model(fitted):
    assert not select(fitted, FakeRewards(smoothed=9.0, filtered=9.0, plain=1.0, count=ENOUGH_REWARDS - 1)).plain


def test_prediction_errors_of_zero_are_allowed(fitted):
    assert not select(fitted, FakeRewards(smoothed=0.0, filtered=0.0, plain=0.0)).plain
