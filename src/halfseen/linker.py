"""Functions that kernels call by their address, so that they are compiled once.

Numba copies what a kernel calls into it, and every copy is compiled: it doubled the work. Here a kernel has the name of
a cell, which holds the address of the function. It is empty before the first call, at which the function is compiled or
loaded, as a linker does it with libraries. The digits are the same; a call takes some nanoseconds more than a copy.
"""

from __future__ import annotations

import _thread
import ctypes
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.core.errors import TypingError
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from halfseen.compiler import njit

_SCALARS = {"f": types.float64, "i": types.int64, "j": types.int32, "u": types.uint64, "b": types.boolean}
_WORD = ir.IntType(64)
_RESOLVE = "halfseen_resolve"


def types_of(letters: str) -> tuple[Any, ...]:
    """f float64, i int64, j int32, u uint64, b bool; with a digit, a C-contiguous array of so many dimensions."""
    return tuple(
        types.Array(_SCALARS[one[0]], int(one[1]), "C") if len(one) > 1 else _SCALARS[one] for one in letters.split()
    )


class Shared:
    """A function with its types, and the cell for its address."""

    def __init__(self, dispatcher: Any, letters: str) -> None:
        taken, _, given = letters.partition("->")
        results = types_of(given)
        result = types.BaseTuple.from_types(results) if len(results) > 1 else results[0] if results else types.void
        self.signature = signature(result, *types_of(taken))
        self.dispatcher = dispatcher
        self.name = f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__qualname__}".removeprefix("halfseen.")
        self.symbol = f"halfseen.{self.name}"
        self._cell = ctypes.c_uint64(0)
        llvmlite.binding.add_symbol(self.symbol, ctypes.addressof(self._cell))
        NAMED[self.name] = _IN_CELL[ctypes.addressof(self._cell)] = self

    def compile(self) -> None:
        with suppress(OSError):  # it is compiled, only the cache cannot be written
            self.dispatcher.get_compile_result(self.signature)
        compiled = self.dispatcher.get_compile_result(self.signature)
        self._cell.value = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)

    @property
    def compiled(self) -> bool:
        return bool(self._cell.value)

    def check(self, typing_context: Any, given: Any) -> None:
        for got, wanted in zip(given, self.signature.args, strict=True):
            number = not isinstance(wanted, types.Array) and typing_context.can_convert(got, wanted) is not None
            if not (number or got == wanted):
                raise TypingError(f"{self.name}: got {got}; want {wanted}")

    def generate(self, context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        """The call: through the cell, which is filled first if it is empty."""
        result, taken, convention = self.signature.return_type, self.signature.args, context.call_conv
        cell = builder.module.globals.get(self.symbol) or ir.GlobalVariable(builder.module, _WORD, self.symbol)
        with builder.if_then(builder.icmp_unsigned("==", builder.load(cell), _WORD(0)), likely=False):
            resolve = get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [_WORD]), _RESOLVE)
            builder.call(resolve, [builder.ptrtoint(cell, _WORD)])
            with builder.if_then(builder.icmp_unsigned("==", builder.load(cell), _WORD(0)), likely=False):
                convention.return_user_exc(builder, RuntimeError, (f"{self.name} could not be compiled; see above",))
        kind = convention.get_function_type(result, taken)
        function = builder.inttoptr(builder.load(cell), kind.as_pointer())
        status, value = convention.call_function(builder, function, result, taken, arguments)
        with builder.if_then(status.is_error, likely=False):
            convention.return_status_propagate(builder, status)
        return value


NAMED: dict[str, Shared] = {}  # those of all modules imported so far
_IN_CELL: dict[int, Shared] = {}  # by the address of the cell


def _resolve(cell: int) -> None:
    """Fill a cell for the kernel that is running. An interrupt waits: a kernel is not left halfway."""
    interrupted = False
    while not _IN_CELL[cell].compiled:
        try:
            _IN_CELL[cell].compile()
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:  # from another thread, which has its turn only when this function and the kernel are through
        _thread.start_new_thread(_thread.interrupt_main, ())


_resolver = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(_resolve)
llvmlite.binding.add_symbol(_RESOLVE, ctypes.cast(_resolver, ctypes.c_void_p).value)


def shared(letters: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function that only kernels call: the types it takes, `->`, what it gives; more than one is a tuple."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**options)(function)
        if not hasattr(dispatcher, "py_func"):  # NUMBA_DISABLE_JIT
            return dispatcher
        one = Shared(dispatcher, letters)

        def definition(typing_context: Any, *given: Any) -> Any:
            one.check(typing_context, given)
            return one.signature, one.generate

        context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = [context, *inspect.signature(function).parameters.values()]
        definition.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        definition.__name__ = function.__name__
        return intrinsic(definition)

    return decorate
