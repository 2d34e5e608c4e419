"""The lift of one group of decisions over another: the difference of their mean rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from halfseen.kernels.random import Floats
from halfseen.statistics.confidence_intervals import NO_ESTIMATE, Estimate, student_interval


@dataclass(frozen=True)
class RewardMoments:
    """The number of rewards, their mean, and the sum of their squared deviations from the mean."""

    count: int
    mean: float
    squares: float

    @classmethod
    def of(cls, rewards: Floats) -> RewardMoments:
        mean = float(rewards.mean()) if len(rewards) else 0.0
        return cls(len(rewards), mean, float(((rewards - mean) ** 2).sum()))

    @property
    def mean_var(self) -> float:
        """The squared standard error of the mean, NaN with fewer than two rewards."""
        return self.squares / (self.count - 1) / self.count if self.count > 1 else np.nan


@dataclass(frozen=True)
class Lift:
    """The mean reward of the chooser's decisions, compared with the mean reward of a baseline.

    The branch of a decision is drawn at random and independently of everything else. The two groups are therefore
    comparable even if rewards are autocorrelated or drift. The 95 % confidence intervals are Welch's (1947).

    Parameters
    ----------
    baseline : str
        The branch to compare with, "control" or "holdback".
    chooser, other : RewardMoments
        The rewards of the chooser's decisions, and the rewards of the baseline's decisions.
    """

    baseline: str
    chooser: RewardMoments
    other: RewardMoments

    @property
    def shown(self) -> str:
        """The difference with its interval and, if there is one, the relative difference."""
        relative = "" if np.isnan(self.relative.value) else f" ({self.relative:+.1%})"
        return f"{self.difference:.3g}{relative}"

    @property
    def sentence(self) -> str:
        """What the difference means."""
        compared = "the control arm" if self.baseline == "control" else "arms chosen uniformly at random"
        if self.difference.high < 0.0:
            verdict = f"the chooser's decisions earn less than {compared}"
        elif self.difference.low > 0.0:
            verdict = f"the chooser's decisions earn more than {compared}"
        else:
            verdict = f"whether the chooser's decisions earn more than {compared} cannot be told yet"
        return (
            f"{verdict}: {self.chooser.mean:.4g} on average in {self.chooser.count} rewards, and "
            f"{self.other.mean:.4g} in {self.other.count}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers of rewards, the mean rewards, and the two estimates, by name."""
        return {
            "rewards": {"chooser": self.chooser.count, self.baseline: self.other.count},
            "means": {"chooser": self.chooser.mean, self.baseline: self.other.mean},
            "difference": self.difference.as_dict(),
            "relative": self.relative.as_dict(),
        }

    @property
    def difference(self) -> Estimate:
        """The mean reward of the chooser minus the mean reward of the baseline."""
        if not self.chooser.count or not self.other.count:
            return NO_ESTIMATE
        return self._interval(self.chooser.mean - self.other.mean, 1.0)

    @property
    def relative(self) -> Estimate:
        """The difference divided by the mean reward of the baseline (delta method).

        It is NaN unless the mean reward of the baseline is more than two of its standard errors above 0.
        """
        base = self.other
        if base.count < 2 or not self.chooser.count or not base.mean > 2.0 * np.sqrt(base.mean_var):
            return NO_ESTIMATE
        ratio = self.chooser.mean / base.mean
        if not np.isfinite(ratio):
            return NO_ESTIMATE
        return self._interval(ratio - 1.0, ratio, base.mean)

    def _interval(self, value: float, weight: float, unit: float = 1.0) -> Estimate:
        """Return `value` with the interval of (chooser − weight·other)/unit, with Welch's degrees of freedom."""
        chooser, other = self.chooser.mean_var, weight * weight * self.other.mean_var
        variance = chooser + other
        if not np.isfinite(variance):
            return Estimate(value, np.nan, np.nan)
        if variance == 0.0:
            return Estimate(value, value, value)
        freedom = np.array([self.chooser.count - 1, self.other.count - 1])
        parts = np.array([chooser, other]) / variance
        degrees_of_freedom = 1.0 / float((parts**2 / freedom).sum())
        return student_interval(value, float(np.sqrt(variance)) / unit, degrees_of_freedom)
