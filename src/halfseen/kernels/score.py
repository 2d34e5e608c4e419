"""The score, which is the gradient of the log-likelihood of a series (docs/mathematics.md, "Maximum likelihood").

The adjoint recursion inverts only S, the covariance of the innovation. Fisher's identity, with smoothed moments, gives
the same numbers but contains Q⁻¹ and Σ⁻¹. These inverses are inaccurate if Q or Σ is almost singular, which is often so
at the maximum.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Flags, Index, Matrix, Stack, Vector
from halfseen.kernels.compiling import kernel
from halfseen.kernels.filter import CHUNK
from halfseen.kernels.kalman import NOISE_FLOOR, ROUNDING
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
def _gain(P_pred: Matrix, R: Matrix, seen: Flags, G: Matrix, H: Matrix, work_dk: Stack, work_kk: Stack) -> None:
    """Compute G = P⁻AᵀS⁻¹ (d, k) and H = S⁻¹ (k, k) as in `covariance_step`, with zeros for missing entries."""
    d, k = G.shape
    S, W, U = work_kk[0], work_kk[1], work_kk[2]
    cross, white = work_dk[0], work_dk[1]
    for i in range(k):
        for j in range(k):
            S[i, j] = P_pred[i, j] + R[i, j] if seen[i] and seen[j] else 0.0
        if seen[i]:
            S[i, i] += max((NOISE_FLOOR if R[i, i] == 0.0 else ROUNDING) * S[i, i] - R[i, i], 0.0)
        else:
            S[i, i] = 1.0
    whitener(S, U, W)
    for i in range(k):
        if not seen[i]:
            W[i, i] = 0.0
    for i in range(d):
        for j in range(k):
            cross[i, j] = P_pred[i, j]
    dot_transposed(cross, W, white)
    dot(white, W, G)
    transposed_dot(W, W, H)


@kernel()
def score_series(
    D: Matrix,  # (d, d)
    R: Matrix,  # Σ (k, k)
    y: Matrix,  # (n, k), NaN where missing
    x_filt: Matrix,  # (n+1, d)
    rows: Index,  # (n+1,), for every time its row in P_filt and P_pred
    P_filt: Stack,  # (rows, d, d)
    P_pred: Stack,  # (rows, d, d)
    frozen: int,  # the row of the converged covariance in P_filt, or −1
) -> tuple[Matrix, Matrix, Matrix, Vector, Matrix]:
    """Return the derivatives of the log-likelihood with respect to D, Q, Σ, m_0 and P_0.

    The arguments from x_filt on are results of `filter_series`.

    With F_t = (I − G_t A)ᵀDᵀ, r_n = 0 and N_n = 0, for t = n, ..., 1:

        r_{t−1} = F_t r_t + AᵀS_t⁻¹e_t,  N_{t−1} = F_t N_t F_tᵀ + AᵀS_t⁻¹A,  M_t = r_{t−1} r_{t−1}ᵀ − N_{t−1}
        ∂/∂D = Σ_t r_{t−1} x_{t−1}ᵀ + M_t D P_{t−1},  ∂/∂Q = ½ Σ_t M_t
        ∂/∂Σ = ½ Σ_t u_t u_tᵀ − S_t⁻¹ − G_tᵀDᵀN_t D G_t,  u_t = S_t⁻¹e_t − G_tᵀDᵀr_t
        ∂/∂m_0 = Dᵀr_0,  ∂/∂P_0 = ½ DᵀM_1 D

    The derivative with respect to a covariance C is the symmetric matrix g for which dl = tr(g dC), where l is the
    log-likelihood.
    """
    n, k = y.shape
    d = D.shape[0]
    used_rows = 1
    for t in range(n + 1):
        used_rows = max(used_rows, rows[t] + 1)
    G = np.empty((used_rows, d, k))
    H = np.empty((used_rows, k, k))  # S⁻¹, with 0 for missing entries
    known = np.zeros(used_rows, np.bool_)
    seen = np.empty(k, np.bool_)
    work = np.empty((2, d, d))
    work_dk = np.empty((2, d, k))
    work_kk = np.empty((3, k, k))
    error = np.zeros((n, k))
    dot_transposed(x_filt[:n], D[:k], error)
    for t in range(n):
        for i in range(k):
            seen[i] = not np.isnan(y[t, i])
            error[t, i] = y[t, i] - error[t, i] if seen[i] else 0.0
        row = rows[t + 1]
        if not known[row]:
            known[row] = True
            # Several rows may precede the frozen one. One P⁻ serves for all, as they are equal up to FREEZE.
            _gain(P_pred[row], R, seen, G[row], H[row], work_dk, work_kk)

    r = np.zeros((n + 1, d))
    N = np.zeros((d, d))
    N_new = np.empty((d, d))
    DG = np.empty((d, k))
    GNG = np.zeros((k, k))  # GᵀDᵀNDG
    FT = np.zeros((d, d))  # Fᵀ = D(I − GA)
    g_D = np.zeros((d, d))
    g_Q = np.zeros((d, d))
    g_R = np.zeros((k, k))
    loop_row = -1  # the row to which DG and FT belong
    steady = False  # whether N has converged
    stop = n  # r is known from `stop` on
    while stop > 0:
        row = int(rows[stop])
        if row != loop_row:
            dot(D, G[row], DG)
            for i in range(d):
                for j in range(d):
                    FT[i, j] = D[i, j] - DG[i, j] if j < k else D[i, j]
            loop_row = row
        steady = steady and row == frozen
        start = stop - 1
        if not steady:
            dot(N, DG, work_dk[0])
            transposed_dot(DG, work_dk[0], GNG)
            dot(N, FT, work[0])
            transposed_dot(FT, work[0], N_new)
            for i in range(k):
                for j in range(k):
                    N_new[i, j] += H[row, i, j]
            symmetrise(N_new)
            steady = row == frozen and nearly_equal(N_new, N, N_new, FREEZE)
            copy_into(N, N_new)
        elif rows[start] == frozen:
            while start > 0 and rows[start - 1] == frozen and stop - start < CHUNK:
                start -= 1
        length = stop - start
        part = r[start:stop]
        for t in range(start, stop):
            for i in range(k):
                for j in range(k):
                    r[t, i] += H[row, i, j] * error[t, j]
        run_recursion(FT, r[stop], part, np.bool_(True))
        M = work[0]
        transposed_dot(part, part, M)
        for i in range(d):
            for j in range(d):
                M[i, j] -= length * N[i, j]
                g_Q[i, j] += 0.5 * M[i, j]
        for i in range(k):
            for j in range(k):
                g_R[i, j] -= 0.5 * length * (H[row, i, j] + GNG[i, j])
        dot(M, D, work[1])
        dot(work[1], P_filt[rows[start]], M)
        for i in range(d):
            for j in range(d):
                g_D[i, j] += M[i, j]
        stop = start
    transposed_dot(r[:n], x_filt[:n], work[0])
    for i in range(d):
        for j in range(d):
            g_D[i, j] += work[0, i, j]
    # u_t is the observed part of r_{t−1} − Dᵀr_t.
    q = np.empty((n, d))
    dot(r[1:], D, q)
    for t in range(n):
        for i in range(k):
            error[t, i] = r[t, i] - q[t, i]
    transposed_dot(error, error, work_kk[0])
    for i in range(k):
        for j in range(k):
            g_R[i, j] += 0.5 * work_kk[0, i, j]
    g_m0 = np.zeros(d)
    for i in range(d):
        for j in range(d):
            work[0, i, j] = 0.5 * (r[0, i] * r[0, j] - N[i, j])
            g_m0[i] += D[j, i] * r[0, j]
    dot(work[0], D, work[1])
    g_P0 = np.empty((d, d))
    transposed_dot(D, work[1], g_P0)
    return g_D, g_Q, g_R, g_m0, g_P0
