"""The Rauch–Tung–Striebel smoother for the tables of the series filter (docs/mathematics.md, "Building blocks").

The gain J_t = P_t Dᵀ (P⁻_{t+1})⁻¹ depends only on the row of the filter at time t, so it is computed once per row.
Smoothed covariances are computed backwards from the end of a series and converge too. While the filter is at its frozen
row (see `kernels.filter`) and the smoothed covariance has converged, all times share one row, and a step costs O(d²).
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Index, Matrix, Stack, Vector
from halfseen.kernels.compiling import kernel
from halfseen.kernels.filter import CHUNK, double_rows
from halfseen.kernels.kalman import predict
from halfseen.kernels.linalg import (
    FREEZE,
    copy_into,
    dot,
    dot_transposed,
    nearly_equal,
    run_recursion,
    symmetrise,
    transposed_dot,
    whitener,
)


@kernel()
def smoother_gain(D: Matrix, P: Matrix, P_pred: Matrix, J: Matrix, C: Matrix, work: Stack) -> None:
    """Compute J = PDᵀ(P⁻)⁻¹ and C = (I−JD)P(I−JD)ᵀ + JQJᵀ from the filtered P and P⁻ = DPDᵀ + Q, all (d, d).

    C is the covariance of x_t given y_1, ..., y_t and x_{t+1}. If P⁻ is singular, its diagonal is increased before it
    is inverted, so J has an error. Only the square of this error enters this formula for C. `work` (at least 3, d, d)
    is scratch.
    """
    d = D.shape[0]
    DP, scratch, W = work[0], work[1], work[2]
    dot(D, P, DP)
    increase = whitener(P_pred, scratch, W)
    dot(W, DP, scratch)
    transposed_dot(scratch, W, J)
    if increase == 0.0:  # J is exact, and C = P − (WDP)ᵀ(WDP)
        transposed_dot(scratch, scratch, C)
        for i in range(d):
            for j in range(d):
                C[i, j] = P[i, j] - C[i, j]
        return
    # Multiplied out, C = P − J(DP) − EJᵀ, where E = PDᵀ − JP⁻ is the residual of J.
    dot(J, P_pred, scratch)
    for i in range(d):
        for j in range(d):
            scratch[i, j] = DP[j, i] - scratch[i, j]
    dot_transposed(scratch, J, C)
    dot(J, DP, scratch)
    for i in range(d):
        for j in range(d):
            C[i, j] = P[i, j] - scratch[i, j] - C[i, j]
    symmetrise(C)


@kernel()
def _frozen_map(D: Matrix, J: Matrix) -> tuple[Matrix, Matrix]:
    """Return Jᵀ and K = I − JD, both (d, d). With a constant gain, xˢ_t = K x_t + J xˢ_{t+1}."""
    d = D.shape[0]
    JT = np.empty((d, d))
    K = np.empty((d, d))
    dot(J, D, K)
    for i in range(d):
        for j in range(d):
            JT[j, i] = J[i, j]
            K[i, j] = (1.0 if i == j else 0.0) - K[i, j]
    return JT, K


@kernel()
def exact_mean(D: Matrix, J: Matrix, x: Vector, x_after: Vector, x_smooth: Vector, gap: Vector) -> None:
    """Compute x_smooth = x + J(x_after − Dx), the smoothed mean xˢ_t from x_t and xˢ_{t+1}, all (d,)."""
    d = D.shape[0]
    for i in range(d):
        mean = 0.0
        for j in range(d):
            mean += D[i, j] * x[j]
        gap[i] = x_after[i] - mean
    for i in range(d):
        change = 0.0
        for j in range(d):
            change += J[i, j] * gap[j]
        x_smooth[i] = x[i] + change


@kernel()
def step_back(J: Matrix, C: Matrix, following: Matrix, P_smooth: Matrix, lag: Matrix, JP: Matrix) -> None:
    """Compute Pˢ_t = C_t + J_t Pˢ_{t+1} J_tᵀ and Cov(x_{t+1}, x_t | y) = Pˢ_{t+1} J_tᵀ. `JP` is scratch."""
    d = J.shape[0]
    dot(J, following, JP)
    dot_transposed(JP, J, P_smooth)
    for i in range(d):
        for j in range(d):
            lag[j, i] = JP[i, j]
            P_smooth[i, j] += C[i, j]
    symmetrise(P_smooth)


@kernel()
def smooth_series(
    D: Matrix,  # (d, d)
    Q: Matrix,  # (d, d)
    x_filt: Stack,  # (B, n+1, d)
    rows: Index,  # (B, n+1), for every time its row in P_filt and P_pred
    P_filt: Stack,  # (rows, d, d)
    P_pred: Stack,  # (rows, d, d)
    frozen: int,  # the row of the converged covariance in P_filt, or −1
) -> tuple[Stack, Index, Stack, Stack]:
    """Smooth B series from the results of `filter_series`. Each may consist of several series, one after the other.

    Returns, for the times 0 to n,

    * x_smooth (B, n+1, d), the smoothed means xˢ_t = x_t + J_t(xˢ_{t+1} − Dx_t),
    * smooth_rows (B, n+1), for every time its row in the tables P_smooth and lag,
    * P_smooth (rows, d, d), the distinct covariances Pˢ_t = C_t + J_t Pˢ_{t+1} J_tᵀ, with C_t as in `smoother_gain`,
    * lag (rows, d, d), Cov(x_{t+1}, x_t | y) = Pˢ_{t+1} J_tᵀ, which is undefined in the row of t = n.
    """
    B, times, d = x_filt.shape
    last = times - 1
    used_rows = 0
    for b in range(B):
        for t in range(times):
            used_rows = max(used_rows, rows[b, t] + 1)
    J = np.empty((used_rows, d, d))
    C = np.empty((used_rows, d, d))
    known = np.zeros(used_rows, np.bool_)
    room = 64
    P_smooth = np.empty((room, d, d))
    lag = np.zeros((room, d, d))
    used = 0
    work = np.empty((4, d, d))
    JT, K = work[0], work[1]
    x_smooth = np.empty_like(x_filt)
    smooth_rows = np.empty((B, times), np.int64)
    for b in range(B):
        for t in range(last):
            row = rows[b, t]
            if not known[row]:
                after = rows[b, t + 1]
                if after == 0:  # a new series starts
                    continue
                P_next = P_pred[after]
                if after == frozen:  # several rows precede the frozen row; P_pred[frozen] is the prediction from one
                    P_next = work[3]
                    predict(D, Q, P_filt[row], work[0], P_next)
                smoother_gain(D, P_filt[row], P_next, J[row], C[row], work)
                known[row] = True
                if row == frozen:
                    JT, K = _frozen_map(D, J[row])

        same = b > 0  # whether the series has the same rows, and so the same smoothed covariances, as the one before
        if same:
            for t in range(times):
                if rows[b, t] != rows[b - 1, t]:
                    same = False
                    break
        steady = False
        for t in range(last, -1, -1):
            row = rows[b, t]
            if same:
                smooth_rows[b, t] = smooth_rows[b - 1, t]
                continue
            if steady and row == frozen:
                smooth_rows[b, t] = smooth_rows[b, t + 1]
                continue
            steady = False
            if used == room:
                room *= 2
                P_smooth, lag = double_rows(P_smooth), double_rows(lag)
            smooth_rows[b, t] = used
            if t == last or rows[b, t + 1] == 0:
                copy_into(P_smooth[used], P_filt[row])
            else:
                following = P_smooth[smooth_rows[b, t + 1]]
                step_back(J[row], C[row], following, P_smooth[used], lag[used], work[0])
                steady = (
                    row == frozen
                    and rows[b, t + 1] == frozen
                    and nearly_equal(P_smooth[used], following, P_pred[row], FREEZE)
                )
            used += 1

        for i in range(d):
            x_smooth[b, last, i] = x_filt[b, last, i]
        stop = last  # the means from `stop` on are smoothed
        while stop > 0:
            row = rows[b, stop - 1]
            start = stop - 1
            if rows[b, stop] == 0:  # a new series starts
                for i in range(d):
                    x_smooth[b, start, i] = x_filt[b, start, i]
            elif row != frozen:
                exact_mean(D, J[row], x_filt[b, start], x_smooth[b, stop], x_smooth[b, start], work[0, 0])
            else:
                while start > 0 and rows[b, start - 1] == frozen and stop - start < CHUNK:
                    start -= 1
                dot_transposed(x_filt[b, start:stop], K, x_smooth[b, start:stop])
                run_recursion(JT, x_smooth[b, stop], x_smooth[b, start:stop], np.bool_(True))
            stop = start
    return x_smooth, smooth_rows, P_smooth, lag
