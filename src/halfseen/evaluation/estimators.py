"""Off-policy estimators of the value of a policy, their confidence intervals, and checks of their reliability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from halfseen.components import Mask
from halfseen.evaluation.log import Log
from halfseen.evaluation.propensity_model import PROPENSITY_FLOOR
from halfseen.evaluation.reward_model import RewardModel
from halfseen.kernels.random import Floats, Ints
from halfseen.statistics.confidence_intervals import CONFIDENCE, Estimate, percentile_interval
from halfseen.statistics.distributions import student_quantile
from halfseen.statistics.time_series import (
    SeriesMean,
    block_bootstrap,
    block_length,
    conservative_error,
    hac_mean,
    power_of_two,
)

INTERVALS = ("hac", "bootstrap")
SHOWN = ("dr", "snips", "ips")  # the estimators of the table and the figure, unless others are named
ESTIMATORS = (*SHOWN, "dm", "switch_dr", "clipped_dr", "mrdr")
THRESHOLDS = (*(2.0 ** np.arange(1, 11)).tolist(), np.inf)  # candidate thresholds for the weights
NEGLIGIBLE_PROPENSITY = 1e-6  # a smaller propensity counts as 0
ENOUGH = 50  # least effective sample size for a reliable interval
FEW_PLAYS = 10  # a policy that may play an arm with fewer plays in the log cannot be judged reliably
INDEPENDENT = 20  # least number of independent rounds for a reliable interval
UNCOVERED = 0.001  # a note is added if a larger share of a policy's choices had propensity 0 in the log
_MOST_ERRORS = 4.0  # a note is added if the mean weight differs from 1 by more than this many standard errors
_NEGLIGIBLE_ERROR = 1e-3  # allowed in addition to _MOST_ERRORS standard errors, because files round propensities
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
    logged: Floats  # (m, K) propensities, or 1 for the arm played and 0 for the others
    estimated: bool = False  # whether propensities were estimated
    unstable: bool = False  # whether estimated propensities are wrong in some period
    model: RewardModel | None = None  # without it, only the estimators in SHOWN are available

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def estimators(self) -> tuple[str, ...]:
        """The estimators for which there is enough information."""
        return SHOWN if self.model is None else ESTIMATORS

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
        scoring), "ips" (inverse propensity scoring), "dm" (direct method), "switch_dr" and "clipped_dr" (doubly robust
        without large weights, or with clipped weights) and "mrdr" (more robust doubly robust).
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
    thresholds : dict of str to float
        The thresholds for the weights of "switch_dr" and "clipped_dr", inf if no weight is changed.
    freedom : float
        The degrees of freedom of the interval of ``differences["dr"]``, inf if it is not Student's interval.
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
    thresholds: dict[str, float]
    freedom: float = np.inf

    @property
    def sure(self) -> bool:
        """Whether there is no reason not to trust the intervals."""
        return not self.notes


class RunningEstimate(NamedTuple):
    """Estimates from the first rounds of a log, with 95 % intervals: one entry per number of rounds, (points,)."""

    value: Floats
    low: Floats
    high: Floats


class _Terms(NamedTuple):
    """An estimate, and a series for its standard error.

    The mean of the series has, to first order, the same random error as the estimate. The two may differ by a constant.
    """

    value: float
    series: Floats  # (m,)


def rewarded_rounds(log: Log, rewards: Floats, predicted: Floats, model: RewardModel | None = None) -> RewardedRounds:
    """Return the rounds whose entry of `rewards` (n,) is not NaN.

    `predicted` (m, K) has one row for each of these rounds. `model` was fitted to these rounds.
    """
    rows = ~np.isnan(rewards)
    played = log.played[rows]
    one_hot = np.eye(len(log.arms))[played]
    if log.propensities is None:
        covered = np.broadcast_to(one_hot.any(axis=0), one_hot.shape)
    else:
        covered = (log.propensities[rows] >= NEGLIGIBLE_PROPENSITY) | (one_hot > 0)
    logged = log.logged_probabilities[rows]
    known = log.propensities is not None
    return RewardedRounds(
        rewards[rows],
        played,
        log.propensity[rows],
        covered,
        known,
        predicted,
        logged,
        log.estimated,
        log.unstable is not None,
        model,
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
    robust = rounds.predicted
    if rounds.model is not None and not is_logged:
        robust = rounds.model.predict((1.0 - rounds.propensity) * weights / rounds.propensity)
    terms, thresholds = _terms(rounds, probabilities, weights, robust)
    logged = terms if is_logged else _terms(rounds, rounds.logged, np.ones(len(rounds)), robust)[0]
    size = effective_size(weights)
    uncovered = float((probabilities * ~rounds.covered).sum(axis=1).mean())
    freedom = np.inf
    if intervals == "bootstrap" and len(rounds) >= _FEWEST[0] and size >= _FEWEST[1]:
        values, differences = _bootstrap_estimates(rounds, weights, terms, logged, seed)
    else:
        values = {name: _hac_estimate(*one, size) for name, one in terms.items()}
        differences = {
            name: _hac_estimate(one.value - logged[name].value, one.series - logged[name].series, size)
            for name, one in terms.items()
        }
        if np.isfinite(differences["dr"].low):
            gain = terms["dr"].series - logged["dr"].series
            freedom = _degrees_of_freedom(gain, conservative_error(gain), size)
    unstable = rounds.unstable and not is_logged  # all weights of the logged policy are 1
    notes = _notes(probabilities, weights, uncovered, rounds, terms["dr"].series, unstable=unstable)
    largest, mean = float(weights.max()), float(weights.mean())
    return PolicyValue(
        label, values, differences, size, largest, mean, uncovered, tuple(notes), weights, thresholds, freedom
    )


def effective_size(weights: Floats) -> float:
    """Return the effective sample size (Σw)²/Σw² of importance weights."""
    largest = weights.max()
    if largest == 0:
        return 0.0
    scaled = weights / largest  # squares of large weights would overflow
    return float(scaled.sum() ** 2 / (scaled**2).sum())


def hac_estimate(series: Floats, size: float) -> Estimate:
    """Return the mean of `series` with Student's interval.

    The interval uses a HAC standard error and at most `size` − 1 degrees of freedom.
    """
    return _hac_estimate(float(series.mean()), series, size)


def _hac_estimate(value: float, series: Floats, size: float) -> Estimate:
    """Return `value` with Student's interval. Its standard error is the HAC standard error of the mean of `series`."""
    if np.isnan(value) or len(series) < _FEWEST[0] or size < _FEWEST[1]:
        return Estimate(value, np.nan, np.nan)
    error = conservative_error(series)
    half = float(student_quantile(0.5 + CONFIDENCE / 2, _degrees_of_freedom(series, error, size))) * error
    return Estimate(value, value - half, value + half)


def _degrees_of_freedom(series: Floats, error: float, size: float) -> float:
    """Return the degrees of freedom of a HAC standard error.

    The standard error is itself estimated. Let n_e be the number of independent rounds whose mean would have the same
    standard error. For an autoregression of order 1, the HAC standard error is as uncertain as the standard error of
    n_e/2 independent numbers. So there are at most n_e/2 degrees of freedom.
    """
    return min(size - 1.0, max(_FEWEST[1], 0.5 * independent_rounds(series, error)))


def independent_rounds(series: Floats, error: float) -> float:
    """Return the number of independent rounds whose mean has the standard error `error`."""
    unit = power_of_two(series)
    return float((series / unit).std() / (error / unit)) ** 2 if error > 0.0 else float(len(series))


def running_values(
    rounds: RewardedRounds, probabilities: Floats, final: PolicyValue, ends: Ints
) -> dict[str, RunningEstimate]:
    """Return the estimates from the first e rounds for each e in `ends` (points,).

    `final` has the estimates from all rounds.
    """
    weights, ones = final.weights, np.ones(len(rounds))
    ratios = {
        "dr": (_robust_series(rounds, probabilities, rounds.predicted, weights), ones),
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
    centre = final.value if np.isfinite(final.value) else 0.0  # subtracted before squaring, to lose no digits
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


def _robust_series(rounds: RewardedRounds, probabilities: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Return Σ_a π(a) r̂(a) + w (r − r̂(played)), (m,), whose mean is the doubly robust estimate."""
    residuals = rounds.rewards - rounds.of_played(predicted)
    return np.asarray((probabilities * predicted).sum(axis=1) + weights * residuals)


def _terms(
    rounds: RewardedRounds, probabilities: Floats, weights: Floats, robust_predicted: Floats
) -> tuple[dict[str, _Terms], dict[str, float]]:
    """Return the terms of all estimators, and the thresholds for the weights of "switch_dr" and "clipped_dr".

    `robust_predicted` (m, K) are the predictions for "mrdr".
    """
    rewards, mean = rounds.rewards, float(weights.mean())

    def robust(used: Floats, predicted: Floats = rounds.predicted) -> _Terms:
        series = _robust_series(rounds, probabilities, predicted, used)
        return _Terms(float(series.mean()), series)

    weighted = weights * rewards
    ratio = float(weighted.mean() / mean) if mean > 0 else np.nan
    linear = weights * (rewards - ratio) / mean if mean > 0 else np.full(len(rewards), np.nan)  # the linearised ratio
    terms = {"dr": robust(weights), "snips": _Terms(ratio, linear), "ips": _Terms(float(weighted.mean()), weighted)}
    if rounds.model is None:
        return terms, {}
    # The predictions of the regression have systematic and random errors. The interval of the direct method includes
    # only the random errors.
    direct = float((probabilities * rounds.predicted).sum(axis=1).mean())
    terms["dm"] = _Terms(direct, robust(rounds.model.direct_weights(probabilities)).series)
    terms["mrdr"] = robust(weights, robust_predicted)
    thresholds = {}
    for name, without_large in (("switch_dr", switched), ("clipped_dr", np.minimum)):
        thresholds[name] = best_threshold(weights, robust, without_large)
        terms[name] = robust(without_large(weights, thresholds[name]))
    return {name: terms[name] for name in ESTIMATORS}, thresholds


def switched(weights: Floats, threshold: float) -> Floats:
    """Return the weights, with 0 in place of weights above the threshold."""
    return np.where(weights <= threshold, weights, 0.0)


def best_threshold(
    weights: Floats, robust: Callable[[Floats], _Terms], without_large: Callable[[Floats, float], Floats]
) -> float:
    """Return the threshold with the smallest estimate of the mean squared error.

    The mean squared error is estimated as variance plus squared bias. The variance is the sample variance of the series
    whose mean is the estimate, divided by the number of rounds. The bias is the difference from the doubly robust
    estimate with all weights (Su et al. 2020, section 5).
    """
    whole, best, least = robust(weights), np.inf, np.inf
    unit = power_of_two(whole.series)  # squares of large rewards would overflow
    for threshold in THRESHOLDS:
        one = robust(without_large(weights, threshold))
        error = float((one.series / unit).var()) / len(weights) + ((one.value - whole.value) / unit) ** 2
        if error < least:
            best, least = threshold, error
    return best


def _bootstrap_estimates(
    rounds: RewardedRounds, weights: Floats, terms: dict[str, _Terms], logged: dict[str, _Terms], seed: int
) -> tuple[Estimates, Estimates]:
    """Return estimates with percentile intervals of a block bootstrap. All estimators use the same resampled rounds."""
    series = {name: one.series for name, one in terms.items()}
    compared = (series["dr"], series["snips"], series["ips"], series["dr"] - logged["dr"].series)
    block = max(map(block_length, compared))
    both = [*series.values(), *(one.series for one in logged.values()), weights]
    drawn = block_bootstrap(np.column_stack(both), block, seed=seed).T

    def shifted(all_terms: dict[str, _Terms], means: Floats) -> dict[str, Floats]:
        pairs = zip(all_terms.items(), means, strict=True)
        return {name: one.value + mean - one.series.mean() for (name, one), mean in pairs}

    values, references = shifted(terms, drawn[: len(terms)]), shifted(logged, drawn[len(terms) : -1])
    ips, weight = values["ips"], drawn[-1]
    values["snips"] = np.divide(ips, weight, out=np.full(len(ips), terms["snips"].value), where=weight > 0)
    return (
        {name: percentile_interval(one.value, values[name]) for name, one in terms.items()},
        {
            name: percentile_interval(one.value - logged[name].value, values[name] - references[name])
            for name, one in terms.items()
        },
    )


def _notes(
    probabilities: Floats,
    weights: Floats,
    uncovered: float,
    rounds: RewardedRounds,
    series: Floats,
    *,
    unstable: bool,
) -> list[str]:
    """Return one sentence for each reason not to trust the intervals. The mean of `series` is the "dr" estimate."""
    notes, size = [], effective_size(weights)
    if unstable:
        notes.append("the choice of arms changed over time, so the estimated propensities are wrong")
    if uncovered > UNCOVERED:
        least = "" if rounds.propensities_known else "at least "
        small = f"an estimated propensity below {PROPENSITY_FLOOR:g}"
        propensity = small if rounds.estimated else "propensity 0 in the log"
        notes.append(
            f"{least}{100 * uncovered:.1f} % of its choices had {propensity}, so their rewards are unknown "
            "(ips counts them as 0, snips as the mean of the known ones, dr as predicted by the reward model)"
        )
    if size < ENOUGH:
        notes.append(
            f"the effective sample size is {size:.1f} of {len(rounds):,} rounds, which is too small for a reliable "
            "interval"
        )
    elif (independent := independent_rounds(series, conservative_error(series))) < INDEPENDENT:
        notes.append(
            f"neighbouring rounds are so much alike that {len(rounds):,} rounds count as about {independent:.0f} "
            "independent ones, which are too few for a reliable interval"
        )
    mean = hac_mean(weights)
    if not unstable and uncovered <= UNCOVERED and size >= ENOUGH and _differs(mean, 1.0):
        reason = ": arms were not drawn with the logged propensities, or some propensities are close to 0"
        rare = np.bincount(rounds.played, minlength=probabilities.shape[1]) < FEW_PLAYS
        share = float(probabilities[:, rare].sum(axis=1).mean())
        others = np.where(rare[rounds.played], 0.0, weights)
        if rare.any() and not _differs(hac_mean(others), 1.0 - share):
            reason = f", because {100 * share:.1f} % of its choices are arms with fewer than {FEW_PLAYS} rewards"
        notes.append(f"the mean weight should be 1 and is {mean.value:.3f} ± {mean.standard_error:.3f}{reason}")
    return notes


def _differs(mean: SeriesMean, expected: float) -> bool:
    """Return whether a mean differs from its expected value by more than chance and rounding explain."""
    return abs(mean.value - expected) > _MOST_ERRORS * mean.standard_error + _NEGLIGIBLE_ERROR
