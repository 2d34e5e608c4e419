"""Rewards explained out of sample: against a fit by hand, known shares, false alarms."""

import numpy as np
import pytest

from halfseen.diagnostics.examination_data import ExaminationData
from halfseen.diagnostics.explained_rewards import (
    FOLDS,
    Improvement,
    cross_validate,
    explain_rewards,
    fill_with_means,
    filter_without_hidden,
    grade,
    greedy_reward,
    improvement,
    observed_block,
    share_explained,
)


def random_data(rng, n, K, p, noise, *, every=False):
    """Contexts (n, p), arms' slopes, and a data in which the arm is drawn by lot."""
    contexts, slopes = rng.normal(size=(n, p)), rng.normal(size=(K, p))
    rewards = 3.0 + contexts @ slopes.T + noise * rng.normal(size=(n, K))
    arms = rng.integers(K, size=n)
    observed = rewards if every else rewards[np.arange(n), arms]
    return (
        contexts,
        slopes,
        ExaminationData.from_arrays(contexts, arms, observed, features=p, arm_names=[f"a{i}" for i in range(K)]),
    )


def test_a_block_is_predicted_by_the_others_alone():
    rng = np.random.default_rng(1)
    contexts, _, data = random_data(rng, 230, 3, 2, 0.7)
    held = cross_validate(data, contexts, data.observed_rewards())
    features = np.column_stack([np.ones(230), contexts])
    fit, start = held.fit, np.array([held.fit.baseline, 0.0, 0.0])
    for block in range(FOLDS):
        inside = np.arange(230) * FOLDS // 230 == block
        for a in range(3):
            used = ~inside & (data.arms == a)
            c, r = features[used], data.rewards[used] - fit.origin
            # The posterior as the conditional mean of a joint Gaussian of θ and the rewards.
            S = c @ fit.prior @ c.T + fit.noise[a] * np.eye(len(c))
            theta = start + fit.prior @ c.T @ np.linalg.solve(S, r - c @ start)
            np.testing.assert_allclose(held.predicted[inside, a], features[inside] @ theta + fit.origin, rtol=1e-7)


@pytest.mark.parametrize("every", [True, False])
def test_shares_are_those_of_the_signal(every):
    rng = np.random.default_rng(2)
    contexts, slopes, data = random_data(rng, 4000, 4, 3, 1.5, every=every)
    arm_means = cross_validate(data, np.zeros((4000, 0)), data.observed_rewards())
    signal = (slopes**2).sum(axis=1).mean()
    assert share_explained(cross_validate(data, contexts, data.observed_rewards()), arm_means) == pytest.approx(
        signal / (signal + 1.5**2), abs=0.03
    )
    part = (slopes[:, :2] ** 2).sum(axis=1).mean()
    assert share_explained(cross_validate(data, contexts[:, :2], data.observed_rewards()), arm_means) == pytest.approx(
        part / (signal + 1.5**2), abs=0.03
    )


def test_greedy_reward_is_that_of_the_best_arm():
    rng = np.random.default_rng(3)
    contexts, slopes, data = random_data(rng, 5000, 3, 2, 0.3, every=True)
    best = 3.0 + (contexts @ slopes.T).max(axis=1).mean()
    assert greedy_reward(data, cross_validate(data, contexts, data.observed_rewards())) == pytest.approx(best, abs=0.03)
    blind = greedy_reward(data, cross_validate(data, np.zeros((5000, 0)), data.observed_rewards()))
    assert blind == pytest.approx(np.nanmean(data.rewards, axis=0).max(), abs=0.05)


def test_features_of_no_use_are_seldom_taken_for_a_gain():
    """Autocorrelated features that have nothing to do with rewards: `clear` in at most one of forty, and bounds."""
    rng, alarms, runs = np.random.default_rng(4), 0, 200
    for _ in range(runs):
        contexts, _, data = random_data(rng, 400, 3, 2, 1.0)
        useless = np.cumsum(rng.normal(size=(400, 2)), axis=0)
        observed = data.observed_rewards()
        arm_means = cross_validate(data, np.zeros((400, 0)), observed)
        more = cross_validate(data, np.column_stack([contexts, useless / useless.std(axis=0)]), observed)
        alarms += improvement(cross_validate(data, contexts, observed), more, arm_means, observed.rounds).significant
    assert alarms / runs <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / runs)


def test_errors_of_a_gain_are_of_the_right_size():
    """The spread of the gain over repeated records is what its standard error says."""
    rng, values, errors = np.random.default_rng(5), [], []
    slopes = rng.normal(size=(3, 2))
    for _ in range(150):
        contexts = rng.normal(size=(600, 2))
        arms = rng.integers(3, size=600)
        rewards = (contexts * slopes[arms]).sum(axis=1) + rng.normal(size=600)
        data = ExaminationData.from_arrays(contexts, arms, rewards, features=2)
        observed = data.observed_rewards()
        arm_means = cross_validate(data, np.zeros((600, 0)), observed)
        less, more = cross_validate(data, contexts[:, :1], observed), cross_validate(data, contexts, observed)
        found = improvement(less, more, arm_means, observed.rounds)
        values.append(found.value)
        errors.append(found.error)
    assert 0.8 < np.mean(errors) / np.std(values) < 1.25


def test_grades():
    assert grade(Improvement(0.2, 0.01), 0.9) == "much"
    assert grade(Improvement(0.05, 0.01), 0.9) == "some"
    assert grade(Improvement(0.02, 0.001), 0.9) == "little"
    assert grade(Improvement(0.2, 0.15), 0.9) == "little"
    assert grade(Improvement(0.004, 0.001), 0.02) == "much"  # a fifth of the little that can be explained
    assert grade(Improvement(0.004, 0.001), -0.1) == "little"


def walk(rng, n, memory=0.97):
    x = np.zeros(n)
    for t in range(1, n):
        x[t] = memory * x[t - 1] + np.sqrt(1 - memory**2) * rng.normal()
    return x


def test_a_noisy_sensor_pays_by_filtering_and_not_by_anything_hidden():
    rng = np.random.default_rng(6)
    x = walk(rng, 2500)
    ys = (x + 1.2 * rng.normal(size=2500))[:, None]
    arms = rng.integers(2, size=2500)
    rewards = np.where(arms == 0, x, -x) + 0.3 * rng.normal(size=2500)
    data = ExaminationData.from_arrays(ys, arms, rewards, features=1)
    found = explain_rewards(data, np.column_stack([ys[:, 0], filter_without_hidden(ys)[0][:, 0]]), np.zeros((2500, 1)))
    # The "hidden" coordinate handed over is the filtered sensor: that is no gain over filtering.
    assert found.filtering_pays == "much"
    assert found.hidden_pays == "little"


def test_entries_not_seen_are_at_their_mean():
    ys = np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, 7.0]])
    np.testing.assert_array_equal(fill_with_means(ys), [[1.0, 6.0], [3.0, 5.0], [2.0, 7.0]])
    assert not np.isnan(
        filter_without_hidden(np.column_stack([walk(np.random.default_rng(7), 200), np.full(200, np.nan)]))
    ).any()


def test_a_sensor_of_noise_lends_no_coordinate_to_what_is_hidden():
    """A second sensor that is noise: a model of two dimensions could track a hidden coordinate in its place."""
    rng = np.random.default_rng(8)
    plain = np.column_stack([walk(rng, 500), rng.normal(size=500)])
    filtered = np.column_stack([0.9 * plain[:, 0], 0.1 * walk(rng, 500)])
    kept = observed_block(filtered, 0.9 * filtered, plain)
    np.testing.assert_array_equal(kept, np.column_stack([filtered[:, 0], plain[:, 1]]))
    # A weak signal behind noise is shown by its sensor all the same: predictions tell of it.
    weak = 0.3 * walk(rng, 500)
    foggy = np.column_stack([plain[:, 0], weak + rng.normal(size=500)])
    kept = observed_block(np.column_stack([filtered[:, 0], weak]), np.column_stack([filtered[:, 0], weak]), foggy)
    np.testing.assert_array_equal(kept[:, 1], weak)


def test_rewards_that_have_nothing_to_do_with_contexts_are_seldom_explained():
    rng, alarms, runs = np.random.default_rng(9), 0, 60
    for _ in range(runs):
        ys = np.column_stack([walk(rng, 500), rng.normal(size=500)])
        data = ExaminationData.from_arrays(ys, rng.integers(3, size=500), rng.standard_t(4, size=500), features=2)
        found = explain_rewards(data, np.column_stack([ys, walk(rng, 500)]), np.zeros((500, 2)))
        alarms += found.context_matters
        assert found.hidden_pays == found.filtering_pays == "little" or found.context_matters
    assert alarms <= 3
