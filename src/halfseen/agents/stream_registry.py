"""The streams of a fleet: their numbers, their names and their rows in the arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from halfseen.components import ROW_GROWTH, resized
from halfseen.errors import InvalidInput, invalid, unknown
from halfseen.kernels.random import Ints
from halfseen.validation import as_list

Stream = int | str
MOST_SUGGESTED = 20  # an error message suggests a name only if there are at most this many names


class StreamRegistry:
    """Maps numbers and names of streams to rows.

    Rows of removed streams are reused, but numbers are not, so `numbers` is sorted.
    """

    def __init__(self) -> None:
        self._numbers: Ints = np.zeros(0, dtype=np.int64)
        self._rows: Ints = np.zeros(0, dtype=np.int64)
        self._count = 0
        self.next_number = 0
        self._free: list[int] = []
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
        """Refuse names that a new stream cannot have."""
        for name in names:
            if not isinstance(name, str) or not name:
                raise invalid("streams", "a count of at least 1, or names of streams", repr(name))
            if name in self._by_name:
                raise invalid("streams", "names that no stream has", f"'{name}', which exists already")
        if len(set(names)) < len(names):
            raise invalid("streams", "names that differ from each other", "a name more than once")

    def free_rows(self, count: int) -> Ints:
        """Return rows for `count` new streams.

        Rows of removed streams come first. The rows stay free until `add` is called with them.
        """
        reused = self._free[len(self._free) - min(count, len(self._free)) :][::-1]
        end = self._count + len(self._free)
        return np.array([*reused, *range(end, end + count - len(reused))], dtype=np.int64)

    def add(self, rows: Ints, names: Sequence[str], numbers: Ints | None = None) -> Ints:
        """Add streams at `rows`, which `free_rows` returned, and return their numbers.

        `names` has one entry per stream, an empty one for a stream without a name, or is empty if no stream has a name.
        """
        count, size = self._count, self._count + len(rows)
        if numbers is None:
            numbers = np.arange(self.next_number, self.next_number + len(rows))
        self._free = self._free[: max(0, len(self._free) - len(rows))]
        if size > len(self._numbers):
            longer = max(size, int(ROW_GROWTH * len(self._numbers)))
            self._numbers, self._rows = resized(self._numbers, longer), resized(self._rows, longer)
        self._numbers[count:size], self._rows[count:size] = numbers, rows
        self._count = size
        self.next_number = max(self.next_number, int(numbers[-1]) + 1) if len(numbers) else self.next_number
        for number, name in zip(numbers.tolist(), names, strict=False):
            if name:
                self._by_name[name], self._name_of[number] = number, name
        return numbers

    def remove(self, positions: Ints) -> None:
        """Remove the streams at these positions of `numbers`."""
        self._free += self.rows[positions].tolist()
        for number in self.numbers[positions].tolist():
            if (name := self._name_of.pop(number, None)) is not None:
                del self._by_name[name]
        remaining = np.ones(self._count, dtype=np.bool_)
        remaining[positions] = False
        count = int(remaining.sum())
        self._numbers[:count], self._rows[:count] = self.numbers[remaining], self.rows[remaining]
        self._count = count

    def number(self, stream: object) -> int:
        """Return the number of a stream that is given by number or name."""
        if isinstance(stream, str):
            if stream not in self._by_name:
                raise self._unknown(stream)
            return self._by_name[stream]
        if isinstance(stream, bool) or not isinstance(stream, int | np.integer):
            raise invalid("streams", "numbers or names of streams", repr(stream))
        return int(stream)

    def positions(self, streams: Iterable[Stream] | Ints) -> Ints:
        """Return the positions of streams in `numbers` and `rows`, and refuse repeated streams."""
        if isinstance(streams, np.ndarray) and streams.dtype.kind in "iu" and streams.ndim == 1:
            wanted = streams.astype(np.int64)
        else:
            given = as_list("streams", streams, "a list of streams, by number or name")
            wanted = np.array([self.number(one) for one in given], dtype=np.int64)
        positions = np.searchsorted(self.numbers, wanted)
        found = np.zeros(len(wanted), dtype=np.bool_)
        inside = positions < self._count
        found[inside] = self.numbers[positions[inside]] == wanted[inside]
        if not found.all():
            raise self._unknown(int(wanted[~found][0]))
        if len(np.unique(positions)) < len(positions):
            values, times = np.unique(wanted, return_counts=True)
            repeated = int(values[times > 1][0])
            raise invalid("streams", "distinct streams", f"{self.name(repeated) or repeated!r} more than once")
        return positions

    def _unknown(self, stream: Stream) -> InvalidInput | Exception:
        if isinstance(stream, str) and len(self._by_name) <= MOST_SUGGESTED:
            return unknown("stream", stream, self._by_name)
        return invalid("streams", f"one of the {self._count} streams of this fleet", f"{stream!r}")
