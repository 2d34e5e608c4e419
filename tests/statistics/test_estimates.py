"""Figures about runs, on curves whose answer is known."""

import numpy as np
import pytest
from scipy import stats

from halfseen.statistics.estimates import (
    bound_shape,
    growth_exponent,
    holm,
    log_grid,
    mean_estimate,
    paired_p_value,
    power_exponents,
    ratio_of_means,
    relative_difference,
    slope,
    theorem_quantities,
)


@pytest.mark.parametrize("power", [0.3, 1.0, 1.5])
def test_growth_exponent_of_a_power(power):
    terms = np.diff(np.arange(3001.0) ** power)
    got = growth_exponent(np.outer([0.5, 2.0, 7.0], terms))
    assert got.value == pytest.approx(power, abs=0.01)
    assert got.high - got.low < 1e-9


def test_the_cost_of_learning_does_not_hide_linear_growth():
    terms = np.full((4, 8000), 1.2)
    terms[:, :500] += 9.0
    assert growth_exponent(terms).value == pytest.approx(1, abs=1e-9)
    at = log_grid(8000, first=800)
    assert power_exponents(at, np.cumsum(terms, axis=1)[:, at - 1]).max() < 0.8  # which the sum itself would do


def test_the_interval_of_the_growth_exponent_covers():
    rng = np.random.default_rng(2)
    terms = np.diff(np.arange(801.0) ** 0.6)
    covered = []
    for _ in range(400):
        levels = rng.gamma(4.0, size=(12, 1))
        estimate = growth_exponent(levels * terms * rng.exponential(size=(12, 800)))
        covered.append(estimate.low <= 0.6 <= estimate.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.04)


def test_what_has_no_exponent():
    assert np.isnan(power_exponents(log_grid(100), np.zeros((2, len(log_grid(100)))))).all()
    assert np.isnan(growth_exponent(np.zeros((2, 100))).value)
    assert np.isnan(growth_exponent(np.ones((2, 15))).value)
    assert np.isnan(growth_exponent(np.ones((1, 100))).low)


def test_mean_estimate_is_students_interval():
    values = np.random.default_rng(0).normal(3, 2, size=12)
    low, high = stats.t.interval(0.95, 11, loc=values.mean(), scale=stats.sem(values))
    got = mean_estimate(values)
    assert (got.value, got.low, got.high) == pytest.approx((values.mean(), low, high))
    assert str(got) == f"{values.mean():.3g} [{low:.3g}, {high:.3g}]"


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(1)
    covered = [(e := mean_estimate(rng.normal(1.0, 1.0, size=8))).low <= 1.0 <= e.high for _ in range(2000)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_too_little_data_gives_no_interval():
    assert np.isnan(mean_estimate(np.array([2.0])).low)
    assert str(mean_estimate(np.array([2.0]))) == "2"
    assert str(mean_estimate(np.array([]))) == "–"
    assert str(mean_estimate(np.array([1.0, np.nan]))) == "–"
    assert np.isnan(slope(np.arange(2.0), np.arange(2.0)).value)


def test_relative_difference_is_paired():
    base = np.array([100.0, 200.0, 300.0, 400.0])
    got = relative_difference(1.1 * base, base)
    assert (got.value, got.low, got.high) == pytest.approx((0.1, 0.1, 0.1))


def test_slope_against_scipy():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    y = 0.7 * x + rng.normal(size=30)
    fit = stats.linregress(x, y)
    got = slope(x, y)
    assert got.value == pytest.approx(fit.slope)
    assert got.high - got.low == pytest.approx(2 * stats.t.ppf(0.975, 28) * fit.stderr)


def test_bound_shape_is_the_appendix():
    at, error = np.array([50, 400]), np.array([3.0, 20.0])
    d, arms, delta = 6, 9, 0.2
    want = [
        d * np.sqrt(t) * min(np.sqrt(d), np.sqrt(np.log(arms))) * (np.log(t) + np.sqrt(np.log(t) * np.log(1 / delta)))
        + np.sqrt(d * np.log(t)) * e
        for t, e in zip(at, error, strict=True)
    ]
    np.testing.assert_allclose(bound_shape(at, error, latent=d, arms=arms, delta=delta), want)


def test_ratio_of_means_is_the_relative_difference_plus_one():
    rng = np.random.default_rng(5)
    baseline = rng.gamma(3.0, size=40)
    values = 1.3 * baseline + rng.normal(size=40)
    ratio, difference = ratio_of_means(values, baseline), relative_difference(values, baseline)
    assert ratio.value == pytest.approx(values.mean() / baseline.mean())
    assert (ratio.low, ratio.high) == pytest.approx((1 + difference.low, 1 + difference.high))


def test_holm_on_the_steps_written_out():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.4, 0.9]) == pytest.approx([1.0, 1.0, 1.0])
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def test_the_paired_test():
    rng = np.random.default_rng(6)
    baseline = rng.normal(size=30)
    assert paired_p_value(baseline, baseline) == 1.0
    assert paired_p_value(baseline[:1] + 1, baseline[:1]) == 1.0
    values = baseline + rng.normal(0.5, 1.0, size=30)
    assert paired_p_value(values, baseline) == pytest.approx(stats.wilcoxon(values, baseline).pvalue)
    false = [paired_p_value(rng.normal(size=20), rng.normal(size=20)) < 0.1 for _ in range(400)]
    assert np.mean(false) == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / 400))


def test_theorem_quantities_of_a_made_up_run():
    t = np.arange(1, 2001)
    ones = np.ones((3, 2000))
    got = theorem_quantities(
        regret=0.5 * ones,
        error=ones * t**-0.5,
        context_norm=ones * np.sqrt(t),
        arm_norm=np.array([1.0, 4.0, 2.0]),
        checkpoints=np.array([200, 600, 2000]),
        gram=np.outer(np.ones(3), [1.0, 3.0, 10.0]),
        latent=4,
        arms=3,
    )
    assert got["A1 largest arm norm"] == 4
    assert got["A2 largest context norm"] == pytest.approx(np.sqrt(2000))
    assert got["A2 growth of the largest context norm"]["value"] == pytest.approx(0.5)
    assert got["A3 growth of t·|B⁻¹(t)|"]["value"] == pytest.approx(1, abs=1e-6)
    assert got["growth of the regret"]["value"] == pytest.approx(1)
    assert got["growth of the summed estimation error"]["value"] == pytest.approx(0.5, abs=0.02)
    assert got["summed estimation error"]["value"] == pytest.approx((t**-0.5).sum())
    assert got["regret"]["value"] == pytest.approx(1000)
