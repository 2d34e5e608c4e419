"""Greedy choice in which every arm has a minimum probability."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from halfseen.choosers.sampled import Sampled
from halfseen.components import Choices, Learner, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import Numbers, positive


class FlooredGreedy(Sampled):
    """Greedy choice in which every arm has a minimum probability.

    Each of the K available arms has probability p, except the arm with the highest predicted reward, which has
    probability 1 − (K−1)p. If several arms have the highest prediction, they share the remaining probability equally.
    p is never larger than 1/K, so the first round is uniform if p decays. Propensities that are bounded away from 0 let
    a learner weigh rewards by inverse propensities, as `MeasurementError` does.

    Parameters
    ----------
    minimum_probability : float or "decaying"
        p, the smallest probability of an arm. "decaying" is t^(−1/3) in round t.

    References
    ----------
    Guo, Xu & Murphy (2024). Online learning in bandits with predicted context. AISTATS.
    """

    def __init__(
        self,
        streams: StreamBatch,
        dimension: int,
        *,
        minimum_probability: Annotated[float | str, Numbers(1e-100, 1.0)] = "decaying",
    ) -> None:
        if isinstance(minimum_probability, str) and minimum_probability != "decaying":
            raise invalid("minimum_probability", "a number or 'decaying'", repr(minimum_probability))
        decaying = isinstance(minimum_probability, str)
        self._fixed = None if decaying else positive("minimum_probability", minimum_probability)

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        """Return p for every arm, (n, K), not yet limited to 1/K."""
        p = rounds ** (-1.0 / 3.0) if self._fixed is None else np.full(len(rows), self._fixed)
        return np.repeat(p[:, None], learner.arms, axis=1)

    def probabilities(self, choices: Choices) -> Floats:
        available = choices.available
        scores = np.where(available, np.where(np.isnan(choices.means), -np.inf, choices.means), np.nan)
        best = scores == np.nanmax(scores, axis=1, keepdims=True)
        count = available.sum(axis=1, keepdims=True)
        p = np.minimum(choices.widths, 1.0 / count)
        remaining = np.maximum(1.0 - count * p, 0.0)
        return np.where(available, p, 0.0) + np.where(best, remaining / best.sum(axis=1, keepdims=True), 0.0)
