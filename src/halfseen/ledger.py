"""The decisions of one stream, by number: which of them still wait for a reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from halfseen.component import at_least
from halfseen.errors import DecisionError, invalid
from halfseen.health import LONG
from halfseen.randomness import Floats, Ints


class Ledger:
    """Numbers are those of the rounds, from 1. Beyond `max_pending` that wait, the oldest can no longer be rewarded."""

    def __init__(self, max_pending: int, dimension: int) -> None:
        self._max_pending = at_least("max_pending", max_pending, 1)
        self._dimension = dimension
        self.waiting: dict[int, tuple[Ints, Ints, Floats]] = {}  # round, arm and features of each
        self.decided = 0
        self.rewarded, self._last_rewarded = 0, 0  # rewards credited; decisions made when the last of them came
        self.given_up = 0  # decisions that no reward is expected for any more

    def open(self, choices: tuple[Any, ...]) -> int:
        """The number of a decision, of whose choices round, arm and features, the first three, are kept."""
        number = self.decided = self.decided + 1
        waiting = self.waiting
        waiting[number] = choices[:3]
        if len(waiting) > self._max_pending:
            del waiting[next(iter(waiting))]
        return number

    def find(self, decision_id: Any) -> tuple[Ints, Ints, Floats]:
        """Round, arm and features of a decision that waits."""
        try:
            found = self.waiting.get(decision_id)
        except TypeError:
            raise invalid("decision_id", repr(decision_id), "the id of a decision") from None
        if found is None:
            raise self._no_such_decision(decision_id)
        return found

    def close(self, decision_id: int) -> None:
        del self.waiting[decision_id]
        self.rewarded += 1
        self._last_rewarded = self.decided

    def give_up(self, decision_id: int) -> None:
        self.find(decision_id)
        del self.waiting[decision_id]
        self.given_up += 1

    def _no_such_decision(self, decision_id: object) -> DecisionError:
        if isinstance(decision_id, int | np.integer) and 1 <= decision_id <= self.decided:
            return DecisionError(
                f"decision_id: got {decision_id}, which was rewarded before, was given up, or is older than the last "
                f"{self._max_pending} unrewarded decisions; want one of agent.pending"
            )
        return DecisionError(
            f"decision_id: got {decision_id!r}, which was never decided; want one of agent.pending "
            f"(decisions so far: {self.decided})"
        )

    def health(self) -> tuple[dict[str, object], list[str]]:
        dropped = self.decided - self.rewarded - self.given_up - len(self.waiting)
        silence = self.decided - self._last_rewarded
        facts: dict[str, object] = {
            "rounds": self.decided,
            "rewards": self.rewarded,
            "decisions since the last reward": silence,
            "decisions waiting": len(self.waiting),
            "decisions dropped": dropped,
        }
        if self.given_up:
            facts["decisions given up"] = self.given_up
        notes = []
        if silence >= LONG:
            notes.append(f"no reward has come in the last {silence} decisions")
        if dropped:
            notes.append(f"{dropped} decisions can no longer be rewarded: more than {self._max_pending} were waiting")
        return facts, notes

    def state(self) -> dict[str, Any]:
        entries = self.waiting.values()
        empty = np.zeros((0, self._dimension))
        return {
            "pending.ids": np.array(list(self.waiting), dtype=np.int64),
            "pending.arms": np.array([int(arm[0]) for _, arm, _ in entries], dtype=np.int64),
            "pending.features": np.concatenate([features for _, _, features in entries]) if entries else empty,
            "rewards": np.array([self.rewarded, self._last_rewarded, *([self.given_up] if self.given_up else [])]),
        }

    def check(self, state: Mapping[str, Any]) -> None:
        """Refuse arrays that are not what `state` gives."""
        for name, mine in self.state().items():
            given = np.asarray(state[name])
            if given.dtype != mine.dtype or given.ndim != mine.ndim or given.shape[1:] != mine.shape[1:]:
                raise invalid(f"state '{name}'", f"{given.dtype} {given.shape}", f"{mine.dtype} like {mine.shape}")
        counts = {len(state[name]) for name in ("pending.ids", "pending.arms", "pending.features")}
        if len(counts) != 1 or len(state["rewards"]) not in (2, 3):
            raise invalid("state", "pending decisions that do not fit together", "those of one agent of this kind")

    def restore(self, state: Mapping[str, Any], decided: int) -> None:
        ids, arms = np.array(state["pending.ids"]), np.array(state["pending.arms"])
        features = np.array(state["pending.features"], order="C")
        self.waiting = {
            number: (ids[i : i + 1], arms[i : i + 1], features[i : i + 1]) for i, number in enumerate(ids.tolist())
        }
        self.decided = decided
        self.rewarded, self._last_rewarded, self.given_up = (*map(int, state["rewards"]), 0)[:3]
