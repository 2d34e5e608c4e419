"""The decisions of all streams that still wait for a reward, held in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from halfseen.kernels.random import Floats, Ints
from halfseen.kernels.waiting import (
    NONE,
    chains,
    close_decisions,
    enter_all,
    find_decisions,
    forget_streams,
    open_decisions,
)

LEAST_PLACES = 64


class Waiting:
    """Places grow by half when all are taken, and are used again; beyond `most` a stream, its oldest expires."""

    def __init__(self, most: int, dimension: int) -> None:
        self._most = most
        self.ids = np.full(0, NONE, dtype=np.int64)
        self.streams, self.arms = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        self.features = np.zeros((0, dimension))
        self._links = np.zeros((0, 2), dtype=np.int32)
        self._marked = np.zeros(0, dtype=np.bool_)
        self._vacant, self._vacancies = np.zeros(0, dtype=np.int32), 0
        self._table = np.full(1, NONE, dtype=np.int32)
        self.heads = np.zeros((0, 3), dtype=np.int32)  # of every stream: oldest, newest, how many

    def __len__(self) -> int:
        return len(self.ids) - self._vacancies

    @property
    def arrays(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def make_rows(self, count: int) -> None:
        """Room for so many streams."""
        fresh = np.full((count, 3), NONE, dtype=np.int32)
        fresh[:, 2] = 0
        fresh[: len(self.heads)] = self.heads
        self.heads = fresh

    def _make_places(self, wanted: int) -> None:
        if self._vacancies >= wanted:
            return
        old = len(self.ids)
        more = max(wanted - self._vacancies, old // 2, LEAST_PLACES)
        size = old + more
        for name in ("ids", "streams", "arms", "features", "_links", "_marked", "_vacant"):
            array = getattr(self, name)
            grown = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
            grown[:old] = array
            setattr(self, name, grown)
        self.ids[old:] = NONE
        self._vacant[self._vacancies : self._vacancies + more] = np.arange(size - 1, old - 1, -1)
        self._vacancies += more
        cells = 1 << (2 * size - 1).bit_length()
        if cells > len(self._table):
            self._table = np.full(cells, NONE, dtype=np.int32)
            enter_all(self.ids, self._table)

    def open(self, numbers: Ints, rows: Ints, arms: Ints, features: Floats) -> None:
        self._make_places(len(numbers))
        self._vacancies = open_decisions(
            numbers, rows, arms, features, self._most, self.ids, self.streams, self.arms, self.features, self._links,
            self._table, self.heads, self._vacant, self._vacancies,
        )  # fmt: skip

    def find(self, numbers: Ints) -> tuple[Ints, int, int]:
        """The places of decisions; whether all were FOUND, each once, and otherwise which was not."""
        places = np.empty(len(numbers), dtype=np.int64)
        found, at = find_decisions(numbers, self.ids, self._table, self._marked, places)
        return places, int(found), int(at)

    def close(self, places: Ints, rounds: Ints, rewarded: Ints) -> None:
        self._vacancies = close_decisions(
            places, self.ids, self.streams, self._links, self._table, self.heads, self._vacant, self._vacancies,
            rounds, rewarded,
        )  # fmt: skip

    def forget(self, rows: Ints) -> None:
        self._vacancies = forget_streams(
            rows, self.ids, self.streams, self._links, self._table, self.heads, self._vacant, self._vacancies
        )

    def of(self, rows: Ints) -> Ints:
        """The places of all that waits in `rows`, stream by stream, oldest first."""
        places = np.empty(int(self.heads[rows, 2].sum()), dtype=np.int64)
        chains(rows, self.heads, self._links, places)
        return places
