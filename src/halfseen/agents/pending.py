"""The decisions of an agent or a fleet that can still be rewarded."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfseen.agents.guardrails import BRANCHES
from halfseen.components import ROW_GROWTH, Mask, resized
from halfseen.diagnostics.health import LONG_SILENCE
from halfseen.errors import DecisionError, invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import LIMIT, at_least, check_finite, check_range

PROVISIONAL = "pending.provisional"  # the name of a state array that exists only if there are provisional rewards
MARKS = "pending.branches"  # the name of a state array that exists only if decisions were made with guardrails
_NO_PROVISIONAL = np.zeros((0, 4))  # columns: decision id, reward, noise variance, reward number

ROUND_BITS = 32  # in a fleet, the lower bits of an id are the round, and the upper bits are the number of the stream
ROUND_MASK = (1 << ROUND_BITS) - 1
# The largest round and the largest number of a stream that a restored state may have. They leave room for new rounds,
# up to ROUND_MASK, and for new streams, up to MAX_ROUNDS.
MAX_ROUNDS = ROUND_MASK >> 1
MAX_STREAMS = MAX_ROUNDS >> 1
_MAX_STEPS = 1_000  # rounds that are tried one by one when the oldest decision of a stream is searched for
_DECISION_ARRAYS = ("ids", "rows", "rounds", "arms", "features", "branches")
_NO_MARK = -1

PendingDecision = tuple[Ints, Ints, Floats]  # round, arm and features, each with a leading axis of length 1


def check_features(features: Floats) -> None:
    """Refuse infinite features in a state. NaN is allowed, because features can contain missing observed entries."""
    check_finite("state 'pending.features'", features[~np.isnan(features)])


class HasProvisional(DecisionError):
    """The decision has a provisional reward."""


class ProvisionalReward(NamedTuple):
    """A reward that a later reward may replace, with the `Learner.replacement_data` needed to replace it."""

    decision: PendingDecision
    value: float
    noise_variance: float
    reward_number: float


class PendingDecisions:
    """The decisions of one agent that can still be rewarded.

    The id of a decision is the number of its round, from 1. If more than `max_pending` decisions are waiting, the
    oldest one is dropped and can no longer be rewarded.
    """

    def __init__(self, max_pending: int, dimension: int) -> None:
        self._max_pending = at_least("max_pending", max_pending, 1)
        self._dimension = dimension
        # None for a decision in `provisional`. A dict would find the oldest one slowly, stepping over deleted keys.
        self.waiting: OrderedDict[int, PendingDecision | None] = OrderedDict()
        self.provisional: dict[int, ProvisionalReward] = {}
        self.branches: dict[int, int] = {}  # by id, the branch of each waiting decision that was made with guardrails
        self.decision_count = 0
        self.reward_count = 0
        self._last_rewarded = 0  # the number of decisions when the last reward was received
        self.given_up_count = 0

    def add(self, choices: tuple[Any, ...]) -> int:
        """Add a decision and return its id. The first three fields of `choices` are round, arm and features."""
        decision_id = self.decision_count = self.decision_count + 1
        waiting = self.waiting
        waiting[decision_id] = choices[:3]
        if len(waiting) > self._max_pending:
            oldest, _ = waiting.popitem(last=False)
            self.provisional.pop(oldest, None)
            self.branches.pop(oldest, None)
        return decision_id

    def find(self, decision_id: Any) -> PendingDecision:
        """Return a decision that has no reward yet. Raise HasProvisional if the decision has a provisional reward."""
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
        """Return a decision that has no reward or only a provisional one."""
        try:
            return self.find(decision_id)
        except HasProvisional:
            return self.provisional[decision_id].decision

    def complete(self, decision_id: int) -> None:
        """Remove a decision that has received its reward."""
        del self.waiting[decision_id]
        if self.branches:
            self.branches.pop(decision_id, None)
        self.reward_count += 1
        self._last_rewarded = self.decision_count

    def set_provisional(self, decision_id: int, reward: ProvisionalReward) -> None:
        """Set the provisional reward of a decision, or replace the provisional reward it has."""
        if decision_id not in self.provisional:
            self.waiting[decision_id] = None
            self.reward_count += 1
            self._last_rewarded = self.decision_count
        self.provisional[decision_id] = reward

    def complete_provisional(self, decision_id: int) -> None:
        """Remove a decision that was counted as rewarded when it received its provisional reward."""
        del self.waiting[decision_id], self.provisional[decision_id]
        self.branches.pop(decision_id, None)

    def give_up(self, decision_id: int) -> None:
        self.get(decision_id)
        if decision_id in self.provisional:
            self.complete_provisional(decision_id)
            return
        del self.waiting[decision_id]
        self.branches.pop(decision_id, None)
        self.given_up_count += 1

    def _no_such_decision(self, decision_id: object) -> DecisionError:
        if isinstance(decision_id, int | np.integer) and 1 <= decision_id <= self.decision_count:
            return DecisionError(
                f"decision_id: expected a decision of agent.pending, got {decision_id}, which already has its reward, "
                f"was given up, or is older than the last {self._max_pending} unrewarded decisions"
            )
        return DecisionError(
            f"decision_id: expected a decision of agent.pending, got {decision_id!r}, which was never made "
            f"(decisions so far: {self.decision_count})"
        )

    def health(self) -> tuple[dict[str, object], list[str]]:
        waiting = len(self.waiting) - len(self.provisional)
        dropped = self.decision_count - self.reward_count - self.given_up_count - waiting
        since_reward = self.decision_count - self._last_rewarded
        facts: dict[str, object] = {
            "rounds": self.decision_count,
            "rewards": self.reward_count,
            "decisions since the last reward": since_reward,
            "decisions waiting": waiting,
            "decisions dropped": dropped,
        }
        if self.provisional:
            facts["provisional rewards"] = len(self.provisional)
        if self.given_up_count:
            facts["decisions given up"] = self.given_up_count
        notes = []
        if since_reward >= LONG_SILENCE:
            notes.append(f"no reward has come in the last {since_reward} decisions")
        if dropped:
            notes.append(f"{dropped} decisions can no longer be rewarded: more than {self._max_pending} were waiting")
        return facts, notes

    def state(self) -> dict[str, Any]:
        decisions = [one or self.provisional[decision_id].decision for decision_id, one in self.waiting.items()]
        empty = np.zeros((0, self._dimension))
        provisional = [(float(decision_id), *reward[1:]) for decision_id, reward in self.provisional.items()]
        given_up = [self.given_up_count] if self.given_up_count else []
        optional = {PROVISIONAL: np.array(provisional)} if provisional else {}
        if self.branches:
            optional[MARKS] = np.array([self.branches.get(decision_id, _NO_MARK) for decision_id in self.waiting])
        return {
            "pending.ids": np.array(list(self.waiting), dtype=np.int64),
            "pending.rounds": np.array([int(round_[0]) for round_, _, _ in decisions], dtype=np.int64),
            "pending.arms": np.array([int(arm[0]) for _, arm, _ in decisions], dtype=np.int64),
            "pending.features": np.concatenate([features for _, _, features in decisions]) if decisions else empty,
            "reward_counts": np.array([self.reward_count, self._last_rewarded, *given_up]),
        } | optional

    def check(self, state: Mapping[str, NDArray[Any]], arms: int) -> None:
        """Refuse arrays that `state` cannot have returned. The policy has already checked `rounds`."""
        for name, mine in self.state().items():
            if name in (PROVISIONAL, MARKS):
                continue
            given = state[name]
            if given.dtype != mine.dtype or given.ndim != mine.ndim or given.shape[1:] != mine.shape[1:]:
                raise invalid(f"state '{name}'", f"{mine.dtype} like {mine.shape}", f"{given.dtype} {given.shape}")
        ids, counts, rounds = state["pending.ids"], state["reward_counts"], int(state["rounds"][0])
        names = ("pending.ids", "pending.rounds", "pending.arms", "pending.features")
        lengths = {len(state[name]) for name in names}
        if len(lengths) != 1 or len(counts) not in (2, 3):
            raise invalid("state", "pending decisions of one agent", "arrays of different lengths")
        if len(ids) > self._max_pending:
            raise invalid("state 'pending.ids'", f"at most {self._max_pending} decisions", f"{len(ids)} decisions")
        check_range("state 'pending.arms'", state["pending.arms"], 0, arms - 1)
        check_range("state 'pending.ids'", ids, 1, rounds)
        check_range("state 'reward_counts'", counts, 0, rounds)
        check_features(state["pending.features"])
        if not (np.diff(ids) > 0).all():
            raise invalid("state 'pending.ids'", "increasing ids", "ids that do not increase")
        check_rounds(state["pending.rounds"], ids, state["extra_rounds"][0])
        provisional = state.get(PROVISIONAL, _NO_PROVISIONAL)
        columns = _NO_PROVISIONAL.shape[1:]
        if provisional.dtype != np.float64 or provisional.shape[1:] != columns:
            expected, got = f"numbers like {_NO_PROVISIONAL.shape}", f"{provisional.dtype} {provisional.shape}"
            raise invalid(f"state '{PROVISIONAL}'", expected, got)
        if len(set(provisional[:, 0].tolist()) & set(ids.tolist())) < len(provisional):
            raise invalid(f"state '{PROVISIONAL}'", "distinct pending decisions", "other decisions")
        rewards, variances, numbers = provisional[:, 1:].T
        if not ((np.abs(rewards) <= LIMIT) & (variances >= 0.0) & (numbers >= 0.0) & (numbers <= rounds)).all():
            raise invalid(f"state '{PROVISIONAL}'", "rewards with their variances and numbers", "other numbers")
        accounted = len(ids) - len(provisional) + int(counts[0]) + int(counts[2:].sum())
        if accounted > rounds:
            raise invalid("state 'reward_counts'", f"at most {rounds} rewards and open decisions", accounted)
        counted = state.get("guardrails.reward_counts", np.zeros((1, len(BRANCHES)), dtype=np.int64))[0]
        if counted.sum() > counts[0]:
            raise invalid("state 'guardrails.reward_counts'", f"a sum of at most {counts[0]}", counted.sum())
        marks = state.get(MARKS, np.full(len(ids), _NO_MARK))
        check_marks(marks, len(ids))
        rewarded = marks[np.isin(ids, provisional[:, 0]) & (marks != _NO_MARK)]
        if (np.bincount(rewarded, minlength=len(BRANCHES)) > counted).any():
            raise invalid(f"state '{MARKS}'", "provisional rewards that are counted", "others")

    def restore(self, state: Mapping[str, Any], decision_count: int) -> None:
        ids, rounds, arms = (np.array(state[f"pending.{name}"]) for name in ("ids", "rounds", "arms"))
        features = np.array(state["pending.features"], order="C")
        self.waiting = OrderedDict(
            (decision_id, (rounds[i : i + 1], arms[i : i + 1], features[i : i + 1]))
            for i, decision_id in enumerate(ids.tolist())
        )
        self.provisional = {}
        for decision_id, *reward in np.asarray(state.get(PROVISIONAL, _NO_PROVISIONAL)).tolist():
            decision = self.waiting[int(decision_id)]
            assert decision is not None
            self.provisional[int(decision_id)] = ProvisionalReward(decision, *reward)
            self.waiting[int(decision_id)] = None
        marks = np.asarray(state.get(MARKS, ())).tolist()
        self.branches = {one: mark for one, mark in zip(ids.tolist(), marks, strict=False) if mark != _NO_MARK}
        self.decision_count = decision_count
        counts = (*map(int, state["reward_counts"]), 0)[:3]
        self.reward_count, self._last_rewarded, self.given_up_count = counts


def check_rounds(rounds: Ints, decisions: Ints, extra_rounds: ArrayLike) -> None:
    """Raise an error unless the estimator's `rounds` (n,) fit the `decisions` (n,), which are numbered per stream.

    The number of a round exceeds the number of its decision by the number of earlier rounds without a decision. This
    excess must be from 0 to `extra_rounds`.
    """
    extra = rounds - decisions
    check_range("state 'pending.rounds'", extra, 0, extra_rounds)


def check_marks(marks: NDArray[Any], count: int) -> None:
    """Raise an error unless `marks` are the branches of `count` decisions."""
    if marks.dtype != np.int64 or marks.shape != (count,):
        raise invalid(f"state '{MARKS}'", f"int64 {(count,)}", f"{marks.dtype} {marks.shape}")
    check_range(f"state '{MARKS}'", marks, _NO_MARK, len(BRANCHES) - 1)


class FleetPending:
    """The decisions of all streams of a fleet that can still be rewarded, as arrays with one row per decision.

    The `PendingDecisions` of a single agent store one object per decision. In a fleet, creating these objects would
    take longer than deciding. If a stream has more than `max_pending` decisions, its oldest one is dropped.
    """

    def __init__(self, max_pending: int, streams: int, dimension: int) -> None:
        self._max_pending = max_pending
        self._index_of: dict[int, int] = {}  # from the id of a decision to its index in the arrays
        self.ids: Ints = np.zeros(0, dtype=np.int64)  # −1 where an index is free
        self.rows: Ints = np.zeros(0, dtype=np.int64)
        self.rounds: Ints = np.zeros(0, dtype=np.int64)  # these numbers include rounds without a decision
        self.arms: Ints = np.zeros(0, dtype=np.int64)
        self.features: Floats = np.zeros((0, dimension))
        self.branches: Ints = np.zeros(0, dtype=np.int64)  # −1 for a decision whose branch is not known
        self._free: Ints = np.zeros(0, dtype=np.int64)
        self.counts: Ints = np.zeros(streams, dtype=np.int64)  # decisions of each row
        self.oldest: Ints = np.zeros(streams, dtype=np.int64)  # no pending decision of the row has an earlier round

    def __len__(self) -> int:
        return len(self._index_of)

    @property
    def nbytes(self) -> int:
        """The bytes that the decisions take, without `counts` and `oldest`."""
        arrays = [getattr(self, name) for name in (*_DECISION_ARRAYS, "_free")]
        return sys.getsizeof(self._index_of) + int(sum(array.nbytes for array in arrays))

    def resize(self, streams: int) -> None:
        self.counts, self.oldest = resized(self.counts, streams), resized(self.oldest, streams)

    def add(
        self, ids: Ints, rows: Ints, rounds: Ints, arms: Ints, features: Floats, branches: Ints | None = None
    ) -> None:
        """Add decisions. The decisions of one stream must be in the order of their rounds."""
        if len(ids) > len(self._free):
            old = len(self.ids)
            size = max(int(old * ROW_GROWTH), old + len(ids))
            for name in _DECISION_ARRAYS:
                setattr(self, name, resized(getattr(self, name), size))
            self.ids[old:] = -1
            self._free = np.concatenate([np.arange(size - 1, old - 1, -1), self._free])
        cut = len(self._free) - len(ids)
        indices, self._free = self._free[cut:], self._free[:cut]
        self.ids[indices], self.rows[indices], self.rounds[indices] = ids, rows, rounds
        self.arms[indices], self.features[indices] = arms, features
        self.branches[indices] = _NO_MARK if branches is None else branches
        self._index_of.update(zip(ids.tolist(), indices.tolist(), strict=True))
        np.add.at(self.counts, rows, 1)
        full = self.counts[rows] > self._max_pending
        if full.any():
            self._drop_oldest(dict(zip(rows[full].tolist(), (ids[full] & ~ROUND_MASK).tolist(), strict=True)))

    def _drop_oldest(self, first_ids: dict[int, int]) -> None:
        """Drop the oldest decisions of rows with too many decisions.

        `first_ids` maps each row to the id that round 0 of its stream would have.
        """
        dropped = []
        for row, first_id in first_ids.items():
            for _ in range(int(self.counts[row]) - self._max_pending):
                index = self._take_oldest(row, first_id)
                self.ids[index] = -1
                dropped.append(index)
        self.free(np.array(dropped))

    def _take_oldest(self, row: int, first_id: int) -> int:
        """Remove the oldest decision of a row and return its index. The search usually ends after a few rounds."""
        start = int(self.oldest[row])
        for round_ in range(start, start + _MAX_STEPS):
            index = self._index_of.pop(first_id | round_, None)
            if index is not None:
                self.oldest[row] = round_ + 1
                return index
        index = int(self.indices_of_stream(first_id >> ROUND_BITS)[0])
        self.oldest[row] = (int(self.ids[index]) & ROUND_MASK) + 1
        del self._index_of[int(self.ids[index])]
        return index

    def take(self, ids: Ints) -> Ints:
        """Remove decisions and return their indices, or −1 for decisions that are not pending.

        The caller must then either `free` the indices or `put_back` the decisions.
        """
        return np.fromiter(map(self._index_of.pop, ids.tolist(), repeat(-1)), np.int64, len(ids))

    def put_back(self, indices: Ints) -> None:
        self._index_of.update(zip(self.ids[indices].tolist(), indices.tolist(), strict=True))

    def free(self, indices: Ints) -> None:
        np.subtract.at(self.counts, self.rows[indices], 1)
        self.ids[indices] = -1
        self._free = np.concatenate([self._free, indices])

    def drop_rows(self, rows: Ints) -> None:
        """Drop all decisions of streams that are removed, so that their rows can be reused."""
        indices = np.flatnonzero((self.ids >= 0) & np.isin(self.rows, rows))
        self.take(self.ids[indices])
        self.free(indices)
        self.oldest[rows] = 0

    def unmark(self, streams: Mask) -> None:
        """Forget the branches of all pending decisions in the rows for which the mask `streams` is true."""
        self.branches[(self.ids >= 0) & streams[self.rows]] = _NO_MARK

    def indices_of_stream(self, number: int) -> Ints:
        """Return the indices of the decisions of one stream, oldest first."""
        indices = np.flatnonzero(self.ids >> ROUND_BITS == number)
        return indices[np.argsort(self.ids[indices])]

    def all_indices(self) -> Ints:
        """Return the indices of all decisions, ordered by the number of the stream and then by round."""
        indices = np.flatnonzero(self.ids >= 0)
        return indices[np.argsort(self.ids[indices])]

    def state(self, indices: Ints, *, marked: bool) -> dict[str, Any]:
        """Return the decisions at `indices`, with their branches if `marked` is true."""
        names = ("ids", "rounds", "arms", "features", *(("branches",) if marked else ()))
        return {f"pending.{name}": getattr(self, name)[indices] for name in names}
