"""LinUCB."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from halfseen.choosers.scored import Scored
from halfseen.components import Learner, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.choice import POINT
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import Integers, Numbers, at_least, positive, probability


class Ucb(Scored):
    """LinUCB: play the arm with the highest upper confidence bound.

    The upper confidence bound of arm a is cᵀμ̂_a + α_t sqrt(cᵀB_a⁻¹c). It is high if the predicted reward is high or if
    the arm has rarely been played in similar contexts. The choice is random only between arms with equal bounds.

    Parameters
    ----------
    width : float, "horizon" or "self-normalised"
        α_t. "horizon" is the constant 1 + sqrt(½ ln(2TK/δ)) for T rounds (Chu et al.). "self-normalised" is
        σ sqrt(log|B_a/λ| − 2 ln δ) + sqrt(λ) S (Abbasi-Yadkori et al.).
    horizon : int
        T, the number of rounds. Used by "horizon".
    noise_std : float
        σ, the standard deviation of the reward noise. Used by "self-normalised".
    delta : float
        δ, the probability with which the confidence bounds may fail.
    arm_norm : float
        S, an upper bound of the norms ‖μ_a‖. Used by "self-normalised".

    References
    ----------
    Chu, Li, Reyzin & Schapire (2011). Contextual bandits with linear payoff functions. AISTATS.
    Abbasi-Yadkori, Pál & Szepesvári (2011). Improved algorithms for linear stochastic bandits. NeurIPS.
    """

    distribution = POINT

    def __init__(
        self,
        streams: StreamBatch,
        dimension: int,
        *,
        width: Annotated[float | str, Numbers(0.0, 1e100)] = "horizon",
        horizon: Annotated[int, Integers(1, 1_000_000_000)] = 10_000,
        noise_std: Annotated[float, Numbers(0.0, 1e100)] = 1.0,
        delta: Annotated[float, Numbers(1e-100, 1.0)] = 0.1,
        arm_norm: Annotated[float, Numbers(0.0, 1e100)] = 1.0,
    ) -> None:
        self._noise_std = positive("noise_std", noise_std, zero_allowed=True)
        self._delta = probability("delta", delta)
        self._arm_norm = positive("arm_norm", arm_norm, zero_allowed=True)
        self._horizon = at_least("horizon", horizon, 1)
        if isinstance(width, str) and width not in ("horizon", "self-normalised"):
            raise invalid("width", "a number, 'horizon' or 'self-normalised'", repr(width))
        self._width = width if isinstance(width, str) else positive("width", width, zero_allowed=True)
        self._arms, self._alpha = streams.arms, self._alpha_for(streams.arms)

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        if self._width != "self-normalised":
            if self._arms != learner.arms:  # arms were added
                self._arms, self._alpha = learner.arms, self._alpha_for(learner.arms)
            return self.constant_widths(self._alpha, rows, learner)
        log_determinants = np.asarray(learner.log_determinants(rows))
        bias = np.sqrt(learner.prior_precision) * self._arm_norm
        return np.asarray(self._noise_std * np.sqrt(log_determinants - 2.0 * np.log(self._delta)) + bias)

    def widths_for_rounds(self, rows: Ints, rounds: Ints, count: int, learner: Learner) -> Floats | None:
        return None if self._width == "self-normalised" else self.widths(rows, rounds, learner)

    def _alpha_for(self, arms: int) -> float:
        if not isinstance(self._width, str):
            return self._width
        return 1.0 + float(np.sqrt(0.5 * np.log(2.0 * (self._horizon * arms) / self._delta)))
