"""Play the arm that looks best, explore nothing."""

from __future__ import annotations

from halfseen.choosers.scored import Scored
from halfseen.choosers.widths import as_wide, fixed_width
from halfseen.components import Learner, Streams
from halfseen.kernels.choice import POINT
from halfseen.kernels.random import Floats, Ints


class Greedy(Scored):
    law = POINT

    def __init__(self, streams: Streams, dimension: int) -> None:
        self._none = fixed_width(0.0, streams)

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        self._none = as_wide(self._none, learner.arms)
        return self._none[: len(rows)]

    def widths_ahead(self, rows: Ints, rounds: Ints, count: int, learner: Learner) -> Floats:
        return self.widths(rows, rounds, learner)
