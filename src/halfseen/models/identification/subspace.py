"""Subspace identification: a model by regression of the future of y on its past.

It follows Larimore (1983) and Van Overschee & De Moor (1994), and serves EM as a start beside the random one.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Parameters
from halfseen.models.results import Array

_RIDGE, _STABLE = 1e-2, 0.99
_LEAST_ROWS = 8


def subspace_start(y: Array, latent: int) -> Parameters | None:
    """A model of y (n, k), in units of its standard deviations, nan = not observed; None if y is too short for one.

    Stacked futures (y_{t+1}, y_{t+2}, ..) are regressed on stacked pasts (y_t, y_{t−1}, ..); the hidden coordinates
    are the leading principal components of the predicted future beyond what y_t alone predicts.
    """
    y = np.nan_to_num(y)
    n, k = y.shape
    hidden, blocks = latent - k, -(-latent // k) + 1
    rows = n - 2 * blocks + 1
    if rows < _LEAST_ROWS:
        return None
    past = np.hstack([y[blocks - 1 - i : blocks - 1 - i + rows] for i in range(blocks)])
    future = np.hstack([y[blocks - 1 + i : blocks - 1 + i + rows] for i in range(1, blocks + 1)])
    now = past[:, :k]
    predicted = past @ _regress(past, future)
    beyond = predicted - now @ _regress(now, predicted)
    left, sizes, _ = np.linalg.svd(beyond, full_matrices=False)
    if hidden > len(sizes):
        return None
    states = np.hstack([now, left[:, :hidden] * np.sqrt(rows)])
    before, after = states[:-1], states[1:]
    D = _regress(before, after).T
    radius = np.abs(np.linalg.eigvals(D)).max()
    if radius > _STABLE:
        D = D * (_STABLE / radius)
    error = after - before @ D.T
    Q = error.T @ error / len(error) + 0.02 * np.eye(latent)
    return Parameters(np.ascontiguousarray(D), Q, 0.05 * np.eye(k), np.zeros(latent), np.eye(latent))


def _regress(x: Array, target: Array) -> Array:
    """Slopes of a ridge regression."""
    ridge = _RIDGE * len(x) * np.eye(x.shape[1])
    return np.asarray(np.linalg.solve(x.T @ x + ridge, x.T @ target))
