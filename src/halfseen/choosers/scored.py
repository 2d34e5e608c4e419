"""Play the highest score m_a + width_a·std_a·ζ_a, the draws ζ_a independent and of one distribution."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from halfseen.components import Choices, Chooser
from halfseen.kernels import choice
from halfseen.kernels.random import Floats, Keys, Purpose, normals


class Scored(Chooser):
    """The base of the choosers that differ only in their distribution, their widths and how they adjust a mean."""

    distribution: ClassVar[int]  # of ζ: POINT, NORMAL or HALF_NORMAL of kernels.choice

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.draw_distribution = cls.distribution if cls.adjusted_means is Scored.adjusted_means else None

    def adjusted_means(self, choices: Choices) -> Floats:
        """The predicted rewards as the choice uses them, (n, K)."""
        return choices.means

    def pick(self, choices: Choices, keys: Keys) -> None:
        noise = normals(keys, choices.rounds, Purpose.CHOICE, choices.means.shape[1])
        means, variances, widths = self.adjusted_means(choices), choices.variances, choices.widths
        choice.pick(means, variances, widths, self.distribution, noise, choices.available, choices.arms)

    def probabilities(self, choices: Choices) -> Floats:
        means, variances, widths = self.adjusted_means(choices), choices.variances, choices.widths
        shares = np.empty_like(means)
        choice.win_probabilities(means, variances, widths, self.distribution, choices.available, shares)
        return shares
