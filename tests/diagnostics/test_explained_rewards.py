"""Rewards explained out of sample: against an explicit regression, known shares, false alarms."""

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
    largest_gain,
    observed_block,
    share_explained,
)


def random_data(rng, n, K, p, noise, *, every=False):
    """Return contexts (n, p), the slopes of the arms, and data in which arms are drawn uniformly at random."""
    contexts, slopes = rng.normal(size=(n, p)), rng.normal(size=(K, p))
    rewards = 3.0 + contexts @ slopes.T + noise * rng.normal(size=(n, K))
    arms = rng.integers(K, size=n)
    observed = rewards if every else rewards[np.arange(n), arms]
    return (
        contexts,
        slopes,
        ExaminationData.from_arrays(contexts, arms, observed, features=p, arm_names=[f"a{i}" for i in range(K)]),
    )


def test_a_block_is_predicted_from_the_other_blocks_only():
    rng = np.random.default_rng(1)
    contexts, _, data = random_data(rng, 230, 3, 2, 0.7)
    found = cross_validate(data, contexts, data.observed_rewards())
    features = np.column_stack([np.ones(230), contexts])
    fit, start = found.fit, np.array([found.fit.baseline, 0.0, 0.0])
    for block in range(FOLDS):
        inside = np.arange(230) * FOLDS // 230 == block
        for a in range(3):
            used = ~inside & (data.arms == a)
            c, r = features[used], data.rewards[used] - fit.origin
            # The posterior mean is the conditional mean in the joint Gaussian of θ and the rewards.
            S = c @ fit.prior @ c.T + fit.noise[a] * np.eye(len(c))
            theta = start + fit.prior @ c.T @ np.linalg.solve(S, r - c @ start)
            np.testing.assert_allclose(found.predicted[inside, a], features[inside] @ theta + fit.origin, rtol=1e-7)


@pytest.mark.parametrize("every", [True, False])
def test_explained_shares_equal_the_share_of_the_signal(every):
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


def test_greedy_reward_is_the_reward_of_the_best_arm():
    rng = np.random.default_rng(3)
    contexts, slopes, data = random_data(rng, 5000, 3, 2, 0.3, every=True)
    best = 3.0 + (contexts @ slopes.T).max(axis=1).mean()
    assert greedy_reward(data, cross_validate(data, contexts, data.observed_rewards())) == pytest.approx(best, abs=0.03)
    blind = greedy_reward(data, cross_validate(data, np.zeros((5000, 0)), data.observed_rewards()))
    assert blind == pytest.approx(np.nanmean(data.rewards, axis=0).max(), abs=0.05)


def test_irrelevant_features_are_rarely_significant():
    """Autocorrelated features that are independent of rewards are significant in about one of forty runs."""
    rng, alarms, runs = np.random.default_rng(4), 0, 200
    for _ in range(runs):
        contexts, _, data = random_data(rng, 400, 3, 2, 1.0)
        useless = np.cumsum(rng.normal(size=(400, 2)), axis=0)
        observed = data.observed_rewards()
        arm_means = cross_validate(data, np.zeros((400, 0)), observed)
        more = cross_validate(data, np.column_stack([contexts, useless / useless.std(axis=0)]), observed)
        alarms += improvement(cross_validate(data, contexts, observed), more, arm_means, observed.rounds).significant
    assert alarms / runs <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / runs)


def test_the_standard_error_of_an_improvement_equals_its_standard_deviation():
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
    assert grade(Improvement(0.004, 0.001), 0.02) == "much"  # a fifth of what can be explained at all
    assert grade(Improvement(0.004, 0.001), -0.1) == "little"


def autoregression(rng, n, memory=0.97):
    x = np.zeros(n)
    for t in range(1, n):
        x[t] = memory * x[t - 1] + np.sqrt(1 - memory**2) * rng.normal()
    return x


def test_a_noisy_sensor_gains_from_filtering_and_not_from_hidden_coordinates():
    rng = np.random.default_rng(6)
    x = autoregression(rng, 2500)
    ys = (x + 1.2 * rng.normal(size=2500))[:, None]
    arms = rng.integers(2, size=2500)
    rewards = np.where(arms == 0, x, -x) + 0.3 * rng.normal(size=2500)
    data = ExaminationData.from_arrays(ys, arms, rewards, features=1)
    found = explain_rewards(data, np.column_stack([ys[:, 0], filter_without_hidden(ys)[0][:, 0]]), np.zeros((2500, 1)))
    # The second coordinate is the filtered sensor, which is no improvement over filtering.
    assert found.filtering_pays == "much"
    assert found.hidden_pays == "little"


def test_missing_entries_are_replaced_by_their_mean():
    ys = np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, 7.0]])
    np.testing.assert_array_equal(fill_with_means(ys), [[1.0, 6.0], [3.0, 5.0], [2.0, 7.0]])
    assert not np.isnan(
        filter_without_hidden(np.column_stack([autoregression(np.random.default_rng(7), 200), np.full(200, np.nan)]))
    ).any()


def test_the_coordinate_of_a_pure_noise_sensor_does_not_count_as_observed():
    """A model of two dimensions could use the coordinate of the second sensor for something hidden."""
    rng = np.random.default_rng(8)
    plain = np.column_stack([autoregression(rng, 500), rng.normal(size=500)])
    filtered = np.column_stack([0.9 * plain[:, 0], 0.1 * autoregression(rng, 500)])
    block = observed_block(filtered, 0.9 * filtered, plain)
    np.testing.assert_array_equal(block, np.column_stack([filtered[:, 0], plain[:, 1]]))
    # A weak signal in a noisy sensor counts as observed, because it can be predicted.
    weak = 0.3 * autoregression(rng, 500)
    noisy = np.column_stack([plain[:, 0], weak + rng.normal(size=500)])
    block = observed_block(np.column_stack([filtered[:, 0], weak]), np.column_stack([filtered[:, 0], weak]), noisy)
    np.testing.assert_array_equal(block[:, 1], weak)


def test_rewards_independent_of_contexts_are_rarely_explained():
    rng, alarms, runs = np.random.default_rng(9), 0, 60
    for _ in range(runs):
        ys = np.column_stack([autoregression(rng, 500), rng.normal(size=500)])
        data = ExaminationData.from_arrays(ys, rng.integers(3, size=500), rng.standard_t(4, size=500), features=2)
        found = explain_rewards(data, np.column_stack([ys, autoregression(rng, 500)]), np.zeros((500, 2)))
        alarms += found.context_matters
        assert found.hidden_pays == found.filtering_pays == "little" or found.context_matters
    assert alarms <= 3


@pytest.mark.parametrize(("rounds", "share"), [(40, 0.2), (150, 0.0), (150, 0.1), (1000, 0.3)])
@pytest.mark.parametrize("every", [True, False])
def test_the_upper_bound_of_a_gain_holds_with_95_percent_probability(rounds, share, every):
    """At least 92 % of 200 bounds are above the true share (binomial, p > 0.05). Two of four features matter."""
    rng, above = np.random.default_rng(9), 0
    for _ in range(200):
        contexts, slopes = rng.normal(size=(rounds, 4)), rng.normal(size=(3, 4)) * [1.0, 1.0, 0.0, 0.0]
        slopes *= np.sqrt(share) / np.linalg.norm(slopes, axis=1, keepdims=True)
        noise = np.sqrt(1.0 - share) * rng.normal(size=(rounds, 1))  # the same for all arms
        rewards, arms = 3.0 + contexts @ slopes.T + noise, rng.integers(3, size=rounds)
        given = rewards if every else rewards[np.arange(rounds), arms]
        data = ExaminationData.from_arrays(contexts, arms, given, features=4)
        above += largest_gain(data.observed_rewards(), np.zeros((rounds, 0)), contexts) >= share
    assert above >= 184


def test_the_upper_bound_of_a_gain_counts_only_what_is_added():
    rng = np.random.default_rng(10)
    contexts, _, data = random_data(rng, 2000, 3, 3, 0.5)
    observed, nothing = data.observed_rewards(), np.zeros((2000, 0))
    assert largest_gain(observed, nothing, contexts) > 0.7
    assert largest_gain(observed, contexts, rng.normal(size=(2000, 3))) < 0.01
    assert largest_gain(observed, contexts, 2.0 * contexts) == 0.0


def test_without_enough_rewards_a_gain_has_no_upper_bound():
    rng = np.random.default_rng(11)
    contexts, _, data = random_data(rng, 9, 3, 4, 0.5)
    assert np.bincount(data.arms).max() <= 5  # one reward per coefficient
    assert largest_gain(data.observed_rewards(), np.zeros((9, 0)), contexts) == 1.0
