"""Play the arm that looks best, explore nothing."""

from __future__ import annotations

from halfseen.choosers.scored import Scored
from halfseen.components import Learner, StreamBatch
from halfseen.kernels.choice import POINT
from halfseen.kernels.random import Floats, Ints


class Greedy(Scored):
    distribution = POINT

    def __init__(self, streams: StreamBatch, dimension: int) -> None:
        """Nothing to set."""

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        return self.constant_widths(0.0, rows, learner)

    def widths_for_rounds(self, rows: Ints, rounds: Ints, count: int, learner: Learner) -> Floats:
        return self.widths(rows, rounds, learner)
