"""Names for the array types that the kernels take, for the reader and the type checker."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Float: TypeAlias = float
Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Stack: TypeAlias = NDArray[np.float64]  # any leading axes before a matrix
Index: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
