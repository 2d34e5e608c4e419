"""The last few observations side by side: history without a model."""

from __future__ import annotations

import numpy as np

from halfseen.components import Estimator, StreamBatch
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import at_least


class Lagged(Estimator):
    """c_t = [y_t, y_{t−1}, …, y_{t−h}], h being `lags`; zeros before the first round.

    An entry not seen keeps the value last seen, or 0 before there was one.
    """

    coordinates = "none"
    state_names = ("recent_observations",)

    def __init__(self, streams: StreamBatch, *, lags: int = 2) -> None:
        blocks = at_least("lags", lags, 0) + 1
        self.dimension = streams.observed * blocks
        self.recent_observations = np.zeros((streams.count, blocks, streams.observed))

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        recent = self.recent_observations[rows]
        newest = observations if complete else np.where(np.isnan(observations), recent[:, 0], observations)
        recent = np.concatenate([newest[:, None], recent[:, :-1]], axis=1)
        self.recent_observations[rows] = recent
        return recent.reshape(len(rows), -1)
