"""Greedy choice: play the arm with the highest predicted reward."""

from __future__ import annotations

from halfseen.choosers.scored import Scored
from halfseen.components import Learner, StreamBatch
from halfseen.kernels.choice import POINT
from halfseen.kernels.random import Floats, Ints


class Greedy(Scored):
    """Play the arm with the highest predicted reward, without exploration.

    If several arms have the highest prediction, one of them is drawn uniformly at random.
    """

    distribution = POINT

    def __init__(self, streams: StreamBatch, dimension: int) -> None:
        """This chooser has no options."""

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        return self.constant_widths(0.0, rows, learner)

    def widths_for_rounds(self, rows: Ints, rounds: Ints, count: int, learner: Learner) -> Floats:
        return self.widths(rows, rounds, learner)
