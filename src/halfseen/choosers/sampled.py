"""The base class of choosers that compute the probability of every arm and draw one arm."""

from __future__ import annotations

from halfseen.components import Choices, Chooser
from halfseen.kernels.choice import draw_arm
from halfseen.kernels.random import Keys, Purpose, uniforms


class Sampled(Chooser):
    """Draws an arm from the distribution that `probabilities` returns."""

    def pick(self, choices: Choices, keys: Keys) -> None:
        draw_arm(self.probabilities(choices), uniforms(keys, choices.decisions, Purpose.CHOICE, 1), choices.arms)
        undrawn = choices.arms < 0  # no probability is positive, because predictions have overflowed
        if undrawn.any():
            choices.arms[undrawn] = choices.available[undrawn].argmax(axis=1)
