"""The EM loop for the linear-Gaussian model over windows of observations (docs/mathematics.md, "Full EM").

Plain Python around compiled passes: an iteration takes a few hundred microseconds at the least.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from halfseen.kernels._types import Index, Matrix, Stack, Vector
from halfseen.kernels.linalg import raise_to_floor
from halfseen.kernels.moments import maximise, noise_moment, state_moments
from halfseen.kernels.series import filter_series
from halfseen.kernels.smoother import smooth_series

FIXED, DIAGONAL, FULL = 0, 1, 2  # what becomes of Σ
FELL = 1e-8  # a fall of the log-likelihood per round beyond this is more than rounding
RELATIVE_FLOOR = 1e-9

Passed: TypeAlias = tuple[Stack, Vector, Index, Stack, Stack, int]  # what filter_series returns


class Parameters(NamedTuple):
    """One model in canonical coordinates."""

    D: Matrix  # (d, d)
    Q: Matrix  # (d, d)
    R: Matrix  # Σ (k, k)
    m0: Vector  # (d,)
    P0: Matrix  # (d, d)


def _better(
    model: Parameters,
    y: Matrix,
    passed: Passed,
    update_R: int,
    update_initial: bool,
    q_floor: Vector,
    r_floor: Vector,
) -> Parameters:
    """One iteration: smooth what the filter passed on, take moments, maximise."""
    D, Q, R, m0, P0 = model
    n = y.shape[0]
    x_filt, _, rows, P_filt, P_pred, frozen = passed
    x, smooth_rows, P_smooth, lag = smooth_series(D, Q, x_filt, rows, P_filt, P_pred, frozen)
    S11, S00, S10 = state_moments(x[0], smooth_rows[0], P_smooth, lag)
    D, Q = maximise(S11, S00, S10, n)
    Q = raise_to_floor(Q, q_floor)
    if update_R != FIXED:
        R = noise_moment(y, R, x[0], smooth_rows[0], P_smooth) / n
        R = 0.5 * (R + R.T) if update_R == FULL else np.diag(np.diag(R))
        R = raise_to_floor(R, r_floor)
    if update_initial:
        m0, P0 = x[0, 0].copy(), P_smooth[smooth_rows[0, 0]].copy()
    return Parameters(D, Q, R, m0, P0)


def em_path(
    model: Parameters,
    y: Matrix,  # (n, k), NaN = not seen
    *,
    update_R: int,  # FIXED, DIAGONAL or FULL
    update_initial: bool,
    q_floor: Vector,  # (d,): Q − diag(q_floor) stays positive semi-definite
    r_floor: Vector,  # (k,): so does Σ − diag(r_floor), unless Σ is fixed
) -> Iterator[tuple[Parameters, float, Passed]]:
    """Models of rising log-likelihood, the given one (lifted to the floors) first; each with its filter pass.

    The floors hold from the start and are met by the exact maximiser under those constraints, so the
    log-likelihood does not fall. Should it do so all the same, beyond rounding, or stop being finite, the
    path ends before.
    """
    R = np.diag(np.diag(model.R)) if update_R == DIAGONAL else model.R
    R = R if update_R == FIXED else raise_to_floor(R, r_floor)
    model = model._replace(Q=raise_to_floor(model.Q, q_floor), R=R)
    ys = y[None]
    passed = filter_series(*model, ys)
    loglik = float(passed[1][0])
    yield model, loglik, passed
    while np.isfinite(loglik):
        model = _better(model, y, passed, update_R, update_initial, q_floor, r_floor)
        passed = filter_series(*model, ys)
        before, loglik = loglik, float(passed[1][0])
        if not loglik >= before - FELL * y.shape[0]:
            return
        yield model, loglik, passed


def em_windows(
    D: Stack,  # (B, d, d)
    Q: Stack,  # (B, d, d)
    R: Stack,  # Σ (B, k, k)
    m0: Matrix,  # (B, d)
    P0: Stack,  # (B, d, d)
    ys: Stack,  # (B, n, k), NaN = not seen
    *,
    iterations: int,
    tolerance: float = 0.0,
    update_R: int = DIAGONAL,
    update_initial: bool = True,
    q_floor: Matrix | None = None,  # (B, d); None: 1e-9 of the diagonal of Q
    r_floor: Matrix | None = None,  # (B, k); None: 1e-9 of the mean square of what was seen
) -> tuple[Stack, Stack, Stack, Matrix, Stack, Matrix, Matrix, Stack]:
    """Full EM on B windows, each under its own model, as in `em_path`. Inputs are left alone; returns

    D, Q, R, m0, P0 as improved; the log-likelihoods (B, iterations+1) before each iteration and after the
    last, NaN once stopped; and the filtered mean (B, d) and covariance (B, d, d) at the end of each window
    under the final model. A window stops early when an iteration gains less log-likelihood than `tolerance`
    per round.
    """
    B, n = ys.shape[:2]
    d = D.shape[1]
    if q_floor is None:
        q_floor = RELATIVE_FLOOR * np.diagonal(Q, axis1=1, axis2=2)
    if r_floor is None:
        seen = np.maximum((~np.isnan(ys)).sum(axis=1), 1)
        r_floor = RELATIVE_FLOOR * np.nansum(ys**2, axis=1) / seen
    trace = np.full((B, iterations + 1), np.nan)
    new = Parameters(*(np.empty(a.shape) for a in (D, Q, R, m0, P0)))  # with a leading axis B
    x_end, P_end = np.empty((B, d)), np.empty((B, d, d))
    for b in range(B):
        given = Parameters(D[b], Q[b], R[b], m0[b], P0[b])
        floors = {"q_floor": q_floor[b], "r_floor": r_floor[b]}
        path = em_path(given, ys[b], update_R=update_R, update_initial=update_initial, **floors)
        for step, (model, loglik, passed) in enumerate(path):
            for target, value in zip(new, model, strict=True):
                target[b] = value
            x_end[b], P_end[b] = passed[0][0, n], passed[3][passed[2][0, n]]
            trace[b, step] = loglik
            if step == iterations or (step > 0 and loglik - trace[b, step - 1] < tolerance * n):
                break
    return (*new, trace, x_end, P_end)
