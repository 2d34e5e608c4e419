"""The Kalman filters of a batch of streams, which several estimators use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfseen.components import Mask, State, Stateful, StreamBatch, resized
from halfseen.errors import invalid
from halfseen.kernels.kalman import advance_gain, advance_mean, advance_means, predict_ahead
from halfseen.kernels.random import Floats, Ints

_MODEL = ("transition", "process_cov", "observation_cov")
_GROUP = ("cov", "gain", "frozen")


class FilterBank(Stateful):
    """One Kalman filter per stream, in canonical coordinates (A = [I 0]).

    The covariance of a filter depends on its model and on which entries were observed, but not on their values. With a
    `shared_model`, streams that observed the same entries therefore form a group and share covariance and gain:
    `group` (B,) is the index of the group of each stream in `cov`, `gain` and `frozen`. A stream leaves its group when
    it observes a round that the rest of the group does not observe, or when its observed entries differ from those of
    the rest. Groups whose covariances have converged to exactly the same numbers are merged. Without a shared model,
    every stream has its own model and its own group. `frozen` marks groups whose covariance has converged, so that
    covariance and gain no longer change.
    """

    state_names = (*_MODEL, "mean", *_GROUP)

    def __init__(
        self,
        transition: Floats,  # (M, d, d), where M is 1 for a shared model and B otherwise
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
        """Recompute the attributes that follow from `group` and `frozen`."""
        # A single stream needs no groups.
        self._grouped = self._shared_model and len(self.group) > 1
        self._users = np.bincount(self.group, minlength=len(self.frozen))
        self._unused = np.flatnonzero(self._users == 0)[::-1].tolist()
        self._steady = bool(self.frozen[self.group].all())

    def observe(self, rows: Ints, observations: Floats, complete: bool) -> Floats:
        """Do one Kalman step for the distinct streams `rows`, and return a copy of their filtered means."""
        if not (self._steady and complete):
            self._advance_covariances(rows, observations, complete)
        advance_mean(rows, self.group, self.transition, self.gain, self.mean, observations)
        return self.mean.copy() if len(self.mean) == 1 == len(rows) else self.mean.take(rows, axis=0)

    def pass_rounds(self, rows: Ints, missing: Ints) -> None:
        """Predict the distinct streams `rows` over `missing` (n,) rounds (at least one each) without observations."""
        for steps in np.unique(missing).tolist():
            part = groups = rows[missing == steps]
            if self._grouped:
                groups = self._groups_to_advance(part, np.ones((len(part), 1), np.bool_))[0]
            else:
                groups = self.group[part]
            predict_ahead(
                steps, groups, part, self.group, self.transition, self.process_cov, self.cov, self.frozen, self.mean
            )
        self._steady = False

    def look_again(self, rows: Ints, observations: Floats) -> Floats:
        """Update the distinct streams `rows` by a second observation of the same moment, and return their means."""
        seen, groups = ~np.isnan(observations), self.group[rows]
        if self._grouped:
            groups, seen = self._groups_to_advance(rows, seen)
        count, d = len(groups), self.mean.shape[1]
        identity, zeros = np.tile(np.eye(d), (count, 1, 1)), np.zeros((count, d, d))
        noise = np.repeat(self.observation_cov, count, axis=0) if self._shared_model else self.observation_cov[groups]
        cov, gain, frozen = self.cov[groups], self.gain[groups], np.zeros(count, dtype=np.bool_)
        advance_gain(np.arange(count), identity, zeros, noise, cov, gain, frozen, seen)
        self.cov[groups], self.gain[groups], self.frozen[groups] = cov, gain, False
        self._steady = False
        advance_mean(rows, self.group, identity[:1], self.gain, self.mean, observations)
        return self.mean.take(rows, axis=0)

    def forecast(self, row: int, horizon: int) -> tuple[Floats, Floats]:
        """Return means (h, d) and covariances (h, d, d) of the context in the next `horizon` rounds."""
        model = 0 if self._shared_model else row
        return predicted(
            self.transition[model], self.process_cov[model], self.mean[row], self.cov[self.group[row]], horizon
        )

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
        """Split groups whose streams do not all observe the same entries in this round.

        Returns the groups to advance and the observed entries of each.
        """
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

    def _find_group(self, cov: Floats, gain: Floats, frozen: bool, excluding: int = -1) -> int:
        """Return a group other than `excluding` with exactly this covariance and gain, or −1 if there is none."""
        possible = (self._users > 0) & (self.frozen == frozen) & (self.cov[:, 0, 0] == cov[0, 0])
        for group in np.flatnonzero(possible).tolist():
            if group != excluding and (self.cov[group] == cov).all() and (self.gain[group] == gain).all():
                return int(group)
        return -1

    def _merge_converged(self, groups: Ints) -> None:
        for group in groups[self.frozen[groups]].tolist():
            same = self._find_group(self.cov[group], self.gain[group], True, excluding=group)
            if same >= 0:
                self.group[self.group == group] = same
                self._users[same] += self._users[group]
                self._users[group] = 0
                self._unused.append(group)

    def observe_rounds(self, observations: Floats, start: int, stop: int, means: Floats) -> None:
        """Do the Kalman steps of all streams for the rounds start:stop of the observations (n, B, k).

        No entry may be missing. The filtered means are written into `means` (B, n, d).
        """
        all_rows, t = np.arange(len(self.mean)), start
        while t < stop and not self._steady:
            means[:, t] = self.observe(all_rows, observations[t], True)
            t += 1
        advance_means(self.group, self.transition, self.gain, self.mean, observations, t, stop, means)

    def replace_model(self, rows: Ints, transition: Floats, process_cov: Floats) -> None:
        """Change the dynamics of streams that have their own models. Mean and covariance do not change."""
        self.transition[rows], self.process_cov[rows] = transition, process_cov
        self.frozen[rows] = False
        self._steady = False

    def _own_state(self, rows: Ints | None) -> State:
        """Return the state, with one covariance and gain per stream. A shared model is included only once."""
        all_rows = np.arange(len(self.mean)) if rows is None else rows
        state: State = {name: getattr(self, name) for name in _MODEL}
        if not self._shared_model and rows is not None:
            state = {name: array[rows] for name, array in state.items()}
        state["mean"] = self.mean if rows is None else self.mean[rows]
        return state | {name: getattr(self, name)[self.group[all_rows]] for name in _GROUP}

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
                raise invalid("agent", "an agent with the model that all streams share", f"one with another {name}")
        self.mean[rows] = state["mean"]
        found: dict[tuple[bytes, bytes, bool], int] = {}
        for row, cov, gain, frozen in zip(rows.tolist(), *(state[name] for name in _GROUP), strict=True):
            key = (cov.tobytes(), gain.tobytes(), bool(frozen))
            if key not in found:
                known = self._find_group(cov, gain, bool(frozen))
                found[key] = known if known >= 0 else self._new_group(cov, gain, bool(frozen))
                self._users[found[key]] += 1  # so that this loop does not reuse the group, even if all streams leave it
            self.group[row] = found[key]
        self._count_users()

    def resize(self, streams: StreamBatch) -> None:
        for name in ("mean", "group") if self._shared_model else self.state_names:
            setattr(self, name, resized(getattr(self, name), streams.count))
        if not self._shared_model:
            self.group = np.arange(streams.count)
        self._count_users()


def predicted(
    transition: Floats, process_cov: Floats, mean: Floats, cov: Floats, horizon: int
) -> tuple[Floats, Floats]:
    """Return means (h, d) and covariances (h, d, d) of a context after each of the next `horizon` steps."""
    means, covs = np.empty((horizon, len(mean))), np.empty((horizon, *cov.shape))
    for j in range(horizon):
        mean, moved = transition @ mean, transition @ cov @ transition.T + process_cov
        cov = 0.5 * (moved + moved.T)
        means[j], covs[j] = mean, cov
    return means, covs


def _observation_patterns(groups: Ints, seen: Mask) -> tuple[Ints, Ints, Ints]:
    """Find the distinct pairs of group and observed entries among streams.

    Returns for each pair the index of the first stream that has it, for each stream the number of its pair, and for
    each pair the number of streams that have it.
    """
    if seen.all() and (groups == groups[0]).all():
        return np.zeros(1, np.int64), np.zeros(len(groups), np.int64), np.array([len(groups)])
    # Each pair is encoded as one item of bytes, because `np.unique` is much faster on items than on rows.
    pairs = np.concatenate([groups[:, None].view(np.uint8), np.packbits(seen, axis=1)], axis=1)
    pairs = np.ascontiguousarray(pairs).view(f"V{pairs.shape[1]}")[:, 0]
    _, first, which, sizes = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
    return first, which, sizes
