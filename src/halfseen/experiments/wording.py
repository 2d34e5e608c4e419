"""Numbers and settings in a few letters, the same in every table and sentence."""

from __future__ import annotations

import math
from collections.abc import Sized
from typing import Any

import numpy as np


def count(things: Sized | int, word: str) -> str:
    number = things if isinstance(things, int) else len(things)
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}{'es' if word.endswith('s') else 's'}"


def number(value: float, digits: int | None = None) -> str:
    if not math.isfinite(value):
        return "–"
    digits = (0 if abs(value) >= 100 else 2) if digits is None else digits
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # + 0.0: never "-0.00"


def interval(estimate: dict[str, float]) -> str:
    """An estimate with its interval, in numbers short enough for a table."""
    value, low, high = (number(estimate[name]) for name in ("value", "low", "high"))
    return value if low == "–" else f"{value} [{low}, {high}]"


def plain(value: Any) -> str:
    """A setting in a few letters: matrices by their shape (summary.json has the numbers)."""
    if isinstance(value, float):
        return f"{value:g}"
    if value is None or isinstance(value, str | int):
        return str(value)
    shape = np.shape(value)
    return "×".join(map(str, shape)) + " numbers" if shape else type(value).__name__


def spread(mean: float, error: float) -> str:
    """A mean with its standard error."""
    digits = 0 if abs(mean) >= 100 else 2
    return f"{number(mean, digits)} ± {number(error, digits)}"
