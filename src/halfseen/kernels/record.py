"""What is written down of rounds that were played."""

from __future__ import annotations

import numpy as np

from halfseen.kernels._types import Index, Matrix, Vector


def regrets(expected: Matrix, arms: Index) -> Vector:
    """How much less the arms (n,) pay in the mean than the best of expected (n, K); NaN where one of those is."""
    return np.asarray(expected.max(axis=1) - expected[np.arange(len(arms)), arms])


def distances(x: Matrix, y: Matrix) -> Vector:
    """‖x_i − y_i‖ of x (n, d) and y (n, p), whose coordinates beyond p are 0."""
    gap = x.copy()
    gap[:, : y.shape[1]] -= y
    return np.asarray(np.linalg.norm(gap, axis=1))
