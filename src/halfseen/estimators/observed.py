"""The observation as the context."""

from __future__ import annotations

import numpy as np

from halfseen.components import Estimator, StreamBatch
from halfseen.kernels.random import Floats, Ints


class Observed(Estimator):
    """The observation as the context: c_t = y_t.

    A missing entry is replaced by its last observed value, or by 0 if there is none.
    """

    coordinates = "canonical"
    state_names = ("last_observation",)

    def __init__(self, streams: StreamBatch) -> None:
        self.dimension = streams.observed
        self.last_observation = np.zeros((streams.count, streams.observed))

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        seen = (
            observations.copy()
            if complete
            else np.where(np.isnan(observations), self.last_observation[rows], observations)
        )
        if len(self.last_observation) == 1 == len(rows):
            self.last_observation = seen  # the caller gets the same array; neither side writes to it
        else:
            self.last_observation[rows] = seen
        return seen


class ObservedWithPropensity(Estimator):
    """The observation and the propensity: c_t = (y_t, π_t), for learners that set `weighs_propensity`.

    The policy writes the propensity π_t of the chosen arm into the last feature. Missing entries of y_t stay NaN: if
    older values replaced them, the learner would correct for the wrong noise.
    """

    coordinates = "none"

    def __init__(self, streams: StreamBatch) -> None:
        self.dimension = streams.observed + 1

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        return np.concatenate([observations, np.ones((len(rows), 1))], axis=1)
