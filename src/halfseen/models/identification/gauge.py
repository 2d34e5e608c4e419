"""The gauge, one basis of the hidden coordinates among the many that explain y equally well.

The observations determine a model only up to changes of basis x → [I 0; M N] x with an invertible N. In the gauge, the
hidden coordinates u are replaced by u − Π_uo Π_oo⁻¹ o, where o are the observed coordinates and Π = E xxᵀ. The result
is uncorrelated with o. It is whitened and scaled to the mean variance of o. A prior that treats all coordinates alike
then has the same meaning in every fit.
"""

from __future__ import annotations

import numpy as np

from halfseen.models.results import Array

_MIN_VARIANCE = 1e-10  # a lower bound of the variance of a hidden direction, as a share of the largest variance


def gauge(second_moment: Array, observed: int) -> Array:
    """Return the matrix T (d, d) for which Tx is in the gauge, given second_moment = Π (d, d)."""
    d, k = len(second_moment), observed
    T = np.eye(d)
    if d == k:
        return T
    observed_moment = second_moment[:k, :k] + 1e-12 * max(np.trace(second_moment[:k, :k]) / k, 1e-300) * np.eye(k)
    slopes = np.linalg.solve(observed_moment, second_moment[:k, k:]).T
    residual = second_moment[k:, k:] - slopes @ second_moment[:k, k:]
    values, vectors = np.linalg.eigh(0.5 * (residual + residual.T))
    values = np.maximum(values, _MIN_VARIANCE * max(values[-1], 1e-300))
    stretch = (vectors / np.sqrt(values)).T * np.sqrt(np.trace(observed_moment) / k)
    T[k:, :k], T[k:, k:] = -stretch @ slopes, stretch
    return T
