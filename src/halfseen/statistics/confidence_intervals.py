"""Confidence intervals and p-values for means, ratios and paired differences of replications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from halfseen.kernels.random import Floats
from halfseen.statistics.distributions import student_quantile

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % confidence interval. The ends are NaN if there is too little data for an interval.

    Examples
    --------
    >>> print(Estimate(0.5, 0.4, 0.6))
    0.5 [0.4, 0.6]
    """

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """Return `value`, `low` and `high` by name."""
        return asdict(self)

    def __format__(self, spec: str) -> str:
        if np.isnan(self.value):
            return "–"
        if np.isnan(self.low):
            return format(self.value, spec)
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def __str__(self) -> str:
        return f"{self:.3g}"


NO_ESTIMATE = Estimate(np.nan, np.nan, np.nan)


def mean_estimate(values: Floats) -> Estimate:
    """Return the mean of independent replications with Student's interval, or NaN if a value is not finite."""
    n = len(values)
    if n == 0 or not np.isfinite(values).all():
        return NO_ESTIMATE
    mean = float(np.mean(values))
    if n == 1:
        return Estimate(mean, np.nan, np.nan)
    half = float(student_quantile(0.5 + CONFIDENCE / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return Estimate(mean, mean - half, mean + half)


def student_interval(value: float, standard_error: float, degrees_of_freedom: float) -> Estimate:
    """Return the value with Student's interval, computed from its standard error."""
    half = float(student_quantile(0.5 + CONFIDENCE / 2, degrees_of_freedom) * standard_error)
    return Estimate(value, value - half, value + half)


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean, or NaN for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def percentile_interval(value: float, drawn: Floats) -> Estimate:
    """Return the value with the interval that contains the central 95 % of the bootstrap draws."""
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(drawn, [tail, 100.0 - tail])
    return Estimate(value, float(low), float(high))


def relative_difference(values: Floats, baseline: Floats) -> Estimate:
    """Estimate ρ = (mean(values) − mean(baseline)) / mean(baseline) from paired replications.

    The interval is Student's interval for the mean of the residuals (v_i − b_i) − ρ b_i, divided by the mean of the
    baseline and centred on ρ.
    """
    baseline_mean = float(np.mean(baseline))
    if baseline_mean <= 0:
        return NO_ESTIMATE
    ratio = float(np.mean(values - baseline)) / baseline_mean
    residual = mean_estimate(values - baseline - ratio * baseline)
    half = (residual.high - residual.low) / 2 / baseline_mean
    return Estimate(ratio, ratio - half, ratio + half)


def ratio_of_means(values: Floats, baseline: Floats) -> Estimate:
    """Estimate mean(values) / mean(baseline) from paired replications, with the interval of `relative_difference`."""
    difference = relative_difference(values, baseline)
    return Estimate(1.0 + difference.value, 1.0 + difference.low, 1.0 + difference.high)


def paired_p_value(values: Floats, baseline: Floats) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test that paired differences are symmetric about 0.

    A few replications with very large regret can dominate a mean, but not a test of ranks.
    """
    differences = values - baseline
    if not differences.any():  # the test needs at least one difference that is not 0
        return 1.0
    from scipy.stats import wilcoxon  # slow to import, and seldom needed

    return float(wilcoxon(differences).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple comparisons with Holm's (1979) method, which controls the family-wise error rate."""
    adjusted, largest = list(p_values), 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(adjusted) - rank) * adjusted[index]))
        adjusted[index] = largest
    return adjusted
