"""Play an arm drawn from a distribution over the available arms that the chooser works out."""

from __future__ import annotations

from halfseen.components import Choices, Chooser
from halfseen.kernels.choice import draw_arm
from halfseen.kernels.random import Keys, Purpose, uniforms


class Sampled(Chooser):
    """The base of the choosers that draw one arm with the probabilities of `probabilities`."""

    def pick(self, choices: Choices, keys: Keys) -> None:
        draw_arm(self.probabilities(choices), uniforms(keys, choices.rounds, Purpose.CHOICE, 1), choices.arms)
