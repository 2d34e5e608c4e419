"""`@kernel` and its kin: Python functions that are compiled at their first call, with the file that they are in."""

from __future__ import annotations

import ctypes
import inspect
import os
import textwrap
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from halfseen.compiler import units
from halfseen.compiler.types import DTYPES, FLOAT, Array, parse
from halfseen.errors import HalfseenError

# In which order sums may be taken, and whether a product is rounded before it is added. Never the flags that exclude
# NaN: NaN means "not seen".
FAST, FUSED, AS_WRITTEN = "reassoc contract", "contract", ""
INTERPRET = "HALFSEEN_INTERPRET"  # set in the environment, kernels run as the Python that they are written in


class Kernel:
    """A function that is compiled. Its `call` is the same as a call of it, a tenth of a microsecond quicker."""

    def __init__(self, python: Callable[..., Any], letters: str, sums: str, **how: bool) -> None:
        self.python, self.letters, self.sums = python, letters, sums
        self.inlined, self.entered, self.nogil = (how.get(name, False) for name in ("inlined", "entered", "nogil"))
        self.module = python.__module__
        self.name = f"{self.module}.{python.__qualname__}".removeprefix("halfseen.")
        self.symbol = f"halfseen.{self.name}"
        self.call: Callable[..., Any] = python if INTERPRET in os.environ else self._first
        self.__doc__, self.__name__, self.__wrapped__ = python.__doc__, python.__name__, python
        units.unit_of(self.module).kernels.append(self)

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __repr__(self) -> str:
        return f"<kernel {self.name}: {self.letters}>"

    def source(self) -> str:
        try:
            return textwrap.dedent(inspect.getsource(self.python))
        except OSError:
            raise HalfseenError(
                f"{self.name}: no source to compile it from; want an installation with .py files"
            ) from None

    def _first(self, *arguments: Any) -> Any:
        if not self.entered:
            raise TypeError(f"{self.name} is called by kernels alone")
        units.unit_of(self.module).load()
        return self.call(*arguments)

    @cached_property
    def translated(self) -> Any:
        from halfseen.compiler.statements import Function

        return Function(self)

    @cached_property
    def written(self) -> set[int]:
        """Which arguments it writes into."""
        function = self.translated
        return {i for i, name in enumerate(function.parameters) if name in function.written}

    def convert(self, *arguments: Any) -> Any:
        """What the entry calls with arguments that it does not take.

        The kernel gets copies of arrays of other layouts or types; those that it writes into are copied back.
        """
        taken, _ = parse(self.letters)
        if len(arguments) != len(taken):
            raise TypeError(f"{self.name}: got {len(arguments)} arguments; want {len(taken)}")
        passed, changed = list(arguments), []
        for i, (given, kind) in enumerate(zip(arguments, taken, strict=True)):
            if isinstance(kind, Array):
                passed[i] = as_declared(given, kind, i in self.written)
                if passed[i] is None:
                    wanted = f"{kind}{' to write into' if i in self.written else ''}"
                    raise TypeError(f"{self.name}: got {_described(given)} for argument {i + 1}; want {wanted}")
                if passed[i] is not given and i in self.written:
                    changed.append((given, passed[i]))
        result = self._function(*passed)
        for given, copy in changed:
            given[...] = copy
        return result

    def linked(self, function: Callable[..., Any]) -> None:
        """Its machine code is in memory."""
        self._function = function
        _, given = parse(self.letters)
        kinds = given if isinstance(given, tuple) else (given,)
        if not any(isinstance(kind, Array) for kind in kinds):
            self.call = function
        elif isinstance(given, tuple):
            self.call = lambda *arguments: tuple(map(_adopt, kinds, function(*arguments)))
        else:
            self.call = lambda *arguments: _adopt(kinds[0], function(*arguments))


def as_declared(given: Any, kind: Array, written: bool) -> Any:
    """The array as the kernel takes it, a copy if need be; None if it cannot be had without loss."""
    array, wanted = np.asarray(given), DTYPES[kind.item]
    fits = np.can_cast(array.dtype, wanted, "same_kind" if kind.item == FLOAT else "safe")
    if written:
        fits = (
            fits
            and isinstance(given, np.ndarray)
            and given.flags.writeable
            and np.can_cast(wanted, array.dtype, "same_kind")
        )
    return np.require(array, wanted, ["C", "A", "E"]) if fits and array.ndim == kind.axes else None


def _described(given: Any) -> str:
    if not isinstance(given, np.ndarray):
        return repr(given)
    return f"{'an' if given.flags.writeable else 'a read-only'} array of {given.dtype}, {given.shape},"


_free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyMem_RawFree", ctypes.pythonapi))


class _Memory:
    """What a kernel has reserved and returned; freed with the last array that is a view of it."""

    def __init__(self, item: str, address: int, shape: tuple[int, ...]) -> None:
        self._address = address
        self.__array_interface__ = {
            "version": 3, "typestr": DTYPES[item].str, "shape": shape, "data": (address, False),
        }  # fmt: skip

    def __del__(self, free: Any = _free) -> None:  # a name of the module may be gone when Python ends
        free(self._address)


def _adopt(kind: Any, found: Any) -> Any:
    return np.asarray(_Memory(kind.item, found[0], found[1:])) if isinstance(kind, Array) else found


Decorator = Callable[[Callable[..., Any]], Any]


def kernel(letters: str, sums: str = FAST, *, nogil: bool = False) -> Decorator:
    """Compile a function: the types it takes and, behind `->`, gives, as `types.parse` reads them."""
    return _decorator(letters, sums, entered=True, nogil=nogil)


def helper(letters: str, sums: str = FAST) -> Decorator:
    """As `kernel`, for a function that only kernels call."""
    return _decorator(letters, sums)


def inline(letters: str, sums: str = FAST) -> Decorator:
    """As `helper`, and each kernel that calls it gets a copy of it: for a line or two in a loop."""
    return _decorator(letters, sums, inlined=True)


def _decorator(letters: str, sums: str, **how: bool) -> Decorator:
    def decorate(python: Callable[..., Any]) -> Any:
        return Kernel(python, letters, sums, **how)

    return decorate
