"""LinUCB: play the highest cᵀμ̂_a + α_t sqrt(cᵀB_a⁻¹c) (Chu et al., 2011)."""

from __future__ import annotations

import numpy as np

from halfseen.choosers.scored import Scored
from halfseen.choosers.widths import fixed_width, probability
from halfseen.components import Learner, Streams
from halfseen.errors import invalid
from halfseen.kernels.choice import POINT
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import at_least, positive


class Ucb(Scored):
    """`width` is α: a number; "horizon" for 1 + sqrt(½ ln(2TK/δ)) with T = `horizon`; or "self-normalised"
    for Abbasi-Yadkori, Pál & Szepesvári's (2011) σ sqrt(log|B_a/λ| − 2 ln δ) + sqrt(λ) S,
    S = `arm_norm` bounding ‖μ_a‖.
    """

    law = POINT

    def __init__(
        self,
        streams: Streams,
        dimension: int,
        *,
        width: float | str = "horizon",
        horizon: int = 10_000,
        noise_std: float = 1.0,
        delta: float = 0.1,
        arm_norm: float = 1.0,
    ) -> None:
        self._noise_std = positive("noise_std", noise_std, zero_allowed=True)
        self._delta = probability("delta", delta)
        self._arm_norm = positive("arm_norm", arm_norm, zero_allowed=True)
        self._horizon = at_least("horizon", horizon, 1)
        if isinstance(width, str) and width not in ("horizon", "self-normalised"):
            raise invalid("width", repr(width), "a number, 'horizon' or 'self-normalised'")
        self._width = width
        self._fixed = None if width == "self-normalised" else fixed_width(self._alpha(streams.arms), streams)

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        if self._fixed is not None:
            if self._fixed.shape[1] != learner.arms:  # arms were added
                self._fixed = np.full((len(self._fixed), learner.arms), self._alpha(learner.arms), dtype=np.float64)
            return self._fixed[: len(rows)]
        gained = np.asarray(learner.log_determinants(rows))
        bias = np.sqrt(learner.prior_precision) * self._arm_norm
        return np.asarray(self._noise_std * np.sqrt(gained - 2.0 * np.log(self._delta)) + bias)

    def widths_ahead(self, rows: Ints, rounds: Ints, count: int, learner: Learner) -> Floats | None:
        return None if self._fixed is None else self.widths(rows, rounds, learner)

    def _alpha(self, arms: int) -> object:
        if self._width != "horizon":
            return self._width
        return 1.0 + float(np.sqrt(0.5 * np.log(2.0 * (self._horizon * arms) / self._delta)))
