"""Off-policy estimators of what a policy would have earned, their intervals, and whether those can be believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from halfseen.components import Mask
from halfseen.evaluation.log import Log
from halfseen.kernels.random import Floats, Ints
from halfseen.statistics.confidence_intervals import CONFIDENCE, Estimate, percentile_interval
from halfseen.statistics.distributions import student_quantile
from halfseen.statistics.time_series import block_bootstrap, block_length, conservative_error, hac_mean

INTERVALS = ("hac", "bootstrap")
ESTIMATORS = ("dr", "snips", "ips")
NO_CHANCE = 1e-6  # a propensity below this counts as none
ENOUGH = 50  # effective sample size from which an interval means something
UNCOVERED = 0.001  # share of a policy's choices that may be without a chance in the log before a note says so
_MOST_ERRORS = 4.0  # standard errors by which the mean weight may differ from 1
_FEWEST = 3, 2.0  # rounds, and effective sample size, below which there is no interval

Estimates = dict[str, Estimate]  # by estimator


@dataclass(frozen=True)
class RewardedRounds:
    """The rounds of a log that have a reward, m of them, and the rewards predicted for every arm in them."""

    rewards: Floats  # (m,)
    played: Ints  # (m,)
    propensity: Floats  # (m,)
    covered: Mask  # (m, K), arms that had a chance; by what was played where propensities were not recorded
    propensities_known: bool
    predicted: Floats  # (m, K)
    logged_terms: Floats  # (m,) doubly robust terms of the logged policy

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def residuals(self) -> Floats:
        """(m,) rewards less what was predicted of the arm played."""
        return self.rewards - self.of_played(self.predicted)

    def of_played(self, values: Floats) -> Floats:
        """The entries (m,) of `values` (m, K) that belong to the arms played."""
        return np.asarray(values[np.arange(len(self)), self.played])


@dataclass(frozen=True)
class PolicyValue:
    """What one policy would have earned per round, how much more than the logged one, and how sure that is."""

    label: str
    values: Estimates
    differences: Estimates  # to the logged policy
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


class RunningEstimate(NamedTuple):
    """An estimate from more and more rounds, with its 95 % intervals: (points,) each."""

    value: Floats
    low: Floats
    high: Floats


def rewarded_rounds(log: Log, rewards: Floats, predicted: Floats) -> RewardedRounds:
    """Take the rounds whose entry of `rewards` (n,) is not NaN; `predicted` (m, K) is of those."""
    rows = ~np.isnan(rewards)
    played = log.played[rows]
    one_hot = np.eye(len(log.arms))[played]
    if log.propensities is None:
        covered = np.broadcast_to(one_hot.any(axis=0), one_hot.shape)
    else:
        covered = (log.propensities[rows] >= NO_CHANCE) | (one_hot > 0)
    paid = rewards[rows]
    expected = (log.logged_probabilities[rows] * predicted).sum(axis=1)
    terms = expected + paid - predicted[np.arange(len(paid)), played]
    return RewardedRounds(
        paid, played, log.propensity[rows], covered, log.propensities is not None, predicted, logged_terms=terms
    )


def policy_value(
    label: str,
    rounds: RewardedRounds,
    probabilities: Floats,
    *,
    is_logged: bool = False,
    intervals: str = "hac",
    seed: int = 0,
) -> PolicyValue:
    """Estimate the value of the policy that plays arms with `probabilities` (m, K) in the rewarded rounds."""
    weights = np.ones(len(rounds)) if is_logged else rounds.of_played(probabilities) / rounds.propensity
    terms = _robust_terms(rounds, probabilities, weights)
    size = effective_size(weights)
    uncovered = float((probabilities * ~rounds.covered).sum(axis=1).mean())
    values, differences = _hac_estimates(rounds, weights, terms, size)
    if intervals == "bootstrap" and len(rounds) >= _FEWEST[0] and size >= _FEWEST[1]:
        values, differences = _bootstrap_estimates(rounds, weights, terms, values, differences, seed)
    notes = _notes(weights, size, uncovered, rounds)
    largest, mean = float(weights.max()), float(weights.mean())
    return PolicyValue(label, values, differences, size, largest, mean, uncovered, tuple(notes), weights)


def effective_size(weights: Floats) -> float:
    """(Σw)²/Σw²: how many rounds played by the policy itself would tell as much of a reward of constant variance."""
    largest = weights.max()
    if largest == 0:
        return 0.0
    scaled = weights / largest  # squares of large weights stay finite
    return float(scaled.sum() ** 2 / (scaled**2).sum())


def hac_estimate(series: Floats, size: float) -> Estimate:
    """The mean with Student's interval, `size` − 1 degrees of freedom, from a HAC standard error."""
    value = float(series.mean())
    if np.isnan(value) or len(series) < _FEWEST[0] or size < _FEWEST[1]:
        return Estimate(value, np.nan, np.nan)
    half = float(student_quantile(0.5 + CONFIDENCE / 2, size - 1.0)) * conservative_error(series)
    return Estimate(value, value - half, value + half)


def running_values(
    rounds: RewardedRounds, probabilities: Floats, final: PolicyValue, ends: Ints
) -> dict[str, RunningEstimate]:
    """The estimates of `final`, of the policy with `probabilities`, from the first `ends` (points,) rounds each."""
    weights, ones = final.weights, np.ones(len(rounds))
    ratios = {
        "dr": (_robust_terms(rounds, probabilities, weights), ones),
        "snips": (weights * rounds.rewards, weights),
        "ips": (weights * rounds.rewards, ones),
    }
    return {name: running_ratio(*ratio, weights, ends, final.values[name]) for name, ratio in ratios.items()}


def running_ratio(above: Floats, below: Floats, weights: Floats, ends: Ints, final: Estimate) -> RunningEstimate:
    """Σ above / Σ below over the first `ends` rounds; the last of `ends` is all of them, whose estimate is `final`.

    Intervals are Student's, with the effective sample size so far less 1 degrees of freedom, of the linearised ratio.
    How much wider they are than for independent rounds is taken from `final`: the dependence is measured once.
    """
    about = final.value if np.isfinite(final.value) else 0.0  # squares about it lose no digits
    left = above - about * below

    def total(series: Floats) -> Floats:
        return np.asarray(np.cumsum(series)[ends - 1])

    scaled = weights / max(weights.max(), np.finfo(np.float64).tiny)
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = total(left) / total(below)
        squares = total(left**2) - 2.0 * shift * total(left * below) + shift**2 * total(below**2)
        sizes = total(scaled) ** 2 / total(scaled**2)
        quantiles = student_quantile(0.5 + CONFIDENCE / 2, np.maximum(sizes - 1.0, 1.0))
        half = np.sqrt(np.maximum(squares, 0.0)) / np.abs(total(below)) * quantiles
    half[(ends < _FEWEST[0]) | ~(sizes >= _FEWEST[1])] = np.nan
    half *= 0.5 * (final.high - final.low) / half[-1] if half[-1] != 0.0 else 0.0
    return RunningEstimate(about + shift, about + shift - half, about + shift + half)


def _robust_terms(rounds: RewardedRounds, probabilities: Floats, weights: Floats) -> Floats:
    """(m,) Σ_a π(a) r̂(a) + w (r − r̂(played)), whose mean is the doubly robust estimate."""
    return np.asarray((probabilities * rounds.predicted).sum(axis=1) + weights * rounds.residuals)


def _hac_estimates(rounds: RewardedRounds, weights: Floats, robust: Floats, size: float) -> tuple[Estimates, Estimates]:
    """Values and differences to the logged policy; a ratio has the terms of its linearisation."""
    paid, mean = rounds.rewards, float(weights.mean())
    mean_paid = float(paid.mean())
    ratio = float((weights * paid).mean() / mean) if mean > 0 else np.nan
    about = weights * (paid - ratio) / mean if mean > 0 else np.full(len(paid), np.nan)
    terms = {"dr": robust, "snips": ratio + about, "ips": weights * paid}
    less = {"dr": robust - rounds.logged_terms, "snips": ratio - mean_paid + about - (paid - mean_paid)}
    less["ips"] = weights * paid - paid
    values = {name: hac_estimate(series, size) for name, series in terms.items()}
    return values, {name: hac_estimate(series, size) for name, series in less.items()}


def _bootstrap_estimates(
    rounds: RewardedRounds, weights: Floats, robust: Floats, values: Estimates, differences: Estimates, seed: int
) -> tuple[Estimates, Estimates]:
    """The same estimates with percentile intervals from blocks of time, the same blocks for all that is compared."""
    paid, ratio = rounds.rewards, values["snips"].value
    base = rounds.logged_terms
    block = max(map(block_length, (robust, weights * paid, weights * (paid - ratio), robust - base)))
    series = np.column_stack([robust, weights * paid, weights, paid, base])
    dr, ips, weight, mean, logged = block_bootstrap(series, block, seed=seed).T
    snips = np.divide(ips, weight, out=np.full(len(ips), ratio), where=weight > 0)
    drawn = {"dr": dr, "snips": snips, "ips": ips}
    less = {"dr": dr - logged, "snips": snips - mean, "ips": ips - mean}
    return (
        {name: percentile_interval(values[name].value, drawn[name]) for name in ESTIMATORS},
        {name: percentile_interval(differences[name].value, less[name]) for name in ESTIMATORS},
    )


def _notes(weights: Floats, size: float, uncovered: float, rounds: RewardedRounds) -> list[str]:
    """A sentence for each reason not to believe the intervals."""
    notes = []
    if uncovered > UNCOVERED:
        least = "" if rounds.propensities_known else "at least "
        notes.append(
            f"{least}{100 * uncovered:.1f} % of its choices had no chance in the log: what they pay is not known (ips "
            "counts it as 0, snips as the mean of the rest, dr as the reward model has it)"
        )
    if size < ENOUGH:
        notes.append(
            f"the effective sample size is {size:.1f} of {len(rounds):,} rounds: too small for an interval to mean "
            "anything"
        )
    mean = hac_mean(weights)
    if uncovered <= UNCOVERED and size >= ENOUGH and abs(mean.value - 1.0) > _MOST_ERRORS * mean.standard_error + 1e-9:
        notes.append(
            f"weights should average 1 and average {mean.value:.3f} ± {mean.standard_error:.3f}: arms were not drawn "
            "with the propensities in the log, or it gives some arms hardly a chance"
        )
    return notes
