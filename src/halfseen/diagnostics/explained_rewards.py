"""How much of the reward variance is explained by the observations, filtering, hidden coordinates and single sensors.

A description of the context is a set of features, such as y or the filtered context. Descriptions are compared by
cross-validation. Rewards are regressed as in docs/mathematics.md, "Calibrated arms". Rounds are divided into contiguous
blocks, and the rewards of a block are predicted by a regression on all other blocks. Only the
hyperparameters, which are the noise variances and the prior, are estimated from all rewards.

Filtering and hidden coordinates are measured separately. Filtering improves a noisy sensor even if nothing is hidden.
So the filtered context is compared with the best description without hidden coordinates. The candidates for this
description are y itself, the observed block of the filtered context, and the filtered context of a model with as many
dimensions as features. If a sensor is almost pure noise, a model may use its coordinate for something hidden. Such a
coordinate does not count as observed, and the sensor itself replaces it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from halfseen.diagnostics.examination_data import ExaminationData, ObservedRewards
from halfseen.kernels.arrays import Parameters
from halfseen.kernels.evidence import arm_sums, fit_arms
from halfseen.kernels.filter import filter_series
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.calibrated import ArmFit, fit_rewards
from halfseen.models.identification.em import em_iterates
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.statistics.distributions import noncentral_f_cdf
from halfseen.statistics.time_series import blocked_sum

FOLDS = 10
LEAST_REWARDS = 30
ITERATIONS = 20  # EM iterations for the model without hidden coordinates
FITTED_ROUNDS_WITH_GAPS = 500  # if entries are missing, EM uses only this many of the last rounds
MUCH, SOME = 0.10, 0.03  # least improvement for each grade, as a share of the explained variance
WORTHWHILE = 0.05  # an improvement below this share of the reward variance is not worth looking for
CONFIDENCE = 0.95  # of upper bounds
# A coordinate follows its sensor if its variance is at least the share FOLLOWS of the sensor's variance, or if the
# model predicts more than the share PREDICTS of the sensor's variance.
FOLLOWS, PREDICTS = 0.5, 0.01
DESCRIPTIONS = ("seen", "filtered, nothing hidden", "filtered context")  # simulations add the true context


class CrossValidation(NamedTuple):
    """Predictions of rewards from one description of the context."""

    fit: ArmFit  # fitted to all rewards
    predicted: Floats  # (n, K) rewards of each arm, predicted from the other blocks
    squared_errors: Floats  # (N,) one per reward

    @property
    def loss(self) -> float:
        return float(self.squared_errors.sum())


def with_intercept(contexts: Floats) -> Floats:
    return np.column_stack([np.ones(len(contexts)), contexts])


def cross_validate(data: ExaminationData, contexts: Floats, observed: ObservedRewards) -> CrossValidation:
    """Predict the rewards of every block from contexts (n, p) by a regression on the other blocks."""
    rounds, arms, rewards = observed
    K, features = len(data.arm_names), with_intercept(contexts)
    p = features.shape[1]
    fit = fit_rewards(features[rounds], arms, rewards, K)
    fold = np.arange(data.rounds) * FOLDS // data.rounds
    sums = [_sums(features[rounds], arms, rewards - fit.origin, fold[rounds] == i, K) for i in range(FOLDS)]
    whole = [np.sum(part, axis=0) for part in zip(*sums, strict=True)]
    predicted = np.empty((data.rounds, K))
    for i in range(FOLDS):
        others = [np.ascontiguousarray(total - left_out) for total, left_out in zip(whole, sums[i], strict=True)]
        mean, cov = np.empty((K, p)), np.empty((K, p, p))
        fit_arms(*others, fit.noise.copy(), fit.prior.copy(), fit.baseline, mean, cov, 0, 1.0, False)
        predicted[fold == i] = features[fold == i] @ mean.T + fit.origin
    return CrossValidation(fit, predicted, (rewards - predicted[rounds, arms]) ** 2)


def _sums(features: Floats, arms: Ints, rewards: Floats, chosen: Floats, K: int) -> tuple[Floats, ...]:
    p = features.shape[1]
    G, h, squares, counts = np.zeros((K, p, p)), np.zeros((K, p)), np.zeros(K), np.zeros(K)
    arm_sums(np.ascontiguousarray(features[chosen]), arms[chosen], rewards[chosen], G, h, squares, counts)
    return G, h, squares, counts


class Improvement(NamedTuple):
    """How much more of the reward variance one description of the context explains than another."""

    value: float
    error: float  # standard error

    @property
    def significant(self) -> bool:
        """Whether the improvement is more than two standard errors above 0."""
        return self.value > 2.0 * self.error


def improvement(
    worse: CrossValidation, better: CrossValidation, arm_means: CrossValidation, rounds: Ints
) -> Improvement:
    """Return (loss of `worse` − loss of `better`) / loss of `arm_means`."""
    if not arm_means.loss > 0.0:
        return Improvement(0.0, 0.0)
    difference, error = blocked_sum(worse.squared_errors - better.squared_errors, rounds)
    return Improvement(difference / arm_means.loss, error / arm_means.loss)


def share_explained(predictions: CrossValidation, arm_means: CrossValidation) -> float:
    """Return the share of the reward variance around each arm's mean that was predicted."""
    return 1.0 - predictions.loss / arm_means.loss if arm_means.loss > 0.0 else 0.0


def greedy_reward(data: ExaminationData, predictions: CrossValidation) -> float:
    """Return the mean reward of the arm with the highest prediction. The rewards of all arms must be known."""
    best = predictions.predicted.argmax(axis=1)
    return float(np.nanmean(data.rewards[np.arange(data.rounds), best]))


def grade(added: Improvement, explained: float) -> str:
    """Return "much", "some" or "little" for an improvement, depending on its share of the variance `explained`.

    An improvement that is not significant is "little".
    """
    if not added.significant or explained <= 0.0:
        return "little"
    part = added.value / explained
    return "much" if part >= MUCH else "some" if part >= SOME else "little"


class ExplainedRewards(NamedTuple):
    """Shares of the reward variance explained out of sample, and the gains by filtering and by hidden coordinates."""

    shares: dict[str, float]  # one share for each of DESCRIPTIONS and, if it is known, for the true context
    context: Improvement  # gain of the best of DESCRIPTIONS over the arms' means, about 0 if contexts are irrelevant
    filtering: Improvement  # gain of the best description without hidden coordinates over y itself
    hidden: Improvement  # gain of the filtered context over the best description without hidden coordinates
    recovered: Improvement  # gain over y itself of the filtered context or the filtered y, whichever is better
    beyond: Improvement | None  # gain of the true context over the best description, None if it is not known
    context_at_most: float  # upper bound of the share that y and the filtered context together can explain
    hidden_at_most: float  # upper bound of `hidden`
    recovered_at_most: float  # upper bound of `recovered`
    beyond_at_most: float | None  # upper bound of `beyond`
    predictions: dict[str, CrossValidation]
    arm_means: CrossValidation

    @property
    def context_matters(self) -> bool:
        """Whether contexts explain rewards significantly.

        The threshold is three standard errors instead of two, because the best of several descriptions was selected.
        """
        return self.context.value > 3.0 * self.context.error

    @property
    def context_is_irrelevant(self) -> bool:
        """Whether the data rule out that the context explains a share of WORTHWHILE or more."""
        return not self.context_matters and self.context_at_most < WORTHWHILE

    @property
    def hidden_pays(self) -> str:
        """How much the hidden coordinates help: "much", "some" or "little"."""
        return self._graded(self.hidden, "filtered context", "filtered, nothing hidden")

    @property
    def filtering_pays(self) -> str:
        """How much filtering helps: "much", "some" or "little"."""
        return self._graded(self.filtering, "filtered, nothing hidden", "seen")

    def _graded(self, added: Improvement, *descriptions: str) -> str:
        return grade(added, max(self.shares[name] for name in descriptions)) if self.context_matters else "little"


def explain_rewards(data: ExaminationData, contexts: Floats, predicted: Floats) -> ExplainedRewards:
    """Compare the descriptions of the context.

    `contexts` (n, d) are the filtered contexts, whose first k coordinates are observed. `predicted` (n, k) are the
    one-step-ahead predictions of y.
    """
    observed = data.observed_rewards()
    ys = data.observations
    plain = fill_with_means(ys)
    nothing = np.zeros((data.rounds, 0))
    arm_means = cross_validate(data, nothing, observed)
    seen = cross_validate(data, plain, observed)
    filtered = cross_validate(data, contexts, observed)
    nothing_hidden = [(seen, plain)]
    block = observed_block(contexts[:, : predicted.shape[1]], predicted, ys)
    if not np.allclose(block, plain, rtol=1e-4, atol=1e-6 * np.abs(plain).max()):
        nothing_hidden.append((cross_validate(data, block, observed), block))
    without = filter_without_hidden(ys)
    if without is not None:
        block = observed_block(*without, ys)
        nothing_hidden.append((cross_validate(data, block, observed), block))
    best_without, without_features = min(nothing_hidden, key=lambda one: one[0].loss)
    best_filtered = min((best_without, filtered), key=lambda one: one.loss)
    best = min((seen, best_filtered), key=lambda one: one.loss)
    predictions = dict(zip(DESCRIPTIONS, (seen, best_without, filtered), strict=True))
    beyond = beyond_at_most = None
    described = np.column_stack([plain, contexts])
    if data.contexts is not None:
        truth = predictions[data.contexts_name] = cross_validate(data, data.contexts, observed)
        beyond = improvement(best, truth, arm_means, observed.rounds)
        beyond_at_most = upper_bound(beyond, observed, described, data.contexts)
    context = improvement(arm_means, best, arm_means, observed.rounds)
    hidden = improvement(best_without, filtered, arm_means, observed.rounds)
    recovered = improvement(seen, best_filtered, arm_means, observed.rounds)
    return ExplainedRewards(
        shares={name: share_explained(one, arm_means) for name, one in predictions.items()},
        context=context,
        filtering=improvement(seen, best_without, arm_means, observed.rounds),
        hidden=hidden,
        recovered=recovered,
        beyond=beyond,
        context_at_most=upper_bound(context, observed, nothing, described),
        hidden_at_most=upper_bound(hidden, observed, without_features, contexts),
        recovered_at_most=upper_bound(recovered, observed, plain, contexts),
        beyond_at_most=beyond_at_most,
        predictions=predictions,
        arm_means=arm_means,
    )


def upper_bound(gain: Improvement, observed: ObservedRewards, known: Floats, added: Floats) -> float:
    """Return an upper bound of a gain: `largest_gain` or the estimate plus two standard errors, whichever is larger."""
    return max(gain.value + 2.0 * gain.error, largest_gain(observed, known, added))


def largest_gain(observed: ObservedRewards, known: Floats, added: Floats) -> float:
    """Return an upper confidence bound of the share of the reward variance that `added` explains beyond `known`.

    With few rewards, a regression that shrinks its coefficients explains nothing, whatever the truth is. So this bound
    comes from least squares, with one regression per arm. If `added` explained a share as large as the bound,
    an F statistic as small as the observed one would have the probability 1 − CONFIDENCE. The rewards of several
    arms in one round may have the same noise, so they count as one reward. Autocorrelated noise makes the bound larger.
    """
    rounds, arms, rewards = observed
    explained, left, total, gained, free = 0.0, 0.0, 0.0, 0, 0
    for arm in np.unique(arms):
        chosen = arms == arm
        r = rewards[chosen] - rewards[chosen].mean()
        small, large = (with_intercept(part[rounds[chosen]]) for part in (known, np.column_stack([known, added])))
        (rank, rss), (large_rank, large_rss) = _least_squares(small, r), _least_squares(large, r)
        explained, left, total = explained + rss - large_rss, left + large_rss, total + float(r @ r)
        gained, free = gained + large_rank - rank, free + len(r) - large_rank
    if gained == 0 or total == 0.0:
        return 0.0
    if free <= 0 or left <= 0.0:
        return 1.0
    per_round = len(rounds) / len(np.unique(rounds))
    dof, other_dof = gained / per_round, free / per_round
    statistic = max(explained, 0.0) / gained / (left / free)
    not_explained = (explained + left) / total
    low, high = 0.0, 0.01  # the bound is between these shares of the variance that `known` leaves unexplained
    while not _excluded(high, statistic, dof, other_dof):
        if high == 0.99:
            return min(1.0, not_explained)
        low, high = high, min(2.0 * high, 0.99)
    for _ in range(10):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _excluded(middle, statistic, dof, other_dof) else (middle, high)
    return high * not_explained


def _excluded(share: float, statistic: float, dof: float, other_dof: float) -> bool:
    """Return whether the F statistic is too small for features that explain this share."""
    noncentrality = (dof + other_dof) * share / (1.0 - share)
    return bool(noncentral_f_cdf(statistic, dof, other_dof, noncentrality) <= 1.0 - CONFIDENCE)


def _least_squares(features: Floats, rewards: Floats) -> tuple[int, float]:
    """Return the rank of the features and the sum of squared residuals."""
    slopes, _, rank, _ = np.linalg.lstsq(features, rewards, rcond=1e-8)
    return int(rank), float(((rewards - features @ slopes) ** 2).sum())


def fill_with_means(ys: Floats) -> Floats:
    """Return y with every missing entry replaced by the mean of its feature."""
    present = ~np.isnan(ys)
    counts = np.maximum(present.sum(axis=0), 1)
    means = np.where(present, ys, 0.0).sum(axis=0) / counts
    return np.where(present, ys, means)


def observed_block(filtered: Floats, predicted: Floats, ys: Floats) -> Floats:
    """Return the observed coordinates (n, k): filtered if the coordinate follows its sensor, otherwise as measured.

    A coordinate follows its sensor if its variance is large enough compared with the variance of the sensor, or if the
    model predicts part of the sensor's variance. Neither condition holds if the sensor measures only noise and the
    model uses its coordinate for a hidden quantity.
    """
    plain = fill_with_means(ys)
    total = ((plain - plain.mean(axis=0)) ** 2).sum(axis=0)
    unexplained = (np.where(np.isnan(ys), 0.0, ys - predicted) ** 2).sum(axis=0)
    belongs = (filtered.var(axis=0) >= FOLLOWS * plain.var(axis=0)) | (unexplained < (1.0 - PREDICTS) * total)
    return np.where(belongs, filtered, plain)


def filter_without_hidden(ys: Floats) -> tuple[Floats, Floats] | None:
    """Return the filtered contexts (n, k) of a model without hidden coordinates and its predictions of y.

    Return None if EM fails. Observations alone often cannot separate sensor noise from process noise, and EM then keeps
    the split with which it starts. The start used here attributes most of the variance to sensor noise. The raw
    observation, which is also among the candidates, is the other extreme.
    """
    k = ys.shape[1]
    filled = fill_with_means(ys)
    centre, std = filled.mean(axis=0), filled.std(axis=0)
    scale = np.where(std > 0, std, 1.0)
    y = np.ascontiguousarray((ys - centre) / scale)
    start = Parameters(0.95 * np.eye(k), 0.02 * np.eye(k), 0.7 * np.eye(k), np.zeros(k), np.eye(k))
    complete = not np.isnan(y).any()
    part = y if complete else np.ascontiguousarray(y[-FITTED_ROUNDS_WITH_GAPS:])  # missing entries make EM slow
    model: Parameters | None = None
    for fitted in em_iterates(start, part, iterations=ITERATIONS, tolerance=-np.inf, update_initial=complete):
        model = fitted.model
    if model is None:
        return None
    x = filter_series(*model, y[None])[0][0]
    contexts, predicted = x[1:] * scale + centre, (x[:-1] @ model.D.T) * scale + centre
    return (contexts, predicted) if np.isfinite(contexts).all() else None


class SensorValue(NamedTuple):
    """How much one feature helps to predict rewards."""

    name: str
    hidden: bool  # True for a recorded feature that is hidden from the model
    share: Improvement  # explained share of the reward variance: lost without the feature, or gained with it if hidden
    greedy_reward: float | None  # change of the mean reward of the greedy choice; None without full information


def sensor_values(
    data: ExaminationData, model: LinearGaussianModel, contexts: Floats, explained: ExplainedRewards
) -> tuple[SensorValue, ...]:
    """Return how much each observed feature helps, and how much each hidden feature would help if it were observed.

    `contexts` (n, d) are the filtered contexts.
    """
    observed, filtered = data.observed_rewards(), explained.predictions["filtered context"]

    def value(name: str, hidden: bool, less: CrossValidation, more: CrossValidation) -> SensorValue:
        share = improvement(less, more, explained.arm_means, observed.rounds)
        gain = greedy_reward(data, more) - greedy_reward(data, less) if data.full_information else None
        return SensorValue(name, hidden, share, gain)

    values = []
    for i, name in enumerate(data.sensors):
        without = cross_validate(data, _contexts_without(model, data.observations, i), observed)
        values.append(value(name, False, without, filtered))
    for i, name in enumerate(data.hidden_names):
        assert data.hidden is not None
        more = np.column_stack([contexts, fill_with_means(data.hidden[:, [i]])])
        values.append(value(name, True, filtered, cross_validate(data, more, observed)))
    return tuple(values)


def _contexts_without(model: LinearGaussianModel, ys: Floats, sensor: int) -> Floats:
    """Return the contexts filtered without the feature `sensor`, or (n, 0) if it is the only feature."""
    others = np.arange(model.observed) != sensor
    if not others.any():
        return np.zeros((len(ys), 0))
    observation_cov = model.observation_cov[np.ix_(others, others)]
    reduced = replace(model, observation=model.observation[others], observation_cov=observation_cov)
    return np.asarray(reduced.filter(ys[:, others]).means)
