"""The moments and the M-step of EM for the linear-Gaussian model (Shumway and Stoffer, 1982).

Each distinct covariance is added to the moments once, multiplied by the number of rounds in which it occurs. The
products of means are added by matrix multiplication. An iteration over a long series without missing entries costs
O(d²) per round.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Flags, Index, Matrix, Stack, Vector
from halfseen.kernels.compiling import kernel
from halfseen.kernels.filter import CHUNK
from halfseen.kernels.linalg import (
    dot,
    dot_transposed,
    symmetrise,
    transposed_dot,
    whitener,
)


@kernel()
def _add(total: Matrix, part: Matrix, weight: float) -> None:
    """Compute total += weight·part."""
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            total[i, j] += weight * part[i, j]


@kernel()
def _add_moment(total: Matrix, mean: Vector, cov: Matrix) -> None:
    """Compute total += E[x xᵀ] = cov + mean meanᵀ."""
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            total[i, j] += cov[i, j]
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            total[i, j] += mean[i] * mean[j]


@kernel()
def _add_products(total: Matrix, X: Matrix, Y: Matrix, part: Matrix) -> None:
    """Compute total += XᵀY, CHUNK rows at a time. `part` is scratch."""
    for start in range(0, X.shape[0], CHUNK):
        stop = min(X.shape[0], start + CHUNK)
        transposed_dot(X[start:stop], Y[start:stop], part)
        _add(total, part, 1.0)


@kernel()
def state_moments(x: Matrix, rows: Index, P_smooth: Stack, lag: Stack) -> tuple[Matrix, Matrix, Matrix]:
    """Return S11 = Σ_{t=1..n} E[x_t x_tᵀ], S00 = Σ_{t=0..n−1} E[x_t x_tᵀ] and S10 = Σ_{t=1..n} E[x_t x_{t−1}ᵀ], (d, d).

    `x` (n+1, d) are the smoothed means from x_0 on. `rows` (n+1,) gives for every time its row in `P_smooth` and `lag`.
    """
    n = x.shape[0] - 1
    d = x.shape[1]
    part = np.empty((d, d))
    S11 = np.zeros((d, d))
    S10 = np.zeros((d, d))
    _add_products(S11, x[1:n], x[1:n], part)
    _add_products(S10, x[1:], x[:n], part)
    # Consecutive times with the same row are added together. Time 0 belongs only to S00 and time n only to S11.
    t = 1
    while t < n:
        start = t
        while t < n and rows[t] == rows[start]:
            t += 1
        _add(S11, P_smooth[rows[start]], float(t - start))
        _add(S10, lag[rows[start]], float(t - start))
    _add(S10, lag[rows[0]], 1.0)
    S00 = S11.copy()
    _add_moment(S00, x[0], P_smooth[rows[0]])
    _add_moment(S11, x[n], P_smooth[rows[n]])
    return S11, S00, S10


@kernel()
def _complete_moment(M: Matrix, R: Matrix, seen: Flags, work: Stack) -> None:
    """Fill in the missing entries of M = E[n nᵀ | y] (k, k), where n is the observation noise.

    On input, M has the moments of the observed entries, and 0 elsewhere. For observed entries s and missing entries u,
    with K = Σ_us Σ_ss⁻¹: E[n_u n_sᵀ] = K M_ss and E[n_u n_uᵀ] = K M_ss Kᵀ + Σ_uu − K Σ_su, which is Σ_uu if Σ is
    diagonal. `work` (5, k, k) is scratch.
    """
    k = R.shape[0]
    known, cross, scratch, W, K = work[0], work[1], work[2], work[3], work[4]
    for i in range(k):
        for j in range(k):
            known[i, j] = R[i, j] if seen[i] and seen[j] else 0.0
            cross[i, j] = R[i, j] if seen[j] and not seen[i] else 0.0
    whitener(known, scratch, W)
    dot_transposed(cross, W, scratch)
    dot(scratch, W, K)
    dot_transposed(K, cross, known)
    dot(K, M, scratch)  # its rows u and columns s are E[n_u n_sᵀ]
    dot_transposed(scratch, K, W)
    for i in range(k):
        for j in range(k):
            if seen[i] and not seen[j]:
                M[i, j] = scratch[j, i]
            elif seen[j] and not seen[i]:
                M[i, j] = scratch[i, j]
            elif not seen[i]:
                M[i, j] = W[i, j] + R[i, j] - known[i, j]


@kernel()
def noise_moment(y: Matrix, R: Matrix, x: Matrix, rows: Index, P_smooth: Stack) -> Matrix:
    """Return Σ_{t=1..n} E[(y_t − Ax_t)(y_t − Ax_t)ᵀ] (k, k) given the observed entries of y (n, k).

    `R` (k, k) is the Σ with which the series was smoothed. `x`, `rows` and `P_smooth` are as in `state_moments`.
    """
    n, k = y.shape
    total = np.zeros((k, k))
    part = np.empty((k, k))
    work = np.empty((5, k, k))
    residual = np.zeros((n, k))  # 0 in rounds with a missing entry, whose moments are added one by one
    seen = np.empty(k, np.bool_)
    t = 0
    while t < n:
        start = t
        row = rows[start + 1]
        complete = True
        while t < n and rows[t + 1] == row and complete:
            for i in range(k):
                residual[t, i] = y[t, i] - x[t + 1, i]
                complete = complete and not np.isnan(y[t, i])
            t += 1
        length = t - start if complete else t - start - 1
        for i in range(k):
            for j in range(k):
                total[i, j] += length * P_smooth[row, i, j]
        if not complete:
            gap = residual[t - 1]
            for i in range(k):
                seen[i] = not np.isnan(gap[i])
            for i in range(k):
                for j in range(k):
                    both = seen[i] and seen[j]
                    part[i, j] = gap[i] * gap[j] + P_smooth[row, i, j] if both else 0.0
            for i in range(k):
                gap[i] = 0.0
            _complete_moment(part, R, seen, work)
            _add(total, part, 1.0)
    _add_products(total, residual, residual, part)
    return total


@kernel()
def maximise(S11: Matrix, S00: Matrix, S10: Matrix, n: int) -> tuple[Matrix, Matrix]:
    """Return D = S10 S00⁻¹ and Q = (S11 − D S10ᵀ − S10 Dᵀ + D S00 Dᵀ)/n, which maximise the expected log-likelihood."""
    d = S00.shape[0]
    D = np.empty((d, d))
    Q = np.empty((d, d))
    W = np.empty((d, d))
    part = np.empty((d, d))
    whitener(S00, part, W)
    dot_transposed(S10, W, part)
    dot(part, W, D)
    # Computed as (D S00 − S10) Dᵀ + S11 − D S10ᵀ, because the bracket is 0 up to rounding error.
    dot(D, S00, W)
    _add(W, S10, -1.0)
    dot_transposed(W, D, Q)
    dot_transposed(D, S10, part)
    for i in range(d):
        for j in range(d):
            Q[i, j] = (Q[i, j] + S11[i, j] - part[i, j]) / n
    symmetrise(Q)
    return D, Q
