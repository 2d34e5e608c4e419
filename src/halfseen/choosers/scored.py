"""Play the highest score m_a + width_a·std_a·ζ_a, the draws ζ_a independent and of one distribution."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from halfseen.components import Choices, Chooser
from halfseen.errors import invalid
from halfseen.kernels import choice
from halfseen.kernels.random import Floats, Keys, Purpose, normals
from halfseen.validation import positive


class Scored(Chooser):
    """The base of the choosers that differ only in their distribution, in their widths and in how they judge a mean."""

    distribution: ClassVar[int]  # of ζ: POINT, NORMAL or HALF_NORMAL of kernels.choice

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.draw_distribution = cls.distribution if cls.judge is Scored.judge else None

    def judge(self, choices: Choices) -> Floats:
        """The predicted rewards as the choice uses them, (n, K)."""
        return choices.means

    def pick(self, choices: Choices, keys: Keys) -> None:
        noise = normals(keys, choices.rounds, Purpose.CHOICE, choices.means.shape[1])
        means, variances, widths = self.judge(choices), choices.variances, choices.widths
        choice.pick(means, variances, widths, self.distribution, noise, choices.available, choices.arms)

    def probabilities(self, choices: Choices) -> Floats:
        means, variances, widths = self.judge(choices), choices.variances, choices.widths
        shares = np.empty_like(means)
        choice.win_probabilities(means, variances, widths, self.distribution, choices.available, shares)
        return shares


def probability(argument: str, value: object) -> float:
    """An option that is a number between 0 and 1."""
    number = positive(argument, value)
    if number >= 1:
        raise invalid(argument, repr(value), "a number between 0 and 1")
    return number
