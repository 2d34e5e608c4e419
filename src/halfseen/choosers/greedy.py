"""Play the arm that looks best, explore nothing."""

from __future__ import annotations

from halfseen.choosers.widths import fixed_width
from halfseen.component import Chooser, Learner, Streams
from halfseen.randomness import Floats, Ints


class Greedy(Chooser):
    sampled = False

    def __init__(self, streams: Streams, dimension: int) -> None:
        self._none = fixed_width(0.0, streams)

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        return self._none[: len(rows)]
