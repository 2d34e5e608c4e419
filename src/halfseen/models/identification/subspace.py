"""Subspace identification, which estimates a model by regressing future observations on past ones.

The method follows Larimore (1983) and Van Overschee and De Moor (1994). EM uses the result as a start.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Parameters
from halfseen.models.results import Array

_RIDGE, _MAX_RADIUS = 1e-2, 0.99
_LEAST_ROWS = 8


def subspace_start(y: Array, latent: int) -> Parameters | None:
    """Return a canonical model of `latent` dimensions for y, or None if y is too short.

    The features in y (n, k) have standard deviation 1, and missing entries are NaN. The future (y_{t+1}, y_{t+2}, ...)
    is regressed on the past (y_t, y_{t−1}, ...). The hidden coordinates are the leading principal components of the
    part of this prediction that y_t alone does not explain.
    """
    y = np.nan_to_num(y, posinf=0.0)  # y is infinite where another series begins
    n, k = y.shape
    hidden, blocks = latent - k, -(-latent // k) + 1
    rows = n - 2 * blocks + 1
    if rows < _LEAST_ROWS:
        return None
    past = np.hstack([y[blocks - 1 - i : blocks - 1 - i + rows] for i in range(blocks)])
    future = np.hstack([y[blocks - 1 + i : blocks - 1 + i + rows] for i in range(1, blocks + 1)])
    now = past[:, :k]
    predicted = past @ _regress(past, future)
    unexplained = predicted - now @ _regress(now, predicted)
    left, singular, _ = np.linalg.svd(unexplained, full_matrices=False)
    if hidden > len(singular):
        return None
    states = np.hstack([now, left[:, :hidden] * np.sqrt(rows)])
    before, after = states[:-1], states[1:]
    D = _regress(before, after).T
    radius = np.abs(np.linalg.eigvals(D)).max()
    if radius > _MAX_RADIUS:
        D = D * (_MAX_RADIUS / radius)
    error = after - before @ D.T
    Q = error.T @ error / len(error) + 0.02 * np.eye(latent)
    return Parameters(np.ascontiguousarray(D), Q, 0.05 * np.eye(k), np.zeros(latent), np.eye(latent))


def _regress(x: Array, target: Array) -> Array:
    """Return the coefficients of a ridge regression of `target` on `x`."""
    ridge = _RIDGE * len(x) * np.eye(x.shape[1])
    return np.asarray(np.linalg.solve(x.T @ x + ridge, x.T @ target))
