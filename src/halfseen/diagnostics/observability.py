"""How much of the hidden coordinates the past of y reveals (docs/mathematics.md, "Model health")."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from halfseen.kernels.random import Floats
from halfseen.models.linear_gaussian import LinearGaussianModel

_DOUBLINGS = 60  # at most: 2^60 rounds are the long run of anything
_RIDGE = 1e-10
_DIVERGED = 1e60  # a context that explodes is followed no further


def marginal_covariance(D: Floats, Q: Floats, P0: Floats, rounds: int) -> Floats:
    """Cov(x_n) = DⁿP_0Dⁿᵀ + Σ_{j<n} D^jQD^jᵀ without observations, by squaring: O(d³ log n)."""
    total, power, summed = P0.copy(), D.copy(), Q.copy()
    left = rounds
    for _ in range(_DOUBLINGS):
        if left & 1:
            total = power @ total @ power.T + summed
        left >>= 1
        if not left or not max(np.abs(power).max(), np.abs(summed).max(), np.abs(total).max()) < _DIVERGED:
            break
        summed = power @ summed @ power.T + summed
        power = power @ power
    return np.asarray(0.5 * (total + total.T))


def _conditional_covariance(cov: Floats, k: int) -> Floats:
    """Cov(u | o) from the joint covariance of o, the first k coordinates, and u, the others."""
    o, cross = cov[:k, :k], cov[:k, k:]
    std = np.sqrt(np.maximum(np.diag(o), 0.0))
    scale = np.where(std > 0, std, 1.0)
    correlation = o / np.outer(scale, scale) + _RIDGE * np.eye(k)
    slopes = linalg.solve(correlation, cross / scale[:, None], assume_a="pos")
    rest = cov[k:, k:] - (cross / scale[:, None]).T @ slopes
    return np.asarray(0.5 * (rest + rest.T))


def hidden_variance_explained(model: LinearGaussianModel, end_cov: Floats, rounds: int) -> Floats:
    """For each hidden direction, the share of its variance that the past of y removes; largest first.

    1 − λ for the eigenvalues λ of Cov(u | o_t, y_1..y_t) relative to Cov(u | o_t): what history says about the hidden
    coordinates beyond what the observed ones say now. A change of basis [I 0; M N] takes both to N(·)Nᵀ and leaves λ
    as it is. `end_cov` is the filter's P after `rounds` rounds.
    """
    k, d = model.observed, model.latent
    if d == k:
        return np.zeros(0)
    p = model.canonical().model.arrays()
    before = _conditional_covariance(marginal_covariance(p.D, p.Q, p.P0, rounds), k)
    after = _conditional_covariance(end_cov, k)
    scale = np.sqrt(np.maximum(np.diag(before), 1e-300))
    unit = np.outer(scale, scale)
    left = linalg.eigh(after / unit, before / unit + 1e-12 * np.eye(d - k), eigvals_only=True)
    return np.asarray(np.clip(1.0 - left, 0.0, 1.0))
