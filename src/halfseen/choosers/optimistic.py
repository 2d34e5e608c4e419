"""Optimistic Thompson sampling: play the highest m_a + (bonus_a + width·|z_a|)·std_a, z_a ~ N(0, 1).

After May, Korda, Lee & Leslie (2012): draw scores as Thompson does, but never below their means, because playing a
worse arm for the low draw of a better one explores nothing. They take max(0, z_a). Half of those draws are 0; |z_a|
never is, so every arm explores in every round. With a `bonus` the arms are judged at the upper end of an interval, as
LinUCB does: where all arms are equally unknown it leaves the best mean in front, while a draw shuffles them.

With `foresight` an arm has a larger bonus where one try would settle much for long (`break_even`).
"""

from __future__ import annotations

import numpy as np

from halfseen.choosers.break_even import break_even
from halfseen.choosers.scored import Scored
from halfseen.choosers.widths import as_wide, fixed_width
from halfseen.components import Choices, Learner, Streams
from halfseen.kernels.choice import HALF_NORMAL
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import positive


class Optimistic(Scored):
    """`foresight` is how many rounds ahead count, as a share of those behind; 0 looks no further than this round."""

    law = HALF_NORMAL

    def __init__(
        self, streams: Streams, dimension: int, *, width: float = 0.85, bonus: float = 0.0, foresight: float = 0.0
    ) -> None:
        self._fixed = fixed_width(width, streams)
        self._bonus = positive("bonus", bonus, zero_allowed=True)
        self._foresight = positive("foresight", foresight, zero_allowed=True)
        self.weighs_noise = self.looks_ahead = self._foresight > 0.0

    def judge(self, choices: Choices) -> Floats:
        if not self.looks_ahead:
            return choices.means + self._bonus * np.sqrt(choices.variances) if self._bonus else choices.means
        assert choices.noise_variances is not None
        assert choices.reuse is not None
        rounds = self._foresight * choices.rounds[:, None] * choices.reuse
        bonus = np.maximum(self._bonus, break_even(choices.variances, choices.noise_variances, rounds))
        return np.asarray(choices.means + bonus * np.sqrt(choices.variances))

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        self._fixed = as_wide(self._fixed, learner.arms)
        return self._fixed[: len(rows)]
