"""The choice of one basis (a gauge) for the hidden coordinates, of the many that fit y equally well.

From y alone a model is identified up to x → [I 0; M N] x. Here the hidden part becomes the part that the observed
one does not explain, u − Π_uo Π_oo⁻¹ o with Π = E xxᵀ, whitened and scaled to the mean variance of the observed
coordinates. A prior that treats all coordinates alike then means the same for every fit.
"""

from __future__ import annotations

import numpy as np

from halfseen.models.results import Array

_FLAT = 1e-10  # a hidden direction of less than this share of the largest variance is not stretched further


def gauge(second_moment: Array, observed: int) -> Array:
    """T such that Tx has the basis above; second_moment is Π (d, d)."""
    d, k = len(second_moment), observed
    T = np.eye(d)
    if d == k:
        return T
    observed_moment = second_moment[:k, :k] + 1e-12 * max(np.trace(second_moment[:k, :k]) / k, 1e-300) * np.eye(k)
    slopes = np.linalg.solve(observed_moment, second_moment[:k, k:]).T
    rest = second_moment[k:, k:] - slopes @ second_moment[:k, k:]
    values, vectors = np.linalg.eigh(0.5 * (rest + rest.T))
    values = np.maximum(values, _FLAT * max(values[-1], 1e-300))
    stretch = (vectors / np.sqrt(values)).T * np.sqrt(np.trace(observed_moment) / k)
    T[k:, :k], T[k:, k:] = -stretch @ slopes, stretch
    return T
