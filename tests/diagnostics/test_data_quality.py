"""Sensors that do not change, trends and heavy tails: detection and false alarms. The kind of rewards."""

import numpy as np
import pytest
from scipy.signal import lfilter

from halfseen.diagnostics.data_quality import (
    changing_entries,
    reward_kind,
    sensor_tail_test,
    tail_test,
    trend_test,
    unchanging_runs,
    varying_arms,
)
from halfseen.diagnostics.examination_data import ObservedRewards
from halfseen.diagnostics.findings import TREND_LOOK, heavy_tailed
from halfseen.diagnostics.innovations import SIGNIFICANCE


def autoregressive(rng, n, memory):
    return lfilter([1.0], [1.0, -memory], rng.normal(size=n + 300))[300:]


def trends(series):
    test = trend_test(series[:, None], 0)
    return test is not None and test.p_value < SIGNIFICANCE and abs(test.change) >= TREND_LOOK


# ---------------------------------------------------------------------- unchanging sensors


def test_constant_and_stuck_sensors_are_found():
    ys = np.random.default_rng(1).normal(size=(300, 4))
    ys[:, 1] = 3.0
    ys[100:, 2] = ys[100, 2]
    ys[50:80, 3] = 0.5
    ys[[10, 60, 200]] = np.nan
    found = [tuple(run) for run in unchanging_runs(ys)]
    assert found == [(1, 0, 300, True), (2, 100, 300, False), (3, 50, 80, False)]


def test_entries_that_do_not_change_are_left_out():
    ys = np.random.default_rng(1).normal(size=(1000, 3))
    ys[100:130, 0] = 0.0  # in 3 % of the rounds
    ys[100:200, 1] = 0.0  # in 10 % of the rounds
    left_out = np.isnan(changing_entries(ys, unchanging_runs(ys)))
    assert np.flatnonzero(left_out[:, 0]).tolist() == list(range(100, 130))
    assert left_out[:, 1].all()
    assert not left_out[:, 2].any()


@pytest.mark.parametrize(
    "sensor",
    [
        lambda rng: np.repeat(rng.integers(2, size=8), 100).astype(float),  # a switch with long phases
        lambda rng: (np.arange(800) > 500).astype(float),  # a switch that was used once
        lambda rng: np.clip(autoregressive(rng, 800, 0.97), -1.0, 1.0),  # a sensor with a limited range
        lambda rng: np.round(autoregressive(rng, 800, 0.99) / 5.0),  # a sensor with few levels
        lambda rng: (rng.random(800) < 0.01).astype(float),  # a rare event
    ],
)
def test_sensors_that_repeat_their_values_are_not_stuck(sensor):
    rng = np.random.default_rng(2)
    assert sum(bool(unchanging_runs(sensor(rng)[:, None])) for _ in range(100)) <= 2


def test_a_few_equal_values_are_not_a_run():
    ys = np.random.default_rng(1).normal(size=(300, 1))
    ys[100:119] = 1.0
    assert unchanging_runs(ys) == ()
    assert unchanging_runs(np.ones((10, 1))) == ()


# ---------------------------------------------------------------------- trends


@pytest.mark.parametrize("rounds", [200, 400, 1500])
@pytest.mark.parametrize("memory", [0.0, 0.8, 0.95, 1.0])
def test_trends_are_rarely_found_where_there_are_none(rounds, memory):
    """The highest rate of false alarms is 2 %, with 200 rounds and a memory of 0.8. A random walk has a memory of 1."""
    rng = np.random.default_rng(3)
    assert sum(trends(autoregressive(rng, rounds, memory)) for _ in range(100)) <= 5


@pytest.mark.parametrize("sign", [1, -1])
def test_trends_are_found(sign):
    rng, ramp = np.random.default_rng(4), sign * np.arange(1500) / 1500
    for memory in (0.0, 0.5, 0.8):
        series = autoregressive(rng, 1500, memory)
        series += 5.0 * series.std() * ramp
        series[rng.random(1500) < 0.2] = np.nan
        test = trend_test(series[:, None], 0)
        assert trends(series)
        assert test.change * sign == pytest.approx(5.0, abs=1.0)


def test_short_and_constant_series_have_no_trend():
    assert trend_test(np.arange(199.0)[:, None], 0) is None
    assert trend_test(np.ones((500, 1)), 0) is None
    assert trend_test(np.arange(500.0)[:, None], 0) is None  # without noise there is no standard error


# ---------------------------------------------------------------------- heavy tails


@pytest.mark.parametrize("size", [100, 300, 1500])
def test_normal_values_rarely_have_heavy_tails(size):
    """The rate of false alarms is below the significance level of 1 %, because the number of outliers is discrete."""
    rng = np.random.default_rng(5)
    assert sum(heavy_tailed(tail_test(rng.normal(size=size))) for _ in range(500)) <= 10


def test_a_change_of_the_variance_is_not_a_heavy_tail():
    rng = np.random.default_rng(6)
    stds = np.repeat([1.0, 3.0], 750)
    assert sum(heavy_tailed(tail_test(stds * rng.normal(size=1500))) for _ in range(200)) <= 4


def test_heavy_tails_are_found():
    rng = np.random.default_rng(7)
    assert all(heavy_tailed(tail_test(rng.standard_t(3, size=1500))) for _ in range(50))
    test = tail_test(np.concatenate([rng.normal(size=490), [20.0] * 10, [np.nan] * 10]))
    assert (test.outliers, test.size) == (10, 500)
    assert test.share == 0.02


def test_tails_of_few_or_mostly_equal_values_are_not_tested():
    assert tail_test(np.random.default_rng(8).normal(size=99)) is None
    assert tail_test(np.repeat([0.0, 1.0], [400, 100])) is None


def test_errors_of_a_wrong_model_are_not_heavy_tails_of_the_sensor():
    """The innovations of a wrong model of a periodic sensor have outliers, but the sensor itself has none."""
    rng = np.random.default_rng(9)
    innovations, periodic = rng.standard_t(2, size=500), np.sin(np.arange(500) / 7)
    assert heavy_tailed(tail_test(innovations))
    assert not heavy_tailed(sensor_tail_test(innovations, periodic))
    assert heavy_tailed(sensor_tail_test(innovations, periodic + innovations))


# ---------------------------------------------------------------------- rewards


@pytest.mark.parametrize(
    ("rewards", "name"),
    [
        (np.random.default_rng(1).integers(2, size=100), "binary"),
        (np.where(np.random.default_rng(1).random(100) < 0.3, -1.0, 2.5), "binary"),
        (np.random.default_rng(1).integers(1, 6, size=100), "discrete"),
        (np.maximum(np.random.default_rng(1).normal(size=100), 0.0), "discrete"),
        (np.random.default_rng(1).normal(size=100), "continuous"),
        (np.random.default_rng(1).poisson(100.0, size=1000), "continuous"),
    ],
)
def test_kinds_of_rewards(rewards, name):
    assert reward_kind(rewards.astype(np.float64)).name == name


def test_an_arm_with_a_fixed_reward_does_not_make_rewards_discrete():
    rng = np.random.default_rng(1)
    arms = np.repeat([0, 1], 100)
    rewards = np.where(arms == 0, 0.0, rng.normal(size=200))
    varying = varying_arms(ObservedRewards(np.arange(200), arms, rewards))
    np.testing.assert_array_equal(varying, arms == 1)
    assert reward_kind(rewards[varying]).name == "continuous"
