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

ITERATIONS, TOLERANCE = 20, 1e-5  # most iterations and tolerance of EM in an identification
TRIAL_ITERATIONS = 5  # after this many iterations, EM continues only from the more likely of two starts
PLAIN_NOISE = 1e-6  # the diagonal of Σ in the model in which y itself is the context
NOISY_MARGIN = 3.0  # nats of reward evidence by which a model from a noisy start must be better than y itself
RECENT = 60  # number of rounds whose rewards are used again as observations of the context after identification
AICC_MARGIN = 30.0  # the rewards select among the models whose AICc is within this many nats of the best

ENOUGH_REWARDS = 50  # the number of rewards from which on models are compared by leave-one-out prediction errors
REJECTION_MARGIN = 3.0  # nats by which a model must predict rewards worse than y itself to be rejected


class RewardEvidence(Protocol):
    """Measures how well features (n, p) of the contexts explain the rewards of a stream."""

    @property
    def count(self) -> int:
        """The number of rewards."""

    def evidence(self, features: Array) -> float:
        """Return log p(rewards | features)."""

    def leave_one_out_error(self, features: Array, query: Array) -> float:
        """Return the mean squared error of each reward predicted on `query` by a fit of all others on `features`."""


class IdentifiedModel(NamedTuple):
    """The model selected for a stream, with the contexts of its history under that model."""

    model: Parameters  # in the basis of `gauge`, for features divided by their scales
    plain: bool  # whether y itself is the context
    features: Array  # (n, 1 + d), an intercept and the smoothed contexts, or the filtered ones if `learns_on_filtered`
    smooth_cov: Array  # (d, d), the covariance of these contexts
    filtered: Array  # (n + 1, d), the filtered contexts from x_0 on
    recent_cov: Array  # (d, d), the filtered covariance RECENT rounds before the end, or at x_0
    end_cov: Array  # (d, d), the filtered covariance at the end
    shift: Array  # (d,), added to contexts to move their origin from the mean of the stream to the one selected
    origin_at_start: bool  # whether the origin is the first observation of the stream and not its mean
    learns_on_filtered: bool  # whether arms learn on filtered contexts and not on smoothed ones
    candidate: int  # the index of the fit that AICc and the rewards prefer, or −1

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
    # Differences from one of the values are accurate even if the mean is large.
    differences = np.where(seen, ys - reference, 0.0)
    mean = differences.sum(axis=0) / counts
    std = np.sqrt((np.where(seen, differences - mean, 0.0) ** 2).sum(axis=0) / counts)
    constant = ~(std > 1e-12 * np.maximum(np.abs(mean + reference), np.abs(reference)))
    return mean + reference, np.where(constant, 1.0, std)


def run_em(
    start: Parameters, y: Array, *, fixed_noise: bool = False, iterations: int = ITERATIONS
) -> FittedModel | None:
    """Return the last model of EM from `start`, or None if its numbers are not finite."""
    path = em_iterates(start, y, iterations=iterations, tolerance=TOLERANCE, fixed_noise=fixed_noise)
    last = deque(path, maxlen=1)
    return last[0] if last else None


def fit_from_scratch(y: Array, latent: int, orthogonal: Array, *, noisy: bool) -> FittedModel | None:
    """Run EM from a random start and from subspace identification, and continue from the more likely result.

    The part of y that is uncorrelated in time is either observation noise or process noise. The observations alone do
    not tell which, and EM mostly leaves this part where the start puts it. A `noisy` start puts it into the observation
    noise. The rewards later select between models from both kinds of start.
    """
    d, k = latent, y.shape[1]
    if noisy:
        slow = 0.95 * np.eye(d) + 0.05 * orthogonal
        return run_em(Parameters(slow, 0.02 * np.eye(d), 0.7 * np.eye(k), np.zeros(d), np.eye(d)), y)
    starts = [Parameters(0.9 * orthogonal, 0.2 * np.eye(d), 0.1 * np.eye(k), np.zeros(d), np.eye(d))]
    regression = subspace_start(y, d)
    if regression is not None:
        starts.append(regression)
    trials = [trial for start in starts if (trial := run_em(start, y, iterations=TRIAL_ITERATIONS)) is not None]
    if not trials:
        return None
    return run_em(
        max(trials, key=lambda trial: trial.log_likelihood).model, y, iterations=ITERATIONS - TRIAL_ITERATIONS
    )


def select_model(
    y: Array,  # (n, k), centred and scaled
    fits: dict[int, FittedModel],  # by index of the candidate
    *,
    start_gap: Array,  # (k,), the mean of the stream minus its first observation, divided by the scale
    origin_at_start: bool,  # whether the origin selected last was the first observation
    rewards: RewardEvidence | None,  # None if there are too few rewards
    noisy: Callable[[int], bool] = lambda candidate: False,  # whether a candidate was fitted from a noisy start
) -> IdentifiedModel | None:
    """Return one of the fits or y itself as the context, selected by AICc and rewards, or None if there is no fit."""
    k, entries = y.shape[1], int(np.isfinite(y).sum())
    scores = {i: aicc(fit.log_likelihood, len(fit.model.D), k, entries) for i, fit in fits.items()}
    usable = {i: fits[i] for i in fits if np.isfinite(scores[i])} or fits
    plain = _fit_plain(y)
    if plain is None and not usable:
        return None
    shift = start_gap if origin_at_start else np.zeros(k)
    candidate, best_evidence = -1, -np.inf
    if usable:
        candidate = max(usable, key=lambda i: scores[i])
        if rewards is not None:
            close = [i for i in usable if not scores[i] < scores[candidate] - AICC_MARGIN]
            evidence = {i: rewards.evidence(_features(_filtered_in_gauge(usable[i], k), shift)) for i in close}
            candidate = max(close, key=lambda i: (scores[i] if np.isfinite(scores[i]) else 0.0) + evidence[i])
            best_evidence = evidence[candidate]
    chosen, is_plain = usable.get(candidate), False
    margin = NOISY_MARGIN if noisy(candidate) else 0.0
    if plain is not None and (
        chosen is None
        or (
            rewards is not None
            and best_evidence < rewards.evidence(_features(plain.filtered[0][0, 1:], shift)) + margin
        )
    ):
        chosen, is_plain = plain, True
    assert chosen is not None

    def identified(fit: FittedModel, is_plain: bool) -> IdentifiedModel:
        return _in_gauge(fit, k, start_gap, origin_at_start, rewards, is_plain, candidate)

    selected = identified(chosen, is_plain)
    if is_plain or plain is None or rewards is None or rewards.count < ENOUGH_REWARDS:
        return selected
    return _unless_plain_predicts_better(selected, identified(plain, True), rewards)


def rebuild_model(
    model: Parameters, y: Array, *, shift: Array, plain: bool, origin_at_start: bool, learns_on_filtered: bool
) -> IdentifiedModel:
    """Return a model that was selected earlier with the contexts of the present history y (n, k), in the same basis."""
    filtered = filter_series(*model, y[None])
    fit = FittedModel(model, float(filtered[1][0]), filtered)
    selected = _identified(fit, *_smoothed(fit), np.eye(len(model.D)), shift, plain, origin_at_start, -1)
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

    Arms learn on smoothed contexts and predict on filtered ones, which is best if the model is right. If it is wrong,
    filtered and smoothed contexts may differ a lot. Arms then learn on filtered contexts, or on y.
    """
    error, error_plain = (
        rewards.leave_one_out_error(candidate.features, candidate.filtered_features())
        for candidate in (selected, plain)
    )
    if 0.5 * rewards.count * np.log(max(error, 1e-300) / max(error_plain, 1e-300)) <= REJECTION_MARGIN:
        return selected
    query = selected.filtered_features()
    return selected.learning_on_filtered() if rewards.leave_one_out_error(query, query) < error_plain else plain


def _filtered_in_gauge(fit: FittedModel, k: int) -> Array:
    """Return filtered contexts in the gauge of their own moments, which is fast enough for every candidate."""
    x, _, rows, P, _, _ = fit.filtered
    states = x[0, 1:]
    return np.asarray(states @ gauge(states.T @ states / len(states) + P[rows[0, -1]], k).T)


def _features(contexts: Array, shift: Array) -> Array:
    features = np.ones((len(contexts), contexts.shape[1] + 1))
    features[:, 1:] = contexts
    features[:, 1 : 1 + len(shift)] += shift
    return features


def _in_gauge(
    fit: FittedModel,
    k: int,
    start_gap: Array,
    origin_at_start: bool,
    rewards: RewardEvidence | None,
    plain: bool,
    candidate: int,
) -> IdentifiedModel:
    """Return a fit in the gauge of its smoothed moments, with the origin that the rewards prefer."""
    states, middle_cov = _smoothed(fit)
    T = gauge(states.T @ states / len(states) + middle_cov, k)
    filtered = fit.filtered[0][0] @ T.T
    if rewards is not None and not np.allclose(start_gap, 0.0):
        at_mean, at_first = (rewards.evidence(_features(filtered[1:], shift)) for shift in (np.zeros(k), start_gap))
        origin_at_start = bool(at_first >= at_mean)
    shift = np.zeros(len(T))
    shift[:k] = start_gap if origin_at_start else 0.0
    return _identified(fit, states, middle_cov, T, shift, plain, origin_at_start, candidate)


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
        origin_at_start=origin_at_start,
        learns_on_filtered=False,
        candidate=candidate,
    )
