"""Ask for memory before it is needed. It changes when a number arrives, never which number."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LINE = 64  # bytes that memory hands over at a time


@intrinsic
def _prefetch(typing_context: Any, array: Any, i: Any, j: Any) -> Any:
    """Begin to load array[i, j], a row of a contiguous array of three axes, into the cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, view.strides)
        offset = builder.add(builder.mul(arguments[1], stride[0]), builder.mul(arguments[2], stride[1]))
        byte_pointer, word, number = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)
        base = builder.bitcast(view.data, byte_pointer)
        kind = ir.FunctionType(ir.VoidType(), [byte_pointer, word, word, word])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte_pointer], kind)
        with cgutils.for_range_slice(builder, number(0), stride[1], number(LINE), intp=number) as (at, _):
            where = builder.gep(base, [builder.add(offset, at)])
            builder.call(fetch, [where, word(0), word(3), word(1)])  # to be read, kept close, data
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


prefetch: Any = _prefetch  # the type checker reads an intrinsic as taking its typing context too
