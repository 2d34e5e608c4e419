"""Thompson sampling (lines 7–10 of the paper's Algorithm 1)."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from halfseen.choosers.scored import Scored
from halfseen.components import Learner, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.choice import NORMAL
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import Numbers, positive, probability


class Thompson(Scored):
    """Thompson sampling for linear rewards.

    The algorithm draws arm parameters μ̃_a ~ N(μ̂_a, v_t² B_a⁻¹) and plays the arm with the highest cᵀμ̃_a. Drawing
    parameters would need a matrix factorisation per arm. As the arms are independent and share the context c, the
    scores cᵀμ̂_a + v_t sqrt(cᵀB_a⁻¹c) z_a with z_a ~ N(0, 1) have the same distribution as the scores cᵀμ̃_a. They cost
    only O(p²) per arm.

    Parameters
    ----------
    width : float or "theory"
        v_t, by which the posterior standard deviations are multiplied. "theory" is the value of the paper's Theorem 1,
        v_t = σ sqrt(9 d ln(t/δ)).
    noise_std : float
        σ, the standard deviation of the reward noise. Used by "theory".
    delta : float
        δ, the probability with which the regret bound may fail. Used by "theory".

    References
    ----------
    Agrawal & Goyal (2013). Thompson sampling for contextual bandits with linear payoffs. ICML.
    """

    distribution = NORMAL

    def __init__(
        self,
        streams: StreamBatch,
        dimension: int,
        *,
        width: Annotated[float | str, Numbers(0.0, 1e100)] = 1.0,
        noise_std: Annotated[float, Numbers(0.0, 1e100)] = 1.0,
        delta: Annotated[float, Numbers(1e-100, 1.0)] = 0.1,
    ) -> None:
        self._dimension = dimension
        self._noise_std = positive("noise_std", noise_std, zero_allowed=True)
        self._delta = probability("delta", delta)
        if isinstance(width, str) and width != "theory":
            raise invalid("width", "a number or 'theory'", repr(width))
        self._width = None if isinstance(width, str) else positive("width", width, zero_allowed=True)

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        if self._width is not None:
            return self.constant_widths(self._width, rows, learner)
        v = self._noise_std * np.sqrt(9.0 * self._dimension * np.log(rounds / self._delta))
        return np.repeat(v[:, None], learner.arms, axis=1)

    def widths_for_rounds(self, rows: Ints, rounds: Ints, count: int, learner: Learner) -> Floats:
        if self._width is not None:
            return self.widths(rows, rounds, learner)
        return np.stack([self.widths(rows, rounds + t, learner) for t in range(count)], axis=1)
