"""Units: what is compiled together, a file of kernels each; kept as an object file, loaded with all that it calls."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from halfseen.compiler import cache
from halfseen.compiler.notice import Compiling
from halfseen.compiler.types import leaves, parse

if TYPE_CHECKING:
    from halfseen.compiler.decorators import Kernel

_UNITS: dict[str, Unit] = {}  # by module
_LOCK = threading.RLock()  # LLVM and what is loaded are for one thread at a time
if hasattr(os, "register_at_fork"):  # a fork waits until nothing is being compiled
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def unit_of(module: str) -> Unit:
    return _UNITS.setdefault(module, Unit(module))


def all_units() -> list[Unit]:
    """Of all modules imported so far."""
    return list(_UNITS.values())


class Unit:
    def __init__(self, module: str) -> None:
        self.module = module
        self.name = module.removeprefix("halfseen.")
        self.kernels: list[Kernel] = []
        self.loaded = False

    def needed(self) -> list[Unit]:
        """This unit and those with kernels that it calls, by the names in its code: what is called comes first."""
        found: dict[str, Unit] = {}
        for kernel in self.kernels:
            names = kernel.python.__globals__
            for name in kernel.python.__code__.co_names:
                module = getattr(names.get(name), "module", None)
                if module in _UNITS and module != self.module:
                    found |= {one.module: one for one in _UNITS[module].needed()}
        return [*found.values(), self]

    @property
    def compiled(self) -> bool:
        """Whether its object file is on disk."""
        return self._kept() is not None

    def _kept(self) -> bytes | None:
        return cache.find(self.name, self._foreign_source())

    def _foreign_source(self) -> str:
        """What `cache` does not know of."""
        ours = self.module.startswith("halfseen.")
        return "" if ours else self.translate()

    def load(self) -> None:
        """From here on its kernels can be called."""
        with _LOCK:
            wanted = {one: one._kept() for one in self.needed() if not one.loaded}
            with Compiling(sum(code is None for code in wanted.values())) as compiling:
                for one, code in wanted.items():
                    one._load(code or one.compile(compiling))

    def _load(self, code: bytes) -> None:
        from halfseen.compiler import entry, machine

        entered = [one for one in self.kernels if one.entered]
        symbols = [one.symbol for one in self.kernels if not one.inlined] + [entry.symbol_of(one) for one in entered]
        addresses = machine.load(code, symbols)
        for one in entered:
            one.linked(machine.callable_at(addresses[entry.symbol_of(one)], one.name, one.convert))
        self.loaded = True

    def compile(self, compiling: Compiling | None = None) -> bytes:
        """Its object file, which is kept."""
        from halfseen.compiler import machine

        if compiling is not None:
            compiling.starts(self.name)
        cache.check_sources()
        with _LOCK:
            code = machine.assemble(self.translate())
        cache.keep(self.name, self._foreign_source(), code)
        return code

    def translate(self) -> str:
        """The unit in LLVM's language, with copies of what it inlines."""
        from halfseen.compiler.entry import TAKE_ARRAY, Entry, symbol_of

        writers: dict[str, Any] = {}
        waiting = [one for one in self.kernels if not one.inlined]
        called: dict[str, Kernel] = {}
        while waiting:
            one = waiting.pop()
            writers[one.symbol] = function = one.translated
            if one.entered:
                writers[symbol_of(one)] = Entry(one)
            called |= function.called
            waiting += [other for symbol, other in function.called.items() if other.inlined and symbol not in writers]
        declared = {"@halfseen.ndarray = external global i8"}.union(*(one.declared for one in writers.values()))
        declared |= {_declaration(other) for symbol, other in called.items() if symbol not in writers}
        constants = [f"{name} = {text}" for one in writers.values() for text, name in one.constants.items()]
        return "\n\n".join([*sorted(declared), *constants, TAKE_ARRAY, *(one.text for one in writers.values())])


def _declaration(kernel: Kernel) -> str:
    taken, given = parse(kernel.letters)
    kinds = [leaf for kind in taken for leaf in leaves(kind)] + ["ptr"] * len(leaves(given))
    return f"declare i1 @{kernel.symbol}({', '.join(kinds)})"
