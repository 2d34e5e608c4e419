"""How much past observations tell about the hidden coordinates (docs/mathematics.md, "Model health")."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from halfseen.kernels.random import Floats
from halfseen.models.linear_gaussian import LinearGaussianModel

_DOUBLINGS = 60  # the most doublings; 2^60 rounds are enough for any model to converge or diverge
_RIDGE = 1e-10
_DIVERGED = 1e60  # the recursion stops when an entry exceeds this


def marginal_covariance(D: Floats, Q: Floats, P0: Floats, rounds: int) -> Floats:
    """Return Cov(x_n) = DⁿP_0Dⁿᵀ + Σ_{j<n} D^jQD^jᵀ, without observations, by repeated squaring in O(d³ log n)."""
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
    """Return Cov(u | o) from the joint covariance of o, the first k coordinates, and u, the other coordinates."""
    o, cross = cov[:k, :k], cov[:k, k:]
    std = np.sqrt(np.maximum(np.diag(o), 0.0))
    scale = np.where(std > 0, std, 1.0)
    correlation = o / np.outer(scale, scale) + _RIDGE * np.eye(k)
    slopes = linalg.solve(correlation, cross / scale[:, None], assume_a="pos")
    conditional = cov[k:, k:] - (cross / scale[:, None]).T @ slopes
    return np.asarray(0.5 * (conditional + conditional.T))


def hidden_variance_explained(model: LinearGaussianModel, end_cov: Floats, rounds: int) -> Floats:
    """Return, for each hidden direction, the share of its variance that past observations explain, largest first.

    Let u be the hidden and o the observed coordinates. The shares are 1 − λ for the generalised eigenvalues λ of
    Cov(u | o_t, y_1..y_t) and Cov(u | o_t). They measure what the history tells about u beyond what o_t tells. A change
    of basis [I 0; M N] maps both covariances to N(·)Nᵀ and does not change λ. `end_cov` is the covariance P of
    the filter after `rounds` rounds.
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
