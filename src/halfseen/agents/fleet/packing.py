"""Symmetric matrices as their upper triangles, row by row."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfseen.kernels.random import Ints

Array = NDArray[Any]


@cache
def _places(size: int) -> tuple[Ints, Ints]:
    """Which entries of the flat matrix are kept, and where among them each entry of the matrix is found."""
    rows, columns = np.triu_indices(size)
    found = np.empty((size, size), dtype=np.int64)
    found[rows, columns] = found[columns, rows] = np.arange(len(rows))
    return rows * size + columns, found.ravel()


def pack(matrices: Array) -> Array:
    """(…, p, p) as (…, p(p+1)/2)."""
    size = matrices.shape[-1]
    return matrices.reshape(*matrices.shape[:-2], size * size).take(_places(size)[0], axis=-1)


def unpack(triangles: Array, size: int) -> Array:
    """(…, p(p+1)/2) as (…, p, p)."""
    return triangles.take(_places(size)[1], axis=-1).reshape(*triangles.shape[:-1], size, size)


def grown(array: Array, count: int) -> Array:
    """The same rows, followed by zeros up to `count`."""
    longer = np.zeros((count, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
