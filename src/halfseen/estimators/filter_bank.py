"""The Kalman filters of a batch of streams, shared by every estimator that filters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfseen.components import Mask, State, Stateful, StreamBatch, resized
from halfseen.errors import invalid
from halfseen.kernels.kalman import advance_gain, advance_mean, advance_means
from halfseen.kernels.random import Floats, Ints

_MODEL = ("transition", "process_cov", "observation_cov")
_GROUP = ("cov", "gain", "frozen")


class FilterBank(Stateful):
    """One filter per stream, in canonical coordinates (A = [I 0]).

    The covariance of a filter depends on its model and on which entries were seen, not on their values. Streams of one
    `shared_model` therefore share covariance and gain, as groups: `group` (B,) says which entry of `cov`, `gain` and
    `frozen` a stream uses. Streams leave their group when they step alone or see other entries than the rest of it.
    Groups whose covariance has converged to exactly the same numbers become one again. Without a shared model, every
    stream has its own model, and is the only one of its group.
    """

    state_names = (*_MODEL, "mean", *_GROUP)

    def __init__(
        self,
        transition: Floats,  # (M, d, d), M = 1 for a shared model or B
        process_cov: Floats,  # (M, d, d)
        observation_cov: Floats,  # (M, k, k)
        initial_mean: Floats,  # (B, d)
        initial_cov: Floats,  # (M, d, d)
        *,
        shared_model: bool,
    ) -> None:
        groups, d, k = len(transition), transition.shape[-1], observation_cov.shape[-1]
        self._shared_model = shared_model
        self.transition, self.process_cov, self.observation_cov = transition, process_cov, observation_cov
        self.mean, self.cov = initial_mean, initial_cov
        self.gain = np.zeros((groups, d, k))
        self.frozen = np.zeros(groups, dtype=np.bool_)
        count = len(initial_mean)
        self.group: Ints = np.zeros(count, dtype=np.int64) if shared_model else np.arange(count)
        self._count_users()

    def _count_users(self) -> None:
        """Bring up to date what follows from `group` and `frozen`."""
        # A single stream is its own group, and is spared the bookkeeping.
        self._grouped = self._shared_model and len(self.group) > 1
        self._users = np.bincount(self.group, minlength=len(self.frozen))
        self._unused = np.flatnonzero(self._users == 0)[::-1].tolist()
        self._steady = bool(self.frozen[self.group].all())

    # ------------------------------------------------------------------ a round

    def observe(self, rows: Ints, observations: Floats, complete: bool) -> Floats:
        """One Kalman step of the streams `rows`, all different; their filtered means, a copy."""
        if not (self._steady and complete):
            self._advance_covariances(rows, observations, complete)
        advance_mean(rows, self.group, self.transition, self.gain, self.mean, observations)
        return self.mean.copy() if len(self.mean) == 1 == len(rows) else self.mean.take(rows, axis=0)

    def _advance_covariances(self, rows: Ints, observations: Floats, complete: bool) -> None:
        groups, seen = rows, np.ones(observations.shape, np.bool_) if complete else ~np.isnan(observations)
        if self._grouped:
            frozen = self.frozen[self.group[rows]]
            moving = np.flatnonzero(~(frozen if complete else frozen & seen.all(axis=1)))
            if len(moving) == 0:
                return
            groups, seen = self._groups_to_advance(rows[moving], seen[moving])
        advance_gain(
            groups, self.transition, self.process_cov, self.observation_cov, self.cov, self.gain, self.frozen, seen
        )
        if self._grouped:
            self._merge_converged(groups)
        self._steady = bool(self.frozen[self.group].all())

    def _groups_to_advance(self, rows: Ints, seen: Mask) -> tuple[Ints, Mask]:
        """Give the streams that step together a group of their own: the groups, and the entries each has seen."""
        groups = self.group[rows]
        in_shared_group = np.flatnonzero(self._users[groups] > 1)
        if len(in_shared_group):
            first, which, sizes = _observation_patterns(groups[in_shared_group], seen[in_shared_group])
            targets = groups[in_shared_group[first]]
            for i, (group, size) in enumerate(zip(targets.tolist(), sizes.tolist(), strict=True)):
                if size < self._users[group]:
                    targets[i] = self._new_group(self.cov[group], self.gain[group], bool(self.frozen[group]))
                    self._users[group] -= size
                    self._users[targets[i]] = size
            groups[in_shared_group] = targets[which]
            self.group[rows] = groups
        groups, first = np.unique(groups, return_index=True)
        return groups, seen[first]

    def _new_group(self, cov: Floats, gain: Floats, frozen: bool) -> int:
        if not self._unused:
            old = len(self.frozen)
            size = old + max(8, old // 2)
            for name in (*_GROUP, "_users"):
                setattr(self, name, resized(getattr(self, name), size))
            self._unused = list(range(size - 1, old - 1, -1))
        group = int(self._unused.pop())
        self.cov[group], self.gain[group], self.frozen[group] = cov, gain, frozen
        return group

    def _find_group(self, cov: Floats, gain: Floats, frozen: bool, beside: int = -1) -> int:
        """The group in use of exactly these numbers, other than `beside`; −1 if there is none."""
        likely = (self._users > 0) & (self.frozen == frozen) & (self.cov[:, 0, 0] == cov[0, 0])
        for group in np.flatnonzero(likely).tolist():
            if group != beside and (self.cov[group] == cov).all() and (self.gain[group] == gain).all():
                return int(group)
        return -1

    def _merge_converged(self, groups: Ints) -> None:
        for group in groups[self.frozen[groups]].tolist():
            same = self._find_group(self.cov[group], self.gain[group], True, beside=group)
            if same >= 0:
                self.group[self.group == group] = same
                self._users[same] += self._users[group]
                self._users[group] = 0
                self._unused.append(group)

    def observe_rounds(self, observations: Floats, start: int, stop: int, means: Floats) -> None:
        """`observe` of all streams in rounds start:stop of observations (n, B, k), all seen, into means (B, n, d)."""
        everyone, t = np.arange(len(self.mean)), start
        while t < stop and not self._steady:
            means[:, t] = self.observe(everyone, observations[t], True)
            t += 1
        advance_means(self.group, self.transition, self.gain, self.mean, observations, t, stop, means)

    def replace_model(self, rows: Ints, transition: Floats, process_cov: Floats) -> None:
        """New dynamics for streams with models of their own, from the next round on; mean and covariance stay."""
        self.transition[rows], self.process_cov[rows] = transition, process_cov
        self.frozen[rows] = False
        self._steady = False

    # ------------------------------------------------------------------ state

    def _own_state(self, rows: Ints | None) -> State:
        """Every stream with a covariance of its own; a shared model is given once."""
        everyone = np.arange(len(self.mean)) if rows is None else rows
        state: State = {name: getattr(self, name) for name in _MODEL}
        if not self._shared_model and rows is not None:
            state = {name: array[rows] for name, array in state.items()}
        state["mean"] = self.mean if rows is None else self.mean[rows]
        return state | {name: getattr(self, name)[self.group[everyone]] for name in _GROUP}

    def _state_shape(self, name: str, mine: NDArray[Any], given: NDArray[Any], count: int) -> tuple[int, ...]:
        return mine.shape if self._shared_model and name in _MODEL else (count, *mine.shape[1:])

    def restore(self, state: State, rows: Ints | None = None) -> None:
        if not self._shared_model:
            super().restore(state, rows)
            self.group = np.arange(len(self.mean))
            self._count_users()
            return
        if rows is None:
            for name in _MODEL:
                setattr(self, name, np.array(state[name], order="C"))
            for name in _GROUP:
                setattr(self, name, np.array(state[name][:1], order="C"))
            self.mean = np.array(state["mean"], order="C")
            self.group = np.zeros(len(self.mean), dtype=np.int64)
            self._count_users()
            rows = np.arange(len(self.mean))
        for name in _MODEL:
            if not (getattr(self, name) == state[name]).all():
                raise invalid("agent", "one of the model that all streams share", f"one with another {name}")
        self.mean[rows] = state["mean"]
        found: dict[tuple[bytes, bytes, bool], int] = {}
        for row, cov, gain, frozen in zip(rows.tolist(), *(state[name] for name in _GROUP), strict=True):
            key = (cov.tobytes(), gain.tobytes(), bool(frozen))
            if key not in found:
                known = self._find_group(cov, gain, bool(frozen))
                found[key] = known if known >= 0 else self._new_group(cov, gain, bool(frozen))
                self._users[found[key]] += 1  # so that it is taken, whoever leaves it below
            self.group[row] = found[key]
        self._count_users()

    def resize(self, streams: StreamBatch) -> None:
        for name in ("mean", "group") if self._shared_model else self.state_names:
            setattr(self, name, resized(getattr(self, name), streams.count))
        if not self._shared_model:
            self.group = np.arange(streams.count)
        self._count_users()


def _observation_patterns(groups: Ints, seen: Mask) -> tuple[Ints, Ints, Ints]:
    """Streams of one group that see the same entries: the first of each kind, the kind of each stream, their number."""
    if seen.all() and (groups == groups[0]).all():
        return np.zeros(1, np.int64), np.zeros(len(groups), np.int64), np.array([len(groups)])
    marks = np.concatenate([groups[:, None].view(np.uint8), np.packbits(seen, axis=1)], axis=1)
    marks = np.ascontiguousarray(marks).view(f"V{marks.shape[1]}")[:, 0]
    _, first, which, sizes = np.unique(marks, return_index=True, return_inverse=True, return_counts=True)
    return first, which, sizes
