"""What a policy would have earned: three estimators, their intervals, and whether they can be believed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfseen.components import Mask
from halfseen.evaluation.log import Log
from halfseen.kernels.random import Floats
from halfseen.statistics.confidence_intervals import CONFIDENCE, Estimate
from halfseen.statistics.distributions import student_quantile
from halfseen.statistics.time_series import (
    block_bootstrap,
    block_length,
    conservative_error,
    hac_mean,
    percentile_interval,
)

INTERVALS = ("hac", "bootstrap")
ESTIMATORS = ("dr", "snips", "ips")
NO_CHANCE = 1e-6  # a propensity below this counts as none
ENOUGH = 50  # effective sample size from which an interval means something
UNCOVERED = 0.001  # share of a policy's choices that may be without a chance in the log before it is said
_OFF = 4.0  # standard errors by which the mean weight may differ from 1


@dataclass(frozen=True)
class Sample:
    """The rewarded rounds of a log, m of them, and what the reward model predicts in them."""

    rewards: Floats  # (m,)
    played: Floats  # (m, K), 1 for the arm played
    propensity: Floats  # (m,)
    chance: Mask  # (m, K), arms that had a chance; by what was played where propensities were not recorded
    known: bool  # whether `chance` is known rather than guessed
    predicted: Floats  # (m, K)
    base: Floats  # (m,) doubly robust terms of the logged policy

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class PolicyValue:
    """What one policy would have earned a round, how much more than the logged one, and how sure that is."""

    label: str
    values: dict[str, Estimate]  # by estimator
    differences: dict[str, Estimate]  # to the logged policy
    effective_size: float
    largest_weight: float
    mean_weight: float
    uncovered: float  # share of its choices that had no chance in the log
    notes: tuple[str, ...]
    weights: Floats  # (m,)

    @property
    def sure(self) -> bool:
        """Whether nothing speaks against the intervals."""
        return not self.notes


def sample_of(log: Log, rewards: Floats, predicted: Floats, chances_logged: Floats) -> Sample:
    """`rewards` (n,) of the log with NaN where a round does not count; `predicted` (m, K) is of those that do."""
    rows = ~np.isnan(rewards)
    played = np.eye(len(log.arms))[log.played[rows]]
    if log.propensities is None:
        chance = np.broadcast_to(played.any(axis=0), played.shape)
    else:
        chance = (log.propensities[rows] >= NO_CHANCE) | (played > 0)
    paid = rewards[rows]
    base = (chances_logged[rows] * predicted).sum(axis=1) + paid - (played * predicted).sum(axis=1)
    return Sample(paid, played, log.propensity[rows], chance, log.propensities is not None, predicted, base)


def value_of(label: str, sample: Sample, chances: Floats, *, is_logged: bool, intervals: str, seed: int) -> PolicyValue:
    """The value of the policy that has `chances` (m, K) in the rewarded rounds."""
    weights = np.ones(len(sample)) if is_logged else (chances * sample.played).sum(axis=1) / sample.propensity
    left = sample.rewards - (sample.predicted * sample.played).sum(axis=1)
    robust = (chances * sample.predicted).sum(axis=1) + weights * left
    size = effective_size(weights)
    uncovered = float((chances * ~sample.chance).sum(axis=1).mean())
    make = _by_bootstrap if intervals == "bootstrap" else _by_hac
    values, differences = make(sample, weights, robust, size, seed)
    notes = _notes(weights, size, uncovered, sample)
    largest, mean = float(weights.max()), float(weights.mean())
    return PolicyValue(label, values, differences, size, largest, mean, uncovered, tuple(notes), weights)


def effective_size(weights: Floats) -> float:
    """(Σw)²/Σw²: how many rounds played by the policy itself would tell as much of a reward of constant variance."""
    largest = weights.max()
    if largest == 0:
        return 0.0
    scaled = weights / largest  # squares of large weights stay finite
    return float(scaled.sum() ** 2 / (scaled**2).sum())


Found = tuple[dict[str, Estimate], dict[str, Estimate]]


def _by_hac(sample: Sample, weights: Floats, robust: Floats, size: float, _: int) -> Found:
    """Student's intervals, ESS − 1 degrees of freedom, from the HAC standard errors of terms whose mean is the value.

    A ratio has the terms of its linearisation.
    """
    paid, mean = sample.rewards, float(weights.mean())
    mean_paid = float(paid.mean())
    ratio = float((weights * paid).mean() / mean) if mean > 0 else np.nan
    about = weights * (paid - ratio) / mean if mean > 0 else np.full(len(paid), np.nan)
    terms = {"dr": robust, "snips": ratio + about, "ips": weights * paid}
    less = {"dr": robust - sample.base, "snips": ratio - mean_paid + about - (paid - mean_paid)}
    less["ips"] = weights * paid - paid
    values = {name: _interval(series, size) for name, series in terms.items()}
    return values, {name: _interval(series, size) for name, series in less.items()}


def _interval(series: Floats, size: float) -> Estimate:
    value = float(series.mean())
    if np.isnan(value) or len(series) < 3 or size < 2:
        return Estimate(value, np.nan, np.nan)
    half = float(student_quantile(0.5 + CONFIDENCE / 2, size - 1.0)) * conservative_error(series)
    return Estimate(value, value - half, value + half)


def _by_bootstrap(sample: Sample, weights: Floats, robust: Floats, size: float, seed: int) -> Found:
    """Percentile intervals from blocks of time, the same blocks for all that is compared."""
    paid = sample.rewards
    values, differences = _by_hac(sample, weights, robust, size, seed)
    if len(paid) < 3 or size < 2:
        return values, differences
    ratio = values["snips"].value
    block = max(map(block_length, (robust, weights * paid, weights * (paid - ratio), robust - sample.base)))
    series = np.column_stack([robust, weights * paid, weights, paid, sample.base])
    dr, ips, weight, mean, base = block_bootstrap(series, block, seed=seed).T
    snips = np.divide(ips, weight, out=np.full(len(ips), ratio), where=weight > 0)
    drawn = {"dr": dr, "snips": snips, "ips": ips}
    less = {"dr": dr - base, "snips": snips - mean, "ips": ips - mean}
    return (
        {name: percentile_interval(values[name].value, drawn[name]) for name in ESTIMATORS},
        {name: percentile_interval(differences[name].value, less[name]) for name in ESTIMATORS},
    )


def _notes(weights: Floats, size: float, uncovered: float, sample: Sample) -> list[str]:
    """A sentence for each reason not to believe the intervals."""
    notes = []
    if uncovered > UNCOVERED:
        least = "" if sample.known else "at least "
        notes.append(
            f"{least}{100 * uncovered:.1f} % of its choices had no chance in the log: what they pay is not known (ips "
            "counts it as 0, snips as the mean of the rest, dr as the reward model has it)"
        )
    if size < ENOUGH:
        notes.append(
            f"the effective sample size is {size:.1f} of {len(sample):,} rounds: too small for an interval to mean "
            "anything"
        )
    mean = hac_mean(weights)
    if uncovered <= UNCOVERED and size >= ENOUGH and abs(mean.value - 1.0) > _OFF * mean.standard_error + 1e-9:
        notes.append(
            f"weights should average 1 and average {mean.value:.3f} ± {mean.standard_error:.3f}: arms were not drawn "
            "with the propensities in the log, or it gives some arms hardly a chance"
        )
    return notes
