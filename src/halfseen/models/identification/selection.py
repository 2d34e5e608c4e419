"""From the kept history of one stream to a model of it, an order for that model, and contexts to learn arms on.

A pure function of what it is given, so it can run anywhere and any time (docs/mathematics.md, "The adaptive agent").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from halfseen.kernels.em import DIAGONAL, FIXED, Parameters, Passed, em_path
from halfseen.kernels.series import filter_series
from halfseen.kernels.smoother import smooth_series
from halfseen.models.identification.gauge import gauge, in_basis
from halfseen.models.identification.order import aicc
from halfseen.models.identification.subspace import subspace_start

Array = NDArray[np.float64]

ITERATIONS, TOLERANCE = 20, 1e-5  # of EM at one epoch; the gain in log-likelihood a round below which it stops
TRIAL = 5  # iterations after which the likelier of two starts is kept
NOISE_FLOOR, PROCESS_FLOOR = 1e-5, 1e-9
PLAIN_NOISE = 1e-6  # Σ of the model in which y itself is the context
NOISY_MARGIN = 3.0  # nats of reward evidence by which contexts of a noisy start must beat y itself
RECENT = 60  # rounds over which rewards are heard again as a sensor
CLOSE = 30.0  # nats of AICc within which the rewards may still decide between dimensions

ENOUGH_REWARDS = 50  # to judge contexts by how well rewards that were held back are predicted
DOUBT = 3.0  # nats by which that prediction must fall behind the one from y itself


class Rewards(Protocol):
    """What the rewards that have come say of contexts."""

    @property
    def count(self) -> int: ...

    def evidence(self, features: Array) -> float:
        """log p(rewards | features (n, p))."""

    def held_back_error(self, features: Array, asked: Array) -> float:
        """Mean squared error of rewards predicted on `asked` by arms that learnt all others on `features`."""


class Fitted(NamedTuple):
    """A model in units of `scale`, around `centre`, with its pass over the history."""

    model: Parameters
    log_likelihood: float
    passed: Passed


class Found(NamedTuple):
    """What identification has found for a stream."""

    model: Parameters  # in the gauge of identify.gauge, in units of scale
    plain: bool  # y itself is the context
    features: Array  # (n, 1 + d), on smoothed contexts, or on filtered ones
    smooth_cov: Array  # (d, d) of those contexts
    filtered: Array  # (n + 1, d), x_0 first
    recent_cov: Array  # (d, d) of the filter RECENT rounds before the end (or at x_0)
    end_cov: Array  # (d, d) of the filter at the end
    shift: Array  # (d,): contexts are counted from the origin the rewards prefer
    from_first: bool  # that origin is where the stream began, not its mean
    on_filtered: bool  # features are on filtered contexts
    rung: int  # that AICc and the rewards prefer among the filtered ones, or −1


def units(ys: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of every feature over the rounds it was seen in; 0 and 1 where there is none."""
    seen = ~np.isnan(ys)
    counts = np.maximum(seen.sum(axis=0), 1)
    reference = np.where(seen.any(axis=0), ys[np.argmax(seen, axis=0), np.arange(ys.shape[1])], 0.0)
    gaps = np.where(seen, ys - reference, 0.0)  # from one of the values, so that a large mean costs no digits
    mean = gaps.sum(axis=0) / counts
    spread = np.sqrt((np.where(seen, gaps - mean, 0.0) ** 2).sum(axis=0) / counts)
    flat = ~(spread > 1e-12 * np.maximum(np.abs(mean + reference), np.abs(reference)))
    return mean + reference, np.where(flat, 1.0, spread)


def run_em(start: Parameters, y: Array, *, fixed_noise: bool = False, iterations: int = ITERATIONS) -> Fitted | None:
    """EM from a start; None where it led nowhere."""
    d, k, n = len(start.D), y.shape[1], len(y)
    best: Fitted | None = None
    floors = {"q_floor": np.full(d, PROCESS_FLOOR), "r_floor": np.full(k, NOISE_FLOOR)}
    mode = FIXED if fixed_noise else DIAGONAL
    try:
        for step, (model, loglik, passed) in enumerate(em_path(start, y, update_R=mode, update_initial=True, **floors)):
            gain = np.inf if best is None else loglik - best.log_likelihood
            if not (np.isfinite(loglik) and np.isfinite(passed[0]).all()):
                break
            best = Fitted(model, loglik, passed)
            if step == iterations or (step > 0 and gain < TOLERANCE * n):
                break
    except np.linalg.LinAlgError:
        pass
    return best


def fresh_fit(y: Array, latent: int, orthogonal: Array, *, noisy: bool) -> Fitted | None:
    """EM from a random start and from a regression on the past, of which the likelier goes on.

    What has no memory in y may be noise of the sensors or movement of the context: y alone cannot tell, and EM leaves
    it where the start has put it. A `noisy` start puts it into the sensors; the rewards are to tell which is right.
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


def plain_fit(y: Array) -> Fitted | None:
    """The model in which y itself is the context: as many dimensions as features and next to no sensor noise."""
    k = y.shape[1]
    start = Parameters(0.5 * np.eye(k), np.eye(k), PLAIN_NOISE * np.eye(k), np.zeros(k), np.eye(k))
    return run_em(start, y, fixed_noise=True, iterations=3)


def find(
    y: Array,  # (n, k) in units, around the centre
    fits: dict[int, Fitted],  # by rung
    *,
    first_gap: Array,  # centre − where the stream began, in units (k,)
    from_first: bool,  # which of the two origins was preferred last
    rewards: Rewards | None,  # None: too few have come
    noisy: Callable[[int], bool] = lambda rung: False,  # whether a rung came from a noisy start
) -> Found | None:
    """Choose between the fits, and y itself, by AICc and the evidence of the rewards; None if there is nothing."""
    k, numbers = y.shape[1], int(np.isfinite(y).sum())
    scores = {rung: aicc(fit.log_likelihood, len(fit.model.D), k, numbers) for rung, fit in fits.items()}
    usable = {rung: fits[rung] for rung in fits if np.isfinite(scores[rung])} or fits
    plain = plain_fit(y)
    if plain is None and not usable:
        return None
    shift = first_gap if from_first else np.zeros(k)
    rung, gained = -1, -np.inf
    if usable:
        rung = max(usable, key=lambda d: scores[d])
        if rewards is not None:
            near = [d for d in usable if not scores[d] < scores[rung] - CLOSE]
            worth = {d: rewards.evidence(_features(_gauged(usable[d], k)[1], shift)) for d in near}
            rung = max(near, key=lambda d: (scores[d] if np.isfinite(scores[d]) else 0.0) + worth[d])
            gained = worth[rung]
    chosen, is_plain = usable.get(rung), False
    margin = NOISY_MARGIN if noisy(rung) else 0.0
    if plain is not None and (
        chosen is None
        or (rewards is not None and gained < rewards.evidence(_features(plain.passed[0][0, 1:], shift)) + margin)
    ):
        chosen, is_plain = plain, True
    assert chosen is not None
    found = _settle(chosen, y, first_gap, from_first, rewards, is_plain, rung)
    if is_plain or plain is None or rewards is None or rewards.count < ENOUGH_REWARDS:
        return found
    return _accepted(found, _settle(plain, y, first_gap, from_first, rewards, True, rung), rewards)


def _accepted(found: Found, plain: Found, rewards: Rewards) -> Found:
    """The model found, unless y itself predicts rewards better that were held back.

    Arms learn on smoothed contexts and are asked on filtered ones. If the model is right, that is as good as it gets.
    If it is not, the two may have little to do with each other: then arms learn on filtered contexts, or on y.
    """
    error, error_plain = (rewards.held_back_error(one.features, _asked(one)) for one in (found, plain))
    if 0.5 * rewards.count * np.log(max(error, 1e-300) / max(error_plain, 1e-300)) <= DOUBT:
        return found
    if rewards.held_back_error(_asked(found), _asked(found)) < error_plain:
        return found._replace(features=_asked(found), smooth_cov=found.end_cov, on_filtered=True)
    return plain


def _asked(found: Found) -> Array:
    """Features on filtered contexts: those that decisions were, or would have been, made on."""
    return _features(found.filtered[1:], found.shift)


def _gauged(fit: Fitted, k: int) -> tuple[Array, Array]:
    """The gauge from filtered moments, and the filtered contexts in it: cheap enough for every candidate."""
    x, _, rows, P, _, _ = fit.passed
    states = x[0, 1:]
    T = gauge(states.T @ states / len(states) + P[rows[0, -1]], k)
    return T, states @ T.T


def _features(contexts: Array, shift: Array) -> Array:
    features = np.ones((len(contexts), contexts.shape[1] + 1))
    features[:, 1:] = contexts
    features[:, 1 : 1 + len(shift)] += shift
    return features


def _settle(
    fit: Fitted, y: Array, first_gap: Array, from_first: bool, rewards: Rewards | None, plain: bool, rung: int
) -> Found:
    k, n = y.shape[1], len(y)
    states, middle = _smoothed(fit)
    T = gauge(states.T @ states / n + middle, k)
    filtered = fit.passed[0][0] @ T.T
    if rewards is not None and not np.allclose(first_gap, 0.0):
        here, there = (rewards.evidence(_features(filtered[1:], shift)) for shift in (np.zeros(k), first_gap))
        from_first = bool(there >= here)
    shift = np.zeros(len(T))
    shift[:k] = first_gap if from_first else 0.0
    return _found(fit, states, middle, T, shift, plain, from_first, rung)


def resume(model: Parameters, y: Array, *, shift: Array, plain: bool, from_first: bool, on_filtered: bool) -> Found:
    """What was found earlier, for the history y (n, k) of now: nothing is chosen, and the basis stays as it is."""
    passed = filter_series(*model, y[None])
    fit = Fitted(model, float(passed[1][0]), passed)
    found = _found(fit, *_smoothed(fit), np.eye(len(model.D)), shift, plain, from_first, -1)
    if on_filtered:
        return found._replace(features=_asked(found), smooth_cov=found.end_cov, on_filtered=True)
    return found


def _smoothed(fit: Fitted) -> tuple[Array, Array]:
    """Smoothed contexts (n, d), and the covariance of the one in the middle."""
    x, _, rows, P, P_pred, frozen = fit.passed
    smooth, smooth_rows, P_smooth, _ = smooth_series(fit.model.D, fit.model.Q, x, rows, P, P_pred, frozen)
    return smooth[0, 1:], P_smooth[smooth_rows[0, (len(x[0]) - 1) // 2]]


def _found(
    fit: Fitted, states: Array, middle: Array, T: Array, shift: Array, plain: bool, from_first: bool, rung: int
) -> Found:
    """The fit in the basis T."""
    x, _, rows, P, _, _ = fit.passed
    n = len(states)
    return Found(
        in_basis(fit.model, T),
        plain,
        _features(states @ T.T, shift),
        T @ middle @ T.T,
        x[0] @ T.T,
        T @ P[rows[0, max(0, n - RECENT)]] @ T.T,
        T @ P[rows[0, n]] @ T.T,
        shift,
        from_first,
        False,
        rung,
    )
