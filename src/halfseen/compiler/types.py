"""The types of what kernels take and give: numbers, flags, C-contiguous arrays of them, and tuples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

FLOAT, INT, UNSIGNED, FLAG = "f", "i", "u", "b"
SHORT = "j"  # int32, in arrays alone: read, it is an INT
REGISTER = {FLOAT: "double", INT: "i64", UNSIGNED: "i64", FLAG: "i1"}
MEMORY = {FLOAT: "double", INT: "i64", UNSIGNED: "i64", FLAG: "i8", SHORT: "i32"}
DTYPES = {
    FLOAT: np.dtype(np.float64),
    INT: np.dtype(np.int64),
    UNSIGNED: np.dtype(np.uint64),
    FLAG: np.dtype(np.bool_),
    SHORT: np.dtype(np.int32),
}


@dataclass(frozen=True)
class Array:
    item: str
    axes: int

    def __str__(self) -> str:
        return f"a C-contiguous array of {DTYPES[self.item]} with {self.axes} axes"


Type: TypeAlias = "str | Array | tuple[Type, ...]"  # a number or flag by its letter; () is nothing


def parse(letters: str) -> tuple[tuple[Type, ...], Type]:
    """The types in front of `->`, and the one behind it: a tuple of them unless there is just one.

    f float64, i int64, j int32, u uint64, b bool; with a digit, an array of so many axes.
    """
    taken, _, given = letters.partition("->")
    results = _types(given)
    return _types(taken), results[0] if len(results) == 1 else results


def _types(letters: str) -> tuple[Type, ...]:
    return tuple(Array(one[0], int(one[1:])) if len(one) > 1 else one for one in letters.split())


def leaves(kind: Type) -> list[str]:
    """The registers that hold a value: of an array its address and its shape."""
    if isinstance(kind, tuple):
        return [leaf for part in kind for leaf in leaves(part)]
    if isinstance(kind, Array):
        return ["ptr", *["i64"] * kind.axes]
    return [REGISTER[kind]]
