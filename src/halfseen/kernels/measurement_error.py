"""Regression on a context observed with noise of known covariance (docs/mathematics.md, "Measurement-error bandit").

V and W are (B, K, p, p), f and θ (theta) are (B, K, p): see `update_corrected`. The noise covariance Σ is (B, p, p),
and `rewarded` (B,) is the number of rewards of each stream. Features are y and, in the last column, the propensity π
of the arm played.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.compiling import FUSED, kernel

MAX_GROWTH = 1e12  # the largest factor by which one reward may increase a diagonal entry of V


@kernel()
def _cholesky(A, L):  # type: ignore[no-untyped-def]
    """Compute the lower triangular L (p, p) with LLᵀ = A. Return False if A is not positive definite."""
    p = A.shape[0]
    for i in range(p):
        for j in range(i + 1):
            total = A[i, j]
            for r in range(j):
                total -= L[i, r] * L[j, r]
            if i > j:
                L[i, j] = total / L[j, j]
            elif total > 1e-14 * A[i, i]:
                L[i, i] = math.sqrt(total)
            else:
                return False
    return True


@kernel()
def _solve(L, b, x):  # type: ignore[no-untyped-def]
    """Compute the solution x (p,) of LLᵀx = b."""
    p = b.shape[0]
    for i in range(p):
        total = b[i]
        for j in range(i):
            total -= L[i, j] * x[j]
        x[i] = total / L[i, i]
    for i in range(p - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, p):
            total -= L[j, i] * x[j]
        x[i] = total / L[i, i]


@kernel()
def _estimate(V, W, f, corrected, safety, A, L, theta):  # type: ignore[no-untyped-def]
    """Compute θ = (V − W)⁻¹f if `corrected` and V − W ⪰ safety·V, else θ = V⁻¹f. A and L (p, p) are scratch."""
    p = f.shape[0]
    if corrected:
        for i in range(p):
            for j in range(p):
                A[i, j] = (1.0 - safety) * V[i, j] - W[i, j]
        if _cholesky(A, L):
            for i in range(p):
                for j in range(p):
                    A[i, j] = V[i, j] - W[i, j]
            if _cholesky(A, L):
                _solve(L, f, theta)
                return
    if _cholesky(V, L):
        _solve(L, f, theta)


@kernel()
def estimate_arms(rows, V, W, f, rewarded, burn_in, safety, theta):  # type: ignore[no-untyped-def]
    """Compute θ_a of every arm of the streams in `rows` (n,)."""
    p = f.shape[2]
    A, L = np.empty((p, p)), np.empty((p, p))
    for b in rows:
        for a in range(f.shape[1]):
            _estimate(V[b, a], W[b, a], f[b, a], rewarded[b] >= burn_in, safety, A, L, theta[b, a])


@kernel()
def score_observed(rows, theta, features, means):  # type: ignore[no-untyped-def]
    """Write θ_aᵀy, summed over the observed entries of y, to `means` (n, K). The last feature, π, is not used."""
    p = theta.shape[2]
    for i in range(rows.shape[0]):
        for a in range(theta.shape[1]):
            total = 0.0
            for j in range(p):
                if not math.isnan(features[i, j]):
                    total += theta[rows[i], a, j] * features[i, j]
            means[i, a] = total


@kernel(FUSED)  # w(y_i y_j) is computed as written, so that V stays symmetric
def update_corrected(rows, V, W, f, rewarded, theta, noise, burn_in, safety, features, arms, rewards):  # type: ignore[no-untyped-def]
    """Update the arms played (n,) with rewards (n,) on features (n, p + 1), row by row.

    V_a += w yyᵀ, W_a += w Σ and f_a += w r y over the observed entries of y, with w = 1/π, and then θ_a is computed. A
    reward that would increase a diagonal entry of V by a factor of more than MAX_GROWTH is refused. Returns the index
    of the first reward that was refused, or −1.
    """
    n, p = rows.shape[0], f.shape[2]
    A, L = np.empty((p, p)), np.empty((p, p))
    y, seen = np.empty(p), np.empty(p, np.bool_)
    refused = -1
    for i in range(n):
        b, a = rows[i], arms[i]
        w = 1.0 / features[i, p]
        accepted = True
        for j in range(p):
            seen[j] = not math.isnan(features[i, j])
            y[j] = features[i, j] if seen[j] else 0.0
            accepted = accepted and w * y[j] * y[j] <= MAX_GROWTH * V[b, a, j, j]
        if not accepted:
            if refused < 0:
                refused = i
            continue
        for j in range(p):
            f[b, a, j] += w * y[j] * rewards[i]
            for l in range(p):  # noqa: E741
                V[b, a, j, l] += w * (y[j] * y[l])
                if seen[j] and seen[l]:
                    W[b, a, j, l] += w * noise[b, j, l]
        rewarded[b] += 1
        corrected = rewarded[b] >= burn_in
        if rewarded[b] == burn_in:  # the estimates of all arms are corrected from this reward on
            for other in range(f.shape[1]):
                _estimate(V[b, other], W[b, other], f[b, other], corrected, safety, A, L, theta[b, other])
        else:
            _estimate(V[b, a], W[b, a], f[b, a], corrected, safety, A, L, theta[b, a])
    return refused
