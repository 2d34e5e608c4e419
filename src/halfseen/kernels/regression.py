"""Disjoint Bayesian linear regression, one per stream and arm (docs/mathematics.md, "The arms").

The posterior is carried as mean m (B, K, p) and covariance C = B_a⁻¹, nothing else: a rank-one update of both
costs O(p²) and there is no second copy of the same fact that could drift away from it. Of the symmetric C only
the upper triangle is kept, row by row, (B, K, p(p+1)/2): scoring is bound by reading it, so half the
bytes is twice the speed. Results are written into arrays of the caller's: handing a new one back costs a
Numba call more than all the arithmetic of a small problem.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.compiler import njit
from halfseen.kernels.linalg import KERNEL
from halfseen.kernels.prefetch import prefetch

PRECISE = 1e12


@njit(**KERNEL)
def score_arms(rows, mean, cov, features, means, variances):  # type: ignore[no-untyped-def]
    """Of every arm, the predicted reward cᵀm_a and its parameter variance cᵀC_a c; both (n, K), written in place."""
    n, arms, p = rows.shape[0], mean.shape[1], mean.shape[2]
    products, c = np.empty(cov.shape[2]), np.empty(p)
    for i in range(n):
        m, C = mean[rows[i]], cov[rows[i]]
        for j in range(p):
            c[j] = features[i, j]
        at = 0
        for j in range(p):
            products[at] = c[j] * c[j]
            for l in range(j + 1, p):  # noqa: E741
                products[at + l - j] = 2.0 * c[j] * c[l]
            at += p - j
        for a in range(arms):
            # cᵀCc = ⟨C, ccᵀ⟩: one long dot product an arm, which vectorises better than p short ones.
            quadratic = 0.0
            for j in range(C.shape[1]):
                quadratic += C[a, j] * products[j]
            predicted = 0.0
            for j in range(p):
                predicted += m[a, j] * c[j]
            means[i, a] = predicted
            variances[i, a] = max(quadratic, 0.0)


@njit(**KERNEL)
def score_known(rows, mean, features, means):  # type: ignore[no-untyped-def]
    """cᵀμ_a for arm parameters that are known; (n, K), written in place."""
    n, arms, p = rows.shape[0], mean.shape[1], mean.shape[2]
    for i in range(n):
        for a in range(arms):
            predicted = 0.0
            for j in range(p):
                predicted += mean[rows[i], a, j] * features[i, j]
            means[i, a] = predicted


@njit(**KERNEL)
def learn_rewards(rows, mean, cov, log_det, features, arms, rewards):  # type: ignore[no-untyped-def]
    """Fold rewards (n,) of the arms played (n,) into the posterior, in the order given.

    B_a += ccᵀ and f_a += rc of the paper's Algorithm 1, written for C = B_a⁻¹ and m = C f_a:
    with q = cᵀCc, C −= Cc(Cc)ᵀ/(1+q), m += Cc (r − cᵀm)/(1+q), and log|B_a| += log(1+q).

    One observation that makes the variance along c smaller by more than PRECISE leaves it with hardly a correct
    digit: such a row is left out. Returns the first row left out, or −1.
    """
    p = mean.shape[2]
    gain = np.empty(p)
    refused = -1
    for i in range(rows.shape[0]):
        b, a = rows[i], arms[i]
        after = min(i + 1, rows.shape[0] - 1)  # one arm of each stream: nothing the processor could foresee
        prefetch(cov, rows[after], arms[after])
        prefetch(mean, rows[after], arms[after])
        gain[:] = 0.0
        at = 0
        for j in range(p):
            c = features[i, j]
            image = cov[b, a, at] * c
            for l in range(j + 1, p):  # noqa: E741
                entry = cov[b, a, at + l - j]
                image += entry * features[i, l]
                gain[l] += entry * c
            gain[j] += image
            at += p - j
        predicted = 0.0
        quadratic = 0.0
        for j in range(p):
            predicted += mean[b, a, j] * features[i, j]
            quadratic += gain[j] * features[i, j]
        if not quadratic <= PRECISE:
            if refused < 0:
                refused = i
            continue
        denominator = 1.0 + max(quadratic, 0.0)
        step = (rewards[i] - predicted) / denominator
        root = 1.0 / math.sqrt(denominator)
        for j in range(p):
            mean[b, a, j] += gain[j] * step
            gain[j] *= root
        at = 0
        for j in range(p):
            for l in range(j, p):  # noqa: E741
                cov[b, a, at + l - j] -= gain[j] * gain[l]
            at += p - j
        log_det[b, a] += math.log(denominator)
    return refused
