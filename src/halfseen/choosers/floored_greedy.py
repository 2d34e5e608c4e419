"""Play the arm that looks best, but every other one with at least some probability (Guo, Xu & Murphy, 2024)."""

from __future__ import annotations

import numpy as np

from halfseen.choosers.sampled import Sampled
from halfseen.components import Choices, Learner, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import positive


class FlooredGreedy(Sampled):
    """Each of the K arms available gets p, the best of them the rest, 1 − (K−1)p; equals share the rest equally.

    `floor` is p: a number, or "decaying" for t^(−1/3). Never above 1/K, so that the first round is uniform.
    """

    def __init__(self, streams: StreamBatch, dimension: int, *, floor: float | str = "decaying") -> None:
        if isinstance(floor, str) and floor != "decaying":
            raise invalid("floor", "a number or 'decaying'", repr(floor))
        self._fixed = None if isinstance(floor, str) else positive("floor", floor)

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        """p of every arm before it is held below 1/K, (n, K)."""
        p = rounds ** (-1.0 / 3.0) if self._fixed is None else np.full(len(rows), self._fixed)
        return np.repeat(p[:, None], learner.arms, axis=1)

    def probabilities(self, choices: Choices) -> Floats:
        there = choices.available
        scores = np.where(there, np.where(np.isnan(choices.means), -np.inf, choices.means), np.nan)
        best = scores == np.nanmax(scores, axis=1, keepdims=True)
        count = there.sum(axis=1, keepdims=True)
        p = np.minimum(choices.widths, 1.0 / count)
        rest = np.maximum(1.0 - count * p, 0.0)
        return np.where(there, p, 0.0) + np.where(best, rest / best.sum(axis=1, keepdims=True), 0.0)
