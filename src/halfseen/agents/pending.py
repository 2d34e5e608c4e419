"""Decisions that may still be rewarded, of one agent and of a fleet."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from halfseen.components import ROW_GROWTH, resized
from halfseen.diagnostics.health import LONG_SILENCE
from halfseen.errors import DecisionError, invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import at_least, check_range

PROVISIONAL = "pending.provisional"  # in the state only if there is such a reward
_NO_PROVISIONAL = np.zeros((0, 4))  # number of the decision, value of the reward, and how it was learnt

ROUND_BITS = 32  # of an id in a fleet: the lower ones are the round, the upper ones the number of the stream
ROUND_MASK = (1 << ROUND_BITS) - 1
_SLOT_ARRAYS = ("ids", "rows", "arms", "features")

PendingDecision = tuple[Ints, Ints, Floats]  # round, arm and features of a decision


class HasProvisional(DecisionError):
    """The decision asked for has a provisional reward."""


class Provisional(NamedTuple):
    """A decision with a provisional reward, its value and the two numbers of `Learner.replacement_data`."""

    made: PendingDecision
    value: float
    variance: float
    number: float


class PendingDecisions:
    """Numbers are those of the rounds, from 1. Beyond `max_pending` that wait, the oldest can no longer be rewarded."""

    def __init__(self, max_pending: int, dimension: int) -> None:
        self._max_pending = at_least("max_pending", max_pending, 1)
        self._dimension = dimension
        self.waiting: dict[int, PendingDecision | None] = {}  # None: it has a reward, and is in `provisional`
        self.provisional: dict[int, Provisional] = {}
        self.decided = 0
        self.rewarded, self._last_rewarded = 0, 0  # rewards credited; decisions made when the last of them came
        self.given_up = 0  # decisions that no reward is expected for any more

    def open(self, choices: tuple[Any, ...]) -> int:
        """The number of a decision, of whose choices round, arm and features, the first three, are kept."""
        number = self.decided = self.decided + 1
        waiting = self.waiting
        waiting[number] = choices[:3]
        if len(waiting) > self._max_pending:
            oldest = next(iter(waiting))
            del waiting[oldest]
            self.provisional.pop(oldest, None)
        return number

    def find(self, decision_id: Any) -> PendingDecision:
        """Round, arm and features of a decision that waits; HasProvisional is raised if it has such a reward."""
        try:
            found = self.waiting.get(decision_id)
        except TypeError:
            raise invalid("decision_id", "the id of a decision", repr(decision_id)) from None
        if found is None:
            if decision_id in self.provisional:
                raise HasProvisional(
                    f"decision_id: expected a decision without a provisional reward, got {decision_id}"
                )
            raise self._no_such_decision(decision_id)
        return found

    def get(self, decision_id: Any) -> PendingDecision:
        """The same, whether it has a provisional reward or not."""
        try:
            return self.find(decision_id)
        except HasProvisional:
            return self.provisional[decision_id].made

    def close(self, decision_id: int) -> None:
        del self.waiting[decision_id]
        self.rewarded += 1
        self._last_rewarded = self.decided

    def set_provisional(self, decision_id: int, reward: Provisional) -> None:
        """Count a decision as rewarded, and let it wait for another reward; or change the provisional one it has."""
        if decision_id not in self.provisional:
            self.waiting[decision_id] = None
            self.rewarded += 1
            self._last_rewarded = self.decided
        self.provisional[decision_id] = reward

    def close_provisional(self, decision_id: int) -> None:
        """Wait no longer for another reward than the provisional one."""
        del self.waiting[decision_id], self.provisional[decision_id]

    def give_up(self, decision_id: int) -> None:
        self.get(decision_id)
        if decision_id in self.provisional:
            self.close_provisional(decision_id)
            return
        del self.waiting[decision_id]
        self.given_up += 1

    def _no_such_decision(self, decision_id: object) -> DecisionError:
        if isinstance(decision_id, int | np.integer) and 1 <= decision_id <= self.decided:
            return DecisionError(
                f"decision_id: expected a decision of agent.pending, got {decision_id}, which already has its reward, "
                f"was dropped, or is older than the last {self._max_pending} unrewarded decisions"
            )
        return DecisionError(
            f"decision_id: expected a decision of agent.pending, got {decision_id!r}, which was never made "
            f"(decisions so far: {self.decided})"
        )

    def health(self) -> tuple[dict[str, object], list[str]]:
        waiting = len(self.waiting) - len(self.provisional)
        dropped = self.decided - self.rewarded - self.given_up - waiting
        silence = self.decided - self._last_rewarded
        facts: dict[str, object] = {
            "rounds": self.decided,
            "rewards": self.rewarded,
            "decisions since the last reward": silence,
            "decisions waiting": waiting,
            "decisions dropped": dropped,
        }
        if self.provisional:
            facts["provisional rewards"] = len(self.provisional)
        if self.given_up:
            facts["decisions given up"] = self.given_up
        notes = []
        if silence >= LONG_SILENCE:
            notes.append(f"no reward has come in the last {silence} decisions")
        if dropped:
            notes.append(f"{dropped} decisions can no longer be rewarded: more than {self._max_pending} were waiting")
        return facts, notes

    def state(self) -> dict[str, Any]:
        entries = [made or self.provisional[number].made for number, made in self.waiting.items()]
        empty = np.zeros((0, self._dimension))
        held = [(float(number), *one[1:]) for number, one in self.provisional.items()]
        return {
            "pending.ids": np.array(list(self.waiting), dtype=np.int64),
            "pending.arms": np.array([int(arm[0]) for _, arm, _ in entries], dtype=np.int64),
            "pending.features": np.concatenate([features for _, _, features in entries]) if entries else empty,
            "rewards": np.array([self.rewarded, self._last_rewarded, *([self.given_up] if self.given_up else [])]),
        } | ({PROVISIONAL: np.array(held)} if held else {})

    def check(self, state: Mapping[str, Any], arms: int) -> None:
        """Refuse arrays that are not what `state` gives."""
        for name, mine in self.state().items():
            if name == PROVISIONAL:
                continue
            given = np.asarray(state[name])
            if given.dtype != mine.dtype or given.ndim != mine.ndim or given.shape[1:] != mine.shape[1:]:
                raise invalid(f"state '{name}'", f"{mine.dtype} like {mine.shape}", f"{given.dtype} {given.shape}")
        counts = {len(state[name]) for name in ("pending.ids", "pending.arms", "pending.features")}
        if len(counts) != 1 or len(state["rewards"]) not in (2, 3):
            raise invalid("state", "those of one agent of this kind", "pending decisions that do not fit together")
        ids, rounds = np.asarray(state["pending.ids"]), np.asarray(state["rounds"]).max(initial=0)
        check_range("state 'pending.arms'", np.asarray(state["pending.arms"]), 0, arms - 1)
        check_range("state 'pending.ids'", ids, 1, rounds)
        check_range("state 'rewards'", np.asarray(state["rewards"]), 0, rounds)
        if not (np.diff(ids) > 0).all():
            raise invalid("state 'pending.ids'", "each once, the oldest first", "decisions out of order")
        held = np.asarray(state.get(PROVISIONAL, _NO_PROVISIONAL))
        if held.dtype != np.float64 or held.shape[1:] != _NO_PROVISIONAL.shape[1:] or np.isnan(held).any():
            raise invalid(
                f"state '{PROVISIONAL}'", f"numbers like {_NO_PROVISIONAL.shape}", f"{held.dtype} {held.shape}"
            )
        if len(set(held[:, 0]) & set(np.asarray(state["pending.ids"]).tolist())) < len(held):
            raise invalid(f"state '{PROVISIONAL}'", "some of those that do, once each", "decisions that do not wait")

    def restore(self, state: Mapping[str, Any], decided: int) -> None:
        ids, arms = np.array(state["pending.ids"]), np.array(state["pending.arms"])
        features = np.array(state["pending.features"], order="C")
        self.waiting = {
            number: (ids[i : i + 1], arms[i : i + 1], features[i : i + 1]) for i, number in enumerate(ids.tolist())
        }
        self.provisional = {}
        for number, *rest in np.asarray(state.get(PROVISIONAL, _NO_PROVISIONAL)).tolist():
            made = self.waiting[int(number)]
            assert made is not None
            self.provisional[int(number)] = Provisional(made, *rest)
            self.waiting[int(number)] = None
        self.decided = decided
        self.rewarded, self._last_rewarded, self.given_up = (*map(int, state["rewards"]), 0)[:3]


class FleetPending:
    """The decisions of all streams that may still be rewarded: arrays with a slot for each, and the slots by id.

    A single agent's `PendingDecisions` holds an object for each decision, which would take a fleet longer than the
    decisions themselves. Beyond `max_pending` of a stream its oldest expires.
    """

    def __init__(self, max_pending: int, streams: int, dimension: int) -> None:
        self._max_pending = max_pending
        self._slots: dict[int, int] = {}
        self.ids: Ints = np.zeros(0, dtype=np.int64)  # −1: the slot is free
        self.rows: Ints = np.zeros(0, dtype=np.int64)
        self.arms: Ints = np.zeros(0, dtype=np.int64)
        self.features: Floats = np.zeros((0, dimension))
        self._free: Ints = np.zeros(0, dtype=np.int64)
        self.counts: Ints = np.zeros(streams, dtype=np.int64)  # of each row
        self.oldest: Ints = np.zeros(streams, dtype=np.int64)  # no decision of the row is of an earlier round

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def nbytes(self) -> int:
        """Of the decisions; `counts` and `oldest` are counted with the streams."""
        arrays = [getattr(self, name) for name in (*_SLOT_ARRAYS, "_free")]
        return sys.getsizeof(self._slots) + int(sum(array.nbytes for array in arrays))

    def resize(self, streams: int) -> None:
        self.counts, self.oldest = resized(self.counts, streams), resized(self.oldest, streams)

    def open(self, ids: Ints, rows: Ints, arms: Ints, features: Floats) -> None:
        """Add decisions, those of one stream in the order of their rounds."""
        if len(ids) > len(self._free):
            old = len(self.ids)
            size = max(int(old * ROW_GROWTH), old + len(ids))
            for name in _SLOT_ARRAYS:
                setattr(self, name, resized(getattr(self, name), size))
            self.ids[old:] = -1
            self._free = np.concatenate([np.arange(size - 1, old - 1, -1), self._free])
        cut = len(self._free) - len(ids)
        slots, self._free = self._free[cut:], self._free[:cut]
        self.ids[slots], self.rows[slots], self.arms[slots], self.features[slots] = ids, rows, arms, features
        self._slots.update(zip(ids.tolist(), slots.tolist(), strict=True))
        np.add.at(self.counts, rows, 1)
        full = self.counts[rows] > self._max_pending
        if full.any():
            self._expire(dict(zip(rows[full].tolist(), (ids[full] & ~ROUND_MASK).tolist(), strict=True)))

    def _expire(self, first_ids: dict[int, int]) -> None:
        """Drop the oldest decisions of rows that have too many, given by the id of a round 0."""
        expired = []
        for row, first_id in first_ids.items():
            for _ in range(int(self.counts[row]) - self._max_pending):
                while (slot := self._slots.pop(first_id | int(self.oldest[row]), None)) is None:
                    self.oldest[row] += 1
                self.oldest[row] += 1
                expired.append(slot)
        self.free(np.array(expired))

    def take(self, ids: Ints) -> Ints:
        """The slots of decisions, which wait no longer; −1 where there is none, or none any more.

        Then either `free` the slots or `put_back` the decisions.
        """
        return np.fromiter(map(self._slots.pop, ids.tolist(), repeat(-1)), np.int64, len(ids))

    def put_back(self, slots: Ints) -> None:
        self._slots.update(zip(self.ids[slots].tolist(), slots.tolist(), strict=True))

    def free(self, slots: Ints) -> None:
        np.subtract.at(self.counts, self.rows[slots], 1)
        self.ids[slots] = -1
        self._free = np.concatenate([self._free, slots])

    def forget(self, rows: Ints) -> None:
        """Drop all decisions of streams that are no more; their rows are as new."""
        slots = np.flatnonzero((self.ids >= 0) & np.isin(self.rows, rows))
        self.take(self.ids[slots])
        self.free(slots)
        self.oldest[rows] = 0

    def of_stream(self, number: int) -> Ints:
        """The slots of a stream's decisions, oldest first."""
        slots = np.flatnonzero(self.ids >> ROUND_BITS == number)
        return slots[np.argsort(self.ids[slots])]

    def of_all(self) -> Ints:
        """The slots of all decisions, by number of the stream and then by round."""
        slots = np.flatnonzero(self.ids >= 0)
        return slots[np.argsort(self.ids[slots])]

    def state(self, slots: Ints) -> dict[str, Any]:
        return {f"pending.{name}": getattr(self, name)[slots] for name in ("ids", "arms", "features")}
