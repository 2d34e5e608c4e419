"""The observation exactly as it was seen, with room for the propensity of the arm that will be chosen on it."""

from __future__ import annotations

import numpy as np

from halfseen.components import Estimator, Streams
from halfseen.kernels.random import Floats, Ints


class AsSeen(Estimator):
    """c_t = (y_t, π_t), for learners that weigh by π_t (`Learner.weighs_propensity`): NaN where an entry was not seen.

    Nothing is filled in, because an older value would have another error than the one the learner corrects for.
    """

    estimates = "nothing"

    def __init__(self, streams: Streams) -> None:
        self.dimension = streams.observed + 1

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        return np.concatenate([observations, np.ones((len(rows), 1))], axis=1)
