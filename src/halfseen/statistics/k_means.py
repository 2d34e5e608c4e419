"""k-means with the initialisation of Arthur & Vassilvitskii (2007), k-means++.

The caller passes the uniform random numbers. Sums are computed one term after another, so that the same points give
the same centres on every machine.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Index, Matrix, Vector


def _squared_distances(points: Matrix, centres: Matrix) -> Matrix:
    """Return the squared distances (n, M) between points (n, p) and centres (M, p)."""
    total = np.zeros((len(points), len(centres)))
    for j in range(points.shape[1]):
        gap = points[:, j, None] - centres[:, j]
        total += gap * gap
    return total


def _initial_centres(points: Matrix, draws: Vector) -> Matrix:
    """Draw initial centres from the points.

    The first centre is drawn uniformly. Each further one is drawn with a probability proportional to its squared
    distance to the nearest centre.
    """
    centres, distances = np.empty((len(draws), points.shape[1])), np.ones(len(points))
    for c, draw in enumerate(draws):
        passed = distances.cumsum()
        candidates = np.flatnonzero((distances > 0.0) & (passed > draw * passed[-1]))
        positive = np.flatnonzero(distances)
        # Rounding can leave no candidate. Then take the last point that is not a centre, or point 0 if all are.
        at = candidates[0] if len(candidates) else positive[-1] if len(positive) else 0
        centres[c] = points[at]
        fresh = _squared_distances(points, centres[c : c + 1])[:, 0]
        distances = fresh if c == 0 else np.minimum(distances, fresh)
    return centres


def _assign(points: Matrix, centres: Matrix) -> tuple[Index, float]:
    """Return the index of the nearest centre of every point, and the sum of squared distances."""
    distances = _squared_distances(points, centres)
    labels = distances.argmin(axis=1)
    return labels, float(distances[np.arange(len(points)), labels].cumsum()[-1])


def k_means(points: Matrix, draws: Matrix, steps: int) -> tuple[Matrix, Index]:
    """Cluster points (n, p). Return the centres (M, p) and the index of the centre of every point.

    `draws` (starts, M) are uniform random numbers, one row per start. From each start, Lloyd's algorithm takes at most
    `steps` steps. The result with the smallest sum of squared distances is returned. A centre without points does not
    move.
    """
    lowest = np.inf
    best: tuple[Matrix, Index] | None = None
    for start in draws:
        centres = _initial_centres(points, start)
        labels, cost = _assign(points, centres)
        for _ in range(steps):
            sums, sizes = np.zeros_like(centres), np.bincount(labels, minlength=len(centres))
            np.add.at(sums, labels, points)
            centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
            before = cost
            labels, cost = _assign(points, centres)
            if not cost < before:
                break
        if best is None or cost < lowest:
            lowest, best = cost, (centres, labels)
    assert best is not None
    return best
