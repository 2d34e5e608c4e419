"""How the arrays of an estimator or a learner are held for many streams.

*In place*: the part is built for all rows there is room for, and works on the rows it is told. *Staged*: the part is
built for one slice of streams; what those streams carry is laid into its arrays before it is called and taken back
afterwards. That costs the copying, and pays where matrices are kept as triangles, or where a part carries nothing of a
stream's own but holds what it was told once for every stream. *Laned*: filters of one model (`fleet.lanes`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from halfseen.agents.fleet.lanes import LANES, LaneBank
from halfseen.agents.fleet.packing import Array, grown, pack, unpack
from halfseen.components import Estimator, Learner, Stateful
from halfseen.errors import invalid
from halfseen.estimators.filter_bank import FilterBank
from halfseen.estimators.kalman import Kalman
from halfseen.kernels.random import Ints


def owners(part: Stateful) -> dict[str, Stateful]:
    """Who holds each array that a stream carries, by the name of the array."""
    found: dict[str, Stateful] = dict.fromkeys((*part.state_names, *part.derived), part)
    for inner in part.parts:
        found |= owners(getattr(part, inner))
    return found


def told(part: Stateful, count: int) -> dict[str, Array]:
    """Arrays of a part built for `count` streams that say the same of every stream, by name."""
    holders = {id(owner): owner for owner in (part, *owners(part).values())}.values()
    carried = {id(getattr(owner, name)) for name, owner in owners(part).items()}
    return {
        name: value
        for holder in holders
        for name, value in vars(holder).items()
        if isinstance(value, np.ndarray) and value.shape[:1] == (count,) and id(value) not in carried
    }


class Held(ABC):
    """The arrays of one part, for all streams."""

    part: Stateful
    staged: ClassVar[bool] = False

    @abstractmethod
    def grow(self, count: int, part: Stateful) -> None:
        """Make room for `count` rows; `part`, built like the one in force but for so many, may take its place."""

    @abstractmethod
    def take(self, rows: Ints, part: Stateful) -> None:
        """Let `rows` become what the first rows of `part` are, which has that many."""

    @abstractmethod
    def save(self, rows: Ints) -> dict[str, Array]:
        """All that streams carry, as it is held."""

    @abstractmethod
    def load(self, rows: Ints, saved: Mapping[str, Array]) -> None:
        """Let `rows` become what was saved."""

    @abstractmethod
    def read(self, rows: Ints) -> dict[str, Array]:
        """The state of streams, as the part itself would give it."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """All that is held for streams, by name."""

    def told(self, count: int) -> dict[str, Array]:
        """What is held once for each of `count` rows although it is the same in all, by name."""
        return {}

    def fits(self, saved: Mapping[str, Array], count: int) -> None:
        """Refuse what is not what `save` gives of so many streams."""
        holders = owners(self.part)
        for name, mine in self.save(np.zeros(0, dtype=np.int64)).items():
            given = np.asarray(saved.get(name))
            shape = (count, *mine.shape[1:])
            if name in holders[name].unused and given.ndim == mine.ndim:  # it may be as long as it is
                shape = (count, given.shape[1], *mine.shape[2:])
            if given.dtype != mine.dtype or given.shape != shape:
                raise invalid(f"state '{name}'", f"{given.dtype} {given.shape}", f"{mine.dtype} {shape}")
        for owner in {id(owner): owner for owner in holders.values()}.values():
            owner.check_ranges(dict(saved))

    def leave(self, rows: Ints) -> None:  # noqa: B027 most have nothing to do
        """Streams that are no more."""

    def enter(self, rows: Ints) -> Ints:
        """Make ready for a call about `rows`, all different: by which rows the part knows them."""
        return rows

    def leave_off(self, rows: Ints) -> None:  # noqa: B027
        """After a call that changed them."""


class InPlace(Held):
    def __init__(self, part: Stateful) -> None:
        self.part = part

    def arrays(self) -> dict[str, Array]:
        return {name: getattr(owner, name) for name, owner in owners(self.part).items()}

    def grow(self, count: int, part: Stateful) -> None:
        old = self.arrays()
        self.part = part
        self.load(np.arange(max(map(len, old.values()), default=0)), old)

    def take(self, rows: Ints, part: Stateful) -> None:
        self.load(rows, {name: getattr(owner, name)[: len(rows)] for name, owner in owners(part).items()})

    def save(self, rows: Ints) -> dict[str, Array]:
        return {name: array[rows] for name, array in self.arrays().items()}

    def load(self, rows: Ints, saved: Mapping[str, Array]) -> None:
        for name, owner in owners(self.part).items():
            if name in owner.unused:
                slots = saved[name].shape[1]
                owner.lengthen(slots)
                getattr(owner, name)[rows, :slots] = saved[name]
                getattr(owner, name)[rows, slots:] = owner.unused[name]
            else:
                getattr(owner, name)[rows] = saved[name]
        self._settle()

    def fits(self, saved: Mapping[str, Array], count: int) -> None:
        super().fits(saved, count)
        for owner in owners(self.part).values():
            owner.agree(dict(saved))

    def read(self, rows: Ints) -> dict[str, Array]:
        return {name: array[rows] for name, array in self.part.state().items()}

    def told(self, count: int) -> dict[str, Array]:
        return told(self.part, count)

    def _settle(self) -> None:
        for owner in owners(self.part).values():
            owner.settle()


class Staged(Held):
    staged = True

    def __init__(self, part: Stateful, *, packed: bool) -> None:
        self.part = part
        self._owners = owners(part)
        self._constant = {name for name, owner in self._owners.items() if packed and name in owner.constant}
        self._symmetric = {name for name, owner in self._owners.items() if packed and name in owner.symmetric}
        self._store = {
            name: self._kept(name, getattr(owner, name)[:0])
            for name, owner in self._owners.items()
            if name not in self._constant
        }

    def _kept(self, name: str, array: Array) -> Array:
        return pack(array) if name in self._symmetric else array

    def arrays(self) -> dict[str, Array]:
        return dict(self._store)

    def grow(self, count: int, part: Stateful) -> None:
        self._store = {name: grown(array, count) for name, array in self._store.items()}

    def take(self, rows: Ints, part: Stateful) -> None:
        theirs = owners(part)
        for name, array in self._store.items():
            array[rows] = self._kept(name, getattr(theirs[name], name)[: len(rows)])

    def save(self, rows: Ints) -> dict[str, Array]:
        return {name: array[rows] for name, array in self._store.items()}

    def load(self, rows: Ints, saved: Mapping[str, Array]) -> None:
        for name, array in self._store.items():
            array[rows] = saved[name]

    def read(self, rows: Ints) -> dict[str, Array]:
        state = {name: self._whole(name, rows) for name in self._store if name in self.part.state()}
        for name in self._constant:
            state[name] = np.repeat(getattr(self._owners[name], name)[:1], len(rows), axis=0)
        return state

    def _whole(self, name: str, rows: Ints) -> Array:
        kept = self._store[name][rows]
        return unpack(kept, getattr(self._owners[name], name).shape[-1]) if name in self._symmetric else kept

    def enter(self, rows: Ints) -> Ints:
        for name in self._store:
            getattr(self._owners[name], name)[: len(rows)] = self._whole(name, rows)
        for owner in self._owners.values():
            owner.settle()
        return np.arange(len(rows))

    def leave_off(self, rows: Ints) -> None:
        self.take(rows, self.part)


class Laned(Held):
    part: Kalman

    def __init__(self, part: Kalman, *, packed: bool) -> None:
        assert isinstance(part._bank, FilterBank)
        self.part, self.bank = part, LaneBank(part._bank, packed=packed)
        part._bank = self.bank  # type: ignore[assignment]  # it takes the same step

    def arrays(self) -> dict[str, Array]:
        return {name: getattr(self.bank, name) for name in ("mean", "lane")}

    def shared(self) -> dict[str, Array]:
        return {name: getattr(self.bank, name) for name in (*LANES, "users")}

    def grow(self, count: int, part: Stateful) -> None:
        self.bank.make_rows(count)

    def take(self, rows: Ints, part: Stateful) -> None:
        assert isinstance(part, Kalman)
        assert isinstance(part._bank, FilterBank)
        self.bank.take(rows, part._bank)

    def save(self, rows: Ints) -> dict[str, Array]:
        return self.bank.save(rows)

    def load(self, rows: Ints, saved: Mapping[str, Array]) -> None:
        self.bank.load(rows, saved)

    def read(self, rows: Ints) -> dict[str, Array]:
        return self.bank.read(rows)

    def leave(self, rows: Ints) -> None:
        self.bank.leave(rows)

    def fits(self, saved: Mapping[str, Array], count: int) -> None:
        lanes = len(saved.get("frozen", ()))
        for name, mine in self.save(np.zeros(0, dtype=np.int64)).items():
            given, rows = np.asarray(saved.get(name)), lanes if name in LANES else count
            if given.dtype != mine.dtype or given.shape != (rows, *mine.shape[1:]):
                wanted = f"{mine.dtype} {(rows, *mine.shape[1:])}"
                raise invalid(f"state '{name}'", f"{given.dtype} {given.shape}", wanted)
        for name in ("lane", "next_age"):
            if not ((saved[name] >= -(name == "next_age")) & (saved[name] < lanes)).all():
                raise invalid(f"state '{name}'", "numbers of lanes that are not there", f"numbers below {lanes}")


def hold(part: Estimator | Learner, sliced: Estimator | Learner, *, count: int, packed: bool, tied: bool) -> Held:
    """The way to hold `part`, built for `count` streams; `sliced` is the same for one slice.

    Parts that are `tied` look at each other's rows, which must then be the same.
    """
    if isinstance(part, Kalman):
        return Laned(part, packed=packed)
    holders = owners(part)
    carried = sum(getattr(owner, name).nbytes for name, owner in holders.items())
    symmetric = any(name in owner.symmetric for name, owner in holders.items())
    more_told = sum(array.nbytes for array in told(part, count).values()) > carried
    if not tied and (more_told or (packed and symmetric)):
        return Staged(sliced, packed=packed)
    return InPlace(part)
