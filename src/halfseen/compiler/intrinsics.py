"""What a processor does in an instruction or two and Python has no word for. As Python, they do the same."""

from __future__ import annotations

from typing import Any

import numpy as np

LINE = 64  # bytes that memory hands over at a time


def bits_of(x: Any) -> Any:
    """The 64 bits of a double, as an integer."""
    return np.float64(x).view(np.int64)


def double_of(bits: Any) -> Any:
    """The double with these bits."""
    return np.int64(bits).view(np.float64)


def multiply_high(a: Any, b: Any) -> Any:
    """The upper 64 bits of the 128-bit product."""
    return np.uint64(int(a) * int(b) >> 64)


def prefetch(array: Any, i: Any, j: Any) -> None:
    """Begin to load array[i, j], a row of doubles, into the cache: it changes when a number arrives, never which."""
