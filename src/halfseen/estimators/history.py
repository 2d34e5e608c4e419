"""The last rounds of every stream, as they were: what was seen, what was played, what it paid."""

from __future__ import annotations

import numpy as np

from halfseen.component import Mask, Stateful, Streams
from halfseen.randomness import Ints

ENOUGH_TO_TELL = 10  # rounds, or rewards


class History(Stateful):
    """Rounds lie in slots from 0 up; when all are taken the oldest third is forgotten. Memory never grows."""

    state_names = ("ys", "arm", "reward", "belief", "count", "offset")

    def __init__(self, streams: Streams, rounds: int, width: int) -> None:
        count, slots = streams.count, rounds + rounds // 2
        self.rounds = rounds  # that are used at most
        self.ys = np.full((count, slots, streams.observed), np.nan)
        self.arm = np.zeros((count, slots), dtype=np.int64)
        self.reward = np.full((count, slots), np.nan)
        self.belief = np.zeros((count, slots, width))  # the feature each reward is credited with
        self.count = np.zeros(count, dtype=np.int64)  # slots taken
        self.offset = np.zeros(count, dtype=np.int64)  # rounds before slot 0

    def make_room(self, rows: Ints) -> None:
        """See to it that each of `rows` has a slot for its next round, which kernels.belief.open_round fills."""
        slots = self.ys.shape[1]
        full = self.count[rows] == slots
        if full.any():
            for row in rows[full]:
                self.forget(int(row), slots - self.rounds)

    def forget(self, row: int, slots: int) -> None:
        """Drop the oldest rounds of a stream."""
        kept = int(self.count[row]) - slots
        for name in ("ys", "arm", "reward", "belief"):
            array = getattr(self, name)[row]
            array[:kept] = array[slots : slots + kept].copy()
        self.ys[row, kept:], self.reward[row, kept:], self.belief[row, kept:] = np.nan, np.nan, 0.0
        self.arm[row, kept:] = 0
        self.count[row] = kept
        self.offset[row] += slots

    def slots(self, rows: Ints, rounds: Ints) -> Ints:
        """Where the rounds lie; negative when they are forgotten."""
        return rounds - 1 - self.offset[rows]

    def remembers(self, rows: Ints, slots: Ints) -> Mask:
        """Whether there still is a belief that a reward of that round can be credited with."""
        return np.asarray((slots >= 0) & (self.belief[rows, np.maximum(slots, 0), 0] != 0.0))

    def remarks(self, row: int) -> list[str]:
        """A sentence for each thing that nothing can be learnt from."""
        count, notes = int(self.count[row]), []
        if count > ENOUGH_TO_TELL:
            for i, column in enumerate(self.ys[row, :count].T):
                seen = column[~np.isnan(column)]
                if len(seen) == 0:
                    notes.append(f"entry {i} of the observation has never been seen in the kept history")
                elif np.ptp(seen) == 0.0:
                    notes.append(f"entry {i} of the observation is constant and tells nothing")
        paid = self.reward[row, :count]
        paid = paid[~np.isnan(paid)]
        if len(paid) > ENOUGH_TO_TELL and np.ptp(paid) == 0.0:
            notes.append("all rewards are equal: there is nothing to choose by")
        return notes
