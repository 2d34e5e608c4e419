"""Names for the array types that the kernels take, for the reader and the type checker."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Float: TypeAlias = float
Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Stack: TypeAlias = NDArray[np.float64]  # any leading axes before a matrix
Index: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


class Parameters(NamedTuple):
    """One model in canonical coordinates."""

    D: Matrix  # (d, d)
    Q: Matrix  # (d, d)
    R: Matrix  # Σ (k, k)
    m0: Vector  # (d,)
    P0: Matrix  # (d, d)
