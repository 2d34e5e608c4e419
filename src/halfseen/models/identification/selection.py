"""Identification of the model of one stream from its history, for the agent `adaptive`.

Candidate models are fitted with EM. AICc and the rewards select one of them, or the model in which the observation y
itself is the context. The result includes the contexts of the history, on which the arms learn. All functions are pure,
so identification can run in another thread, process or machine. The mathematics is in docs/mathematics.md, "The
adaptive agent".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from halfseen.kernels.arrays import Parameters
from halfseen.kernels.filter import filter_series
from halfseen.kernels.smoother import smooth_series
from halfseen.models.identification.em import FittedModel, em_iterates
from halfseen.models.identification.gauge import gauge
from halfseen.models.identification.order import aicc
from halfseen.models.identification.subspace import subspace_start
from halfseen.models.linear_gaussian import change_basis
from halfseen.models.results import Array

ITERATIONS, TOLERANCE = 20, 1e-5  # largest number of iterations, and tolerance, of EM in an identification
TRIAL_ITERATIONS = 5  # after this many iterations, EM continues only from the most likely of several starts
PLAIN_NOISE = 1e-6  # the diagonal of Σ in the model in which y itself is the context
NOISY_MARGIN = 3.0  # nats of reward evidence by which a noisy start or a level must be better than y itself
ZERO_MARGIN = 3.0  # nats added to the reward evidence of the origin 0, as arms then have three hyperparameters fewer
FARTHEST_ZERO = 100.0  # 0 is no possible origin if it is more than this many standard deviations from the mean
RECENT = 60  # after an identification, the rewards of this many rounds serve again as observations of the context
AICC_MARGIN = 30.0  # the rewards select among the models whose AICc is within this many nats of the best

ENOUGH_REWARDS = 50  # from this number of rewards on, models are compared by leave-one-out prediction errors
REJECTION_MARGIN = 3.0  # a model is rejected if it predicts rewards worse than y itself by more nats than this


class RewardEvidence(Protocol):
    """Measures how well features (n, p) of the contexts explain the rewards of a stream."""

    @property
    def count(self) -> int:
        """The number of rewards."""

    def evidence(self, features: Array, *, through_zero: bool = False) -> float:
        """Return log p(rewards | features). If `through_zero`, expected rewards are 0 at the origin."""

    def leave_one_out_error(self, features: Array, query: Array, *, through_zero: bool = False) -> float:
        """Return the mean squared error of predicting each reward from all other rewards.

        The arms are fitted to `features` (n, p), and rewards are predicted from `query` (n, p).
        """


class Origins(NamedTuple):
    """The possible origins of contexts: the mean of the history, the mean of the first rounds, and 0 in units of y."""

    start_gap: Array  # (k,), the mean of the history minus the mean of the first rounds, divided by the scale
    zero_gap: Array | None  # (k,), the mean of the history divided by the scale, or None if 0 is too far away
    at_start: bool  # whether the mean of the first rounds is preferred to the mean of the history

    def shift(self, *, through_zero: bool = False) -> Array:
        """Return the shift (k,) to add to the observed coordinates of contexts, which are relative to the mean.

        While 0 is the origin, a stream can move far away from 0. If it is too far away, the preferred one of the other
        origins is used.
        """
        if through_zero and self.zero_gap is not None:
            return self.zero_gap
        return self.start_gap if self.at_start else np.zeros_like(self.start_gap)


class IdentifiedModel(NamedTuple):
    """The model selected for a stream, with the contexts of its history under that model."""

    model: Parameters  # in the basis of `gauge`, for features divided by their scales
    plain: bool  # whether y itself is the context
    features: Array  # (n, 1 + d), an intercept and the smoothed contexts, or the filtered ones if `learns_on_filtered`
    smooth_cov: Array  # (d, d), the covariance of the contexts in `features`
    filtered: Array  # (n + 1, d), the filtered contexts from x_0 on
    recent_cov: Array  # (d, d), the filtered covariance RECENT rounds before the end, or at x_0 in a shorter history
    end_cov: Array  # (d, d), the filtered covariance at the end
    shift: Array  # (d,), added to contexts to move their origin from the mean of the history to the selected origin
    through_zero: bool  # whether the origin is 0 in the units of y, where all expected rewards are 0
    origin_at_start: bool  # whether the best origin other than 0 is the mean of the first rounds
    learns_on_filtered: bool  # whether arms learn on filtered contexts and not on smoothed contexts
    candidate: int  # the index of the fit that AICc and the rewards prefer, or −1
    level: bool = False  # whether the model is a level, which is not one of the fits

    def learning_on_filtered(self) -> IdentifiedModel:
        """Return the same model with the features of filtered contexts, for arms to learn on."""
        return self._replace(features=self.filtered_features(), smooth_cov=self.end_cov, learns_on_filtered=True)

    def filtered_features(self) -> Array:
        """Return the features of the filtered contexts, which are the ones available when decisions are made."""
        return _features(self.filtered[1:], self.shift)


def centre_and_scale(ys: Array) -> tuple[Array, Array]:
    """Return the means and standard deviations (k,) of the features.

    The mean of a feature that was never observed is 0. A standard deviation of 0 is replaced by 1.
    """
    seen = ~np.isnan(ys)
    counts = np.maximum(seen.sum(axis=0), 1)
    reference = np.where(seen.any(axis=0), ys[np.argmax(seen, axis=0), np.arange(ys.shape[1])], 0.0)
    # An observed value is subtracted first, so that rounding errors are small even if the mean is large.
    differences = np.where(seen, ys - reference, 0.0)
    mean = differences.sum(axis=0) / counts
    std = np.sqrt((np.where(seen, differences - mean, 0.0) ** 2).sum(axis=0) / counts)
    constant = ~(std > 1e-12 * np.maximum(np.abs(mean + reference), np.abs(reference)))
    return mean + reference, np.where(constant, 1.0, std)


def run_em(
    start: Parameters,
    y: Array,
    *,
    fixed_noise: bool = False,
    fixed_transition: bool = False,
    iterations: int = ITERATIONS,
) -> FittedModel | None:
    """Return the last model of EM from `start`, or None if its numbers are not finite."""
    path = em_iterates(
        start,
        y,
        iterations=iterations,
        tolerance=TOLERANCE,
        fixed_noise=fixed_noise,
        fixed_transition=fixed_transition,
    )
    last = deque(path, maxlen=1)
    return last[0] if last else None


def fit_from_scratch(
    y: Array, latent: int, orthogonal: Array, *, noisy: bool, slow: bool = False
) -> FittedModel | None:
    """Run EM from several starts, and continue from the most likely result.

    The starts are two random models and the result of subspace identification. If `noisy` or `slow`, there is only one
    start.

    The part of y that is uncorrelated in time is either observation noise or process noise. The observations alone do
    not tell which. EM mostly leaves this part in the noise to which the start assigns it, and a `noisy` start assigns
    it to the observation noise. The rewards later select between models from both kinds of start. In a `slow` start,
    hidden coordinates with a long memory drive observed coordinates with a short memory. EM does not find such models
    from other starts.
    """
    d, k = latent, y.shape[1]
    if slow:
        return run_em(_slow_start(orthogonal, k), y)
    if noisy:
        persistent = 0.95 * np.eye(d) + 0.05 * orthogonal
        return run_em(Parameters(persistent, 0.02 * np.eye(d), 0.7 * np.eye(k), np.zeros(d), np.eye(d)), y)
    starts = [Parameters(0.9 * orthogonal, 0.2 * np.eye(d), 0.1 * np.eye(k), np.zeros(d), np.eye(d))]
    starts.append(Parameters(_slow_rotations(orthogonal), 0.05 * np.eye(d), 0.1 * np.eye(k), np.zeros(d), np.eye(d)))
    regression = subspace_start(y, d)
    if regression is not None:
        starts.append(regression)
    trials = [trial for start in starts if (trial := run_em(start, y, iterations=TRIAL_ITERATIONS)) is not None]
    if not trials:
        return None
    return run_em(
        max(trials, key=lambda trial: trial.log_likelihood).model, y, iterations=ITERATIONS - TRIAL_ITERATIONS
    )


def _slow_start(orthogonal: Array, observed: int) -> Parameters:
    d, k = len(orthogonal), observed
    D = np.diag(np.where(np.arange(d) < k, 0.5, 0.98))
    D[:k, k:] = 0.5 * orthogonal[:k, k:]
    Q = np.diag(np.where(np.arange(d) < k, 0.5, 0.05))
    return Parameters(D, Q, 0.1 * np.eye(k), np.zeros(d), np.eye(d))


def _slow_rotations(orthogonal: Array) -> Array:
    """Return damped rotations with periods from about 5 to 126 rounds, in the basis given by an orthogonal matrix."""
    d = len(orthogonal)
    rotations = np.zeros((d, d))
    angles = np.geomspace(0.05, 1.2, max(1, d // 2))
    for i, angle in enumerate(angles[: d // 2]):
        block = slice(2 * i, 2 * i + 2)
        rotations[block, block] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    if d % 2:
        rotations[-1, -1] = 1.0
    return np.asarray(0.97 * orthogonal @ rotations @ orthogonal.T)


def level_start(observed: int) -> Parameters:
    """Return the start of EM for a level: a random walk, x_t = x_{t−1} + ε, observed with much noise."""
    identity = np.eye(observed)
    return Parameters(identity.copy(), 0.02 * identity, 0.7 * identity, np.zeros(observed), identity.copy())


def select_model(
    y: Array,  # (n, k), centred and scaled
    fits: dict[int, FittedModel],  # by index of the candidate
    *,
    origins: Origins,
    rewards: RewardEvidence | None,  # None if there are too few rewards
    noisy: Callable[[int], bool] = lambda candidate: False,  # whether a candidate was fitted from a noisy start
    level: FittedModel | None = None,
) -> IdentifiedModel | None:
    """Select one of the fits, the level or y itself as the context. Return None if there is no fit.

    AICc and rewards select one of the fits. The rewards alone then select between this fit, the level and y itself. The
    evidence of the rewards is computed under two origins, and the higher value counts. One origin is 0. The other is
    the mean of the first rounds if `origins.at_start` is true, and otherwise the mean of the history.
    """
    k, entries = y.shape[1], int(np.isfinite(y).sum())
    scores = {i: aicc(fit.log_likelihood, len(fit.model.D), k, entries) for i, fit in fits.items()}
    usable = {i: fits[i] for i in fits if np.isfinite(scores[i])} or fits
    plain = _fit_plain(y)
    if plain is None and not usable:
        return None

    def worth(contexts: Array) -> float:
        assert rewards is not None
        free = rewards.evidence(_features(contexts, origins.shift()))
        return max(free, _zero_evidence(contexts, origins, rewards) + ZERO_MARGIN)

    candidate, best = -1, -np.inf
    if usable:
        candidate = max(usable, key=lambda i: scores[i])
        if rewards is not None:
            close = [i for i in usable if not scores[i] < scores[candidate] - AICC_MARGIN]
            evidence = {i: worth(_filtered_in_gauge(usable[i], k)) for i in close}
            candidate = max(close, key=lambda i: (scores[i] if np.isfinite(scores[i]) else 0.0) + evidence[i])
            best = evidence[candidate]
    chosen, is_plain, is_level = usable.get(candidate), False, False
    if rewards is not None and chosen is not None and plain is not None:
        margin = NOISY_MARGIN if noisy(candidate) else 0.0
        of_plain = worth(plain.filtered[0][0, 1:])
        if best < of_plain + margin:
            chosen, is_plain, best = plain, True, of_plain
        if level is not None:
            margin = NOISY_MARGIN if is_plain else 0.0
            if worth(level.filtered[0][0, 1:]) > best + margin:
                chosen, is_plain, is_level = level, False, True
    elif chosen is None:
        chosen, is_plain = plain, True
    assert chosen is not None

    def identified(fit: FittedModel, is_plain: bool, is_level: bool = False) -> IdentifiedModel:
        return _in_gauge(fit, k, origins, rewards, is_plain, candidate)._replace(level=is_level)

    selected = identified(chosen, is_plain, is_level)
    if is_plain or plain is None or rewards is None or rewards.count < ENOUGH_REWARDS:
        return selected
    return _unless_plain_predicts_better(selected, identified(plain, True), rewards)


def _zero_evidence(contexts: Array, origins: Origins, rewards: RewardEvidence) -> float:
    """Return the evidence of the rewards with 0 as the origin, which is −inf if 0 is too far away."""
    if origins.zero_gap is None:
        return -np.inf
    return rewards.evidence(_features(contexts, origins.zero_gap), through_zero=True)


def prefer_zero(contexts: Array, origins: Origins, rewards: RewardEvidence) -> bool:
    """Return whether the rewards prefer the origin 0 to the origin of `origins.shift()`, for contexts (n, d)."""
    zero = _zero_evidence(contexts, origins, rewards)
    return zero > -np.inf and zero + ZERO_MARGIN > rewards.evidence(_features(contexts, origins.shift()))


def rebuild_model(
    model: Parameters,
    y: Array,
    *,
    shift: Array,
    plain: bool,
    through_zero: bool,
    origin_at_start: bool,
    learns_on_filtered: bool,
) -> IdentifiedModel:
    """Return a model that was selected earlier, in the same basis, with the contexts that it gives for y (n, k)."""
    filtered = filter_series(*model, y[None])
    fit = FittedModel(model, float(filtered[1][0]), filtered)
    selected = _identified(fit, *_smoothed(fit), np.eye(len(model.D)), shift, plain, through_zero, origin_at_start, -1)
    return selected.learning_on_filtered() if learns_on_filtered else selected


def _fit_plain(y: Array) -> FittedModel | None:
    """Fit the model in which y itself is the context: d = k, and almost no observation noise."""
    k = y.shape[1]
    start = Parameters(0.5 * np.eye(k), np.eye(k), PLAIN_NOISE * np.eye(k), np.zeros(k), np.eye(k))
    return run_em(start, y, fixed_noise=True, iterations=3)


def _unless_plain_predicts_better(
    selected: IdentifiedModel, plain: IdentifiedModel, rewards: RewardEvidence
) -> IdentifiedModel:
    """Return `selected` unless y itself predicts left-out rewards better by REJECTION_MARGIN.

    Arms learn on smoothed contexts and predict on filtered ones, which is best if the model is right. If the model is
    wrong, filtered and smoothed contexts may differ a lot. Arms then learn on filtered contexts, or on y.
    """
    error, error_plain = (
        rewards.leave_one_out_error(
            candidate.features, candidate.filtered_features(), through_zero=candidate.through_zero
        )
        for candidate in (selected, plain)
    )
    if 0.5 * rewards.count * np.log(max(error, 1e-300) / max(error_plain, 1e-300)) <= REJECTION_MARGIN:
        return selected
    query = selected.filtered_features()
    error = rewards.leave_one_out_error(query, query, through_zero=selected.through_zero)
    return selected.learning_on_filtered() if error < error_plain else plain


def _filtered_in_gauge(fit: FittedModel, k: int) -> Array:
    """Return filtered contexts in the gauge of their own moments. This is fast enough for every candidate."""
    x, _, rows, P, _, _ = fit.filtered
    states = x[0, 1:]
    return np.asarray(states @ gauge(states.T @ states / len(states) + P[rows[0, -1]], k).T)


def _features(contexts: Array, shift: Array) -> Array:
    features = np.ones((len(contexts), contexts.shape[1] + 1))
    features[:, 1:] = contexts
    features[:, 1 : 1 + len(shift)] += shift
    return features


def _in_gauge(
    fit: FittedModel, k: int, origins: Origins, rewards: RewardEvidence | None, plain: bool, candidate: int
) -> IdentifiedModel:
    """Return a fit in the gauge of its smoothed moments, with the origin that the rewards prefer."""
    states, middle_cov = _smoothed(fit)
    T = gauge(states.T @ states / len(states) + middle_cov, k)
    through_zero = False
    if rewards is not None:
        filtered = fit.filtered[0][0, 1:] @ T.T
        at_start = [origins.at_start] if np.allclose(origins.start_gap, 0.0) else [True, False]
        free = {one: rewards.evidence(_features(filtered, origins._replace(at_start=one).shift())) for one in at_start}
        origins = origins._replace(at_start=max(free, key=lambda one: free[one]))
        through_zero = _zero_evidence(filtered, origins, rewards) + ZERO_MARGIN > max(free.values())
    shift = np.zeros(len(T))
    shift[:k] = origins.shift(through_zero=through_zero)
    return _identified(fit, states, middle_cov, T, shift, plain, through_zero, origins.at_start, candidate)


def _smoothed(fit: FittedModel) -> tuple[Array, Array]:
    """Return the smoothed contexts (n, d) and the smoothed covariance in the middle of the series."""
    x, _, rows, P, P_pred, frozen = fit.filtered
    smooth, smooth_rows, P_smooth, _ = smooth_series(fit.model.D, fit.model.Q, x, rows, P, P_pred, frozen)
    return smooth[0, 1:], P_smooth[smooth_rows[0, (len(x[0]) - 1) // 2]]


def _identified(
    fit: FittedModel,
    states: Array,
    middle_cov: Array,
    T: Array,
    shift: Array,
    plain: bool,
    through_zero: bool,
    origin_at_start: bool,
    candidate: int,
) -> IdentifiedModel:
    """Return the fit in the basis Tx."""
    x, _, rows, P, _, _ = fit.filtered
    n = len(states)
    return IdentifiedModel(
        model=change_basis(fit.model, T),
        plain=plain,
        features=_features(states @ T.T, shift),
        smooth_cov=T @ middle_cov @ T.T,
        filtered=x[0] @ T.T,
        recent_cov=T @ P[rows[0, max(0, n - RECENT)]] @ T.T,
        end_cov=T @ P[rows[0, n]] @ T.T,
        shift=shift,
        through_zero=through_zero,
        origin_at_start=origin_at_start,
        learns_on_filtered=False,
        candidate=candidate,
    )
