"""The observation itself as the context, alone or with the propensity of the arm chosen on it."""

from __future__ import annotations

import numpy as np

from halfseen.components import Estimator, StreamBatch
from halfseen.kernels.random import Floats, Ints


class Observed(Estimator):
    """c_t = y_t. An entry not seen keeps the value last seen, or 0 before there was one."""

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
            self.last_observation = seen  # shared with whoever gets it as features: neither is written to again
        else:
            self.last_observation[rows] = seen
        return seen


class ObservedWithPropensity(Estimator):
    """c_t = (y_t, π_t), NaN where an entry was not seen, for learners that weigh by π_t (`Learner.weighs_propensity`).

    π_t is the probability of the arm chosen on the rest, and is filled in by the policy. Nothing else is filled in,
    because an older value would have another error than the one the learner corrects for.
    """

    coordinates = "none"

    def __init__(self, streams: StreamBatch) -> None:
        self.dimension = streams.observed + 1

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        return np.concatenate([observations, np.ones((len(rows), 1))], axis=1)
