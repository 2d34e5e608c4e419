"""A look at inputs before anything is changed by them."""

from __future__ import annotations

import math

from numba import njit

from halfseen.kernels._types import Matrix
from halfseen.kernels.linalg import KERNEL

COMPLETE, MISSING, INFINITE = 0, 1, 2


@njit(**KERNEL)
def survey(values: Matrix) -> int:
    """COMPLETE, MISSING where an entry is NaN, or INFINITE where one is ±inf (which outranks missing)."""
    found = COMPLETE
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            if math.isinf(values[row, column]):
                return INFINITE
            if math.isnan(values[row, column]):
                found = MISSING
    return found
