"""The Kalman step, online and batched over streams (spec: docs/mathematics.md, "Building blocks").

The covariance half of the step does not look at the data, only at which entries were seen, so streams that
share a model and a history of seen entries share one *group* of covariances: the gain is computed once for all
of them, and not at all once it has converged.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Flags, Index, Matrix, Stack, Vector
from halfseen.kernels.compiling import kernel
from halfseen.kernels.linalg import FREEZE, agree, copy_into, dot, dot_transposed, symmetrise, whitener

NOISE_FLOOR = 1e-9  # a Σ_ii of 0 counts as this share of S_ii
ROUNDING = 1e-13  # a Σ_ii that is given counts as it is, down to what S_ii can hold beside it


@kernel()
def predict(D: Matrix, Q: Matrix, P: Matrix, DP: Matrix, P_pred: Matrix) -> None:
    """P⁻ = DPDᵀ + Q, symmetric to the last bit; DP is scratch."""
    dot(D, P, DP)
    dot_transposed(DP, D, P_pred)
    for i in range(D.shape[0]):
        for j in range(i):
            mean = 0.5 * (P_pred[i, j] + P_pred[j, i]) + Q[i, j]
            P_pred[i, j] = mean
            P_pred[j, i] = mean
        P_pred[i, i] += Q[i, i]


@kernel()
def covariance_step(
    D: Matrix,  # (d, d)
    Q: Matrix,  # (d, d)
    R: Matrix,  # Σ (k, k)
    P: Matrix,  # filtered covariance before the step (d, d)
    seen: Flags,  # (k,)
    P_pred: Matrix,  # out (d, d)
    P_filt: Matrix,  # out (d, d); may be P itself
    G: Matrix,  # out (d, k), zero columns where nothing was seen
    W: Matrix,  # out (k, k): S⁻¹ = WᵀW, identity rows where nothing was seen
    work_dd: Stack,  # scratch (d, d)
    work_dk: Stack,  # scratch (2, d, k)
    work_kk: Stack,  # scratch (3, k, k)
) -> None:
    """P⁻ = DPDᵀ + Q, S = P⁻_oo + Σ, G = P⁻Aᵀ S⁻¹, P = (I−GA)P⁻(I−GA)ᵀ + GΣGᵀ, with the rows seen.

    Zero noise: a Σ_ii of 0 is read as 1e-9 S_ii, in S and in the update alike: the specification's jitter, free of
    the units of y. A Σ_ii that is given stays as it is, as far as S_ii can hold it (1e-13).
    """
    d = D.shape[0]
    k = R.shape[0]
    predict(D, Q, P, work_dd, P_pred)
    S = work_kk[0]
    noise = work_kk[1]
    cross = work_dk[0]
    for i in range(k):
        for j in range(k):
            both = seen[i] and seen[j]
            noise[i, j] = R[i, j] if both else 0.0
            S[i, j] = P_pred[i, j] + R[i, j] if both else 0.0
        if seen[i]:
            lift = (NOISE_FLOOR if R[i, i] == 0.0 else ROUNDING) * S[i, i] - R[i, i]
            if lift > 0.0:
                S[i, i] += lift
                noise[i, i] += lift
        else:
            S[i, i] = 1.0
    for i in range(d):
        for j in range(k):
            cross[i, j] = P_pred[i, j] if seen[j] else 0.0
    whitener(S, work_kk[2], W)
    dot_transposed(cross, W, work_dk[1])
    dot(work_dk[1], W, G)

    # Joseph's form with A = [I 0]: M = P⁻ − G P⁻_o, then P = M − (M_o − GΣ)Gᵀ.
    dot(G, P_pred[:k], work_dd)
    dot(G, noise, cross)
    for i in range(d):
        for j in range(d):
            work_dd[i, j] = P_pred[i, j] - work_dd[i, j]
        for j in range(k):
            cross[i, j] = work_dd[i, j] - cross[i, j]
    dot_transposed(cross, G, P_filt)
    for i in range(d):
        for j in range(d):
            P_filt[i, j] = work_dd[i, j] - P_filt[i, j]
    symmetrise(P_filt)


@kernel()
def _all_seen(seen: Flags) -> bool:
    count = 0
    for value in seen:
        count += value
    return bool(count == seen.shape[0])


@kernel()
def advance_gain(
    groups: Index,  # (n,)
    D: Stack,  # (M, d, d), or (1, d, d) for all groups; Q and R alike
    Q: Stack,  # (M, d, d)
    R: Stack,  # (M, k, k)
    P: Stack,  # filtered covariance (M, d, d), changed
    G: Stack,  # gain (M, d, k), changed
    frozen: Flags,  # (M,), changed
    seen: Flags,  # (n, k)
) -> None:
    """One covariance step of each group named; nothing for a frozen group of which everything is seen.

    A group freezes when everything was seen and P no longer changes (see `agree`); it thaws at the first missing
    entry. Change `frozen` to 0 whenever a group's model or covariance is replaced.
    """
    d = D.shape[1]
    k = R.shape[1]
    pending = False
    for s in range(groups.shape[0]):
        if not (frozen[groups[s]] and _all_seen(seen[s])):
            pending = True
            break
    if not pending:
        return
    P_pred = np.empty((d, d))
    P_new = np.empty((d, d))
    W = np.empty((k, k))
    work_dd = np.empty((d, d))
    work_dk = np.empty((2, d, k))
    work_kk = np.empty((3, k, k))
    for s in range(groups.shape[0]):
        m = groups[s]
        complete = _all_seen(seen[s])
        if frozen[m] and complete:
            continue
        model = m if D.shape[0] > 1 else 0
        covariance_step(D[model], Q[model], R[model], P[m], seen[s], P_pred, P_new, G[m], W, work_dd, work_dk, work_kk)
        frozen[m] = complete and agree(P_new, P[m], P_pred, FREEZE)
        copy_into(P[m], P_new)


@kernel()
def _mean_step(x: Vector, D: Matrix, G: Matrix, y: Vector, pred: Vector, error: Vector) -> None:
    """x ← Dx + G(y − ADx), with entries that are NaN left out; `pred` and `error` are scratch."""
    d, k = x.shape[0], y.shape[0]
    for i in range(d):
        total, row = 0.0, D[i]
        for j in range(d):
            total += row[j] * x[j]
        pred[i] = total
    for i in range(k):
        error[i] = 0.0 if np.isnan(y[i]) else y[i] - pred[i]
    for i in range(d):
        total, row = 0.0, G[i]
        for j in range(k):
            total += row[j] * error[j]
        x[i] = pred[i] + total


@kernel()
def advance_mean(
    rows: Index,  # (n,) streams that take a step
    group: Index,  # (B,) group of each stream
    D: Stack,  # (M, d, d), or (1, d, d) for all groups
    G: Stack,  # (M, d, k)
    x: Matrix,  # filtered means (B, d), changed
    y: Matrix,  # observations (n, k), aligned with rows
) -> None:
    """x ← Dx + G(y − ADx) for each row, with entries that are NaN left out."""
    pred, error = np.empty(x.shape[1]), np.empty(y.shape[1])
    for s in range(y.shape[0]):
        m = group[rows[s]]
        _mean_step(x[rows[s]], D[m if D.shape[0] > 1 else 0], G[m], y[s], pred, error)


@kernel()
def advance_means(
    group: Index,  # (B,) group of each stream
    D: Stack,  # (M, d, d), or (1, d, d) for all groups
    G: Stack,  # (M, d, k)
    x: Matrix,  # filtered means (B, d), changed
    y: Stack,  # observations (n, B, k)
    start: int,
    stop: int,
    means: Stack,  # out (B, n, d)
) -> None:
    """`advance_mean` of all streams in the rounds start:stop, all of one before the next: its matrices stay close."""
    pred, error = np.empty(x.shape[1]), np.empty(y.shape[2])
    for b in range(y.shape[1]):
        m, mean = group[b], x[b]
        for t in range(start, stop):
            _mean_step(mean, D[m if D.shape[0] > 1 else 0], G[m], y[t, b], pred, error)
            out = means[b, t]
            for i in range(mean.shape[0]):
                out[i] = mean[i]
