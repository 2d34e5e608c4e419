"""Number, mean and sum of squared deviations of rewards, updated reward by reward (Welford's algorithm)."""

from __future__ import annotations

from typing import Any

import numpy as np

from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import LIMIT

_ROUNDING = 1.001  # factor by which moments may exceed their exact values because of rounding


def add_rewards(counts: Ints, means: Floats, squares: Floats, at: Any, rewards: Floats) -> None:
    """Add rewards (n,) to the moments at the index `at`, which selects n different entries of the arrays."""
    counts[at] += 1
    deviations = rewards - means[at]
    means[at] += deviations / counts[at]
    squares[at] += deviations * (rewards - means[at])


def replace_rewards(counts: Ints, means: Floats, squares: Floats, at: Any, old: Any, new: Any) -> None:
    """Replace the rewards `old`, which `add_rewards` has added, by the rewards `new`."""
    change, before = new - old, np.array(means[at])
    means[at] += change / counts[at]
    squares[at] = np.maximum(squares[at] + change * (new - means[at] + old - before), 0.0)


def check_moments(part: str, counts: Ints, means: Floats, squares: Floats) -> None:
    """Raise an error if a loaded state contains moments that no rewards can have."""
    largest = np.where(counts > 0, _ROUNDING * LIMIT, 0.0)
    if not ((np.abs(means) <= largest) & (squares >= 0.0) & (squares <= counts * largest * LIMIT)).all():
        raise invalid(f"state '{part}'", "moments of the counted rewards", "other numbers")
