"""Checks and shapes shared by the choosers that explore by a width."""

from __future__ import annotations

import numpy as np

from halfseen.components import Streams
from halfseen.errors import invalid
from halfseen.kernels.random import Floats
from halfseen.validation import positive


def fixed_width(width: object, streams: Streams) -> Floats:
    """One number as widths (B, K), made once: a round takes a slice of it."""
    return np.full((streams.count, streams.arms), positive("width", width, zero_allowed=True))


def as_wide(widths: Floats, arms: int) -> Floats:
    """The same one number for so many arms: arms may have been added since it was made."""
    return widths if widths.shape[1] == arms else np.full((len(widths), arms), widths[0, 0])


def probability(argument: str, value: object) -> float:
    number = positive(argument, value)
    if number >= 1:
        raise invalid(argument, repr(value), "a number between 0 and 1")
    return number
