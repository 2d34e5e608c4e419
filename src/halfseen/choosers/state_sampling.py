"""Thompson sampling over states: draw one from the belief, play the arm that pays most in it (Hong et al., 2020)."""

from __future__ import annotations

import numpy as np

from halfseen.choosers.sampled import Sampled
from halfseen.components import Choices, Learner, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.known import Known


class StateSampling(Sampled):
    """The features are the belief over states. Arms that pay equally in a state share its probability."""

    def __init__(self, streams: StreamBatch, dimension: int) -> None:
        """Nothing to set."""

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        """What every arm pays in every state, (n, K, S): kept with the choice, since arms may be added later."""
        if not isinstance(learner, Known):
            raise invalid("learner", "one that knows what every arm pays in every state", type(learner).__name__)
        return learner.arm_params[rows]

    def probabilities(self, choices: Choices) -> Floats:
        pay = np.where(choices.available[:, :, None], choices.widths, -np.inf)
        best = pay == pay.max(axis=1, keepdims=True)
        shares = choices.features[:, None] * best / best.sum(axis=1, keepdims=True)
        return np.asarray(shares.sum(axis=2))
