"""The Kalman filter over whole series of one model, with every distinct covariance computed once.

Covariances depend on the model and on which entries are observed, but not on their values. The filter therefore stores
them in a table that is a tree. Row 0 is the prior, and every other row is the result of the covariance step from its
parent for one pattern of observed entries. A series is a path in the tree, stored as one row number per time.

If the first entry of a row of `ys` is infinite, the row is not an observation: it starts a new series with the same
model. At the time of this row, the new series is at x_0, so its covariance is row 0 of the table.

The complete path, on which every entry is observed, is computed first, up to the row at which the covariance converges.
This row is called frozen and is its own successor, so that a long series without missing entries costs O(d²) per step
and no memory for covariances. A missing entry leads to other rows until the covariance equals the frozen one again. The
result of a series depends only on the model and on the series, not on the rest of the batch.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.arrays import Flags, Index, Matrix, Stack, Vector
from halfseen.kernels.compiling import kernel
from halfseen.kernels.kalman import covariance_step
from halfseen.kernels.linalg import FREEZE, copy_into, dot_transposed, nearly_equal, run_recursion

LOG_2PI = 1.8378770664093453
CHUNK = 256  # rows per matrix product, which fit the cache and are too few for BLAS to start threads

# Two covariances that have converged up to FREEZE count as equal limits if their relative difference is below this.
SAME_LIMIT = 1e-10
NONE = -1
# Columns of the tree. NEXT_COMPLETE: the child for a complete observation. FIRST_CHILD: the first of the other
# children. SIBLING: the next child of the same parent. PATTERN and the k − 1 columns after it: the observed entries of
# the step.
NEXT_COMPLETE, FIRST_CHILD, SIBLING, PATTERN = 0, 1, 2, 3


@kernel()
def double_rows(table: Stack) -> Stack:
    """Return a copy of the table (rows, m, n) with twice as many rows."""
    wider = np.empty((2 * table.shape[0], table.shape[1], table.shape[2]))
    for row in range(table.shape[0]):
        copy_into(wider[row], table[row])
    return wider


@kernel()
def _grow_tree(tree: Index, room: int) -> Index:
    wider = np.empty((room, tree.shape[1]), np.int64)
    for row in range(room):
        for i in range(tree.shape[1]):
            wider[row, i] = tree[row, i] if row < tree.shape[0] else NONE
    return wider


@kernel()
def _successor(tree: Index, here: int, seen: Flags, complete: bool) -> int:
    """Return the child of row `here` for the observed entries `seen` (k,), or NONE if it does not exist yet."""
    if complete:
        return int(tree[here, NEXT_COMPLETE])
    there = tree[here, FIRST_CHILD]
    while there != NONE:
        same = True
        for i in range(seen.shape[0]):
            if tree[there, PATTERN + i] != seen[i]:
                same = False
                break
        if same:
            break
        there = tree[there, SIBLING]
    return int(there)


@kernel()
def _closed_loop(D: Matrix, G: Matrix) -> Matrix:
    """Return Fᵀ (d, d), where F = (I − GA)D maps one filtered mean to the next."""
    d, k = G.shape
    FT = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            total = D[i, j]
            for m in range(k):
                total -= G[i, m] * D[m, j]
            FT[j, i] = total
    return FT


@kernel()
def _log_det(W: Matrix) -> float:
    """Return log|S|, where S⁻¹ = WᵀW."""
    total = 0.0
    for i in range(W.shape[0]):
        total -= 2.0 * np.log(W[i, i])
    return total


@kernel()
def _frozen_steps(D: Matrix, G: Matrix, W: Matrix, FT: Matrix, y: Matrix, x_filt: Matrix, errors: Stack) -> float:
    """Compute the filtered means x_filt[1:] (n, d) from x_filt[0] and y (n, k) with a constant gain.

    Returns −2 times the log-likelihood of y. Only the recursion x_t = F x_{t−1} + G y_t is sequential. Everything else
    is a matrix product over all rows. `errors` (2, rows, k) is scratch.
    """
    n, k = y.shape
    dot_transposed(y, G, x_filt[1:])
    run_recursion(FT, x_filt[0], x_filt[1:], np.bool_(False))
    raw = errors[0, :n]
    white = errors[1, :n]
    dot_transposed(x_filt[:n], D[:k], raw)
    for t in range(n):
        for i in range(k):
            raw[t, i] = y[t, i] - raw[t, i]
    dot_transposed(raw, W, white)
    total = n * (_log_det(W) + k * LOG_2PI)
    for t in range(n):
        for i in range(k):
            total += white[t, i] * white[t, i]
    return float(total)


@kernel()
def _exact_step(D: Matrix, G: Matrix, W: Matrix, y: Vector, x: Vector, x_new: Vector, error: Vector) -> float:
    """Compute the filtered mean x_new (d,) from x (d,) and y (k,), and return −2 times the log-likelihood of y."""
    d, k = G.shape
    for i in range(d):
        mean = 0.0
        for j in range(d):
            mean += D[i, j] * x[j]
        x_new[i] = mean
    total = _log_det(W)
    for i in range(k):
        if np.isnan(y[i]):
            error[i] = 0.0
        else:
            error[i] = y[i] - x_new[i]
            total += LOG_2PI
    for i in range(k):
        white = 0.0
        for j in range(i + 1):
            white += W[i, j] * error[j]
        total += white * white
    for i in range(d):
        change = 0.0
        for j in range(k):
            change += G[i, j] * error[j]
        x_new[i] += change
    return float(total)


@kernel()
def _complete_rows(y: Matrix, start: int) -> int:
    """Return the number of consecutive rows of finite y (n, k) from `start` on, at most CHUNK."""
    stop = min(y.shape[0], start + CHUNK)
    for t in range(start, stop):
        for i in range(y.shape[1]):
            if not math.isfinite(y[t, i]):
                return t - start
    return int(stop - start)


@kernel()
def filter_series(
    D: Matrix,  # (d, d)
    Q: Matrix,  # (d, d)
    R: Matrix,  # Σ (k, k)
    m0: Vector,  # (d,), mean of x_0
    P0: Matrix,  # (d, d), covariance of x_0
    ys: Stack,  # (B, n, k), NaN where missing, infinite where a new series starts
) -> tuple[Stack, Vector, Index, Stack, Stack, int]:
    """Filter B series of one model.

    Returns

    * x_filt (B, n+1, d), the filtered means from m0 on,
    * the log-likelihoods (B,), Σ_t −½(log|S| + eᵀS⁻¹e + m log 2π) with m the number of observed entries of y_t,
    * rows (B, n+1), for every time its row in the tables P_filt and P_pred,
    * P_filt (rows, d, d), the distinct filtered covariances, with the prior in row 0,
    * P_pred (rows, d, d), the predicted covariances that belong to these filtered covariances,
    * the frozen row, or −1 if the covariance does not converge.
    """
    B, n, k = ys.shape
    d = D.shape[0]
    # Numba would compile helpers again for literal arguments, so these arguments have explicit types.
    room = np.int64(64)
    P_pred = np.zeros((room, d, d))
    P_filt = np.zeros((room, d, d))
    G = np.zeros((room, d, k))
    W = np.zeros((room, k, k))
    tree = _grow_tree(np.empty((0, PATTERN + k), np.int64), room)
    work_dd = np.empty((d, d))
    work_dk = np.empty((2, d, k))
    work_kk = np.empty((3, k, k))
    errors = np.empty((2, min(CHUNK, n), k))
    FT = work_dd
    seen = np.ones(k, np.bool_)

    x_filt = np.empty((B, n + 1, d))
    rows = np.zeros((B, n + 1), np.int64)
    loglik = np.zeros(B)
    copy_into(P_filt[0], P0)
    used = 1
    frozen = NONE
    for b in range(-1, B):  # b = −1 computes the complete path
        if b == 0 and frozen != NONE:
            FT = _closed_loop(D, G[frozen])
        if b >= 0:
            for i in range(d):
                x_filt[b, 0, i] = m0[i]
        here = np.int64(0)
        total = 0.0
        t = np.int64(0)
        while t < n and (b >= 0 or frozen == NONE):
            if here == frozen:
                run = _complete_rows(ys[b], t)
                if run > 0:
                    steps = x_filt[b, t : t + run + 1]
                    total += _frozen_steps(D, G[here], W[here], FT, ys[b, t : t + run], steps, errors)
                    for s in range(t + 1, t + run + 1):
                        rows[b, s] = here
                    t += run
                    continue
            complete = np.bool_(True)
            if b >= 0:
                if math.isinf(ys[b, t, 0]):
                    for i in range(d):
                        x_filt[b, t + 1, i] = m0[i]
                    t += 1
                    rows[b, t] = 0
                    here = np.int64(0)
                    continue
                for i in range(k):
                    seen[i] = not np.isnan(ys[b, t, i])
                    complete = complete and seen[i]
            there = _successor(tree, here, seen, complete)
            if there == NONE:
                if used == room:
                    room *= 2
                    P_pred, P_filt, G, W = double_rows(P_pred), double_rows(P_filt), double_rows(G), double_rows(W)
                    tree = _grow_tree(tree, room)
                there = used
                covariance_step(
                    D, Q, R, P_filt[here], seen, P_pred[there], P_filt[there], G[there], W[there],
                    work_dd, work_dk, work_kk,
                )  # fmt: skip
                converged = complete and nearly_equal(P_filt[there], P_filt[here], P_pred[there], FREEZE)
                if (
                    complete
                    and frozen != NONE
                    and (
                        nearly_equal(P_filt[there], P_filt[frozen], P_pred[frozen], FREEZE)
                        or (converged and nearly_equal(P_filt[there], P_filt[frozen], P_pred[frozen], SAME_LIMIT))
                    )
                ):
                    there = frozen  # the covariance has returned to its limit, so the new row is not needed
                else:
                    used += 1
                if complete:
                    tree[here, NEXT_COMPLETE] = there
                    if b < 0 and converged:
                        frozen = there
                        tree[there, NEXT_COMPLETE] = there
                else:
                    for i in range(k):
                        tree[there, PATTERN + i] = seen[i]
                    tree[there, SIBLING] = tree[here, FIRST_CHILD]
                    tree[here, FIRST_CHILD] = there
            if b >= 0:
                x, x_new = x_filt[b, t], x_filt[b, t + 1]
                total += _exact_step(D, G[there], W[there], ys[b, t], x, x_new, errors[0, 0])
                rows[b, t + 1] = there
            here = there
            t += 1
        if b >= 0:
            loglik[b] = -0.5 * total
    return x_filt, loglik, rows, P_filt, P_pred, frozen


# ---------------------------------------------------------------------- one stream, one round at a time

# The result of a round. UPDATED: the belief was updated. CONVERGED: P changed by less than FREEZE. AT_LIMIT: P returned
# to its known limit. MISSING, INFINITE: an entry of y is NaN or infinite, and nothing was changed.
UPDATED, CONVERGED, AT_LIMIT, MISSING, INFINITE = 0, 1, 2, 3, 4


@kernel()
def steady_round(
    y: Vector,  # (k,)
    loop: Matrix,  # (d + k, d), Fᵀ stacked on Gᵀ, with F = (I − GA)D
    x: Vector,  # (d,), filtered mean, updated in place
    mean: Vector,  # output (d,), a copy of the new x
) -> int:
    """Update the filtered mean x ← Fx + Gy with the converged gain, unless an entry is missing or infinite."""
    k, d = y.shape[0], x.shape[0]
    for i in range(k):
        if math.isnan(y[i]):
            return MISSING
        if math.isinf(y[i]):
            return INFINITE
    for i in range(d):
        mean[i] = 0.0
    for j in range(k):
        for i in range(d):
            mean[i] += loop[d + j, i] * y[j]
    run_recursion(loop[:d], x, mean.reshape((1, d)), np.bool_(False))
    for i in range(d):
        x[i] = mean[i]
    return UPDATED


@kernel()
def exact_round(
    y: Vector,  # (k,)
    model: Stack,  # (3, d, d), D, Q, and Σ in the upper left corner of the third matrix
    covs: Stack,  # (2, d, d), P and P⁻, updated in place
    limit: Stack,  # (2, d, d), the limits of P and P⁻ if `limit_known`
    gain: Matrix,  # output (d, k)
    limit_gain: Matrix,  # (d, k), the limit of the gain if `limit_known`
    limit_known: bool,
    loop: Matrix,  # output (d + k, d) for `steady_round`, set if P converges and `limit_known` is false
    x: Vector,  # (d,), filtered mean, updated in place
    mean: Vector,  # output (d,), a copy of the new x
) -> int:
    """Update covariance, gain and mean for one round, with the observed entries of y.

    Returns CONVERGED or AT_LIMIT only if no entry is missing. With AT_LIMIT, `covs` and `gain` are set to the limits.
    """
    k, d = y.shape[0], x.shape[0]
    seen = np.empty(k, np.bool_)
    complete = True
    for i in range(k):
        if math.isinf(y[i]):
            return INFINITE
        seen[i] = not math.isnan(y[i])
        complete = complete and seen[i]
    noise, W = np.empty((k, k)), np.empty((k, k))
    for i in range(k):
        for j in range(k):
            noise[i, j] = model[2, i, j]
    P = np.empty((d, d))
    covariance_step(
        model[0], model[1], noise, covs[0], seen, covs[1], P, gain, W,
        np.empty((d, d)), np.empty((2, d, k)), np.empty((3, k, k)),
    )  # fmt: skip
    status = UPDATED
    if complete:
        converged = nearly_equal(P, covs[0], covs[1], FREEZE)
        if limit_known and (
            nearly_equal(P, limit[0], limit[1], FREEZE)
            or (converged and nearly_equal(P, limit[0], limit[1], SAME_LIMIT))
        ):
            status = AT_LIMIT
        elif converged:
            status = CONVERGED
    if status == AT_LIMIT:
        copy_into(covs[0], limit[0])
        copy_into(covs[1], limit[1])
        copy_into(gain, limit_gain)
    else:
        copy_into(covs[0], P)
    if status == CONVERGED and not limit_known:
        copy_into(loop, _closed_loop(model[0], gain))
        for i in range(d):
            for j in range(k):
                loop[d + j, i] = gain[i, j]
    _exact_step(model[0], gain, W, y, x, mean, np.empty(k))
    for i in range(d):
        x[i] = mean[i]
    return status
