"""What is written down of rounds that were played."""

from __future__ import annotations

import math

import numpy as np

from halfseen.compiler.decorators import AS_WRITTEN, kernel
from halfseen.kernels._types import Index, Matrix, Vector

_LANES = 8


@kernel("f2 i1 f1", AS_WRITTEN)
def regrets(expected: Matrix, arms: Index, out: Vector) -> None:
    """How much less the arms (n,) pay in the mean than the best of expected (n, K); NaN where one of those is."""
    for i in range(expected.shape[0]):
        best = expected[i, 0]
        for a in range(1, expected.shape[1]):
            if expected[i, a] > best or math.isnan(expected[i, a]):
                best = expected[i, a]
        out[i] = best - expected[i, arms[i]]


@kernel("f2 f2 f1", AS_WRITTEN)
def distances(x: Matrix, y: Matrix, out: Vector) -> None:
    """‖x_i − y_i‖ of x (n, d) and y (n, p), whose coordinates beyond p are 0.

    Summed as NumPy sums up to 128 numbers, so that the digits are those of `np.linalg.norm`.
    """
    d, p = x.shape[1], y.shape[1]
    squares, lanes = np.empty(d), np.empty(_LANES)
    whole = d - d % _LANES
    for i in range(x.shape[0]):
        for j in range(p):
            squares[j] = (x[i, j] - y[i, j]) * (x[i, j] - y[i, j])
        for j in range(p, d):
            squares[j] = x[i, j] * x[i, j]
        total = 0.0
        if whole > 0:
            for r in range(_LANES):
                lanes[r] = squares[r]
            for j in range(_LANES, whole, _LANES):
                for r in range(_LANES):
                    lanes[r] += squares[j + r]
            low, high = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]), (lanes[4] + lanes[5]) + (lanes[6] + lanes[7])
            total = low + high
        for j in range(whole, d):
            total += squares[j]
        out[i] = math.sqrt(total)
