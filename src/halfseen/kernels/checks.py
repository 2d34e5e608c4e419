"""A look at inputs before anything is changed by them."""

from __future__ import annotations

import math

from halfseen.kernels.arrays import Matrix
from halfseen.kernels.compiling import kernel
from halfseen.validation import LIMIT

COMPLETE, MISSING, EXCESSIVE = 0, 1, 2


@kernel()
def classify_values(values: Matrix) -> int:
    """COMPLETE, MISSING where an entry is NaN, or EXCESSIVE where one is beyond ±LIMIT (which outranks missing)."""
    found = COMPLETE
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            if abs(values[row, column]) > LIMIT:
                return EXCESSIVE
            if math.isnan(values[row, column]):
                found = MISSING
    return found
