"""The Kalman step for many streams at a time (docs/mathematics.md, "Building blocks").

Covariances depend on the model and on which entries are observed, but not on their values. Streams with the same model
and the same history of missing entries form a *group* with one covariance. The gain of a group is computed once per
round, and not at all after it has converged.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Flags, Float, Index, Matrix, Stack, Vector
from halfseen.kernels.compiling import kernel
from halfseen.kernels.linalg import (
    FREEZE,
    copy_into,
    dot,
    dot_transposed,
    nearly_equal,
    raise_pivots,
    symmetrise,
    whitener,
)
from halfseen.validation import LIMIT

NOISE_FLOOR = 1e-9  # a Σ_ii of 0 is replaced by this share of S_ii
MAX_VARIANCE = LIMIT * LIMIT  # the largest variance of a context; beyond it, unstable dynamics would overflow
MAX_POWER = LIMIT**0.5  # the largest entry of a power of D, so that products with variances do not overflow
NEGLIGIBLE = 1e-60  # a power of D counts as 0 if all its entries are below this
ROUNDING = 1e-13  # a positive Σ_ii is used unchanged if it is at least this share of S_ii


@kernel()
def predict(D: Matrix, Q: Matrix, P: Matrix, DP: Matrix, P_pred: Matrix) -> None:
    """Compute P⁻ = DPDᵀ + Q, exactly symmetric. All arrays are (d, d), and DP is scratch."""
    dot(D, P, DP)
    dot_transposed(DP, D, P_pred)
    for i in range(D.shape[0]):
        for j in range(i):
            mean = 0.5 * (P_pred[i, j] + P_pred[j, i]) + Q[i, j]
            P_pred[i, j] = mean
            P_pred[j, i] = mean
        P_pred[i, i] += Q[i, i]


@kernel()
def _largest(M: Matrix) -> float:
    largest = 0.0
    for i in range(M.shape[0]):
        for j in range(M.shape[1]):
            if not abs(M[i, j]) <= largest:  # also if the entry is NaN
                largest = abs(M[i, j])
    return float(largest)


@kernel()
def _several_steps(D: Matrix, Q: Matrix, steps: int, D_n: Matrix, Q_n: Matrix, work: Stack) -> bool:
    """Compute the result of `several_steps`, or return False if an entry is too large."""
    d = D.shape[0]
    power, total, product, image = work[0], work[1], work[2], work[3]
    copy_into(power, D)
    copy_into(total, Q)
    for i in range(d):
        for j in range(d):
            D_n[i, j] = 1.0 if i == j else 0.0
            Q_n[i, j] = 0.0
    left, first = steps, True
    while left > 0:
        largest = _largest(power)
        if not (largest <= MAX_POWER and _largest(total) <= MAX_VARIANCE):
            return False
        if largest < NEGLIGIBLE:  # all further steps change nothing
            copy_into(Q_n, total)
            for i in range(d):
                for j in range(d):
                    D_n[i, j] = 0.0
            return True
        if left % 2 == 1:
            if first:
                copy_into(D_n, power)
                copy_into(Q_n, total)
                first = False
            else:
                predict(power, total, Q_n, product, image)
                copy_into(Q_n, image)
                dot(power, D_n, product)
                copy_into(D_n, product)
        left //= 2
        if left > 0:
            predict(power, total, total, product, image)
            copy_into(total, image)
            dot(power, power, product)
            copy_into(power, product)
    return bool(_largest(Q_n) <= MAX_VARIANCE)


@kernel()
def several_steps(D: Matrix, Q: Matrix, steps: int, D_n: Matrix, Q_n: Matrix, work: Stack) -> None:
    """Compute Dⁿ and the covariance Σ_{j<n} DʲQDʲᵀ of n = `steps` steps, by doubling. All matrices are (d, d).

    If unstable dynamics would make an entry too large in n steps, fewer steps are taken. `work` (4, d, d) is scratch.
    """
    while not _several_steps(D, Q, steps, D_n, Q_n, work):
        steps //= 2


@kernel()
def covariance_step(
    D: Matrix,  # (d, d)
    Q: Matrix,  # (d, d)
    R: Matrix,  # Σ (k, k)
    P: Matrix,  # (d, d), filtered covariance before the step
    seen: Flags,  # (k,), whether each entry is observed
    P_pred: Matrix,  # output (d, d)
    P_filt: Matrix,  # output (d, d), may be P itself
    G: Matrix,  # output (d, k), with zero columns for missing entries
    W: Matrix,  # output (k, k), S⁻¹ = WᵀW, with rows of the identity for missing entries
    work_dd: Stack,  # scratch (d, d)
    work_dk: Stack,  # scratch (2, d, k)
    work_kk: Stack,  # scratch (3, k, k)
) -> None:
    """Compute the covariances and the gain of one Kalman step, with the observed entries only.

    P⁻ = DPDᵀ + Q, S = AP⁻Aᵀ + Σ, G = P⁻AᵀS⁻¹ and P = (I−GA)P⁻(I−GA)ᵀ + GΣGᵀ. A Σ_ii of 0 is replaced by 1e-9 S_ii, a
    floor that scales with the units of y. A positive Σ_ii is raised to 1e-13 S_ii if it is smaller. The rounding error
    of P is proportional to P⁻. Where this error could make P indefinite, the diagonal of P is raised.
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
            increase = (NOISE_FLOOR if R[i, i] == 0.0 else ROUNDING) * S[i, i] - R[i, i]
            if increase > 0.0:
                S[i, i] += increase
                noise[i, i] += increase
        else:
            S[i, i] = 1.0
    for i in range(d):
        for j in range(k):
            cross[i, j] = P_pred[i, j] if seen[j] else 0.0
    whitener(S, work_kk[2], W)
    dot_transposed(cross, W, work_dk[1])
    dot(work_dk[1], W, G)

    # The Joseph form with A = [I 0], where o are the observed coordinates: M = P⁻ − G P⁻_o, then P = M − (M_o − GΣ)Gᵀ.
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
    raise_pivots(P_filt, np.diag(P_pred))


@kernel()
def _all_seen(seen: Flags) -> bool:
    count = 0
    for value in seen:
        count += value
    return bool(count == seen.shape[0])


@kernel()
def within_limit(P: Matrix, limit: Float) -> bool:
    """Return whether all variances of P (d, d) are at most `limit`, and none of them is NaN."""
    count = 0
    for i in range(P.shape[0]):
        count += P[i, i] <= limit
    return bool(count == P.shape[0])


@kernel()
def advance_gain(
    groups: Index,  # (n,), the groups to update
    D: Stack,  # (M, d, d) for M groups, or (1, d, d) if all groups have the same model
    Q: Stack,  # (M, d, d) or (1, d, d)
    R: Stack,  # (M, k, k) or (1, k, k)
    P: Stack,  # (M, d, d), filtered covariances, updated in place
    G: Stack,  # (M, d, k), gains, updated in place
    frozen: Flags,  # (M,), whether P and G have converged, updated in place
    seen: Flags,  # (n, k), whether each entry is observed
) -> None:
    """Update covariance and gain of the given groups for one round.

    A group is frozen once P has converged (see `nearly_equal`) in a round without missing entries. Frozen groups are
    skipped until an entry is missing. The caller sets `frozen` to False when it replaces the model or covariance of a
    group. A variance never exceeds MAX_VARIANCE, even if the dynamics are unstable and nothing is observed for long.
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
        frozen[m] = complete and nearly_equal(P_new, P[m], P_pred, FREEZE)
        if within_limit(P_new, MAX_VARIANCE):
            copy_into(P[m], P_new)


@kernel()
def _mean_step(x: Vector, D: Matrix, G: Matrix, y: Vector, pred: Vector, error: Vector) -> None:
    """Compute x ← Dx + G(y − ADx), within ±LIMIT, without the missing entries of y.

    `pred` (d,) and `error` (k,) are scratch.
    """
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
        x[i] = min(max(pred[i] + total, -LIMIT), LIMIT)


@kernel()
def advance_mean(
    rows: Index,  # (n,), the streams to update
    group: Index,  # (B,), the group of each stream
    D: Stack,  # (M, d, d) for M groups, or (1, d, d) if all groups have the same model
    G: Stack,  # (M, d, k)
    x: Matrix,  # (B, d), filtered means, updated in place
    y: Matrix,  # (n, k), observations in the order of `rows`
) -> None:
    """Update the filtered means of the streams `rows`: x ← Dx + G(y − ADx), without the missing entries of y."""
    pred, error = np.empty(x.shape[1]), np.empty(y.shape[1])
    for s in range(y.shape[0]):
        m = group[rows[s]]
        _mean_step(x[rows[s]], D[m if D.shape[0] > 1 else 0], G[m], y[s], pred, error)


@kernel()
def advance_means(
    group: Index,  # (B,), the group of each stream
    D: Stack,  # (M, d, d) for M groups, or (1, d, d) if all groups have the same model
    G: Stack,  # (M, d, k)
    x: Matrix,  # (B, d), filtered means, updated in place
    y: Stack,  # (n, B, k), observations
    start: int,
    stop: int,
    means: Stack,  # output (B, n, d)
) -> None:
    """Call `advance_mean` for all streams in the rounds start:stop.

    It goes stream by stream, which uses the cache better than going round by round.
    """
    pred, error = np.empty(x.shape[1]), np.empty(y.shape[2])
    for b in range(y.shape[1]):
        m, mean = group[b], x[b]
        for t in range(start, stop):
            _mean_step(mean, D[m if D.shape[0] > 1 else 0], G[m], y[t, b], pred, error)
            out = means[b, t]
            for i in range(mean.shape[0]):
                out[i] = mean[i]


@kernel()
def move_ahead(D_n: Matrix, x: Vector, pred: Vector) -> None:
    """Compute x ← Dⁿx within ±LIMIT. `pred` (d,) is scratch."""
    d = x.shape[0]
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += D_n[i, j] * x[j]
        pred[i] = total
    for i in range(d):
        x[i] = min(max(pred[i], -LIMIT), LIMIT)


@kernel()
def predict_ahead(
    steps: int,
    groups: Index,  # (n,), the groups to update
    rows: Index,  # (m,), the streams to update
    group: Index,  # (B,), the group of each stream
    D: Stack,  # (M, d, d) for M groups, or (1, d, d) if all groups have the same model
    Q: Stack,  # (M, d, d) or (1, d, d)
    P: Stack,  # (M, d, d), filtered covariances, updated in place
    frozen: Flags,  # (M,), updated in place
    x: Matrix,  # (B, d), filtered means, updated in place
) -> None:
    """Predict means and covariances `steps` rounds ahead, without observations.

    If each group has its own model, `groups` and `rows` must be equal. As in `advance_gain` and `advance_mean`, P stays
    below MAX_VARIANCE and x within ±LIMIT.
    """
    d = D.shape[1]
    D_n, Q_n, P_new, work = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.empty((4, d, d))
    pred = np.empty(d)
    shared = D.shape[0] == 1
    if shared:
        several_steps(D[0], Q[0], steps, D_n, Q_n, work)
    for s in range(groups.shape[0]):
        m = groups[s]
        if not shared:
            several_steps(D[m], Q[m], steps, D_n, Q_n, work)
            move_ahead(D_n, x[rows[s]], pred)
        predict(D_n, Q_n, P[m], work[0], P_new)
        if within_limit(P_new, MAX_VARIANCE):
            copy_into(P[m], P_new)
        frozen[m] = False
    if shared:
        for s in range(rows.shape[0]):
            move_ahead(D_n, x[rows[s]], pred)
