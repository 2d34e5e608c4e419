"""Optimistic Thompson sampling: play the highest m_a + (bonus + width·|z_a|)·std_a, z_a ~ N(0, 1).

After May, Korda, Lee & Leslie (2012): draw scores as Thompson does, but never below their means, because playing a
worse arm for the low draw of a better one explores nothing. They take max(0, z_a). Half of those draws are 0; |z_a|
never is, so every arm explores in every round. With a `bonus` the arms are judged at the upper end of an interval, as
LinUCB does: where all arms are equally unknown it leaves the best mean in front, while a draw shuffles them.
"""

from __future__ import annotations

import numpy as np

from halfseen.choosers.scored import Scored
from halfseen.choosers.widths import as_wide, fixed_width
from halfseen.component import Learner, Streams, positive
from halfseen.kernels.choice import HALF_NORMAL
from halfseen.randomness import Floats, Ints


class Optimistic(Scored):
    law = HALF_NORMAL

    def __init__(self, streams: Streams, dimension: int, *, width: float = 0.85, bonus: float = 0.0) -> None:
        self._fixed = fixed_width(width, streams)
        self._bonus = positive("bonus", bonus, zero_allowed=True)

    def judge(self, means: Floats, variances: Floats) -> Floats:
        return means + self._bonus * np.sqrt(variances) if self._bonus else means

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        self._fixed = as_wide(self._fixed, learner.arms)
        return self._fixed[: len(rows)]
