"""Identification of one stream from its history: candidate models, the choice between them, contexts to learn arms on.

Everything is a pure function of its arguments, so it can run anywhere and any time (docs/mathematics.md, "The adaptive
agent").
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

ITERATIONS, TOLERANCE = 20, 1e-5  # of EM at one identification; the gain in log-likelihood per round at which it stops
TRIAL = 5  # iterations after which the likelier of two starts is kept
PLAIN_NOISE = 1e-6  # Σ of the model in which y itself is the context
NOISY_MARGIN = 3.0  # nats of reward evidence by which contexts of a noisy start must beat y itself
RECENT = 60  # rounds over which rewards are used again as observations of the context
AICC_MARGIN = 30.0  # nats of AICc within which the rewards may still decide between dimensions

ENOUGH_REWARDS = 50  # to judge contexts by how well left-out rewards are predicted
DOUBT = 3.0  # nats by which that prediction must fall behind the one from y itself


class RewardEvidence(Protocol):
    """How well the rewards of a stream are explained by features (n, p) of its contexts."""

    @property
    def count(self) -> int: ...

    def evidence(self, features: Array) -> float:
        """log p(rewards | features)."""

    def leave_one_out_error(self, features: Array, query: Array) -> float:
        """Mean squared error of each reward predicted on `query` by arms that learnt all others on `features`."""


class IdentifiedModel(NamedTuple):
    """The model chosen for a stream, with the contexts of its history under that model."""

    model: Parameters  # in the basis of `gauge`, in units of the features' scale
    plain: bool  # y itself is the context
    features: Array  # (n, 1 + d), on smoothed contexts, or on filtered ones
    smooth_cov: Array  # (d, d) of those contexts
    filtered: Array  # (n + 1, d), x_0 first
    recent_cov: Array  # (d, d) of the filter RECENT rounds before the end (or at x_0)
    end_cov: Array  # (d, d) of the filter at the end
    shift: Array  # (d,), added to contexts: from the mean of the stream to the origin that the rewards prefer
    from_first: bool  # that origin is where the stream began, not its mean
    on_filtered: bool  # features are on filtered contexts
    candidate: int  # that AICc and the rewards prefer among the fits, or −1

    def learning_on_filtered(self) -> IdentifiedModel:
        """The same with arms that learn on filtered contexts."""
        return self._replace(features=self.filtered_features(), smooth_cov=self.end_cov, on_filtered=True)

    def filtered_features(self) -> Array:
        """Features on filtered contexts: those that decisions were, or would have been, made on."""
        return _features(self.filtered[1:], self.shift)


def centre_and_scale(ys: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of every feature over its observed entries; 0 and 1 where there is none."""
    seen = ~np.isnan(ys)
    counts = np.maximum(seen.sum(axis=0), 1)
    reference = np.where(seen.any(axis=0), ys[np.argmax(seen, axis=0), np.arange(ys.shape[1])], 0.0)
    gaps = np.where(seen, ys - reference, 0.0)  # from one of the values, so that a large mean costs no digits
    mean = gaps.sum(axis=0) / counts
    std = np.sqrt((np.where(seen, gaps - mean, 0.0) ** 2).sum(axis=0) / counts)
    flat = ~(std > 1e-12 * np.maximum(np.abs(mean + reference), np.abs(reference)))
    return mean + reference, np.where(flat, 1.0, std)


def run_em(
    start: Parameters, y: Array, *, fixed_noise: bool = False, iterations: int = ITERATIONS
) -> FittedModel | None:
    """The last model of EM from a start; None where there is none."""
    path = em_iterates(start, y, iterations=iterations, tolerance=TOLERANCE, fixed_noise=fixed_noise)
    last = deque(path, maxlen=1)
    return last[0] if last else None


def fit_from_scratch(y: Array, latent: int, orthogonal: Array, *, noisy: bool) -> FittedModel | None:
    """EM from a random start and from a regression on the past, of which the likelier goes on.

    The part of y without memory may be noise of the sensors or movement of the context. y alone cannot tell, and EM
    leaves it where the start has put it. A `noisy` start puts it into the sensors; the rewards decide which is right.
    """
    d, k = latent, y.shape[1]
    if noisy:
        slow = 0.95 * np.eye(d) + 0.05 * orthogonal
        return run_em(Parameters(slow, 0.02 * np.eye(d), 0.7 * np.eye(k), np.zeros(d), np.eye(d)), y)
    starts = [Parameters(0.9 * orthogonal, 0.2 * np.eye(d), 0.1 * np.eye(k), np.zeros(d), np.eye(d))]
    regression = subspace_start(y, d)
    if regression is not None:
        starts.append(regression)
    trials = [trial for start in starts if (trial := run_em(start, y, iterations=TRIAL)) is not None]
    if not trials:
        return None
    return run_em(max(trials, key=lambda trial: trial.log_likelihood).model, y, iterations=ITERATIONS - TRIAL)


def select_model(
    y: Array,  # (n, k), centred and scaled
    fits: dict[int, FittedModel],  # by candidate
    *,
    first_gap: Array,  # centre − where the stream began, in units of the scale (k,)
    from_first: bool,  # which of the two origins was preferred last
    rewards: RewardEvidence | None,  # None: there are too few
    noisy: Callable[[int], bool] = lambda candidate: False,  # whether a candidate came from a noisy start
) -> IdentifiedModel | None:
    """Choose between the fits, and y itself, by AICc and the evidence of the rewards; None if there is nothing."""
    k, entries = y.shape[1], int(np.isfinite(y).sum())
    scores = {i: aicc(fit.log_likelihood, len(fit.model.D), k, entries) for i, fit in fits.items()}
    usable = {i: fits[i] for i in fits if np.isfinite(scores[i])} or fits
    plain = _fit_plain(y)
    if plain is None and not usable:
        return None
    shift = first_gap if from_first else np.zeros(k)
    candidate, best_evidence = -1, -np.inf
    if usable:
        candidate = max(usable, key=lambda i: scores[i])
        if rewards is not None:
            near = [i for i in usable if not scores[i] < scores[candidate] - AICC_MARGIN]
            evidence = {i: rewards.evidence(_features(_filtered_in_gauge(usable[i], k), shift)) for i in near}
            candidate = max(near, key=lambda i: (scores[i] if np.isfinite(scores[i]) else 0.0) + evidence[i])
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
        return _in_gauge(fit, k, first_gap, from_first, rewards, is_plain, candidate)

    found = identified(chosen, is_plain)
    if is_plain or plain is None or rewards is None or rewards.count < ENOUGH_REWARDS:
        return found
    return _unless_plain_predicts_better(found, identified(plain, True), rewards)


def rebuild_model(
    model: Parameters, y: Array, *, shift: Array, plain: bool, from_first: bool, on_filtered: bool
) -> IdentifiedModel:
    """A model that was chosen earlier, for the history y (n, k) of now. The basis stays as it is."""
    filtered = filter_series(*model, y[None])
    fit = FittedModel(model, float(filtered[1][0]), filtered)
    found = _identified(fit, *_smoothed(fit), np.eye(len(model.D)), shift, plain, from_first, -1)
    return found.learning_on_filtered() if on_filtered else found


def _fit_plain(y: Array) -> FittedModel | None:
    """The model in which y itself is the context: as many dimensions as features and next to no sensor noise."""
    k = y.shape[1]
    start = Parameters(0.5 * np.eye(k), np.eye(k), PLAIN_NOISE * np.eye(k), np.zeros(k), np.eye(k))
    return run_em(start, y, fixed_noise=True, iterations=3)


def _unless_plain_predicts_better(
    found: IdentifiedModel, plain: IdentifiedModel, rewards: RewardEvidence
) -> IdentifiedModel:
    """The model found, unless y itself predicts left-out rewards better.

    Arms learn on smoothed contexts and predict on filtered ones. If the model is right, nothing does better. If it is
    not, the two may have little to do with each other: then arms learn on filtered contexts, or on y.
    """
    error, error_plain = (rewards.leave_one_out_error(one.features, one.filtered_features()) for one in (found, plain))
    if 0.5 * rewards.count * np.log(max(error, 1e-300) / max(error_plain, 1e-300)) <= DOUBT:
        return found
    query = found.filtered_features()
    return found.learning_on_filtered() if rewards.leave_one_out_error(query, query) < error_plain else plain


def _filtered_in_gauge(fit: FittedModel, k: int) -> Array:
    """Filtered contexts in the gauge of their own moments: cheap enough for every candidate."""
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
    first_gap: Array,
    from_first: bool,
    rewards: RewardEvidence | None,
    plain: bool,
    candidate: int,
) -> IdentifiedModel:
    """A fit in the gauge of its smoothed moments, with the origin that the rewards prefer."""
    states, middle_cov = _smoothed(fit)
    T = gauge(states.T @ states / len(states) + middle_cov, k)
    filtered = fit.filtered[0][0] @ T.T
    if rewards is not None and not np.allclose(first_gap, 0.0):
        at_mean, at_first = (rewards.evidence(_features(filtered[1:], shift)) for shift in (np.zeros(k), first_gap))
        from_first = bool(at_first >= at_mean)
    shift = np.zeros(len(T))
    shift[:k] = first_gap if from_first else 0.0
    return _identified(fit, states, middle_cov, T, shift, plain, from_first, candidate)


def _smoothed(fit: FittedModel) -> tuple[Array, Array]:
    """Smoothed contexts (n, d), and the covariance of the one in the middle."""
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
    from_first: bool,
    candidate: int,
) -> IdentifiedModel:
    """The fit in the basis T."""
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
        from_first=from_first,
        on_filtered=False,
        candidate=candidate,
    )
