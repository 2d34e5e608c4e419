"""How far behind an arm may be for one try of it to be worth its price (docs/mathematics.md, "The choosers")."""

from __future__ import annotations

from functools import cache

import numpy as np

from halfseen.kernels.random import Floats

FARTHEST = 6.0  # standard deviations


@cache
def _table() -> tuple[Floats, Floats]:
    """log n and u with n·E(Z − u)⁺ = u, Z standard normal: monotone, so the inverse is one interpolation."""
    from scipy.special import ndtr

    u = np.geomspace(1e-3, FARTHEST, 600)
    gain = np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi) - u * ndtr(-u)
    return np.log(u / gain), u


def break_even(variances: Floats, noise_variances: Floats, rounds: Floats) -> Floats:
    """The gap, in standard deviations of an arm's mean, at which one try of it costs what it is expected to gain.

    One reward moves the mean by q·std·Z, q² = var/(var + noise). If it then overtakes the best arm, the difference is
    gained in each of `rounds` rounds: rounds·q·std·E(Z − gap/(q·std))⁺ against gap.
    """
    logs, u = _table()
    with np.errstate(divide="ignore"):
        best = np.interp(np.log(rounds), logs, u)
    return np.asarray(np.sqrt(variances / np.maximum(variances + noise_variances, 1e-300)) * best)
