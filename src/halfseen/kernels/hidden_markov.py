"""Filter and online EM of a hidden Markov chain (docs/mathematics.md, "Hidden Markov chain").

The recursions are the online EM of Cappé (2011). ρ(·; q) is the weighted mean of a statistic over the rounds so far,
given that the chain is now in state q. It is updated with ret(l | q), the probability that the state before q was l.

There are M states and k features. The arrays of a stream are belief (M,), F (M, M), mean and var (M, k), rho_F (M, M,
M), rho_1 (M, M), rho_y and rho_yy (M, k, M). The last axis of the statistics is q.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.compiling import kernel

MIN_TRANSITION = 1e-8  # a lower bound of transition probabilities, because EM never changes a probability of 0
MIN_VISITS = 1e-6  # a state that is visited in a smaller share of the rounds than this keeps its mean and variances


@kernel()
def _predict(belief, F, pred, ret):  # type: ignore[no-untyped-def]
    """Compute pred_j = Σ_i b_i F_ij (M,) and ret(i | j) = b_i F_ij / pred_j (M, M)."""
    M = belief.shape[0]
    for j in range(M):
        total = 0.0
        for i in range(M):
            total += belief[i] * F[i, j]
        pred[j] = total
        for i in range(M):
            ret[i, j] = belief[i] * F[i, j] / total


@kernel()
def _condition(pred, y, mean, var, belief):  # type: ignore[no-untyped-def]
    """Compute b_j ∝ pred_j N(y; m_j, diag R_j) over the observed entries of y (k,), and return log p(y)."""
    M, k = mean.shape
    highest = -np.inf
    for j in range(M):
        total = math.log(pred[j])
        for i in range(k):
            if not math.isnan(y[i]):
                gap = y[i] - mean[j, i]
                total -= 0.5 * (math.log(2.0 * math.pi * var[j, i]) + gap * gap / var[j, i])
        belief[j] = total
        highest = max(highest, total)
    total = 0.0
    for j in range(M):
        belief[j] = math.exp(belief[j] - highest)
        total += belief[j]
    for j in range(M):
        belief[j] /= total
    return highest + math.log(total)


@kernel()
def _propagate(rho, ret, factor, old):  # type: ignore[no-untyped-def]
    """Compute ρ(q) ← factor·Σ_l ρ(l) ret(l | q) (M,). `old` (M,) is scratch."""
    M = rho.shape[0]
    for q in range(M):
        old[q] = rho[q]
    for q in range(M):
        total = 0.0
        for l in range(M):  # noqa: E741
            total += old[l] * ret[l, q]
        rho[q] = factor * total


@kernel()
def _average(y, mean, var, ret, g, rho_F, rho_1, rho_y, rho_yy, old):  # type: ignore[no-untyped-def]
    """Add one round with weight g to the statistics of transitions, visits, y and y².

    A missing entry is replaced by its expected value in each state, m_j, and its square by m_j² + R_j.
    """
    M, k = mean.shape
    factor = 1.0 - g
    for j in range(M):
        for i in range(M):
            _propagate(rho_F[i, j], ret, factor, old)
            rho_F[i, j, j] += g * ret[i, j]
        _propagate(rho_1[j], ret, factor, old)
        rho_1[j, j] += g
        for i in range(k):
            first, second = y[i], y[i] * y[i]
            if math.isnan(first):
                first, second = mean[j, i], mean[j, i] * mean[j, i] + var[j, i]
            _propagate(rho_y[j, i], ret, factor, old)
            _propagate(rho_yy[j, i], ret, factor, old)
            rho_y[j, i, j] += g * first
            rho_yy[j, i, j] += g * second


@kernel()
def _maximise(belief, rho_F, rho_1, rho_y, rho_yy, floor, F, mean, var):  # type: ignore[no-untyped-def]
    """Compute F = row-normalised S_F, m = S_y/S_1 and R = S_yy/S_1 − m² + floor, where S = Σ_q ρ(·; q) b_q."""
    M, k = mean.shape
    for i in range(M):
        total = 0.0
        for j in range(M):
            share = 0.0
            for q in range(M):
                share += rho_F[i, j, q] * belief[q]
            F[i, j] = share
            total += share
        for j in range(M):
            F[i, j] = (F[i, j] / total if total > 0.0 else 1.0 / M) * (1.0 - M * MIN_TRANSITION) + MIN_TRANSITION
    for j in range(M):
        visits = 0.0
        for q in range(M):
            visits += rho_1[j, q] * belief[q]
        if not visits > MIN_VISITS:
            continue
        for i in range(k):
            first, second = 0.0, 0.0
            for q in range(M):
                first += rho_y[j, i, q] * belief[q]
                second += rho_yy[j, i, q] * belief[q]
            mean[j, i] = first / visits
            var[j, i] = max(second / visits - mean[j, i] * mean[j, i], 0.0) + floor


@kernel()
def _step(y, g, belief, F, mean, var, rho_F, rho_1, rho_y, rho_yy, pred, ret, old):  # type: ignore[no-untyped-def]
    """Update the belief and the statistics of one stream with one round of weight g."""
    _predict(belief, F, pred, ret)
    _condition(pred, y, mean, var, belief)
    _average(y, mean, var, ret, g, rho_F, rho_1, rho_y, rho_yy, old)


@kernel()
def filter_and_learn(rows, ys, rounds, exponent, floor, belief, F, mean, var, rho_F, rho_1, rho_y, rho_yy):  # type: ignore[no-untyped-def]
    """Update beliefs, statistics and parameters of the streams in `rows` (n,) with one round.

    ys (n, k) are the observations, NaN where missing, and rounds (n,) the round numbers t. The weight of a round is
    t^−exponent. The arrays from `belief` on have a leading axis B and are updated in place.
    """
    M = belief.shape[1]
    pred, ret, old = np.empty(M), np.empty((M, M)), np.empty(M)
    for n in range(rows.shape[0]):
        b, g = rows[n], rounds[n] ** -exponent
        _step(
            ys[n], g, belief[b], F[b], mean[b], var[b], rho_F[b], rho_1[b], rho_y[b], rho_yy[b], pred, ret, old
        )  # fmt: skip
        _maximise(belief[b], rho_F[b], rho_1[b], rho_y[b], rho_yy[b], floor, F[b], mean[b], var[b])


@kernel()
def fit_start(ys, passes, exponent, floor, belief, F, mean, var, rho_F, rho_1, rho_y, rho_yy):  # type: ignore[no-untyped-def]
    """Run EM on the first rounds ys (n, k) of one stream, and compute the statistics for `filter_and_learn`.

    With weights 1/t the statistics are plain means over the rounds. A pass with constant parameters, followed by one
    maximisation, is then an iteration of the Baum–Welch algorithm. The last pass uses the weights of
    `filter_and_learn`.
    """
    M = belief.shape[0]
    pred, ret, old = np.empty(M), np.empty((M, M)), np.empty(M)
    for iteration in range(passes + 1):
        belief[:] = 1.0 / M
        for t in range(ys.shape[0]):
            g = (t + 1.0) ** -(exponent if iteration == passes else 1.0)
            _step(ys[t], g, belief, F, mean, var, rho_F, rho_1, rho_y, rho_yy, pred, ret, old)
        if iteration < passes:
            _maximise(belief, rho_F, rho_1, rho_y, rho_yy, floor, F, mean, var)


@kernel()
def log_likelihood(ys, F, mean, var):  # type: ignore[no-untyped-def]
    """Return log p(y_1, ..., y_n) for the observations ys (n, k) of one stream, whose belief is uniform at first."""
    M = F.shape[0]
    belief, pred, ret = np.full(M, 1.0 / M), np.empty(M), np.empty((M, M))
    total = 0.0
    for t in range(ys.shape[0]):
        _predict(belief, F, pred, ret)
        total += _condition(pred, ys[t], mean, var, belief)
    return total
