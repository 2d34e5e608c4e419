"""The most recent rounds of every stream: observations, arms, rewards and features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from halfseen.components import IntegerBounds, Mask, State, Stateful, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.random import Ints

# Marks of stored rounds. MISSING: a round of a gap. BREAK: an entry that stands for all rounds of a gap, if the gap is
# too long to be part of a series.
MISSING, BREAK = 1, 2
MIN_ENTRIES = 10  # more rounds or rewards than this are needed to call a series constant
INITIAL_CAPACITY = 64  # rounds


class History(Stateful):
    """The most recent rounds of every stream.

    Round t is stored at position t − 1 − `dropped_rounds`. The capacity doubles when it is exhausted, up to 1.5 times
    the largest number of rounds in a fit. After that, the oldest third is dropped whenever the history is full, so
    memory is bounded.
    """

    state_names = ("observations", "arms", "rewards", "features", "gaps", "stored_rounds", "dropped_rounds")
    recorded = ("observations", "rewards")
    # The arrays with one position per round, and what they contain at positions that are not in use.
    fill_values: ClassVar[Mapping[str, float]] = {
        "observations": np.nan, "arms": 0, "rewards": np.nan, "features": 0.0, "gaps": 0,
    }  # fmt: skip

    def __init__(self, streams: StreamBatch, rounds: int, width: int) -> None:
        count = streams.count
        self.rounds = rounds  # the largest number of rounds in a fit
        self._max_capacity = rounds + rounds // 2
        self.observations = np.empty((count, 0, streams.observed))
        self.arms = np.empty((count, 0), dtype=np.int64)
        self.rewards = np.empty((count, 0))
        self.features = np.empty((count, 0, width))  # the features with which the reward of the round is learnt
        self.gaps = np.empty((count, 0), dtype=np.int8)  # 0, MISSING or BREAK
        self.stored_rounds = np.zeros(count, dtype=np.int64)
        self.dropped_rounds = np.zeros(count, dtype=np.int64)  # number of rounds before position 0

    def make_room(self, rows: Ints) -> None:
        """Make room for one more round of each stream in `rows`, to be stored by `kernels.adaptive.filter_round`."""
        capacity = self.arms.shape[1]
        full = self.stored_rounds[rows] == capacity
        if not full.any():
            return
        if capacity < self._max_capacity:
            self.grow(min(max(INITIAL_CAPACITY, 2 * capacity), self._max_capacity))
            return
        for row in rows[full]:
            self.drop_oldest(int(row), capacity - self.rounds)

    def grow(self, capacity: int) -> None:
        """Increase the capacity of all streams to `capacity`, unless it is already that large."""
        more = capacity - self.arms.shape[1]
        if more > 0:
            for name, value in self.fill_values.items():
                old = getattr(self, name)
                empty = np.full((len(old), more, *old.shape[2:]), value, dtype=old.dtype)
                setattr(self, name, np.concatenate([old, empty], axis=1))

    def drop_oldest(self, row: int, count: int) -> None:
        """Drop the oldest `count` rounds of a stream."""
        left = int(self.stored_rounds[row]) - count
        for name, value in self.fill_values.items():
            array = getattr(self, name)[row]
            array[:left] = array[count : count + left].copy()
            array[left:] = value
        self.stored_rounds[row] = left
        self.dropped_rounds[row] += count

    def _own_state(self, rows: Ints | None) -> State:
        """Return the state without the positions that no stream uses yet."""
        state = super()._own_state(rows)
        used = int(state["stored_rounds"].max(initial=0))
        return state | {name: state[name][:, :used] for name in self.fill_values}

    def _state_shape(self, name: str, mine: NDArray[Any], given: NDArray[Any], count: int) -> tuple[int, ...]:
        capacity = given.shape[1:2] if name in self.fill_values and given.ndim == mine.ndim else mine.shape[1:2]
        return (count, *capacity, *mine.shape[2:])

    def integer_bounds(self, state: State) -> IntegerBounds:
        dropped = np.asarray(state["rounds"]) - np.asarray(state["stored_rounds"])
        counts = {"stored_rounds": (0, state["arms"].shape[1]), "dropped_rounds": (dropped, dropped)}
        return counts | {"gaps": (0, BREAK)}

    def check_consistency(self, state: State) -> None:
        lengths = [state[name].shape[1] for name in self.fill_values]
        least, most = (int(limit(state["stored_rounds"], initial=0)) for limit in (np.min, np.max))
        if len(set(lengths)) != 1 or not most <= lengths[0] <= self._max_capacity or least < 0:
            raise invalid(
                "state 'stored_rounds'",
                f"at most {self._max_capacity} rounds, and arrays with one entry per round",
                f"{most} rounds and arrays of lengths {lengths}",
            )

    def restore(self, state: State, rows: Ints | None = None) -> None:
        if rows is None:
            super().restore(state)
            return
        capacity = state["arms"].shape[1]
        self.grow(capacity)
        for name, value in self.fill_values.items():
            array = getattr(self, name)
            array[rows, :capacity], array[rows, capacity:] = state[name], value
        self.stored_rounds[rows], self.dropped_rounds[rows] = state["stored_rounds"], state["dropped_rounds"]

    def pass_long_gap(self, rows: Ints) -> None:
        """Store one entry, marked BREAK, for a gap that is too long to be part of a series."""
        self.make_room(rows)
        self.gaps[rows, self.stored_rounds[rows]] = BREAK
        self.stored_rounds[rows] += 1

    def reward_count(self, row: int) -> int:
        """Return the number of stored rewards of a stream."""
        return int((~np.isnan(self.rewards[row, : self.stored_rounds[row]])).sum())

    def positions(self, rows: Ints, rounds: Ints) -> Ints:
        """Return the positions of the rounds. They are negative for rounds that have been dropped."""
        return rounds - 1 - self.dropped_rounds[rows]

    def has_features(self, rows: Ints, positions: Ints) -> Mask:
        """Return for each position whether its features are stored, so that a reward of its round can be learnt."""
        return np.asarray((positions >= 0) & (self.features[rows, np.maximum(positions, 0), 0] != 0.0))

    def notes(self, row: int) -> list[str]:
        """Return a note for each feature that is missing or constant, and one if all rewards are equal."""
        count, notes = int(self.stored_rounds[row]), []
        if count > MIN_ENTRIES:
            for i, column in enumerate(self.observations[row, :count].T):
                observed = column[~np.isnan(column)]
                if len(observed) == 0:
                    notes.append(f"entry {i} of the observation is missing in all stored rounds")
                elif np.ptp(observed) == 0.0:
                    notes.append(f"entry {i} of the observation is constant, so it carries no information")
        rewards = self.rewards[row, :count]
        rewards = rewards[~np.isnan(rewards)]
        if len(rewards) > MIN_ENTRIES and np.ptp(rewards) == 0.0:
            notes.append("all rewards are equal, so no arm is better than another")
        return notes
