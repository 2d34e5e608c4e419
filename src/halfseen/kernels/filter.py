"""The Kalman filter over whole series of one model, with every distinct covariance computed once.

Covariances depend on the model and on which entries were seen, not on their values. So the pass keeps a
*table* of covariance steps, a tree: row 0 is the prior, and each other row is its parent's step under one
pattern of seen entries. A series is a walk in the tree, kept as one row number per time. The walk on which
everything is seen (the schedule) is laid down first, up to the row at which it converges; that row is its own
successor (it is frozen), so a long complete series costs O(d²) a step and no memory for covariances. A
missing entry leaves the schedule, by rows of its own, until the covariance agrees again with the frozen one.
What a series gets depends only on the model and on itself, never on its neighbours in the batch.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.arrays import Flags, Index, Matrix, Stack, Vector
from halfseen.kernels.compiling import kernel
from halfseen.kernels.kalman import covariance_step
from halfseen.kernels.linalg import FREEZE, agree, copy_into, dot_transposed, recur

LOG_2PI = 1.8378770664093453
CHUNK = 256  # rows to a matrix product: fits the cache, and small enough that BLAS stays on one thread
# Two walks may settle, to FREEZE, on either side of their common limit: they are the same if this close.
SAME = 1e-10
NONE = -1
# Columns of the tree: the row that follows when everything is seen; the first of the others and, from each of
# those, the next; and the pattern of seen entries, k columns, that led to a row.
NEXT_COMPLETE, FIRST_CHILD, SIBLING, PATTERN = 0, 1, 2, 3


@kernel()
def grow(table: Stack) -> Stack:
    """The table with room for twice as many rows."""
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
    """The row that follows `here` under this pattern, or NONE when nothing has gone that way yet."""
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
    """Fᵀ with F = (I − GA)D, the map from one filtered mean to the next."""
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
    """log|S| of S⁻¹ = WᵀW."""
    total = 0.0
    for i in range(W.shape[0]):
        total -= 2.0 * np.log(W[i, i])
    return total


@kernel()
def _frozen_steps(D: Matrix, G: Matrix, W: Matrix, FT: Matrix, y: Matrix, x_filt: Matrix, errors: Stack) -> float:
    """len(y) steps under one gain: fills x_filt[1:] from x_filt[0]. Returns −2 × their log-likelihood.

    Only the recursion x_t = F x_{t−1} + G y_t is sequential; the rest are matrix products over the rows.
    """
    n, k = y.shape
    dot_transposed(y, G, x_filt[1:])
    recur(FT, x_filt[0], x_filt[1:], np.bool_(False))
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
    """One step under one gain, entries that are NaN left out. Returns −2 × its log-likelihood."""
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
    """How many rows from `start` on, at most a chunk of them, have no NaN."""
    stop = min(y.shape[0], start + CHUNK)
    for t in range(start, stop):
        for i in range(y.shape[1]):
            if np.isnan(y[t, i]):
                return t - start
    return int(stop - start)


@kernel()
def filter_series(
    D: Matrix,  # (d, d)
    Q: Matrix,  # (d, d)
    R: Matrix,  # Σ (k, k)
    m0: Vector,  # mean of x_0 (d,)
    P0: Matrix,  # covariance of x_0 (d, d)
    ys: Stack,  # (B, n, k), NaN = not seen
) -> tuple[Stack, Vector, Index, Stack, Stack, int]:
    """Filter B series of one model. Returns

    x_filt (B, n+1, d), whose row 0 in time is m0; the log-likelihoods (B,); rows (B, n+1) into the tables
    P_filt (rows, d, d), row 0 the prior, and P_pred (rows, d, d), the same before the observation; the frozen
    row or −1. Log-likelihood: Σ −½(log|S| + eᵀS⁻¹e + m log 2π), m the number of entries seen. Predicted means
    are D x_filt.
    """
    B, n, k = ys.shape
    d = D.shape[0]
    room = np.int64(64)  # not a literal, of which a helper would be compiled once more; nor are those below
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
    for b in range(-1, B):  # −1 lays down the schedule, the walk of a series of which everything is seen
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
                for i in range(k):
                    seen[i] = not np.isnan(ys[b, t, i])
                    complete = complete and seen[i]
            there = _successor(tree, here, seen, complete)
            if there == NONE:
                if used == room:
                    room *= 2
                    P_pred, P_filt, G, W = grow(P_pred), grow(P_filt), grow(G), grow(W)
                    tree = _grow_tree(tree, room)
                there = used
                covariance_step(
                    D, Q, R, P_filt[here], seen, P_pred[there], P_filt[there], G[there], W[there],
                    work_dd, work_dk, work_kk,
                )  # fmt: skip
                settled = complete and agree(P_filt[there], P_filt[here], P_pred[there], FREEZE)
                if (
                    complete
                    and frozen != NONE
                    and (
                        agree(P_filt[there], P_filt[frozen], P_pred[frozen], FREEZE)
                        or (settled and agree(P_filt[there], P_filt[frozen], P_pred[frozen], SAME))
                    )
                ):
                    there = frozen  # back on the schedule: the new row is not kept
                else:
                    used += 1
                if complete:
                    tree[here, NEXT_COMPLETE] = there
                    if b < 0 and settled:
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

# What came of a round. Those from MISSING on leave everything as it was.
DONE, SETTLED, BACK, MISSING, INFINITE = 0, 1, 2, 3, 4


@kernel()
def steady_round(
    y: Vector,  # (k,)
    loop: Matrix,  # Fᵀ over Gᵀ (d + k, d), with F = (I − GA)D
    x: Vector,  # filtered mean (d,), changed
    mean: Vector,  # out (d,): the same
) -> int:
    """x ← Fx + Gy under the frozen gain, unless an entry is missing or infinite."""
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
    recur(loop[:d], x, mean.reshape((1, d)), np.bool_(False))
    for i in range(d):
        x[i] = mean[i]
    return DONE


@kernel()
def exact_round(
    y: Vector,  # (k,)
    model: Stack,  # D, Q and, in its upper left corner, Σ (3, d, d)
    now: Stack,  # P and P⁻ (2, d, d), changed
    limit: Stack,  # the same of the frozen step (2, d, d); with `limit_gain`, of use only if `known`
    gain: Matrix,  # out (d, k)
    limit_gain: Matrix,  # (d, k)
    known: bool,
    loop: Matrix,  # out (d + k, d), of `steady_round`; left alone unless P settles for the first time
    x: Vector,  # filtered mean (d,), changed
    mean: Vector,  # out (d,): the same
) -> int:
    """One step of covariance and mean with the entries seen.

    SETTLED: all was seen and P no longer changes. BACK: P is the frozen one again, and `now` and `gain` are those.
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
        model[0], model[1], noise, now[0], seen, now[1], P, gain, W,
        np.empty((d, d)), np.empty((2, d, k)), np.empty((3, k, k)),
    )  # fmt: skip
    came = DONE
    if complete:
        settled = agree(P, now[0], now[1], FREEZE)
        if known and (agree(P, limit[0], limit[1], FREEZE) or (settled and agree(P, limit[0], limit[1], SAME))):
            came = BACK
        elif settled:
            came = SETTLED
    if came == BACK:
        copy_into(now[0], limit[0])
        copy_into(now[1], limit[1])
        copy_into(gain, limit_gain)
    else:
        copy_into(now[0], P)
    if came == SETTLED and not known:
        copy_into(loop, _closed_loop(model[0], gain))
        for i in range(d):
            for j in range(k):
                loop[d + j, i] = gain[i, j]
    _exact_step(model[0], gain, W, y, x, mean, np.empty(k))
    for i in range(d):
        x[i] = mean[i]
    return came
