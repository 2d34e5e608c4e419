"""The estimate of the measurement-error bandit as its authors define it, with the noise added for every arm."""

from __future__ import annotations

import numpy as np


def authors_estimate(
    ys: np.ndarray, arms: np.ndarray, rewards: np.ndarray, propensities: np.ndarray, noise: np.ndarray, count: int
) -> np.ndarray:
    """Return θ_a = (V_a − W_a)⁻¹ b_a (K, k) for every arm.

    V_a = I + Σ w yyᵀ and b_a = Σ w r y over the rounds of arm a, with w = (1/K)/π, and W_a = nΣ/K.
    """
    n, k = ys.shape
    theta = np.empty((count, k))
    for arm in range(count):
        V, W, b = np.eye(k), np.zeros((k, k)), np.zeros(k)
        for t in range(n):
            W += noise / count
            if arms[t] == arm:
                w = (1 / count) / propensities[t]
                V += w * np.outer(ys[t], ys[t])
                b += w * rewards[t] * ys[t]
        theta[arm] = np.linalg.solve(V - W, b)
    return theta
