"""Which streams there are: their numbers, the names some of them have, and the rows they live in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from halfseen.agents.fleet.packing import grown
from halfseen.errors import InvalidInput, invalid, unknown
from halfseen.kernels.random import Ints
from halfseen.validation import listed

Stream = int | str
SHOWN = 20  # names that a message tries to be helpful with


class Roll:
    """A number is never used again; a row is. Numbers only ever grow, so they are found by bisection."""

    def __init__(self) -> None:
        self._numbers: Ints = np.zeros(0, dtype=np.int64)
        self._rows: Ints = np.zeros(0, dtype=np.int64)
        self._count = 0
        self.next_number = 0
        self._vacant: list[int] = []
        self._by_name: dict[str, int] = {}
        self._name_of: dict[int, str] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def numbers(self) -> Ints:
        return self._numbers[: self._count]

    @property
    def rows(self) -> Ints:
        return self._rows[: self._count]

    @property
    def nbytes(self) -> int:
        return self._numbers.nbytes + self._rows.nbytes

    def name(self, number: int) -> str | None:
        return self._name_of.get(number)

    def check_new(self, names: Sequence[Any]) -> None:
        for name in names:
            if not isinstance(name, str) or not name:
                raise invalid("streams", repr(name), "a count of at least 1, or names of streams")
            if name in self._by_name:
                raise invalid("streams", f"'{name}', which is there already", "names that no stream has")
        if len(set(names)) < len(names):
            raise invalid("streams", "a name more than once", "names that differ from each other")

    def free_rows(self, count: int) -> Ints:
        """Rows for so many more streams: those left by others first. `enter` takes them."""
        old = self._vacant[len(self._vacant) - min(count, len(self._vacant)) :][::-1]
        end = self._count + len(self._vacant)
        return np.array([*old, *range(end, end + count - len(old))], dtype=np.int64)

    def enter(self, rows: Ints, names: Sequence[str], numbers: Ints | None = None) -> Ints:
        """Streams in `rows`, which `free_rows` gave, with names (or none of them); their numbers."""
        count, size = self._count, self._count + len(rows)
        if numbers is None:
            numbers = np.arange(self.next_number, self.next_number + len(rows))
        self._vacant = self._vacant[: max(0, len(self._vacant) - len(rows))]
        if size > len(self._numbers):
            longer = max(size, int(1.5 * len(self._numbers)))
            self._numbers, self._rows = grown(self._numbers, longer), grown(self._rows, longer)
        self._numbers[count:size], self._rows[count:size] = numbers, rows
        self._count = size
        self.next_number = max(self.next_number, int(numbers[-1]) + 1) if len(numbers) else self.next_number
        for number, name in zip(numbers.tolist(), names, strict=False):
            if name:
                self._by_name[name], self._name_of[number] = number, name
        return numbers

    def remove(self, places: Ints) -> None:
        """Strike out the streams at `places` of the roll."""
        self._vacant += self.rows[places].tolist()
        for number in self.numbers[places].tolist():
            if (name := self._name_of.pop(number, None)) is not None:
                del self._by_name[name]
        left = np.ones(self._count, dtype=np.bool_)
        left[places] = False
        kept = int(left.sum())
        self._numbers[:kept], self._rows[:kept] = self.numbers[left], self.rows[left]
        self._count = kept

    def number(self, stream: object) -> int:
        """The number of one stream, given by number or name."""
        if isinstance(stream, str):
            if stream not in self._by_name:
                raise self._unknown(stream)
            return self._by_name[stream]
        if isinstance(stream, bool) or not isinstance(stream, int | np.integer):
            raise invalid("streams", repr(stream), "numbers or names of streams")
        return int(stream)

    def places(self, streams: Iterable[Stream] | Ints) -> Ints:
        """Where on the roll the streams are, all different."""
        if isinstance(streams, np.ndarray) and streams.dtype.kind in "iu" and streams.ndim == 1:
            wanted = streams.astype(np.int64)
        else:
            given = listed("streams", streams, "a list of streams, by number or name")
            wanted = np.array([self.number(one) for one in given], dtype=np.int64)
        places = np.searchsorted(self.numbers, wanted)
        found = np.zeros(len(wanted), dtype=np.bool_)
        inside = places < self._count
        found[inside] = self.numbers[places[inside]] == wanted[inside]
        if not found.all():
            raise self._unknown(int(wanted[~found][0]))
        if len(np.unique(places)) < len(places):
            values, times = np.unique(wanted, return_counts=True)
            twice = int(values[times > 1][0])
            shown = self.name(twice) or twice
            raise invalid("streams", f"{shown!r} more than once", "every stream once")
        return places

    def _unknown(self, stream: Stream) -> InvalidInput | Exception:
        if isinstance(stream, str) and len(self._by_name) <= SHOWN:
            return unknown("streams", stream, self._by_name)
        return invalid("streams", f"{stream!r}, which is not there", f"streams of this fleet, which has {self._count}")
