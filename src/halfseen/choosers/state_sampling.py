"""Thompson sampling over states: draw one from the belief, play the arm that pays most in it (Hong et al., 2020)."""

from __future__ import annotations

import numpy as np

from halfseen.components import Choices, Chooser, Learner, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.information_directed import draw
from halfseen.kernels.random import Floats, Ints, Keys, Purpose, uniforms
from halfseen.learners.known import Known


class StateSampling(Chooser):
    """The features are the belief over states. Arms that pay equally in a state share its probability."""

    def __init__(self, streams: StreamBatch, dimension: int) -> None:
        """Nothing to set."""

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        """What every arm pays in every state, (n, K, S): kept with the choice, since arms may be added later."""
        if not isinstance(learner, Known):
            raise invalid("learner", type(learner).__name__, "one that knows what every arm pays in every state")
        return learner.arm_params[rows]

    def pick(self, choices: Choices, keys: Keys) -> None:
        draw(self.probabilities(choices), uniforms(keys, choices.rounds, Purpose.CHOICE, 1), choices.arms)

    def probabilities(self, choices: Choices) -> Floats:
        pay = np.where(choices.available[:, :, None], choices.widths, -np.inf)
        best = pay == pay.max(axis=1, keepdims=True)
        shares = choices.features[:, None] * best / best.sum(axis=1, keepdims=True)
        return np.asarray(shares.sum(axis=2))
