"""One round of one stream's Kalman filter: the walk of `filter.filter_series`, a step at a time."""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.arrays import Matrix, Stack, Vector
from halfseen.kernels.compiling import kernel
from halfseen.kernels.filter import SAME, closed_loop, exact_step
from halfseen.kernels.kalman import covariance_step
from halfseen.kernels.linalg import FREEZE, agree, copy_into, recur

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
        copy_into(loop, closed_loop(model[0], gain))
        for i in range(d):
            for j in range(k):
                loop[d + j, i] = gain[i, j]
    exact_step(model[0], gain, W, y, x, mean, np.empty(k))
    for i in range(d):
        x[i] = mean[i]
    return came
