"""The base class of choosers that play the arm with the highest score."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from halfseen.choosers import reward_scale
from halfseen.components import Choices, Chooser
from halfseen.kernels import choice
from halfseen.kernels.random import Floats, Keys, Purpose, normals


class Scored(Chooser):
    """Plays the arm with the highest score m_a + width_a·std_a·ζ_a, where the draws ζ_a are independent.

    Subclasses define the widths, the distribution of the draws and, if they override `adjusted_means`, the means m_a.
    """

    distribution: ClassVar[int]  # of ζ_a: POINT, NORMAL or HALF_NORMAL of kernels.choice

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.draw_distribution = cls.distribution if cls.adjusted_means is Scored.adjusted_means else None

    def adjusted_means(self, choices: Choices) -> Floats:
        """Return the means m_a of the scores, (n, K). By default they are the predicted rewards."""
        return choices.means

    def with_penalties(self, choices: Choices) -> Choices:
        return super().with_penalties(choices) if choices.link is None else choices

    def pick(self, choices: Choices, keys: Keys) -> None:
        noise = normals(keys, choices.decisions, Purpose.CHOICE, choices.means.shape[1])
        means, variances, widths = self.adjusted_means(choices), choices.variances, choices.widths
        if choices.link is not None:
            assert choices.penalties is not None
            choices.arms[:] = reward_scale.pick(
                choices.link, means, widths * np.sqrt(variances), self.distribution, noise, choices.penalties,
                choices.available,
            )  # fmt: skip
            return
        choice.pick(means, variances, widths, self.distribution, noise, choices.available, choices.arms)

    def probabilities(self, choices: Choices) -> Floats:
        means, variances, widths = self.adjusted_means(choices), choices.variances, choices.widths
        if choices.link is not None:
            assert choices.penalties is not None
            return reward_scale.probabilities(
                choices.link, means, widths * np.sqrt(variances), self.distribution, choices.penalties,
                choices.available,
            )  # fmt: skip
        shares = np.empty_like(means)
        choice.win_probabilities(means, variances, widths, self.distribution, choices.available, shares)
        return shares
