"""Slopes and growth exponents of curves with known exponents."""

import numpy as np
import pytest
from scipy import stats

from halfseen.statistics.growth import growth_exponent, log_grid, power_exponents, slope


@pytest.mark.parametrize("power", [0.3, 1.0, 1.5])
def test_growth_exponent_of_a_power(power):
    terms = np.diff(np.arange(3001.0) ** power)
    got = growth_exponent(np.outer([0.5, 2.0, 7.0], terms))
    assert got.value == pytest.approx(power, abs=0.01)
    assert got.high - got.low < 1e-9


def test_large_regret_in_the_first_rounds_does_not_hide_linear_growth():
    terms = np.full((4, 8000), 1.2)
    terms[:, :500] += 9.0
    assert growth_exponent(terms).value == pytest.approx(1, abs=1e-9)
    at = log_grid(8000, first=800)
    # The exponent of the cumulative sum is too small, because of the first rounds.
    assert power_exponents(at, np.cumsum(terms, axis=1)[:, at - 1]).max() < 0.8


def test_95_percent_intervals_of_the_growth_exponent_cover():
    rng = np.random.default_rng(2)
    terms = np.diff(np.arange(801.0) ** 0.6)
    covered = []
    for _ in range(400):
        levels = rng.gamma(4.0, size=(12, 1))
        estimate = growth_exponent(levels * terms * rng.exponential(size=(12, 800)))
        covered.append(estimate.low <= 0.6 <= estimate.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.04)


def test_curves_without_an_exponent_give_nan():
    assert np.isnan(power_exponents(log_grid(100), np.zeros((2, len(log_grid(100)))))).all()
    assert np.isnan(growth_exponent(np.zeros((2, 100))).value)
    assert np.isnan(growth_exponent(np.ones((2, 15))).value)
    assert np.isnan(growth_exponent(np.ones((1, 100))).low)
    assert np.isnan(slope(np.arange(2.0), np.arange(2.0)).value)


def test_slope_is_scipys():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    y = 0.7 * x + rng.normal(size=30)
    fit = stats.linregress(x, y)
    got = slope(x, y)
    assert got.value == pytest.approx(fit.slope)
    assert got.high - got.low == pytest.approx(2 * stats.t.ppf(0.975, 28) * fit.stderr)
