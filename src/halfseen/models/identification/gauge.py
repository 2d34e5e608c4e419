"""One basis for the hidden coordinates, of the many that fit y equally well.

From y alone a model is known up to x → [I 0; M N] x. Here the hidden part becomes what the observed part does not
tell, u − Π_uo Π_oo⁻¹ o with Π = E xxᵀ, whitened and scaled to the mean variance of the observed coordinates: a prior
that treats all coordinates alike then means the same for every fit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from halfseen.kernels.em import Parameters

Array = NDArray[np.float64]
_FLAT = 1e-10  # a hidden direction of less than this share of the largest variance is not stretched further


def gauge(second_moment: Array, observed: int) -> Array:
    """T with x̃ = Tx in the basis above; second_moment is Π (d, d)."""
    d, k = len(second_moment), observed
    T = np.eye(d)
    if d == k:
        return T
    seen = second_moment[:k, :k] + 1e-12 * max(np.trace(second_moment[:k, :k]) / k, 1e-300) * np.eye(k)
    told = np.linalg.solve(seen, second_moment[:k, k:]).T
    rest = second_moment[k:, k:] - told @ second_moment[:k, k:]
    values, vectors = np.linalg.eigh(0.5 * (rest + rest.T))
    values = np.maximum(values, _FLAT * max(values[-1], 1e-300))
    stretch = (vectors / np.sqrt(values)).T * np.sqrt(np.trace(seen) / k)
    T[k:, :k], T[k:, k:] = -stretch @ told, stretch
    return T


def in_basis(model: Parameters, T: Array) -> Parameters:
    """The same model for x̃ = Tx."""
    back = np.linalg.inv(T)
    return Parameters(
        np.ascontiguousarray(T @ model.D @ back), _between(T, model.Q), model.R, T @ model.m0, _between(T, model.P0)
    )


def _between(T: Array, cov: Array) -> Array:
    moved = T @ cov @ T.T
    return np.asarray(0.5 * (moved + moved.T))
