"""Tests of the data themselves: sensors that do not change, trends, heavy tails, and the kind of rewards.

The tests do not assume that the model is correct (docs/mathematics.md, "Model health").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halfseen.components import Mask
from halfseen.diagnostics.examination_data import ObservedRewards
from halfseen.diagnostics.innovations import IQR_OF_NORMAL, OUTLIER, SIGNIFICANCE
from halfseen.kernels.random import Floats
from halfseen.statistics.distributions import chi2_cdf, normal_cdf, student_sf
from halfseen.statistics.time_series import conservative_error

LEAST_RUN = 20  # shorter runs of equal values never count as a sensor that does not change
LONGER = 10  # see `unchanging_runs`
OFTEN_STUCK = 0.05  # share of all rounds, see `changing_entries`
LEAST_TREND_ROUNDS = 200  # with fewer rounds, a slowly moving sensor seems to have a trend
LEAST_TAIL_VALUES = 100
TAIL_BLOCK = 250  # the robust standard deviation is computed in blocks of at least this many values, if possible
IQR_EFFICIENCY = 0.37  # of the interquartile range as an estimate of the standard deviation of normal values
LEAST_OUTLIERS = 4  # with fewer outliers, tails never count as heavy
DISCRETE = 0.10  # rewards are discrete if one value makes up more than this share of them


class UnchangingRun(NamedTuple):
    """A sensor whose value was the same in all observed rounds from `start` to `stop` − 1."""

    sensor: int
    start: int
    stop: int
    always: bool  # whether the sensor had no other value in any round


def unchanging_runs(ys: Floats) -> tuple[UnchangingRun, ...]:
    """Return the runs of equal values that are too long to be due to chance.

    If a value is repeated with probability p, the probability that n values contain a run of length L is below
    n·p^(L − 1). p is estimated from the other runs of the same value, and from all other runs. The larger estimate is
    used, so that long runs of a sensor with few levels do not count. At the end of its range, a sensor repeats the
    same value in runs of very different lengths. So a run must also be more than LONGER times as long as every other
    run of its value.
    """
    found = []
    for sensor, column in enumerate(ys.T):
        at = np.flatnonzero(~np.isnan(column))
        values = column[at]
        if len(values) < LEAST_RUN:
            continue
        starts = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1])
        lengths = np.diff(np.concatenate([starts, [len(values)]]))
        for i in np.flatnonzero(lengths >= LEAST_RUN):
            others = np.arange(len(starts)) != i
            same = others & (values[starts] == values[starts[i]])
            repeated = max(
                (lengths[which].sum() - which.sum() + 1) / (lengths[which].sum() + 2) for which in (same, others)
            )
            chance = len(values) * repeated ** (lengths[i] - 1)
            longer = lengths[i] > LONGER * lengths[same].max(initial=0)
            if len(starts) == 1 or (longer and chance < SIGNIFICANCE / ys.shape[1]):
                stop = at[starts[i] + lengths[i] - 1] + 1
                found.append(UnchangingRun(sensor, int(at[starts[i]]), int(stop), len(starts) == 1))
    return tuple(found)


def changing_entries(ys: Floats, runs: tuple[UnchangingRun, ...]) -> Floats:
    """Return the observations with NaN in the `runs`.

    If these runs contain more than the share OFTEN_STUCK of all rounds of a sensor, all its entries become NaN, because
    a model that was fitted to such a sensor is not correct in the other rounds either.
    """
    changing = ys.copy()
    for run in runs:
        changing[run.start : run.stop, run.sensor] = np.nan
    stuck = np.isnan(changing) & ~np.isnan(ys)
    changing[:, stuck.mean(axis=0) > OFTEN_STUCK] = np.nan
    return changing


class TrendTest(NamedTuple):
    sensor: int
    change: float  # from the first to the last round, in standard deviations around the trend
    p_value: float  # for the hypothesis that there is no trend


def trend_test(ys: Floats, sensor: int) -> TrendTest | None:
    """Test a sensor for a linear trend. Return None if there are too few rounds or the sensor does not change.

    The standard error of the least-squares slope allows for autocorrelation. It is not valid for a random walk, which
    seems to have a trend over any finite time. So if the variance of the mean is more than √n/2 times as large as for
    independent values, the mean of the differences is tested instead, as Perron and Yabu (2009) do near a unit root.
    """
    observed = np.flatnonzero(~np.isnan(ys[:, sensor]))
    if len(observed) < LEAST_TREND_ROUNDS:
        return None
    rounds = np.arange(observed[0], observed[-1] + 1)
    series = np.interp(rounds, observed, ys[observed, sensor])
    n, times = len(series), rounds - rounds.mean()
    slope = float(times @ series / (times @ times))
    around = series - series.mean() - slope * times
    std = float(around.std())
    if not std > 1e-12 * max(1.0, float(np.abs(series).max())):
        return None
    error = conservative_error(around)
    if n * error**2 > 0.5 * np.sqrt(n) * std**2:
        slope, error = float((series[-1] - series[0]) / (n - 1)), conservative_error(np.diff(series))
    else:
        error *= float(np.sqrt(n / (times @ times)))
    p_value = 2.0 * float(normal_cdf(-abs(slope) / error)) if error > 0.0 else 1.0
    return TrendTest(sensor, slope * (n - 1) / std, p_value)


class TailTest(NamedTuple):
    """How many outliers there are, and how many there would be if the values were normally distributed."""

    outliers: int
    expected: float
    size: int  # number of values
    p_value: float  # probability of at least this many outliers if the values are normally distributed

    @property
    def share(self) -> float:
        return self.outliers / self.size


def tail_test(values: Floats) -> TailTest | None:
    """Count the outliers of a series. Return None if there are too few values, or if most of them are equal.

    The median and the robust standard deviation, IQR/1.349, are computed in blocks of time, so that a change of the
    variance does not produce outliers. With m values per block, the deviations have approximately Student's t
    distribution with 0.37·m degrees of freedom.
    """
    values = values[~np.isnan(values)]
    if len(values) < LEAST_TAIL_VALUES:
        return None
    outliers, expected = 0, 0.0
    for block in np.array_split(values, max(1, len(values) // TAIL_BLOCK)):
        low, middle, high = np.quantile(block, [0.25, 0.5, 0.75])
        if not high > low:
            return None
        outliers += int((np.abs(block - middle) > OUTLIER * (high - low) / IQR_OF_NORMAL).sum())
        expected += 2.0 * len(block) * float(student_sf(OUTLIER, IQR_EFFICIENCY * len(block)))
    p_value = float(chi2_cdf(2.0 * expected, 2 * outliers)) if outliers else 1.0  # Poisson: P(X ≥ outliers)
    return TailTest(outliers, expected, len(values), p_value)


def sensor_tail_test(innovations: Floats, observations: Floats) -> TailTest | None:
    """Test one sensor's innovations and the differences of its observations; return the test with the larger p-value.

    A wrong model may be the only reason for outliers of the innovations, for example if the sensor is periodic and the
    model ignores it.
    """
    tests = tail_test(innovations), tail_test(np.diff(observations))
    return None if None in tests else max(tests, key=lambda test: test.p_value if test else 1.0)


class RewardKind(NamedTuple):
    distinct: int  # number of distinct values
    most_frequent: float
    share: float  # share of the rewards that are equal to `most_frequent`
    share_of_highest: float  # share of the rewards that are equal to `highest`
    lowest: float
    highest: float

    @property
    def name(self) -> str:
        """Return "binary", "discrete" or "continuous"."""
        if self.distinct == 2:
            return "binary"
        return "discrete" if self.share > DISCRETE else "continuous"


def varying_arms(observed: ObservedRewards) -> Mask:
    """Return a mask of the rewards of those arms whose rewards are not all equal."""
    varying = np.zeros(len(observed.rewards), dtype=np.bool_)
    for arm in np.unique(observed.arms):
        chosen = observed.arms == arm
        varying[chosen] = np.ptp(observed.rewards[chosen]) > 0.0
    return varying


def reward_kind(rewards: Floats) -> RewardKind:
    """Return the kind of the given rewards, which should be only the rewards in `varying_arms`."""
    values, counts = np.unique(rewards, return_counts=True)
    top = int(counts.argmax())
    shares = counts / len(rewards)
    return RewardKind(
        len(values), float(values[top]), float(shares[top]), float(shares[-1]), float(values[0]), float(values[-1])
    )
