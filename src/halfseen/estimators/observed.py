"""The observation itself as the context."""

from __future__ import annotations

import numpy as np

from halfseen.components import Estimator, Streams
from halfseen.kernels.random import Floats, Ints


class Observed(Estimator):
    """c_t = y_t. An entry not seen keeps the value last seen, or 0 before there was one."""

    estimates = "canonical"
    state_names = ("last",)

    def __init__(self, streams: Streams) -> None:
        self.dimension = streams.observed
        self.last = np.zeros((streams.count, streams.observed))

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        seen = observations.copy() if complete else np.where(np.isnan(observations), self.last[rows], observations)
        if len(self.last) == 1 == len(rows):
            self.last = seen  # shared with whoever gets it as features: neither is written to again
        else:
            self.last[rows] = seen
        return seen
