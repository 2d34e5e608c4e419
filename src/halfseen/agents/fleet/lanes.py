"""The Kalman filters of many streams of one model, each covariance kept once.

What a filter knows of its own error depends on the model and on which entries were seen, never on what they were. So
streams with the same past of seen and not seen share a *lane*: one covariance, one gain. A stream that saw everything
so far is in the lane of its age, until the covariance converges and all such streams are in one. Streams part when
one misses an entry; lanes that differ by rounding are never merged, because decisions are to be those of single agents
bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from halfseen.agents.fleet.packing import Array, grown, pack, unpack
from halfseen.components import Mask, Stateful
from halfseen.errors import invalid
from halfseen.estimators.filter_bank import FilterBank
from halfseen.kernels.kalman import advance_gain, advance_mean
from halfseen.kernels.random import Floats, Ints

AGES = 1000  # lanes of streams that have seen everything, by age, that are kept for streams still to come
MODEL = ("transition", "process_cov", "observation_cov")
LANES = ("cov", "gain", "frozen", "next_age", "of_age")


class LaneBank(Stateful):
    """Takes the place of a `FilterBank` of one model. Lane 0 is that of a stream that has seen nothing yet."""

    def __init__(self, bank: FilterBank, *, packed: bool) -> None:
        self.transition, self.process_cov = bank.transition, bank.process_cov
        self.observation_cov = bank.observation_cov
        self._packed = packed
        self.cov = pack(bank.cov) if packed else bank.cov.copy()
        self.gain, self.frozen = bank.gain.copy(), bank.frozen.copy()
        self.next_age = np.full(1, -1)  # the lane after one more round in which everything was seen; -1: not known
        self.of_age = np.ones(1, dtype=np.bool_)  # whether everything was always seen, and the lane is to be kept
        self.users = np.zeros(1, dtype=np.int64)
        self._vacant: list[int] = []
        self.mean = np.zeros((0, bank.mean.shape[1]))
        self.lane: Ints = np.zeros(0, dtype=np.int64)
        self._steady = True

    @property
    def count(self) -> int:
        """Lanes that are in use."""
        return len(self.users) - len(self._vacant)

    def make_rows(self, count: int) -> None:
        self.mean, self.lane = grown(self.mean, count), grown(self.lane, count)

    # ------------------------------------------------------------------ a round

    def observe(self, rows: Ints, observations: Floats, complete: bool) -> Floats:
        """One Kalman step of the streams `rows`, all different; their filtered means, a copy."""
        if not (self._steady and complete):
            lanes = self.lane.take(rows)
            seen = ~np.isnan(observations)
            steps = ~(self.frozen.take(lanes) & seen.all(axis=1))
            if steps.any():
                self._step(rows[steps], lanes[steps], seen[steps])
                self._steady = False
                if complete:
                    self._settle()
        advance_mean(rows, self.lane, self.transition, self.gain, self.mean, observations)
        return self.mean.take(rows, axis=0)

    def _settle(self) -> None:
        self._steady = bool(self.frozen[self.users > 0].all())  # while all is seen no lane has to step

    def _step(self, rows: Ints, lanes: Ints, seen: Mask) -> None:
        """Bring streams to the lanes that follow theirs, stepping every lane once."""
        alone = (self.users[lanes] == 1) & ~self.of_age[lanes]
        targets, patterns = [lanes[alone]], [seen[alone]]
        shared = np.flatnonzero(~alone)
        if len(shared):
            first, which, sizes = _groups(lanes[shared], seen[shared])
            moved = np.empty(len(first), dtype=np.int64)
            fresh = np.zeros(len(first), dtype=np.bool_)
            for group, (at, size) in enumerate(zip(shared[first], sizes, strict=True)):
                moved[group], fresh[group] = self._follow(int(lanes[at]), int(size), bool(seen[at].all()))
            targets.append(moved[fresh])
            patterns.append(seen[shared[first[fresh]]])
            np.subtract.at(self.users, lanes[shared], 1)
            self.lane[rows[shared]] = moved[which]
            np.add.at(self.users, moved[which], 1)
        self._advance(np.concatenate(targets), np.concatenate(patterns))
        if len(shared):
            self._vacate(np.unique(lanes[shared]))

    def _follow(self, lane: int, movers: int, complete: bool) -> tuple[int, bool]:
        """The lane that `movers` of a lane's streams go to, and whether it is still to be stepped."""
        if self.of_age[lane] and complete:
            if self.next_age[lane] >= 0:
                return int(self.next_age[lane]), False
            after = self._copy(lane)
            if np.count_nonzero(self.of_age) < AGES:
                self.next_age[lane], self.of_age[after] = after, True
            return after, True
        if movers == self.users[lane] and not self.of_age[lane]:
            return lane, True
        return self._copy(lane), True

    def _copy(self, lane: int) -> int:
        after = self._new()
        self.cov[after], self.gain[after], self.frozen[after] = self.cov[lane], self.gain[lane], self.frozen[lane]
        return after

    def _new(self) -> int:
        if not self._vacant:
            old = len(self.users)
            size = old + max(8, old // 2)
            for name in (*LANES, "users"):
                setattr(self, name, grown(getattr(self, name), size))
            self._vacant = list(range(size - 1, old - 1, -1))
        lane = self._vacant.pop()
        self.next_age[lane], self.of_age[lane], self.users[lane] = -1, False, 0
        return lane

    def _vacate(self, lanes: Ints) -> None:
        self._vacant += lanes[(self.users[lanes] == 0) & ~self.of_age[lanes]].tolist()

    def _advance(self, lanes: Ints, seen: Mask) -> None:
        if not self._packed:
            advance_gain(
                lanes, self.transition, self.process_cov, self.observation_cov, self.cov, self.gain, self.frozen, seen
            )
            return
        places = np.arange(len(lanes))
        cov, gain, frozen = self._covs(lanes), self.gain[lanes], self.frozen[lanes]
        advance_gain(places, self.transition, self.process_cov, self.observation_cov, cov, gain, frozen, seen)
        self.cov[lanes], self.gain[lanes], self.frozen[lanes] = pack(cov), gain, frozen

    def _covs(self, lanes: Ints) -> Floats:
        return unpack(self.cov[lanes], self.mean.shape[1]) if self._packed else self.cov[lanes]

    # ------------------------------------------------------------------ streams come, go and are looked at

    def read(self, rows: Ints) -> dict[str, Array]:
        """The state of streams as a `FilterBank` with a lane for each of them would hold it."""
        lanes = self.lane[rows]
        model = {name: np.repeat(getattr(self, name), len(rows), axis=0) for name in MODEL}
        return model | {
            "mean": self.mean[rows],
            "cov": self._covs(lanes),
            "gain": self.gain[lanes],
            "frozen": self.frozen[lanes],
        }

    def take(self, rows: Ints, bank: FilterBank) -> None:
        """Let `rows`, which were in use by nobody, be the streams of a bank of the same model."""
        for name in MODEL:
            if not (getattr(bank, name) == getattr(self, name)).all():
                raise invalid("agent", f"one with another {name}", "one of the model that all streams share")
        kept = np.flatnonzero(self.of_age)
        covs = self._covs(kept)
        found = np.empty(len(bank.frozen), dtype=np.int64)
        for i in range(len(found)):
            same = (bank.frozen[i] == self.frozen[kept]) & (bank.gain[i] == self.gain[kept]).all(axis=(1, 2))
            same &= (bank.cov[i] == covs).all(axis=(1, 2))
            found[i] = kept[same][0] if same.any() else self._new()
            if not same.any():
                self.cov[found[i]] = pack(bank.cov[i]) if self._packed else bank.cov[i]
                self.gain[found[i]], self.frozen[found[i]] = bank.gain[i], bank.frozen[i]
        self.mean[rows] = bank.mean[: len(rows)]
        self.lane[rows] = found
        np.add.at(self.users, self.lane[rows], 1)
        self._settle()

    def leave(self, rows: Ints) -> None:
        """Streams that are no more."""
        lanes = self.lane[rows]
        np.subtract.at(self.users, lanes, 1)
        self._vacate(np.unique(lanes))
        self._settle()

    def save(self, rows: Ints) -> dict[str, Array]:
        """Means and lanes of streams, and all lanes in use, numbered anew."""
        used = np.flatnonzero((self.users > 0) | self.of_age)
        renumbered = np.full(len(self.users) + 1, -1)  # the last for -1, which stays as it is
        renumbered[used] = np.arange(len(used))
        lanes = {name: getattr(self, name)[used] for name in LANES}
        lanes["next_age"] = renumbered[lanes["next_age"]]
        return {"mean": self.mean[rows], "lane": renumbered[self.lane[rows]]} | lanes

    def load(self, rows: Ints, saved: Mapping[str, Array]) -> None:
        """What `save` gave, for a bank that has no streams yet."""
        for name in LANES:
            setattr(self, name, np.array(saved[name], order="C"))
        self._vacant = []
        self.mean[rows], self.lane[rows] = saved["mean"], saved["lane"]
        self.users = np.bincount(self.lane[rows], minlength=len(self.frozen)).astype(np.int64)
        self._settle()


def _groups(lanes: Ints, seen: Mask) -> tuple[Ints, Ints, Ints]:
    """Streams of the same lane that see the same entries: the first of each group, the group of each, their sizes."""
    marks = np.concatenate([lanes[:, None].view(np.uint8).reshape(len(lanes), -1), np.packbits(seen, axis=1)], axis=1)
    marks = np.ascontiguousarray(marks).view(f"V{marks.shape[1]}")[:, 0]
    _, first, which, sizes = np.unique(marks, return_index=True, return_inverse=True, return_counts=True)
    return first, which, sizes
