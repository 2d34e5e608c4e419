"""Information-directed sampling."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from halfseen.choosers.sampled import Sampled
from halfseen.components import Choices, Learner, StreamBatch
from halfseen.kernels.information_directed import minimise_information_ratio
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import Numbers, positive


class InformationDirected(Sampled):
    """Information-directed sampling for arms whose rewards have different noise.

    The arm is drawn from the distribution p over the available arms that minimises the squared expected regret per
    unit of information, (Σ p_a Δ_a)² / Σ p_a g_a. Here Δ_a = max_b (m_b + width·std_b) − m_a is the distance from the
    mean of arm a to the highest upper confidence bound. g_a = ½ log(1 + std_a²/noise_a) is the information that a
    reward of arm a gives about its expected reward. At most two arms are needed to reach the minimum. Arms with equal
    mean and equal gain share their probability equally. Kirschner & Krause measure Δ_a from the lower confidence bound
    of the arm instead of its mean.

    Parameters
    ----------
    width : float
        Width of the upper confidence bounds, in standard deviations.

    References
    ----------
    Russo & Van Roy (2014). Learning to optimize via information-directed sampling. NeurIPS.
    Kirschner & Krause (2018). Information directed sampling and bandits with heteroscedastic noise. COLT.
    """

    weighs_noise = True

    def __init__(
        self, streams: StreamBatch, dimension: int, *, width: Annotated[float, Numbers(0.0, 1e100)] = 1.25
    ) -> None:
        self._width = positive("width", width, zero_allowed=True)

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        return self.constant_widths(self._width, rows, learner)

    def probabilities(self, choices: Choices) -> Floats:
        shares = np.empty_like(choices.means)
        minimise_information_ratio(
            choices.means, choices.variances, choices.widths, choices.noise_variances, choices.available, shares
        )
        return shares
