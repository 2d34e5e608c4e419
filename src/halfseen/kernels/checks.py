"""A check of input values for missing and too large entries."""

from __future__ import annotations

import math

from halfseen.kernels.arrays import Matrix
from halfseen.kernels.compiling import kernel
from halfseen.validation import LIMIT

COMPLETE, MISSING, EXCESSIVE = 0, 1, 2


@kernel()
def classify_values(values: Matrix) -> int:
    """Return EXCESSIVE if an entry of values (n, k) is beyond ±LIMIT, else MISSING if one is NaN, else COMPLETE."""
    result = COMPLETE
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            if abs(values[row, column]) > LIMIT:
                return EXCESSIVE
            if math.isnan(values[row, column]):
                result = MISSING
    return result
