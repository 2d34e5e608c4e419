"""Optimistic Thompson sampling: play the highest m_a + width·|z_a|·std_a, z_a ~ N(0, 1).

After May, Korda, Lee & Leslie (2012): draw scores as Thompson does, but never below their means, because playing a
worse arm for the low draw of a better one explores nothing. They take max(0, z_a). Half of those draws are 0; |z_a|
never is, so every arm explores in every round.
"""

from __future__ import annotations

from halfseen.choosers.scored import Scored
from halfseen.choosers.widths import as_wide, fixed_width
from halfseen.component import Learner, Streams
from halfseen.kernels.choice import HALF_NORMAL
from halfseen.randomness import Floats, Ints


class Optimistic(Scored):
    law = HALF_NORMAL

    def __init__(self, streams: Streams, dimension: int, *, width: float = 0.85) -> None:
        self._fixed = fixed_width(width, streams)

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        self._fixed = as_wide(self._fixed, learner.arms)
        return self._fixed[: len(rows)]
