"""Confidence intervals and p-values: compared with SciPy, and their coverage in simulations."""

import numpy as np
import pytest
from scipy import stats

from halfseen.statistics.confidence_intervals import (
    holm,
    mean_estimate,
    paired_p_value,
    ratio_of_means,
    relative_difference,
)


def test_mean_estimate_is_students_interval():
    values = np.random.default_rng(0).normal(3, 2, size=12)
    low, high = stats.t.interval(0.95, 11, loc=values.mean(), scale=stats.sem(values))
    got = mean_estimate(values)
    assert (got.value, got.low, got.high) == pytest.approx((values.mean(), low, high))
    assert str(got) == f"{values.mean():.3g} [{low:.3g}, {high:.3g}]"


def test_95_percent_intervals_cover_95_percent():
    rng = np.random.default_rng(1)
    covered = [(e := mean_estimate(rng.normal(1.0, 1.0, size=8))).low <= 1.0 <= e.high for _ in range(2000)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_too_little_data_gives_no_interval():
    assert np.isnan(mean_estimate(np.array([2.0])).low)
    assert str(mean_estimate(np.array([2.0]))) == "2"
    assert str(mean_estimate(np.array([]))) == "–"
    assert str(mean_estimate(np.array([1.0, np.nan]))) == "–"


def test_relative_difference_is_paired():
    base = np.array([100.0, 200.0, 300.0, 400.0])
    got = relative_difference(1.1 * base, base)
    assert (got.value, got.low, got.high) == pytest.approx((0.1, 0.1, 0.1))


def test_ratio_of_means_is_the_relative_difference_plus_one():
    rng = np.random.default_rng(5)
    baseline = rng.gamma(3.0, size=40)
    values = 1.3 * baseline + rng.normal(size=40)
    ratio, difference = ratio_of_means(values, baseline), relative_difference(values, baseline)
    assert ratio.value == pytest.approx(values.mean() / baseline.mean())
    assert (ratio.low, ratio.high) == pytest.approx((1 + difference.low, 1 + difference.high))


def test_holm_on_small_examples():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.4, 0.9]) == pytest.approx([1.0, 1.0, 1.0])
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def test_paired_p_value_is_wilcoxons_and_uniform_under_the_null():
    rng = np.random.default_rng(6)
    baseline = rng.normal(size=30)
    assert paired_p_value(baseline, baseline) == 1.0
    assert paired_p_value(baseline[:1] + 1, baseline[:1]) == 1.0
    values = baseline + rng.normal(0.5, 1.0, size=30)
    assert paired_p_value(values, baseline) == pytest.approx(stats.wilcoxon(values, baseline).pvalue)
    false = [paired_p_value(rng.normal(size=20), rng.normal(size=20)) < 0.1 for _ in range(400)]
    assert np.mean(false) == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / 400))
