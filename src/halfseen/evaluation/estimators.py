"""Off-policy estimators of the value of a policy, their confidence intervals, and checks of their reliability."""

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
NEGLIGIBLE_PROPENSITY = 1e-6  # a smaller propensity counts as 0
ENOUGH = 50  # least effective sample size for a reliable interval
UNCOVERED = 0.001  # a note is added if a larger share of a policy's choices had propensity 0 in the log
_MOST_ERRORS = 4.0  # a note is added if the mean weight differs from 1 by more than this many standard errors
_FEWEST = 3, 2.0  # least number of rounds and least effective sample size for any interval

Estimates = dict[str, Estimate]  # one estimate for each name in ESTIMATORS


@dataclass(frozen=True)
class RewardedRounds:
    """The m rounds of a log that have a reward, and the predicted rewards of every arm in them."""

    rewards: Floats  # (m,)
    played: Ints  # (m,)
    propensity: Floats  # (m,)
    covered: Mask  # (m, K) arms with a positive propensity; without propensities, arms that were played at least once
    propensities_known: bool  # whether the propensities of all arms were logged
    predicted: Floats  # (m, K)
    logged_terms: Floats  # (m,) terms of the doubly robust estimate for the logged policy

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def residuals(self) -> Floats:
        """Rewards minus the predicted reward of the arm played, (m,)."""
        return self.rewards - self.of_played(self.predicted)

    def of_played(self, values: Floats) -> Floats:
        """Return the entries (m,) of `values` (m, K) for the arms played."""
        return np.asarray(values[np.arange(len(self)), self.played])


@dataclass(frozen=True)
class PolicyValue:
    """The estimated value of one policy.

    Parameters
    ----------
    label : str
        The label of the policy.
    values : dict of str to Estimate
        The mean reward per round, by estimator: "dr" (doubly robust), "snips" (self-normalised inverse propensity
        scoring) and "ips" (inverse propensity scoring).
    differences : dict of str to Estimate
        The value minus the value of the logged policy, by estimator. The two values are paired round by round.
    effective_size : float
        The effective sample size (Σw)²/Σw² of the importance weights.
    largest_weight, mean_weight : float
        The largest and the mean importance weight. The mean should be about 1.
    uncovered : float
        The share of the policy's choices that had propensity 0 in the log.
    notes : tuple of str
        Reasons not to trust the intervals.
    weights : ndarray of shape (m,)
        The importance weights of the m rewarded rounds.
    """

    label: str
    values: Estimates
    differences: Estimates
    effective_size: float
    largest_weight: float
    mean_weight: float
    uncovered: float
    notes: tuple[str, ...]
    weights: Floats

    @property
    def sure(self) -> bool:
        """Whether there is no reason not to trust the intervals."""
        return not self.notes


class RunningEstimate(NamedTuple):
    """Estimates with 95 % intervals from the first rounds of a log, for several numbers of rounds: (points,) arrays."""

    value: Floats
    low: Floats
    high: Floats


def rewarded_rounds(log: Log, rewards: Floats, predicted: Floats) -> RewardedRounds:
    """Return the rounds whose entry of `rewards` (n,) is not NaN. `predicted` (m, K) has one row for each of them."""
    rows = ~np.isnan(rewards)
    played = log.played[rows]
    one_hot = np.eye(len(log.arms))[played]
    if log.propensities is None:
        covered = np.broadcast_to(one_hot.any(axis=0), one_hot.shape)
    else:
        covered = (log.propensities[rows] >= NEGLIGIBLE_PROPENSITY) | (one_hot > 0)
    rewarded = rewards[rows]
    expected = (log.logged_probabilities[rows] * predicted).sum(axis=1)
    terms = expected + rewarded - predicted[np.arange(len(rewarded)), played]
    return RewardedRounds(
        rewarded, played, log.propensity[rows], covered, log.propensities is not None, predicted, logged_terms=terms
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
    """Estimate the value of a policy that plays arms with `probabilities` (m, K) in the rewarded rounds."""
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
    """Return the effective sample size (Σw)²/Σw² of importance weights."""
    largest = weights.max()
    if largest == 0:
        return 0.0
    scaled = weights / largest  # squares of large weights would overflow
    return float(scaled.sum() ** 2 / (scaled**2).sum())


def hac_estimate(series: Floats, size: float) -> Estimate:
    """Return the mean with Student's interval for `size` − 1 degrees of freedom and a HAC standard error."""
    value = float(series.mean())
    if np.isnan(value) or len(series) < _FEWEST[0] or size < _FEWEST[1]:
        return Estimate(value, np.nan, np.nan)
    half = float(student_quantile(0.5 + CONFIDENCE / 2, size - 1.0)) * conservative_error(series)
    return Estimate(value, value - half, value + half)


def running_values(
    rounds: RewardedRounds, probabilities: Floats, final: PolicyValue, ends: Ints
) -> dict[str, RunningEstimate]:
    """Return the estimate from the first e rounds for each e in `ends` (points,). `final` is that from all rounds."""
    weights, ones = final.weights, np.ones(len(rounds))
    ratios = {
        "dr": (_robust_terms(rounds, probabilities, weights), ones),
        "snips": (weights * rounds.rewards, weights),
        "ips": (weights * rounds.rewards, ones),
    }
    return {name: running_ratio(*ratio, weights, ends, final.values[name]) for name, ratio in ratios.items()}


def running_ratio(above: Floats, below: Floats, weights: Floats, ends: Ints, final: Estimate) -> RunningEstimate:
    """Return Σ above / Σ below over the first e rounds for each e in `ends`. The last e is the number of all rounds.

    Intervals are Student's intervals of the linearised ratio. The degrees of freedom are the effective sample size of
    these rounds minus 1. Autocorrelation is measured once: all intervals are scaled by the same factor, such that the
    last one is the interval of `final`.
    """
    centre = final.value if np.isfinite(final.value) else 0.0  # subtracted first, because large squares lose digits
    residuals = above - centre * below

    def total(series: Floats) -> Floats:
        return np.asarray(np.cumsum(series)[ends - 1])

    scaled = weights / max(weights.max(), np.finfo(np.float64).tiny)
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = total(residuals) / total(below)
        squares = total(residuals**2) - 2.0 * shift * total(residuals * below) + shift**2 * total(below**2)
        sizes = total(scaled) ** 2 / total(scaled**2)
        quantiles = student_quantile(0.5 + CONFIDENCE / 2, np.maximum(sizes - 1.0, 1.0))
        half = np.sqrt(np.maximum(squares, 0.0)) / np.abs(total(below)) * quantiles
    half[(ends < _FEWEST[0]) | ~(sizes >= _FEWEST[1])] = np.nan
    half *= 0.5 * (final.high - final.low) / half[-1] if half[-1] != 0.0 else 0.0
    return RunningEstimate(centre + shift, centre + shift - half, centre + shift + half)


def _robust_terms(rounds: RewardedRounds, probabilities: Floats, weights: Floats) -> Floats:
    """Return Σ_a π(a) r̂(a) + w (r − r̂(played)), (m,), whose mean is the doubly robust estimate."""
    return np.asarray((probabilities * rounds.predicted).sum(axis=1) + weights * rounds.residuals)


def _hac_estimates(rounds: RewardedRounds, weights: Floats, robust: Floats, size: float) -> tuple[Estimates, Estimates]:
    """Return the values and their differences to the logged policy. The ratio of snips is linearised."""
    rewards, mean = rounds.rewards, float(weights.mean())
    mean_reward = float(rewards.mean())
    ratio = float((weights * rewards).mean() / mean) if mean > 0 else np.nan
    linear = weights * (rewards - ratio) / mean if mean > 0 else np.full(len(rewards), np.nan)
    terms = {"dr": robust, "snips": ratio + linear, "ips": weights * rewards}
    paired = {"dr": robust - rounds.logged_terms, "snips": ratio - mean_reward + linear - (rewards - mean_reward)}
    paired["ips"] = weights * rewards - rewards
    values = {name: hac_estimate(series, size) for name, series in terms.items()}
    return values, {name: hac_estimate(series, size) for name, series in paired.items()}


def _bootstrap_estimates(
    rounds: RewardedRounds, weights: Floats, robust: Floats, values: Estimates, differences: Estimates, seed: int
) -> tuple[Estimates, Estimates]:
    """Return the estimates of `_hac_estimates` with percentile intervals of a block bootstrap, which are paired."""
    rewards, ratio = rounds.rewards, values["snips"].value
    base = rounds.logged_terms
    block = max(map(block_length, (robust, weights * rewards, weights * (rewards - ratio), robust - base)))
    series = np.column_stack([robust, weights * rewards, weights, rewards, base])
    dr, ips, weight, mean, logged = block_bootstrap(series, block, seed=seed).T
    snips = np.divide(ips, weight, out=np.full(len(ips), ratio), where=weight > 0)
    drawn = {"dr": dr, "snips": snips, "ips": ips}
    paired = {"dr": dr - logged, "snips": snips - mean, "ips": ips - mean}
    return (
        {name: percentile_interval(values[name].value, drawn[name]) for name in ESTIMATORS},
        {name: percentile_interval(differences[name].value, paired[name]) for name in ESTIMATORS},
    )


def _notes(weights: Floats, size: float, uncovered: float, rounds: RewardedRounds) -> list[str]:
    """Return one sentence for each reason not to trust the intervals."""
    notes = []
    if uncovered > UNCOVERED:
        least = "" if rounds.propensities_known else "at least "
        notes.append(
            f"{least}{100 * uncovered:.1f} % of its choices had propensity 0 in the log, so their rewards are unknown "
            "(ips counts them as 0, snips as the mean of the known ones, dr as predicted by the reward model)"
        )
    if size < ENOUGH:
        notes.append(
            f"the effective sample size is {size:.1f} of {len(rounds):,} rounds, which is too small for a reliable "
            "interval"
        )
    mean = hac_mean(weights)
    if uncovered <= UNCOVERED and size >= ENOUGH and abs(mean.value - 1.0) > _MOST_ERRORS * mean.standard_error + 1e-9:
        notes.append(
            f"the mean weight should be 1 and is {mean.value:.3f} ± {mean.standard_error:.3f}: arms were not drawn "
            "with the logged propensities, or some propensities are close to 0"
        )
    return notes
