"""The current and some previous observations as the context."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from halfseen.components import Estimator, StreamBatch
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import Integers, at_least


class Lagged(Estimator):
    """The current and the previous h observations: c_t = [y_t, y_{t−1}, …, y_{t−h}].

    Observations before the first round are 0. A missing entry is replaced by its last observed value, or by 0 if there
    is none.

    Parameters
    ----------
    lags : int
        h.
    """

    coordinates = "none"
    state_names = ("recent_observations",)

    def __init__(self, streams: StreamBatch, *, lags: Annotated[int, Integers(0, 1_000)] = 2) -> None:
        blocks = at_least("lags", lags, 0) + 1
        self.dimension = streams.observed * blocks
        self.recent_observations = np.zeros((streams.count, blocks, streams.observed))

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        recent = self.recent_observations[rows]
        current = observations if complete else np.where(np.isnan(observations), recent[:, 0], observations)
        recent = np.concatenate([current[:, None], recent[:, :-1]], axis=1)
        self.recent_observations[rows] = recent
        return recent.reshape(len(rows), -1)
