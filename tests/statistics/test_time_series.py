"""Statistics of autocorrelated series, compared with statsmodels and arch."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from arch.bootstrap import optimal_block_length
from scipy import signal

from halfseen.statistics.confidence_intervals import percentile_interval
from halfseen.statistics.time_series import (
    autocovariances,
    automatic_lags,
    block_bootstrap,
    block_length,
    blocked_sum,
    conservative_error,
    hac_mean,
)


def ar(rho: float, n: int, seed: int = 0, mean: float = 0.3) -> np.ndarray:
    return mean + signal.lfilter([1.0], [1.0, -rho], np.random.default_rng(seed).normal(size=n))


@pytest.mark.parametrize("lags", [0, 1, 7, 40])
@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.8])
def test_hac_mean_equals_statsmodels(rho, lags):
    series = ar(rho, 500)
    peer = sm.OLS(series, np.ones(500)).fit(
        cov_type="HAC", cov_kwds={"maxlags": lags, "use_correction": False}, use_t=True
    )
    found = hac_mean(series, lags)
    assert found.value == pytest.approx(peer.params[0], rel=1e-12)
    assert found.standard_error == pytest.approx(peer.bse[0], rel=1e-10)
    assert found.t == pytest.approx(peer.tvalues[0], rel=1e-10)
    assert found.p_value == pytest.approx(peer.pvalues[0], rel=1e-8)


def test_autocovariances_of_four_numbers():
    series = np.array([1.0, 4.0, -2.0, 5.0])
    d = series - 2.0
    expected = [(d @ d) / 4, (d[1] * d[0] + d[2] * d[1] + d[3] * d[2]) / 4, (d[2] * d[0] + d[3] * d[1]) / 4]
    np.testing.assert_allclose(autocovariances(series, 2), expected)


def test_number_of_lags_follows_newey_and_west():
    series = ar(0.7, 1000, seed=3)
    pilot = int(4 * 10 ** (2 / 9))
    gammas = autocovariances(series, pilot)
    s_0 = gammas[0] + 2 * sum(gammas[1:])
    s_1 = 2 * sum(lag * gammas[lag] for lag in range(1, pilot + 1))
    assert automatic_lags(series) == int(1.1447 * (s_1 / s_0) ** (2 / 3) * 10)
    assert automatic_lags(ar(0.0, 1000)) < automatic_lags(ar(0.5, 1000)) < automatic_lags(ar(0.9, 1000))


def test_hac_intervals_of_an_autoregression_cover_and_naive_intervals_do_not():
    covered = naive = 0
    for seed in range(400):
        series = ar(0.6, 1500, seed=seed, mean=0.0)
        found = hac_mean(series)
        covered += abs(found.t) < 1.96
        naive += abs(found.value) < 1.96 * series.std() / np.sqrt(1500)
    assert 0.90 < covered / 400 < 0.98
    assert naive / 400 < 0.75


def test_hac_mean_and_block_length_of_constant_series():
    assert hac_mean(np.zeros(50)).p_value == 1.0
    constant = hac_mean(np.full(50, 2.0))
    assert (constant.value, constant.standard_error, constant.lags) == (2.0, 0.0, 0)
    assert np.isnan(constant.t)
    assert block_length(np.zeros(50)) == 1


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("n", [500, 4000])
def test_block_length_is_close_to_that_of_arch(rho, n):
    for seed in range(5):
        series = ar(rho, n, seed=seed)
        peer = float(optimal_block_length(series)["circular"].iloc[0])
        assert block_length(series) == pytest.approx(peer, rel=0.2, abs=1.0)  # arch scales autocovariances differently


def test_bootstrap_means_have_the_standard_error_of_the_mean():
    series = ar(0.6, 4000, seed=1)
    drawn = block_bootstrap(series[:, None], block_length(series))[:, 0]
    assert drawn.mean() == pytest.approx(series.mean(), abs=0.01)
    assert drawn.std() == pytest.approx(hac_mean(series).standard_error, rel=0.15)
    assert drawn.std() > 1.6 * series.std() / np.sqrt(len(series))


def test_bootstrap_means_are_means_of_circular_blocks():
    """Every draw averages full blocks and one shortened block, the same ones for all columns."""
    series = np.stack([np.arange(7.0), 100.0 + np.arange(7.0) ** 2], axis=1)
    drawn = block_bootstrap(series, 3, draws=50, seed=4)
    starts = np.random.Generator(np.random.Philox(4)).integers(0, 7, size=(50, 3))
    for row, (a, b, c) in zip(drawn, starts, strict=True):
        at = [(a + i) % 7 for i in range(3)] + [(b + i) % 7 for i in range(3)] + [c]
        np.testing.assert_allclose(row, series[at].mean(axis=0))


def test_percentile_interval_is_the_central_95_percent():
    found = percentile_interval(7.0, np.arange(1001.0))
    assert (found.value, found.low, found.high) == (7.0, pytest.approx(25.0), pytest.approx(975.0))


@pytest.mark.parametrize(("n", "most"), [(40, 0.12), (80, 0.09), (200, 0.075)])
def test_false_positive_rate_in_short_white_noise(n, most):
    """The level is 5 %. Short series have a higher rate, because their standard error is estimated from few values."""
    rng = np.random.default_rng(4)
    assert np.mean([hac_mean(rng.normal(size=n)).p_value < 0.05 for _ in range(1500)]) < most


def test_a_single_value_and_a_constant_series_have_no_t_value():
    assert hac_mean(np.array([0.7])).p_value == 1.0
    constant = hac_mean(np.full(50, 0.1))
    assert np.isnan(constant.t)
    assert constant.standard_error == 0.0


def autoregressive(rng, n, slope):
    """Return a stationary AR(1) series with variance 1 / (1 − slope²)."""
    x, noise = np.empty(n), rng.normal(size=n)
    x[0] = noise[0] / np.sqrt(1.0 - slope**2)
    for t in range(1, n):
        x[t] = slope * x[t - 1] + noise[t]
    return x


@pytest.mark.parametrize("slope", [0.0, 0.8])
def test_conservative_error_of_a_long_series(slope):
    """√n times the error converges to 1/(1 − slope), the square root of 2π times the spectral density at 0."""
    series = autoregressive(np.random.default_rng(3), 40_000, slope)
    assert np.sqrt(len(series)) * conservative_error(series) == pytest.approx(1.0 / (1.0 - slope), rel=0.05)


def test_conservative_intervals_cover_where_newey_west_intervals_are_too_narrow():
    rng, means, errors, plain = np.random.default_rng(4), [], [], []
    for _ in range(400):
        series = autoregressive(rng, 400, 0.8)
        means.append(series.mean())
        errors.append(conservative_error(series))
        plain.append(hac_mean(series).standard_error)
    covered = np.mean(np.abs(means) < 1.97 * np.array(errors))
    assert covered > 0.95 - 4.0 * np.sqrt(0.95 * 0.05 / 400)
    assert covered > np.mean(np.abs(means) < 1.97 * np.array(plain)) + 0.02


@pytest.mark.parametrize("series", [np.ones(50), np.zeros(4), np.arange(6.0), np.sin(np.arange(300.0))])
def test_conservative_error_of_degenerate_series_is_finite(series):
    assert np.isfinite(conservative_error(series))
    assert conservative_error(series) >= hac_mean(series).standard_error


@pytest.mark.parametrize("unit", [2.0**-900, 2.0**600, 2.0**900])
def test_results_do_not_depend_on_units_even_if_squares_would_overflow(unit):
    series = np.random.default_rng(5).normal(size=300).cumsum()
    one, other = hac_mean(series), hac_mean(unit * series)
    assert (other.value, other.standard_error) == (unit * one.value, unit * one.standard_error)
    assert (other.t, other.p_value, other.lags) == (one.t, one.p_value, one.lags)
    assert conservative_error(unit * series) == unit * conservative_error(series)
    assert block_length(unit * series) == block_length(series)
    total, error = blocked_sum(series, np.arange(300))
    assert blocked_sum(unit * series, np.arange(300)) == (unit * total, unit * error)
