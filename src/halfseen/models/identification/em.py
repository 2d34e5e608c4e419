"""Expectation–maximisation (EM) for D, Q and Σ from one series of observations.

Where the series has an infinite row, another series with the same model begins (`kernels.filter`).

`em_iterates` and `em_windows` are for agents that identify their model while they run. `hs.fit` in
`maximum_likelihood.py` begins with `em_sequence`. The mathematics is in docs/mathematics.md, "Full EM".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from halfseen.kernels.arrays import Index, Matrix, Parameters, Stack, Vector
from halfseen.kernels.em import maximise, noise_moment, state_moments
from halfseen.kernels.filter import filter_series
from halfseen.kernels.linalg import raise_to_floor
from halfseen.kernels.smoother import smooth_series
from halfseen.models.results import Array

FIXED, DIAGONAL, FULL = 0, 1, 2  # how Σ is estimated: not at all, as a diagonal matrix, or as a full matrix
ROUNDING_DROP = 1e-8  # a decrease of the log-likelihood by less than this per round is rounding error
RELATIVE_FLOOR = 1e-9

FilterPass: TypeAlias = tuple[Stack, Vector, Index, Stack, Stack, int]  # the return value of filter_series

# Lower bounds of Q and Σ in `em_iterates`, as shares of the variances of the features.
PROCESS_FLOOR, SENSOR_FLOOR = 1e-9, 1e-5


class FittedModel(NamedTuple):
    """A canonical model, its log-likelihood and the result of filtering the observations with it."""

    model: Parameters
    log_likelihood: float
    filtered: FilterPass


def em_iterates(
    start: Parameters,
    y: Array,
    *,
    iterations: int,
    tolerance: float,
    feature_var: Array | None = None,
    fixed_noise: bool = False,
    fixed_transition: bool = False,
    update_initial: bool = True,
) -> Iterator[FittedModel]:
    """Yield the start and then the model after each iteration of EM on y (n, k), which is NaN where missing.

    `feature_var` (k,) are the variances of the features, 1 by default. The sequence ends after `iterations` iterations,
    or when an iteration increases the log-likelihood by less than `tolerance` per round. It also ends before the first
    model whose log-likelihood or filtered means are not finite, even if this is the start.
    """
    variances = np.ones(y.shape[1]) if feature_var is None else feature_var
    q_floor = np.full(len(start.D), PROCESS_FLOOR * float(np.nanmean(variances)))
    r_floor = SENSOR_FLOOR * np.nan_to_num(variances)
    update_R = FIXED if fixed_noise else DIAGONAL
    sequence = em_sequence(
        start,
        y,
        update_R=update_R,
        update_initial=update_initial,
        q_floor=q_floor,
        r_floor=r_floor,
        fixed_transition=fixed_transition,
    )
    previous = -np.inf
    try:
        for step, (model, log_likelihood, filtered) in enumerate(sequence):
            if not (np.isfinite(log_likelihood) and np.isfinite(filtered[0]).all()):
                return
            yield FittedModel(model, log_likelihood, filtered)
            if step == iterations or log_likelihood - previous < tolerance * len(y):
                return
            previous = log_likelihood
    except np.linalg.LinAlgError:
        return


def separate_series(rows: Index) -> list[slice]:
    """Return one slice of times per series, which begins at its x_0, given the `rows` (n + 1,) of `filter_series`.

    Series without a round are left out.
    """
    starts = np.append(np.flatnonzero(rows == 0), len(rows))
    return [
        slice(one, after)
        for one, after in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=False)
        if after > one + 1
    ]


def _em_iteration(
    model: Parameters,
    y: Matrix,
    filtered: FilterPass,
    update_R: int,
    update_initial: bool,
    q_floor: Vector,
    r_floor: Vector,
    fixed_transition: bool,
) -> Parameters:
    """Return the model after one iteration: smooth, compute the moments and maximise."""
    D, Q, R, m0, P0 = model
    x_filt, _, rows, P_filt, P_pred, frozen = filtered
    x, smooth_rows, P_smooth, lag = smooth_series(D, Q, x_filt, rows, P_filt, P_pred, frozen)
    parts = separate_series(rows[0])
    moments = [state_moments(x[0, part], smooth_rows[0, part], P_smooth, lag) for part in parts]
    n = sum(part.stop - part.start - 1 for part in parts)
    S11, S00, S10 = moments[0] if len(moments) == 1 else (np.sum(one, axis=0) for one in zip(*moments, strict=True))
    if fixed_transition:
        moved = S10 @ D.T
        Q = (S11 - moved - moved.T + D @ S00 @ D.T) / n
        Q = 0.5 * (Q + Q.T)
    else:
        D, Q = maximise(S11, S00, S10, n)
    Q = raise_to_floor(Q, q_floor)
    if update_R != FIXED:
        noise = [
            noise_moment(y[part.start : part.stop - 1], R, x[0, part], smooth_rows[0, part], P_smooth) for part in parts
        ]
        R = (noise[0] if len(noise) == 1 else np.sum(noise, axis=0)) / n
        R = 0.5 * (R + R.T) if update_R == FULL else np.diag(np.diag(R))
        R = raise_to_floor(R, r_floor)
    if update_initial:
        starts = [part.start for part in parts]
        m0, P0 = x[0, 0].copy(), P_smooth[smooth_rows[0, 0]].copy()
        if len(starts) > 1:
            first = x[0, starts]
            m0 = first.mean(axis=0)
            P0 = P_smooth[smooth_rows[0, starts]].mean(axis=0) + np.cov(first.T, bias=True).reshape(P0.shape)
    return Parameters(D, Q, R, m0, P0)


def em_sequence(
    model: Parameters,
    y: Matrix,  # (n, k), NaN where missing
    *,
    update_R: int,  # FIXED, DIAGONAL or FULL
    update_initial: bool,
    q_floor: Vector,  # (d,), Q − diag(q_floor) stays positive semi-definite
    r_floor: Vector,  # (k,), Σ − diag(r_floor) stays positive semi-definite unless Σ is fixed
    fixed_transition: bool = False,  # whether D is not estimated
) -> Iterator[tuple[Parameters, float, FilterPass]]:
    """Yield models of increasing log-likelihood, with their log-likelihoods and filter passes.

    The first one is `model` with Q and Σ raised to the floors. Each M-step maximises exactly over the models above the
    floors, so the log-likelihood does not decrease. If it decreases by more than rounding error, or is not finite, the
    sequence ends before that model.
    """
    R = np.diag(np.diag(model.R)) if update_R == DIAGONAL else model.R
    R = R if update_R == FIXED else raise_to_floor(R, r_floor)
    model = model._replace(Q=raise_to_floor(model.Q, q_floor), R=R)
    ys = y[None]
    filtered = filter_series(*model, ys)
    loglik = float(filtered[1][0])
    yield model, loglik, filtered
    while np.isfinite(loglik):
        model = _em_iteration(model, y, filtered, update_R, update_initial, q_floor, r_floor, fixed_transition)
        filtered = filter_series(*model, ys)
        before, loglik = loglik, float(filtered[1][0])
        if not loglik >= before - ROUNDING_DROP * y.shape[0]:
            return
        yield model, loglik, filtered


def em_windows(
    D: Stack,  # (B, d, d)
    Q: Stack,  # (B, d, d)
    R: Stack,  # Σ (B, k, k)
    m0: Matrix,  # (B, d)
    P0: Stack,  # (B, d, d)
    ys: Stack,  # (B, n, k), NaN where missing
    *,
    iterations: int,
    tolerance: float = 0.0,
    update_R: int = DIAGONAL,
    update_initial: bool = True,
    q_floor: Matrix | None = None,  # (B, d), by default 1e-9 of the diagonal of Q
    r_floor: Matrix | None = None,  # (B, k), by default 1e-9 of the mean square of each feature
) -> tuple[Stack, Stack, Stack, Matrix, Stack, Matrix, Matrix, Stack]:
    """Run EM on B windows, each with its own model, without changing the inputs.

    A window stops early when an iteration increases its log-likelihood by less than `tolerance` per round. Returns the
    new D, Q, R, m0 and P0; the log-likelihoods (B, iterations + 1) of the start and after each iteration, which are NaN
    after a window has stopped; and the filtered mean (B, d) and covariance (B, d, d) at the end of each window under
    its final model.
    """
    B, n = ys.shape[:2]
    d = D.shape[1]
    if q_floor is None:
        q_floor = RELATIVE_FLOOR * np.diagonal(Q, axis1=1, axis2=2)
    if r_floor is None:
        counts = np.maximum((~np.isnan(ys)).sum(axis=1), 1)
        r_floor = RELATIVE_FLOOR * np.nansum(ys**2, axis=1) / counts
    trace = np.full((B, iterations + 1), np.nan)
    new = Parameters(*(np.empty(a.shape) for a in (D, Q, R, m0, P0)))  # with a leading axis B
    x_end, P_end = np.empty((B, d)), np.empty((B, d, d))
    for b in range(B):
        given = Parameters(D[b], Q[b], R[b], m0[b], P0[b])
        floors = {"q_floor": q_floor[b], "r_floor": r_floor[b]}
        sequence = em_sequence(given, ys[b], update_R=update_R, update_initial=update_initial, **floors)
        for step, (model, loglik, filtered) in enumerate(sequence):
            for target, value in zip(new, model, strict=True):
                target[b] = value
            x_end[b], P_end[b] = filtered[0][0, n], filtered[3][filtered[2][0, n]]
            trace[b, step] = loglik
            if step == iterations or (step > 0 and loglik - trace[b, step - 1] < tolerance * n):
                break
    return (*new, trace, x_end, P_end)
