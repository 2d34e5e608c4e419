"""How much of the rewards is explained by the observations, by filtering, by hidden coordinates, by single sensors.

Descriptions of the context are compared by cross-validation. Arms are those of docs/mathematics.md, "Calibrated arms".
Rounds are cut into contiguous blocks, and the rewards of a block are predicted by arms that learnt from all other
blocks. Noise and prior come from all rewards: two numbers per arm, against as many rewards as there are.

Filtering and hidden coordinates are two things. A noisy sensor is better filtered, whether or not anything is hidden
behind it. So the filtered context is compared with the best that can be done without hidden coordinates: y itself, the
observed block of the filtered context, and the filter of a model of as many dimensions as there are features. In a
model, the coordinate of a sensor that shows next to nothing but noise may stand for something hidden. Such a coordinate
does not count as observed, and the sensor itself takes its place.
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
from halfseen.statistics.time_series import blocked_sum

FOLDS = 10
LEAST_REWARDS = 30
ITERATIONS = 20  # of EM for the model without hidden coordinates
FITTED_ROUNDS_WITH_GAPS = 500  # how many of the last rounds EM is given where entries are missing
MUCH, SOME = 0.10, 0.03  # grades of an improvement, as shares of everything that is explained with it
FOLLOWS, PREDICTS = 0.5, 0.01  # share of a sensor's variance that its coordinate has, or that its prediction explains
DESCRIPTIONS = ("seen", "filtered, nothing hidden", "filtered context")  # of the context; the truth may be a fourth


class CrossValidation(NamedTuple):
    """Predictions of rewards from one description of the context."""

    fit: ArmFit  # to all rewards
    predicted: Floats  # (n, K) what each arm was expected to pay, from the other blocks
    squared_errors: Floats  # (N,) one per reward

    @property
    def loss(self) -> float:
        return float(self.squared_errors.sum())


def with_intercept(contexts: Floats) -> Floats:
    return np.column_stack([np.ones(len(contexts)), contexts])


def cross_validate(data: ExaminationData, contexts: Floats, observed: ObservedRewards) -> CrossValidation:
    """Predict every reward from contexts (n, p) by arms that have not learnt from its block."""
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
        fit_arms(*others, fit.noise.copy(), fit.prior.copy(), fit.baseline, mean, cov, 0, 1.0)
        predicted[fold == i] = features[fold == i] @ mean.T + fit.origin
    return CrossValidation(fit, predicted, (rewards - predicted[rounds, arms]) ** 2)


def _sums(features: Floats, arms: Ints, rewards: Floats, chosen: Floats, K: int) -> tuple[Floats, ...]:
    p = features.shape[1]
    G, h, squares, counts = np.zeros((K, p, p)), np.zeros((K, p)), np.zeros(K), np.zeros(K)
    arm_sums(np.ascontiguousarray(features[chosen]), arms[chosen], rewards[chosen], G, h, squares, counts)
    return G, h, squares, counts


class Improvement(NamedTuple):
    """By how much one description beats another, in shares of the reward variance."""

    value: float
    error: float  # standard

    @property
    def significant(self) -> bool:
        """Two standard errors above 0."""
        return self.value > 2.0 * self.error


def improvement(
    worse: CrossValidation, better: CrossValidation, arm_means: CrossValidation, rounds: Ints
) -> Improvement:
    """(Loss of `worse` − loss of `better`) / loss of `arm_means`."""
    if not arm_means.loss > 0.0:
        return Improvement(0.0, 0.0)
    difference, error = blocked_sum(worse.squared_errors - better.squared_errors, rounds)
    return Improvement(difference / arm_means.loss, error / arm_means.loss)


def share_explained(predictions: CrossValidation, arm_means: CrossValidation) -> float:
    """The share of the reward variance around each arm's mean that was predicted."""
    return 1.0 - predictions.loss / arm_means.loss if arm_means.loss > 0.0 else 0.0


def greedy_reward(data: ExaminationData, predictions: CrossValidation) -> float:
    """The mean reward of the arm with the highest prediction, where the rewards of all arms were recorded."""
    best = predictions.predicted.argmax(axis=1)
    return float(np.nanmean(data.rewards[np.arange(data.rounds), best]))


def grade(added: Improvement, explained: float) -> str:
    """ "much", "some" or "little" of everything explained with it; "little" where chance could have done it."""
    if not added.significant or explained <= 0.0:
        return "little"
    part = added.value / explained
    return "much" if part >= MUCH else "some" if part >= SOME else "little"


class ExplainedRewards(NamedTuple):
    """Shares of the reward variance, out of sample, and the improvements by filtering and by hidden coordinates."""

    shares: dict[str, float]  # by description: "seen", "filtered, nothing hidden", "filtered context", the truth
    context: Improvement  # of the best description without the truth over arm means: 0 if contexts are irrelevant
    filtering: Improvement  # of the best without hidden coordinates over y itself
    hidden: Improvement  # of the filtered context over the best without hidden coordinates
    predictions: dict[str, CrossValidation]
    arm_means: CrossValidation

    @property
    def context_matters(self) -> bool:
        """Three standard errors, since it is the best of several descriptions."""
        return self.context.value > 3.0 * self.context.error

    @property
    def hidden_pays(self) -> str:
        """ "much", "some" or "little"."""
        return self._graded(self.hidden, "filtered context", "filtered, nothing hidden")

    @property
    def filtering_pays(self) -> str:
        """ "much", "some" or "little"."""
        return self._graded(self.filtering, "filtered, nothing hidden", "seen")

    def _graded(self, added: Improvement, *descriptions: str) -> str:
        return grade(added, max(self.shares[name] for name in descriptions)) if self.context_matters else "little"


def explain_rewards(data: ExaminationData, contexts: Floats, predicted: Floats) -> ExplainedRewards:
    """`contexts` (n, d) are filtered, the first k coordinates those observed; `predicted` (n, k) of y."""
    observed = data.observed_rewards()
    ys = data.observations
    plain = fill_with_means(ys)
    arm_means = cross_validate(data, np.zeros((data.rounds, 0)), observed)
    seen = cross_validate(data, plain, observed)
    filtered = cross_validate(data, contexts, observed)
    nothing_hidden = [seen]
    block = observed_block(contexts[:, : predicted.shape[1]], predicted, ys)
    if not np.allclose(block, plain, rtol=1e-4, atol=1e-6 * np.abs(plain).max()):
        nothing_hidden.append(cross_validate(data, block, observed))
    without = filter_without_hidden(ys)
    if without is not None:
        nothing_hidden.append(cross_validate(data, observed_block(*without, ys), observed))
    best_without = min(nothing_hidden, key=lambda one: one.loss)
    best = min((seen, best_without, filtered), key=lambda one: one.loss)
    predictions = dict(zip(DESCRIPTIONS, (seen, best_without, filtered), strict=True))
    if data.contexts is not None:
        predictions[data.contexts_name] = cross_validate(data, data.contexts, observed)
    return ExplainedRewards(
        {name: share_explained(one, arm_means) for name, one in predictions.items()},
        improvement(arm_means, best, arm_means, observed.rounds),
        improvement(seen, best_without, arm_means, observed.rounds),
        improvement(best_without, filtered, arm_means, observed.rounds),
        predictions,
        arm_means,
    )


def fill_with_means(ys: Floats) -> Floats:
    """y with the mean of the feature where an entry is missing."""
    seen = ~np.isnan(ys)
    counts = np.maximum(seen.sum(axis=0), 1)
    means = np.where(seen, ys, 0.0).sum(axis=0) / counts
    return np.where(seen, ys, means)


def observed_block(filtered: Floats, predicted: Floats, ys: Floats) -> Floats:
    """Filtered coordinates (n, k) that their own sensors show; for the others, the sensors as they are.

    A sensor shows its coordinate if the coordinate follows it, or if the prediction of y explains part of its variance.
    A coordinate that a model has put behind a sensor of noise does neither.
    """
    plain = fill_with_means(ys)
    total = ((plain - plain.mean(axis=0)) ** 2).sum(axis=0)
    unexplained = (np.where(np.isnan(ys), 0.0, ys - predicted) ** 2).sum(axis=0)
    shown = (filtered.var(axis=0) >= FOLLOWS * plain.var(axis=0)) | (unexplained < (1.0 - PREDICTS) * total)
    return np.where(shown, filtered, plain)


def filter_without_hidden(ys: Floats) -> tuple[Floats, Floats] | None:
    """Filtered contexts (n, k) of a model without hidden coordinates, and its predictions of y; None if EM fails.

    y alone often cannot tell noise of the sensors from movement of the context, and EM leaves the sum where it
    starts. This start puts it into the sensors; y itself, beside it, is the other extreme.
    """
    k = ys.shape[1]
    filled = fill_with_means(ys)
    centre, std = filled.mean(axis=0), filled.std(axis=0)
    scale = np.where(std > 0, std, 1.0)
    y = np.ascontiguousarray((ys - centre) / scale)
    start = Parameters(0.95 * np.eye(k), 0.02 * np.eye(k), 0.7 * np.eye(k), np.zeros(k), np.eye(k))
    complete = not np.isnan(y).any()
    part = y if complete else np.ascontiguousarray(y[-FITTED_ROUNDS_WITH_GAPS:])  # gaps make EM slow, filtering less so
    model: Parameters | None = None
    for fitted in em_iterates(start, part, iterations=ITERATIONS, tolerance=-np.inf, update_initial=complete):
        model = fitted.model
    if model is None:
        return None
    x = filter_series(*model, y[None])[0][0]
    contexts, predicted = x[1:] * scale + centre, (x[:-1] @ model.D.T) * scale + centre
    return (contexts, predicted) if np.isfinite(contexts).all() else None


class SensorValue(NamedTuple):
    """What one feature adds; `greedy_reward` is None where the rewards of all arms were not recorded."""

    name: str
    hidden: bool  # it was recorded and hidden from the model: its value is what observing it would add
    share: Improvement  # of the reward variance that is lost without it, or gained with it
    greedy_reward: float | None  # mean reward per round of the greedy choice that is lost or gained


def sensor_values(
    data: ExaminationData, model: LinearGaussianModel, contexts: Floats, explained: ExplainedRewards
) -> tuple[SensorValue, ...]:
    """Of every observed feature, then of every recorded hidden one; `contexts` are the filtered ones."""
    observed, filtered = data.observed_rewards(), explained.predictions["filtered context"]

    def value(name: str, hidden: bool, less: CrossValidation, more: CrossValidation) -> SensorValue:
        share = improvement(less, more, explained.arm_means, observed.rounds)
        money = greedy_reward(data, more) - greedy_reward(data, less) if data.full_information else None
        return SensorValue(name, hidden, share, money)

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
    """Filtered contexts of the same model when one of its features is never seen; (n, 0) if that was the only one."""
    others = np.arange(model.observed) != sensor
    if not others.any():
        return np.zeros((len(ys), 0))
    observation_cov = model.observation_cov[np.ix_(others, others)]
    rest = replace(model, observation=model.observation[others], observation_cov=observation_cov)
    return np.asarray(rest.filter(ys[:, others]).means)
