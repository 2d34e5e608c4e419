"""The Kalman filter and the smoother over one series whose rounds are unequal numbers of steps apart.

Each gap has its own transition, so no covariance is shared between rounds, and a round costs O(d³). Series whose rounds
are one step apart are filtered and smoothed by `kernels.filter` and `kernels.smoother`.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Index, Matrix, Stack, Vector
from halfseen.kernels.compiling import kernel
from halfseen.kernels.filter import LOG_2PI
from halfseen.kernels.kalman import covariance_step, several_steps
from halfseen.kernels.linalg import copy_into
from halfseen.kernels.smoother import exact_mean, smoother_gain, step_back


@kernel()
def filter_uneven(
    D: Matrix,  # (d, d)
    Q: Matrix,  # (d, d)
    R: Matrix,  # Σ (k, k)
    m0: Vector,  # (d,), mean of x_0
    P0: Matrix,  # (d, d), covariance of x_0
    y: Matrix,  # (n, k), NaN where missing
    elapsed: Index,  # (n,), the steps since the round before; for the first round, the steps since x_0
) -> tuple[Matrix, float, Stack, Stack, Stack, Stack]:
    """Return x_filt (n+1, d), the log-likelihood, P_filt and P_pred (n+1, d, d), and Dⁿ and Q_n (n+1, d, d).

    Entry t of Dⁿ is the transition over all steps from round t − 1 to round t. Entry t of Q_n is the
    process covariance of these steps. Index 0 of P_pred, Dⁿ and Q_n is filled with 0.
    """
    n, k = y.shape
    d = D.shape[0]
    x_filt, P_filt, P_pred = np.empty((n + 1, d)), np.empty((n + 1, d, d)), np.zeros((n + 1, d, d))
    D_n, Q_n = np.zeros((n + 1, d, d)), np.zeros((n + 1, d, d))
    G, W, error, seen = np.empty((d, k)), np.empty((k, k)), np.empty(k), np.empty(k, np.bool_)
    work, work_dk, work_kk = np.empty((4, d, d)), np.empty((2, d, k)), np.empty((3, k, k))
    for i in range(d):
        x_filt[0, i] = m0[i]
    copy_into(P_filt[0], P0)
    total = 0.0
    for t in range(1, n + 1):
        several_steps(D, Q, elapsed[t - 1], D_n[t], Q_n[t], work)
        for i in range(k):
            seen[i] = not np.isnan(y[t - 1, i])
        covariance_step(
            D_n[t], Q_n[t], R, P_filt[t - 1], seen, P_pred[t], P_filt[t], G, W, work[0], work_dk, work_kk
        )  # fmt: skip
        for i in range(d):
            mean = 0.0
            for j in range(d):
                mean += D_n[t, i, j] * x_filt[t - 1, j]
            x_filt[t, i] = mean
        for i in range(k):
            error[i] = y[t - 1, i] - x_filt[t, i] if seen[i] else 0.0
            total += LOG_2PI if seen[i] else 0.0
        for i in range(k):
            white = 0.0
            for j in range(i + 1):
                white += W[i, j] * error[j]
            total += white * white - 2.0 * np.log(W[i, i])
        for i in range(d):
            change = 0.0
            for j in range(k):
                change += G[i, j] * error[j]
            x_filt[t, i] += change
    return x_filt, -0.5 * total, P_filt, P_pred, D_n, Q_n


@kernel()
def smooth_uneven(x_filt: Matrix, P_filt: Stack, P_pred: Stack, D_n: Stack) -> tuple[Matrix, Stack, Stack]:
    """Return the smoothed means (n+1, d), their covariances and the covariances of consecutive rounds (n+1, d, d).

    The arguments are results of `filter_uneven`. Index t of the last result is Cov(x_{t+1}, x_t | y). Its index n is
    not used.
    """
    n, d = x_filt.shape[0] - 1, x_filt.shape[1]
    x, P, lag = np.empty((n + 1, d)), np.empty((n + 1, d, d)), np.zeros((n + 1, d, d))
    J, C, work = np.empty((d, d)), np.empty((d, d)), np.empty((4, d, d))
    for i in range(d):
        x[n, i] = x_filt[n, i]
    copy_into(P[n], P_filt[n])
    for t in range(n - 1, -1, -1):
        smoother_gain(D_n[t + 1], P_filt[t], P_pred[t + 1], J, C, work)
        step_back(J, C, P[t + 1], P[t], lag[t], work[0])
        exact_mean(D_n[t + 1], J, x_filt[t], x[t + 1], x[t], work[0, 0])
    return x, P, lag
