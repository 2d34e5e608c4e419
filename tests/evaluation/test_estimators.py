"""The estimators compared with their definitions, and the notes about unreliable estimates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from benchmarks.evaluation import World, rule
from evaluation.logs import ARMS
from scipy import stats

import halfseen as hs
from halfseen.errors import HalfseenError
from halfseen.evaluation.estimators import (
    effective_size,
    hac_estimate,
    policy_value,
    rewarded_rounds,
    running_ratio,
    running_values,
)
from halfseen.evaluation.policies import uniform
from halfseen.evaluation.readers import read_log
from halfseen.evaluation.reward_model import RewardModel
from halfseen.statistics.distributions import student_quantile
from halfseen.statistics.time_series import hac_mean

TINY = {
    "observation": [[0.0], [1.0], [2.0], [3.0]],
    "arm": [0, 1, 1, 0],
    "propensity": [0.5, 0.25, 0.8, 0.4],
    "propensities": [[0.5, 0.5], [0.75, 0.25], [0.2, 0.8], [0.4, 0.6]],
    "reward": [1.0, 4.0, -2.0, 3.0],
}


def test_ips_and_snips_of_four_rounds():
    found = hs.evaluate(TINY, "always:1").policies["always:1"]
    np.testing.assert_allclose(found.weights, [0, 4, 1.25, 0])
    assert found.values["ips"].value == pytest.approx((4 * 4 - 2 * 1.25) / 4)
    assert found.values["snips"].value == pytest.approx((4 * 4 - 2 * 1.25) / 5.25)
    assert found.effective_size == pytest.approx(5.25**2 / (16 + 1.5625))
    assert found.largest_weight == 4
    assert found.mean_weight == pytest.approx(5.25 / 4)
    assert found.differences["ips"].value == pytest.approx(13.5 / 4 - 1.5)
    assert found.differences["snips"].value == pytest.approx(13.5 / 5.25 - 1.5)


def test_effective_sample_size_of_small_examples():
    assert effective_size(np.array([1.0, 1.0, 1.0, 1.0])) == 4
    assert effective_size(np.array([3.0, 0.0, 0.0])) == 1
    assert effective_size(np.array([1.0, 2.0, 3.0])) == pytest.approx(36 / 14)
    assert effective_size(np.array([1e200, 1e200])) == pytest.approx(2)
    assert effective_size(np.zeros(3)) == 0


def predicted_rewards(y, played, rewards, arms, **options):
    return RewardModel(y, played, rewards, arms, **options).predict()


def ridge(features: np.ndarray, rewards: np.ndarray, penalty: float, mean: float) -> np.ndarray:
    """Return the ridge estimate, as least squares with additional rows √λ e_j and targets 0."""
    size = features.shape[1]
    rows = np.vstack([features, np.sqrt(penalty) * np.eye(size)])
    return np.linalg.lstsq(rows, np.concatenate([rewards - mean, np.zeros(size)]), rcond=None)[0]


def test_the_reward_model_is_a_ridge_regression_on_the_other_blocks():
    table = World().log(53, seed=4)
    y = np.column_stack([table["observation_0"], table["observation_1"]])
    y[[3, 20], 1] = np.nan
    played, rewards = table["arm"], table["reward"]
    found = predicted_rewards(y, played, rewards, ARMS, regularisation=2.3, blocks=5)
    scaled = (y - np.nanmean(y, axis=0)) / np.nanstd(y, axis=0)
    features = np.column_stack([np.ones(53), np.nan_to_num(scaled)])
    edges = np.round(np.linspace(0, 53, 6)).astype(int)
    for first, end in itertools.pairwise(edges):
        others = np.r_[0:first, end:53]
        mean = rewards[others].mean()
        for arm in range(ARMS):
            rows = others[played[others] == arm]
            theta = ridge(features[rows], rewards[rows], 2.3, mean)
            np.testing.assert_allclose(found[first:end, arm], mean + features[first:end] @ theta, rtol=1e-9)


@pytest.mark.parametrize("row", [0, 17, 52])
def test_a_reward_does_not_affect_its_own_prediction(row):
    table = World().log(53, seed=4)
    y = np.column_stack([table["observation_0"], table["observation_1"]])
    rewards = table["reward"].copy()
    before = predicted_rewards(y, table["arm"], rewards, ARMS, regularisation=1.0)
    rewards[row] += 1e6
    after = predicted_rewards(y, table["arm"], rewards, ARMS, regularisation=1.0)
    np.testing.assert_array_equal(before[row], after[row])
    assert (before != after).any()


def test_constant_entries_and_arms_never_played_are_predicted_by_the_mean():
    y = np.column_stack([np.full(20, 7.0), np.full(20, np.nan)])
    found = predicted_rewards(y, np.zeros(20, dtype=np.int64), np.full(20, 5.0), 2, regularisation=1.0)
    np.testing.assert_allclose(found, 5.0)
    assert (predicted_rewards(y[:1], np.array([1]), np.array([3.0]), 2, regularisation=1.0) == 0).all()


def test_doubly_robust_follows_its_definition():
    table = World().log(80, seed=5)
    found = hs.evaluate(table, rule, regularisation=0.7)
    log = read_log(table)
    predicted = predicted_rewards(log.observations, log.played, log.rewards, ARMS, regularisation=0.7)
    probabilities = World.target(log.observations)
    terms, base = [], []
    for t in range(80):
        arm, residual = log.played[t], log.rewards[t] - predicted[t, log.played[t]]
        terms.append(probabilities[t] @ predicted[t] + probabilities[t, arm] / log.propensity[t] * residual)
        base.append(log.propensities[t] @ predicted[t] + residual)
    one = found.policies["rule"]
    assert one.values["dr"].value == pytest.approx(np.mean(terms))
    assert one.differences["dr"].value == pytest.approx(np.mean(terms) - np.mean(base))
    error = hac_mean(np.array(terms)).standard_error
    assert one.values["dr"].high - one.values["dr"].value == pytest.approx(error * 2.0, rel=0.06)  # Student's 95 %
    assert found.policies["logged"].values["dr"].value == pytest.approx(np.mean(base))


def test_the_value_of_the_logged_policy_is_the_mean_reward():
    table = World().log(200, seed=6)
    found = hs.evaluate(table, ["logged"])
    assert list(found.policies) == ["logged"]
    one = found.policies["logged"]
    assert one.values["ips"].value == one.values["snips"].value == pytest.approx(table["reward"].mean())
    assert one.effective_size == 200
    assert one.sure
    assert all(abs(estimate.value) < 1e-12 for estimate in one.differences.values())
    alone = hs.evaluate({name: values for name, values in table.items() if name != "propensities"}, ["logged"])
    assert alone.policies["logged"].values["dr"].value == pytest.approx(table["reward"].mean())


def test_a_policy_equal_to_the_logged_one_has_difference_zero():
    table = World().log(300, seed=7)
    one = hs.evaluate(table, logging_policy).policies["logging_policy"]
    for estimate in one.differences.values():
        assert max(map(abs, (estimate.value, estimate.low, estimate.high))) < 1e-12


@pytest.mark.parametrize("intervals", ["hac", "bootstrap"])
def test_dr_and_snips_follow_linear_changes_of_the_rewards(intervals):
    """The same seed gives the same interval."""
    table = World().log(150, seed=8)
    plain = hs.evaluate(table, rule, intervals=intervals, seed=3).policies["rule"]
    again = hs.evaluate(table, rule, intervals=intervals, seed=3).policies["rule"]
    other = hs.evaluate(table | {"reward": 1000 + 4 * table["reward"]}, rule, intervals=intervals, seed=3)
    for name in ("dr", "snips"):
        for end in ("value", "low", "high"):
            here = getattr(plain.values[name], end)
            assert here == getattr(again.values[name], end)
            assert getattr(other.policies["rule"].values[name], end) == pytest.approx(1000 + 4 * here)


def test_running_values_use_the_first_rounds():
    """The last interval is that of all rounds."""
    table, n = World().log(120, seed=9), 120
    log = read_log(table)
    rounds, probabilities = rewarded_rounds(log, log.rewards, np.zeros((n, ARMS))), uniform(log)
    final = policy_value("uniform", rounds, probabilities)
    ends = np.array([2, 10, 50, n])
    found = running_values(rounds, probabilities, final, ends)
    for name, below in (("ips", np.ones(n)), ("snips", final.weights)):
        above = final.weights * log.rewards
        plain = []
        for end in ends:
            ratio = above[:end].sum() / below[:end].sum()
            spread = np.sqrt(np.square(above[:end] - ratio * below[:end]).sum()) / below[:end].sum()
            plain.append(spread * stats.t.ppf(0.975, effective_size(final.weights[:end]) - 1))
            assert found[name].value[ends == end] == pytest.approx(ratio)
        half = (final.values[name].high - final.values[name].low) / 2
        assert np.isnan(found[name].low[0])
        np.testing.assert_allclose(found[name].high[1:] - found[name].value[1:], half * np.array(plain[1:]) / plain[-1])
        np.testing.assert_allclose(found[name].value[1:] - found[name].low[1:], half * np.array(plain[1:]) / plain[-1])
        assert found[name].value[-1] == pytest.approx(final.values[name].value)


@pytest.mark.parametrize("rewards", [[1.0], [1.0, 1.0], [2.0] * 5])
def test_running_values_of_constant_rewards(rewards):
    values, ones = np.array(rewards), np.ones(len(rewards))
    ends = np.arange(1, len(rewards) + 1)
    found = running_ratio(values, ones, ones, ends, hac_estimate(values, len(values)))
    np.testing.assert_array_equal(found.value, values)
    np.testing.assert_array_equal(found.low[:2], np.nan)
    np.testing.assert_array_equal(found.high[2:], values[2:])


def test_running_intervals_of_autocorrelated_rewards_cover():
    """Intervals that assume independent rewards would cover the true value in three of five runs."""
    rng, covered, naive = np.random.default_rng(3), np.zeros(2), 0
    runs, n, rho = 300, 3000, 0.7
    for _ in range(runs):
        noise, values = rng.normal(size=n + 100), np.zeros(n + 100)
        for t in range(1, n + 100):
            values[t] = rho * values[t - 1] + noise[t]
        values = values[100:]
        ones = np.ones(n)
        line = running_ratio(values, ones, ones, np.array([n // 2, n]), hac_estimate(values, n))
        covered += (line.low <= 0) & (line.high >= 0)
        naive += abs(values.mean()) <= 1.96 * values.std() / np.sqrt(n)
    assert (covered / runs > 0.87).all()
    assert naive / runs < 0.7


def test_rounds_without_a_reward_are_left_out_or_count_as_missing():
    rewards = [1.0, None, -2.0, 3.0]
    left_out = hs.evaluate(TINY | {"reward": rewards}, "always:1")
    assert left_out.policies["always:1"].values["ips"].value == pytest.approx(-2 * 1.25 / 3)
    assert left_out.warnings[0].startswith("1 decision of 4 has no reward and is left out, which is correct if ")
    counted = hs.evaluate(TINY | {"reward": rewards}, "always:1", missing=-1.0)
    assert counted.policies["always:1"].values["ips"].value == pytest.approx((-1 * 4 - 2 * 1.25) / 4)
    assert counted.warnings[0] == "1 decision of 4 has no reward and counts as -1"
    assert counted.summary()["without_reward"] == left_out.summary()["without_reward"] == 1


def test_agents_learn_the_reward_that_is_assumed_for_missing_ones():
    clicks = np.where(np.random.default_rng(3).uniform(size=120) < 0.3, 1.0, np.nan)
    rng = np.random.default_rng(4)
    log = {"observation": rng.normal(size=120), "arm": rng.integers(2, size=120), "propensity": np.full(120, 0.5)}
    assumed = hs.evaluate(log | {"reward": clicks}, "ts-pco", missing=0.0)
    written = hs.evaluate(log | {"reward": np.nan_to_num(clicks)}, "ts-pco")
    assert assumed.policies["ts-pco"].values == written.policies["ts-pco"].values
    assert assumed.log.steps == written.log.steps
    assert hs.evaluate(assumed.log, "ts-pco", missing=0.0).log.filled == assumed.log.filled == np.isnan(clicks).sum()


def test_the_degrees_of_freedom_are_those_of_the_interval(monkeypatch):
    used = []
    monkeypatch.setattr(
        "halfseen.evaluation.estimators.student_quantile",
        lambda probability, freedom: used.append(freedom) or student_quantile(probability, freedom),
    )
    rng = np.random.default_rng(1)
    noise = rng.normal(size=400)
    for t in range(1, 400):
        noise[t] += 0.9 * noise[t - 1]
    log = {"observation": noise, "arm": rng.integers(2, size=400), "propensity": np.full(400, 0.5), "reward": noise}
    one = hs.evaluate(log, "always:1").policies["always:1"]
    assert one.freedom in used
    assert one.freedom < one.effective_size - 1
    assert np.isinf(hs.evaluate(log, "always:1", intervals="bootstrap").policies["always:1"].freedom)


def greedy_log(n: int = 400) -> dict[str, object]:
    """Return a log in which arm 2 has propensity 0, and arm 1 has propensity 0 in half of the rounds."""
    rng = np.random.default_rng(0)
    sure = np.arange(n) % 2 == 0
    arms = np.where(sure, 0, rng.integers(0, 2, size=n))
    propensities = np.where(sure[:, None], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0])
    y, rewards = rng.normal(size=n), rng.normal(size=n)
    return {
        "observation": y,
        "arm": arms,
        "propensity": propensities[np.arange(n), arms],
        "propensities": list(propensities),
        "reward": rewards,
    }


def test_the_share_of_choices_with_propensity_zero_is_noted():
    found = hs.evaluate(greedy_log(), ["uniform", "always:0", "always:1", "always:2"])
    uncovered = {label: one.uncovered for label, one in found.policies.items()}
    assert uncovered == pytest.approx({"logged": 0, "uniform": 0.5, "always:0": 0, "always:1": 0.5, "always:2": 1.0})
    assert found.policies["always:0"].sure
    assert "50.0 % of its choices had propensity 0 in the log" in found.policies["always:1"].notes[0]
    assert np.isnan(found.policies["always:2"].values["snips"].value)
    assert found.policies["always:2"].effective_size == 0
    assert any("always:2: the effective sample size is 0.0" in line for line in found.warnings)
    assert "yes" in str(found.table())


def test_without_propensities_every_arm_that_was_played_counts_as_covered():
    table = {name: values for name, values in greedy_log().items() if name != "propensities"}
    found = hs.evaluate(table, ["always:1", "always:2"], arms=3)
    assert found.policies["always:1"].uncovered == 0
    assert found.policies["always:2"].uncovered == 1
    assert "at least 100.0 %" in found.policies["always:2"].notes[0]
    assert any("no propensities of the arms that were not played" in line for line in found.warnings)


@pytest.mark.parametrize("arms", [[0, 1, 2], (0, 1, 2), np.arange(3), list(np.arange(3)), ["0", "1", "2"]], ids=repr)
def test_arms_can_be_given_as_integers(arms):
    table, policies = World().log(120, seed=1), ["always:1", "ts-pco"]
    assert str(hs.evaluate(table, policies, arms=arms)) == str(hs.evaluate(table, policies))


def test_integers_of_arms_need_not_begin_at_zero():
    table, policies = World().log(120, seed=1), ["always:1", "ts-pco"]
    renamed = table | {"arm": np.array([30, 10, 20])[table["arm"]]}
    found = hs.evaluate(renamed, ["always:10", "ts-pco"], arms=[30, 10, 20])
    assert found.log.arms == (30, 10, 20)
    expected = hs.evaluate(table, policies)
    for label, same in (("always:10", "always:1"), ("ts-pco", "ts-pco")):
        assert found.policies[label].values == expected.policies[same].values
    with pytest.raises(HalfseenError, match="row 1: expected one of the arms 10, 20, got arm 30"):
        hs.evaluate(renamed | {"arm": [30] * 120}, arms=[10, 20])


def test_a_small_effective_sample_size_is_noted():
    table = World().log(60, seed=3)
    found = hs.evaluate(table, "always:2").policies["always:2"]
    assert found.effective_size < 50
    assert "too small for a reliable interval" in found.notes[0]


def logging_policy(observation: np.ndarray) -> np.ndarray:
    return World.logging(observation[None])[0]


def test_wrong_propensities_are_noted():
    """Arms were drawn by softmax, but the logged propensities are uniform."""
    table = World().log(4000, seed=3)
    wrong = table | {"propensity": np.full(4000, 1 / 3), "propensities": [[1 / 3] * 3] * 4000}
    assert hs.evaluate(table, logging_policy).policies["logging_policy"].sure
    (note,) = hs.evaluate(wrong, logging_policy).policies["logging_policy"].notes
    assert note.startswith("the mean weight should be 1 and is ")


def test_an_arm_that_was_played_once_explains_a_mean_weight_below_1():
    rng = np.random.default_rng(0)
    arm = rng.integers(3, size=1500)
    propensity = np.full(1500, 1 / 3)
    arm[777], propensity[777] = 3, 0.01
    table = {
        "observation": rng.normal(size=1500),
        "arm": arm,
        "propensity": propensity,
        "reward": rng.normal(size=1500),
    }
    (note,) = hs.evaluate(table, "uniform").policies["uniform"].notes
    assert note.startswith("the mean weight should be 1 and is 0.7")
    assert note.endswith(", because 25.0 % of its choices are arms with fewer than 10 rewards")
    (note,) = hs.evaluate(table | {"propensity": 0.5 * propensity}, "uniform").policies["uniform"].notes
    assert "arms were not drawn with the logged propensities" in note  # the other arms do not explain it either


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"intervals": "wide"}, "intervals: expected 'hac' or 'bootstrap', got 'wide'"),
        ({"missing": float("nan")}, r"missing: expected a number within ±1e\+100, got nan"),
        ({"regularisation": 0}, "regularisation: expected a finite number above 0, got 0"),
        ({"seed": -1}, "seed: expected an integer of at least 0, got -1"),
        ({"policy": 3}, "policy: expected 'uniform', 'always:ARM', 'logged', an agent or a function, got 3"),
        ({"policy": []}, "policy: expected at least one policy, got none"),
        ({"policy": ["uniform", "uniform"]}, "policy: expected every policy once, got 'uniform' twice"),
        ({"policy": "unform"}, "There is no agent 'unform'"),
        ({"policy": "adaptive:histry=3"}, "'adaptive' has no option 'histry'. Did you mean 'history'"),
        ({"stream": "s"}, "stream: expected nothing, because the table has no column 'stream', got 's'"),
        ({"arms": ["a", "a"]}, r"arms: expected distinct names or distinct integers, got \['a', 'a'\]"),
        ({"arms": [0, 1, 1]}, r"arms: expected distinct names or distinct integers, got \[0, 1, 1\]"),
        ({"arms": [0, "b"]}, r"arms: expected distinct names or distinct integers, got \[0, 'b'\]"),
        ({"arms": [True, False]}, r"arms: expected distinct names or distinct integers, got \[True, False\]"),
        ({"arms": "ab"}, "arms: expected an integer of at least 1, got 'ab'"),
    ],
)
def test_invalid_arguments(options, message):
    with pytest.raises(HalfseenError, match=message):
        hs.evaluate(TINY, **options)


def test_a_single_rewarded_round_has_no_interval():
    found = hs.evaluate(TINY | {"reward": [1.0, None, None, None]}, "uniform")
    one = found.policies["uniform"].values["ips"]
    assert one.value == 1.0
    assert np.isnan(one.low)
    assert "uniform" in str(found)


@pytest.mark.parametrize("propensity", [0.5, 1e-100])
def test_extreme_rewards_and_propensities_give_finite_values(propensity):
    n = 60
    rewards = np.where(np.arange(n) % 3 == 0, -1.0, 1.0) * 1e100
    table = {"observation": np.arange(n) % 5, "arm": np.arange(n) % 2, "propensity": [propensity] * n}
    found = hs.evaluate(table | {"reward": rewards}, "uniform").policies["uniform"]
    assert all(np.isfinite(estimate.value) for estimate in found.values.values())
