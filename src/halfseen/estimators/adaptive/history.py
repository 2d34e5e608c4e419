"""The last rounds of every stream, as they were: what was seen, what was played, what it paid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from halfseen.components import IntegerBounds, Mask, State, Stateful, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.random import Ints

ENOUGH_TO_TELL = 10  # rounds, or rewards
INITIAL_CAPACITY = 64


class History(Stateful):
    """Rounds lie in slots from 0 up. Slots double as they are needed, up to half as many again as the rounds that
    are used; when all are taken the oldest third is forgotten, and memory grows no further.
    """

    state_names = ("observations", "arms", "rewards", "features", "stored_rounds", "dropped_rounds")
    # What has a slot per round, and what fills the slots that are not used.
    fill_values: ClassVar[Mapping[str, float]] = {"observations": np.nan, "arms": 0, "rewards": np.nan, "features": 0.0}

    def __init__(self, streams: StreamBatch, rounds: int, width: int) -> None:
        count = streams.count
        self.rounds = rounds  # that are used at most
        self._most = rounds + rounds // 2
        self.observations = np.empty((count, 0, streams.observed))
        self.arms = np.empty((count, 0), dtype=np.int64)
        self.rewards = np.empty((count, 0))
        self.features = np.empty((count, 0, width))  # the feature each reward is credited with
        self.stored_rounds = np.zeros(count, dtype=np.int64)  # slots taken
        self.dropped_rounds = np.zeros(count, dtype=np.int64)  # rounds before slot 0

    def make_room(self, rows: Ints) -> None:
        """See to it that each of `rows` has a slot for its next round, which kernels.adaptive.filter_round fills."""
        slots = self.arms.shape[1]
        full = self.stored_rounds[rows] == slots
        if not full.any():
            return
        if slots < self._most:
            self.grow(min(max(INITIAL_CAPACITY, 2 * slots), self._most))
            return
        for row in rows[full]:
            self.drop_oldest(int(row), slots - self.rounds)

    def grow(self, slots: int) -> None:
        """As many slots, the new ones unused; nothing where there are as many."""
        more = slots - self.arms.shape[1]
        if more > 0:
            for name, value in self.fill_values.items():
                old = getattr(self, name)
                empty = np.full((len(old), more, *old.shape[2:]), value, dtype=old.dtype)
                setattr(self, name, np.concatenate([old, empty], axis=1))

    def drop_oldest(self, row: int, slots: int) -> None:
        """Drop the oldest rounds of a stream."""
        kept = int(self.stored_rounds[row]) - slots
        for name, value in self.fill_values.items():
            array = getattr(self, name)[row]
            array[:kept] = array[slots : slots + kept].copy()
            array[kept:] = value
        self.stored_rounds[row] = kept
        self.dropped_rounds[row] += slots

    def _own_state(self, rows: Ints | None) -> State:
        """Without the slots that no stream has used yet."""
        state = super()._own_state(rows)
        used = int(state["stored_rounds"].max(initial=0))
        return state | {name: state[name][:, :used] for name in self.fill_values}

    def _state_shape(self, name: str, mine: NDArray[Any], given: NDArray[Any], count: int) -> tuple[int, ...]:
        slots = given.shape[1:2] if name in self.fill_values and given.ndim == mine.ndim else mine.shape[1:2]
        return (count, *slots, *mine.shape[2:])

    def integer_bounds(self, state: State) -> IntegerBounds:
        count = (0, state["arms"].shape[1] if "arms" in state else self._most)
        if "rounds" not in state:
            return {"stored_rounds": count}
        before = np.asarray(state["rounds"]) - np.asarray(state["stored_rounds"])
        return {"stored_rounds": count, "dropped_rounds": (before, before)}

    def check_consistency(self, state: State) -> None:
        slots = [state[name].shape[1] for name in self.fill_values]
        taken = int(state["stored_rounds"].max(initial=0))
        if (
            len(set(slots)) != 1
            or not taken <= slots[0] <= self._most
            or int(state["stored_rounds"].min(initial=0)) < 0
        ):
            raise invalid(
                "state 'stored_rounds'", f"as many as slots, up to {self._most}", f"{taken} rounds in slots {slots}"
            )

    def restore(self, state: State, rows: Ints | None = None) -> None:
        if rows is None:
            super().restore(state)
            return
        slots = state["arms"].shape[1]
        self.grow(slots)
        for name, value in self.fill_values.items():
            array = getattr(self, name)
            array[rows, :slots], array[rows, slots:] = state[name], value
        self.stored_rounds[rows], self.dropped_rounds[rows] = state["stored_rounds"], state["dropped_rounds"]

    def reward_count(self, row: int) -> int:
        """How many rewards of the stream it holds."""
        return int((~np.isnan(self.rewards[row, : self.stored_rounds[row]])).sum())

    def positions(self, rows: Ints, rounds: Ints) -> Ints:
        """Where the rounds lie; negative when they are forgotten."""
        return rounds - 1 - self.dropped_rounds[rows]

    def has_features(self, rows: Ints, slots: Ints) -> Mask:
        """Whether there still is a belief that a reward of that round can be credited with."""
        return np.asarray((slots >= 0) & (self.features[rows, np.maximum(slots, 0), 0] != 0.0))

    def notes(self, row: int) -> list[str]:
        """A sentence for each thing that nothing can be learnt from."""
        count, notes = int(self.stored_rounds[row]), []
        if count > ENOUGH_TO_TELL:
            for i, column in enumerate(self.observations[row, :count].T):
                seen = column[~np.isnan(column)]
                if len(seen) == 0:
                    notes.append(f"entry {i} of the observation has never been seen in the kept history")
                elif np.ptp(seen) == 0.0:
                    notes.append(f"entry {i} of the observation is constant and tells nothing")
        paid = self.rewards[row, :count]
        paid = paid[~np.isnan(paid)]
        if len(paid) > ENOUGH_TO_TELL and np.ptp(paid) == 0.0:
            notes.append("all rewards are equal: there is nothing to choose by")
        return notes
