"""What users hand over, as checked arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen.errors import HalfseenError, invalid
from halfseen.kernels.checks import LIMIT
from halfseen.randomness import Floats

_FLOAT64, _ARRAY = np.dtype(np.float64), np.ndarray


def real_numbers(argument: str, value: ArrayLike) -> Floats:
    """A fresh float64 array; NaN and infinities are allowed, None and masked entries become NaN."""
    if isinstance(value, np.ma.MaskedArray):
        value = np.ma.filled(value.astype(np.float64), np.nan)
    try:
        array = np.asarray(value)
        if array.dtype.kind in "fiubO":
            return np.array(array, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        pass
    raise invalid(argument, type(value).__name__, "an array of real numbers")


def listed(argument: str, items: Iterable[Any], wanted: str) -> list[Any]:
    if isinstance(items, np.ndarray):
        items = items.tolist()
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise invalid(argument, repr(items), wanted)
    return list(items)


def numbers(argument: str, value: ArrayLike, wanted: str) -> Floats:
    if type(value) is np.ndarray and value.dtype == np.float64:
        return value if value.flags.carray else value.copy()  # kernels take C arrays, and some write into them
    try:
        return real_numbers(argument, value)
    except (HalfseenError, OverflowError):
        raise invalid(argument, repr(value), wanted) from None


def number(argument: str, value: ArrayLike) -> float:
    array = numbers(argument, value, f"a number within ±{LIMIT:g}")
    if array.ndim:
        raise invalid(argument, repr(value), f"a number within ±{LIMIT:g}")
    return float(array)


def vector(argument: str, value: ArrayLike, length: int) -> Floats:
    """`length` numbers as an array (length,)."""
    if type(value) is _ARRAY and value.dtype is _FLOAT64 and value.shape == (length,) and value.flags.carray:
        return value  # the usual case, at a quarter of the price of what follows
    array = numbers(argument, value, f"{length} numbers")
    if array.shape != (length,):
        raise invalid(argument, f"shape {np.shape(value)}", f"{length} numbers")
    return array


def row(argument: str, value: ArrayLike, length: int) -> Floats:
    """`length` numbers as an array (1, length)."""
    if type(value) is _ARRAY and value.dtype is _FLOAT64 and value.shape == (length,) and value.flags.carray:
        return value[None]
    return vector(argument, value, length)[None]


def table(argument: str, value: ArrayLike, columns: int) -> Floats:
    array = numbers(argument, value, f"a table of {columns} columns")
    if array.ndim != 2 or array.shape[1] != columns:
        raise invalid(argument, f"shape {array.shape}", f"a table of {columns} columns")
    return array
