"""Do rewards come as predicted? Each is predicted from those before it (docs/mathematics.md, "Model health")."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halfseen.diagnostics.held_out import STRETCHES, with_intercept
from halfseen.diagnostics.record import Payments
from halfseen.kernels.random import Floats, Ints
from halfseen.kernels.sequential import predict_in_turn
from halfseen.learners.calibrated import ArmFit
from halfseen.statistics.distributions import normal_below

LEVELS = (0.5, 0.9)
BINS = 10


class Coverage(NamedTuple):
    """How often an interval that was to hold a share of the rewards did."""

    level: float
    share: float
    error: float  # standard, with the memory that errors of the context have


class Calibration(NamedTuple):
    transform: Floats  # (N,) Φ((r − predicted)/deviation): uniform if predictions are right
    coverages: tuple[Coverage, ...]

    @property
    def histogram(self) -> Floats:
        """Share of rewards in each tenth of what was predicted; a tenth if predictions are right."""
        counts, _ = np.histogram(self.transform, bins=BINS, range=(0.0, 1.0))
        return np.asarray(counts / max(1, len(self.transform)))


def calibrate(contexts: Floats, paid: Payments, fit: ArmFit) -> Calibration:
    """One-step-ahead predictions of all rewards by arms that start at the prior of `fit`, with its noise."""
    features = np.ascontiguousarray(with_intercept(contexts)[paid.rounds])
    rewards = paid.rewards - fit.origin
    means, variances = predict_in_turn(features, paid.arms, rewards, fit.noise, fit.prior, fit.baseline)
    transform = normal_below((rewards - means) / np.sqrt(variances))
    return Calibration(np.asarray(transform), tuple(coverage(transform, level, paid.rounds) for level in LEVELS))


def coverage(transform: Floats, level: float, rounds: Ints) -> Coverage:
    """The share of rewards inside the central interval; its error from sums over stretches of time, as rewards of
    neighbouring rounds share the error of the context."""
    inside = (np.abs(transform - 0.5) <= level / 2).astype(np.float64)
    stretch = (rounds - rounds.min()) * STRETCHES // (int(np.ptp(rounds)) + 1)
    sums = np.bincount(stretch, weights=inside - level, minlength=STRETCHES)
    spread = float(np.sqrt(STRETCHES * sums.var(ddof=1))) / len(inside)
    least = float(np.sqrt(level * (1 - level) / len(inside)))
    return Coverage(level, float(inside.mean()), max(spread, least))
