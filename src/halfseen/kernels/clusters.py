"""k-means with the starts of Arthur & Vassilvitskii (2007), from uniforms drawn elsewhere."""

from __future__ import annotations

import numpy as np

from halfseen.compiler import njit
from halfseen.kernels.linalg import INNER, KERNEL, copy_into
from halfseen.linker import shared

# Sums in the order written: the same points give the same centres, wherever they are worked out.
_KERNEL, _INNER = KERNEL | {"fastmath": False}, INNER | {"fastmath": False}


@njit(**_INNER)
def _squared_distance(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(a.shape[0]):
        total += (a[j] - b[j]) * (a[j] - b[j])
    return total


@shared("f2 f1 f2 f1", **_INNER)
def _spread_out(points, draws, centres, distances):  # type: ignore[no-untyped-def]
    """The first centre is any point; each further one is drawn in proportion to its squared distance to them."""
    n = points.shape[0]
    for t in range(n):
        distances[t] = 1.0
    for c in range(centres.shape[0]):
        total = 0.0
        for t in range(n):
            total += distances[t]
        at, passed = 0, 0.0
        for t in range(n):
            if distances[t] > 0.0:
                at = t  # the last of them if rounding keeps the sum below the draw
                passed += distances[t]
                if passed > draws[c] * total:
                    break
        for j in range(points.shape[1]):  # a loop, here and below: assigning to a slice takes seconds to compile
            centres[c, j] = points[at, j]
        for t in range(n):
            distance = _squared_distance(points[t], centres[c])
            distances[t] = distance if c == 0 else min(distances[t], distance)


@shared("f2 f2 i1 -> f", **_INNER)
def _assign(points, centres, labels):  # type: ignore[no-untyped-def]
    """The nearest centre of every point; the sum of squared distances."""
    total = 0.0
    for t in range(points.shape[0]):
        nearest = np.inf
        labels[t] = 0
        for c in range(centres.shape[0]):
            distance = _squared_distance(points[t], centres[c])
            if distance < nearest:
                nearest, labels[t] = distance, c
        total += nearest
    return total


@njit(**_KERNEL)
def k_means(points, draws, steps, centres, labels):  # type: ignore[no-untyped-def]
    """Centres (M, p) of points (n, p), and the centre of every point: the best of as many starts as `draws` has rows.

    `draws` (starts, M) are uniform. Each start is improved by Lloyd's algorithm in at most so many `steps`; a centre
    that loses its last point stays where it is.
    """
    n, p = points.shape
    count = centres.shape[0]
    found, mine, sizes, distances = np.empty((count, p)), np.empty(n, np.int64), np.empty(count), np.empty(n)
    lowest = np.inf
    for start in range(draws.shape[0]):
        _spread_out(points, draws[start], found, distances)
        cost = _assign(points, found, mine)
        for _ in range(steps):
            sums = np.zeros((count, p))
            for c in range(count):
                sizes[c] = 0.0
            for t in range(n):
                sizes[mine[t]] += 1.0
                for j in range(p):
                    sums[mine[t], j] += points[t, j]
            for c in range(count):
                if sizes[c] > 0.0:
                    for j in range(p):
                        found[c, j] = sums[c, j] / sizes[c]
            before, cost = cost, _assign(points, found, mine)
            if not cost < before:
                break
        if start == 0 or cost < lowest:
            lowest = cost
            copy_into(centres, found)
            for t in range(n):
                labels[t] = mine[t]
