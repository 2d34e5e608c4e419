"""Play the highest score m_a + width_a·std_a·ζ_a, the draws ζ_a independent and of one law."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from halfseen.component import Choices, Chooser
from halfseen.kernels import choice
from halfseen.randomness import Floats, Keys, Purpose, normals


class Scored(Chooser):
    """The base of the choosers that differ only in their law, in their widths and in how they judge a mean."""

    law: ClassVar[int]  # of ζ: POINT, NORMAL or HALF_NORMAL of kernels.choice

    def judge(self, means: Floats, variances: Floats) -> Floats:
        """The predicted rewards as the choice uses them, (n, K)."""
        return means

    def pick(self, choices: Choices, keys: Keys) -> None:
        rounds, arms, _, means, variances, widths, available, _ = choices
        noise = normals(keys, rounds, Purpose.CHOICE, means.shape[1])
        choice.pick(self.judge(means, variances), variances, widths, self.law, noise, available, arms)

    def probabilities(self, choices: Choices) -> Floats:
        _, _, _, means, variances, widths, available, _ = choices
        shares = np.empty_like(means)
        choice.win_probabilities(self.judge(means, variances), variances, widths, self.law, available, shares)
        return shares
