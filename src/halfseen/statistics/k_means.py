"""k-means with the starts of Arthur & Vassilvitskii (2007), from uniforms drawn elsewhere.

Sums are taken one number after the other: the same points give the same centres, wherever they are worked out.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Index, Matrix, Vector


def _squared_distances(points: Matrix, centres: Matrix) -> Matrix:
    """(n, M) of points (n, p) and centres (M, p)."""
    total = np.zeros((len(points), len(centres)))
    for j in range(points.shape[1]):
        gap = points[:, j, None] - centres[:, j]
        total += gap * gap
    return total


def _spread_out(points: Matrix, draws: Vector) -> Matrix:
    """The first centre is any point; each further one is drawn in proportion to its squared distance to them."""
    centres, distances = np.empty((len(draws), points.shape[1])), np.ones(len(points))
    for c, draw in enumerate(draws):
        passed = distances.cumsum()
        candidates = np.flatnonzero((distances > 0.0) & (passed > draw * passed[-1]))
        positive = np.flatnonzero(distances)
        # The last of them if rounding keeps the sum below the draw; any, if all points are centres already.
        at = candidates[0] if len(candidates) else positive[-1] if len(positive) else 0
        centres[c] = points[at]
        fresh = _squared_distances(points, centres[c : c + 1])[:, 0]
        distances = fresh if c == 0 else np.minimum(distances, fresh)
    return centres


def _assign(points: Matrix, centres: Matrix) -> tuple[Index, float]:
    """The nearest centre of every point; the sum of squared distances."""
    distances = _squared_distances(points, centres)
    labels = distances.argmin(axis=1)
    return labels, float(distances[np.arange(len(points)), labels].cumsum()[-1])


def k_means(points: Matrix, draws: Matrix, steps: int) -> tuple[Matrix, Index]:
    """Centres (M, p) of points (n, p), and the centre of every point: the best of as many starts as `draws` has rows.

    `draws` (starts, M) are uniform. Each start is improved by Lloyd's algorithm in at most so many `steps`; a centre
    that loses its last point stays where it is.
    """
    lowest = np.inf
    best: tuple[Matrix, Index] | None = None
    for start in draws:
        centres = _spread_out(points, start)
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
