"""A hidden Markov chain with Gaussian observations, filtered and learnt in one pass (docs/mathematics.md).

The recursions are Cappé's (2011) for online EM. ρ(·; q) is the running average of a statistic of the rounds so far,
given that the chain is in state q now; it moves on with the retrospective probabilities ret(l | q) of having come
from l. M states, k entries of y.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.compiler.decorators import helper, kernel

RARE = 1e-8  # a transition is never rarer: a zero would stay zero for ever
UNVISITED = 1e-6  # a state with a smaller share of the statistics keeps its mean and variances


@helper("f1 f2 f1 f2")
def _predict(belief, F, pred, ret):  # type: ignore[no-untyped-def]
    """pred_j = Σ_i b_i F_ij and ret(i | j) = b_i F_ij / pred_j."""
    M = belief.shape[0]
    for j in range(M):
        total = 0.0
        for i in range(M):
            total += belief[i] * F[i, j]
        pred[j] = total
        for i in range(M):
            ret[i, j] = belief[i] * F[i, j] / total


@helper("f1 f1 f2 f2 f1 -> f")
def _condition(pred, y, mean, var, belief):  # type: ignore[no-untyped-def]
    """b_j ∝ pred_j N(y; m_j, diag R_j) over the entries seen, worked out in logs; the log of the sum of the right."""
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


@helper("f1 f2 f f1")
def _carry(rho, ret, kept, old):  # type: ignore[no-untyped-def]
    """ρ(q) ← kept·Σ_l ρ(l) ret(l | q)."""
    M = rho.shape[0]
    for q in range(M):
        old[q] = rho[q]
    for q in range(M):
        total = 0.0
        for l in range(M):  # noqa: E741
            total += old[l] * ret[l, q]
        rho[q] = kept * total


@helper("f1 f2 f2 f2 f f3 f2 f3 f3 f1")
def _average(y, mean, var, ret, g, rho_F, rho_1, rho_y, rho_yy, old):  # type: ignore[no-untyped-def]
    """The statistics of transitions, visits, y and y² with one round more, of weight g.

    An entry not seen counts with what is expected of it in each state: m_j, and m_j² + R_j for its square.
    """
    M, k = mean.shape
    kept = 1.0 - g
    for j in range(M):
        for i in range(M):
            _carry(rho_F[i, j], ret, kept, old)
            rho_F[i, j, j] += g * ret[i, j]
        _carry(rho_1[j], ret, kept, old)
        rho_1[j, j] += g
        for i in range(k):
            first, second = y[i], y[i] * y[i]
            if math.isnan(first):
                first, second = mean[j, i], mean[j, i] * mean[j, i] + var[j, i]
            _carry(rho_y[j, i], ret, kept, old)
            _carry(rho_yy[j, i], ret, kept, old)
            rho_y[j, i, j] += g * first
            rho_yy[j, i, j] += g * second


@helper("f1 f3 f2 f3 f3 f f2 f2 f2")
def _maximise(belief, rho_F, rho_1, rho_y, rho_yy, floor, F, mean, var):  # type: ignore[no-untyped-def]
    """F = row-normalised S_F, m = S_y/S_1, R = S_yy/S_1 − m² + floor, where S = Σ_q ρ(·; q) b_q."""
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
            F[i, j] = (F[i, j] / total if total > 0.0 else 1.0 / M) * (1.0 - M * RARE) + RARE
    for j in range(M):
        visits = 0.0
        for q in range(M):
            visits += rho_1[j, q] * belief[q]
        if not visits > UNVISITED:
            continue
        for i in range(k):
            first, second = 0.0, 0.0
            for q in range(M):
                first += rho_y[j, i, q] * belief[q]
                second += rho_yy[j, i, q] * belief[q]
            mean[j, i] = first / visits
            var[j, i] = max(second / visits - mean[j, i] * mean[j, i], 0.0) + floor


@helper("f1 f f1 f2 f2 f2 f3 f2 f3 f3 f1 f2 f1")
def _step(y, g, belief, F, mean, var, rho_F, rho_1, rho_y, rho_yy, pred, ret, old):  # type: ignore[no-untyped-def]
    """Belief and statistics of one stream with one round more, of weight g."""
    _predict(belief, F, pred, ret)
    _condition(pred, y, mean, var, belief)
    _average(y, mean, var, ret, g, rho_F, rho_1, rho_y, rho_yy, old)


@kernel("i1 f2 i1 f f f2 f3 f3 f3 f4 f3 f4 f4")
def filter_and_learn(rows, ys, rounds, exponent, floor, belief, F, mean, var, rho_F, rho_1, rho_y, rho_yy):  # type: ignore[no-untyped-def]
    """One round of the streams in `rows`: belief b given y (NaN: not seen), statistics with weight t^−exponent, and
    the parameters from them. All arrays but the first three have the leading axis B and are changed in place.
    """
    M = belief.shape[1]
    pred, ret, old = np.empty(M), np.empty((M, M)), np.empty(M)
    for n in range(rows.shape[0]):
        b, g = rows[n], rounds[n] ** -exponent
        _step(
            ys[n], g, belief[b], F[b], mean[b], var[b], rho_F[b], rho_1[b], rho_y[b], rho_yy[b], pred, ret, old
        )  # fmt: skip
        _maximise(belief[b], rho_F[b], rho_1[b], rho_y[b], rho_yy[b], floor, F[b], mean[b], var[b])


@kernel("f2 i f f f1 f2 f2 f2 f3 f2 f3 f3")
def fit_start(ys, passes, exponent, floor, belief, F, mean, var, rho_F, rho_1, rho_y, rho_yy):  # type: ignore[no-untyped-def]
    """EM on the first rounds ys (n, k) of one stream, then the statistics that go on from there; all in place.

    With weights 1/t the running averages are those of all rounds, and a pass with the parameters held, followed by
    one maximisation, is an iteration of Baum and Welch's. The last pass has the weights of the rounds to come.
    """
    M = belief.shape[0]
    pred, ret, old = np.empty(M), np.empty((M, M)), np.empty(M)
    for turn in range(passes + 1):
        belief[:] = 1.0 / M
        for t in range(ys.shape[0]):
            g = (t + 1.0) ** -(exponent if turn == passes else 1.0)
            _step(ys[t], g, belief, F, mean, var, rho_F, rho_1, rho_y, rho_yy, pred, ret, old)
        if turn < passes:
            _maximise(belief, rho_F, rho_1, rho_y, rho_yy, floor, F, mean, var)


@kernel("f2 f2 f2 f2 -> f")
def log_likelihood(ys, F, mean, var):  # type: ignore[no-untyped-def]
    """log p(y_1..y_n) of one stream, from a uniform belief before the first round."""
    M = F.shape[0]
    belief, pred, ret = np.full(M, 1.0 / M), np.empty(M), np.empty((M, M))
    total = 0.0
    for t in range(ys.shape[0]):
        _predict(belief, F, pred, ret)
        total += _condition(pred, ys[t], mean, var, belief)
    return total
