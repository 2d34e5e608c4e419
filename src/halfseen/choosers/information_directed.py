"""Information-directed sampling: pay as little squared regret as possible for what is learnt.

Play from the distribution over the available arms that minimises (Σ p_a Δ_a)² / Σ p_a g_a (Russo & Van Roy, 2014).
After Kirschner & Krause (2018), who weigh the noise of each arm, Δ_a = max_b (m_b + width·std_b) − m_a is how far the
mean of an arm is below the highest upper bound, and g_a = ½ log(1 + std_a²/noise_a) is what a reward of it would
tell about it. (They count Δ_a from the lower bound of the arm.) Two arms at most are needed.
"""

from __future__ import annotations

import numpy as np

from halfseen.choosers.sampled import Sampled
from halfseen.components import Choices, Learner, StreamBatch
from halfseen.kernels.information_directed import minimise_information_ratio
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import positive


class InformationDirected(Sampled):
    """`width` is the upper bounds'. Arms of equal mean and gain share their probability equally."""

    weighs_noise = True

    def __init__(self, streams: StreamBatch, dimension: int, *, width: float = 1.25) -> None:
        self._width = positive("width", width, zero_allowed=True)

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        return self.constant_widths(self._width, rows, learner)

    def probabilities(self, choices: Choices) -> Floats:
        shares = np.empty_like(choices.means)
        minimise_information_ratio(
            choices.means, choices.variances, choices.widths, choices.noise_variances, choices.available, shares
        )
        return shares
