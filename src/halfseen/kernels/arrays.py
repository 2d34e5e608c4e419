"""Names of the array types that kernels take, and the parameters of a model."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Float: TypeAlias = float
Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Stack: TypeAlias = NDArray[np.float64]  # matrices with one or more leading axes
Index: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


class Parameters(NamedTuple):
    """The parameters of one model in canonical coordinates."""

    D: Matrix  # (d, d), the transition
    Q: Matrix  # (d, d), the covariance of the process noise
    R: Matrix  # (k, k), Σ, the covariance of the observation noise
    m0: Vector  # (d,), the mean of x_0
    P0: Matrix  # (d, d), the covariance of x_0
