"""What kernels may call besides each other: some of Python's, of `math` and of NumPy, and the intrinsics."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from halfseen.compiler import intrinsics
from halfseen.compiler.expressions import Expressions
from halfseen.compiler.types import DTYPES, FLAG, FLOAT, INT, MEMORY, REGISTER, UNSIGNED, Array
from halfseen.compiler.writer import Value

Call = Callable[[Expressions, ast.Call], Value]
_ITEMS = {float: FLOAT, np.float64: FLOAT, np.int64: INT, np.uint64: UNSIGNED, np.bool_: FLAG, bool: FLAG}


def _real(symbol: str) -> Call:
    """A function of real numbers, LLVM's or C's."""

    def write(f: Expressions, node: ast.Call) -> Value:
        arguments = [f"double {f.number(one, FLOAT)}" for one in node.args]
        return Value(FLOAT, (f.call("double", symbol, *arguments, flags=True),))

    return write


def _isnan(f: Expressions, node: ast.Call) -> Value:
    x = f.number(node.args[0], FLOAT)
    return Value(FLAG, (f.get(f"fcmp uno double {x}, 0.0"),))


def _isinf(f: Expressions, node: ast.Call) -> Value:
    size = f.call("double", "llvm.fabs.f64", f"double {f.number(node.args[0], FLOAT)}")
    return Value(FLAG, (f.get(f"fcmp oeq double {size}, 0x7FF0000000000000"),))


def _abs(f: Expressions, node: ast.Call) -> Value:
    value = f.value(node.args[0])
    if value.type == INT:
        return Value(INT, (f.call("i64", "llvm.abs.i64", f"i64 {value.parts[0]}", "i1 false"),))
    size = f.call("double", "llvm.fabs.f64", f"double {f.convert(value, FLOAT).parts[0]}", flags=True)
    return Value(FLOAT, (size,))


def _extreme(op: type[ast.cmpop]) -> Call:
    """As Python has it: a later argument only if it is beyond those before it, which NaN never is."""

    def write(f: Expressions, node: ast.Call) -> Value:
        best, *others = (f.value(one) for one in node.args)
        for other in others:
            kind = f.common_of(best, other)
            best, other = f.convert(best, kind), f.convert(other, kind)
            beyond, register = f.compare(op, other, best), REGISTER[str(kind)]
            best = Value(kind, (f.get(f"select i1 {beyond}, {register} {other.parts[0]}, {register} {best.parts[0]}"),))
        return best

    return write


def _to(kind: str) -> Call:
    """A number made into one of another type."""

    def write(f: Expressions, node: ast.Call) -> Value:
        value = f.value(node.args[0])
        if kind == FLAG:
            return Value(FLAG, (f.truth(value),))
        if kind != FLOAT and value.type == FLOAT:
            how = "fptosi" if kind == INT else "fptoui"
            return Value(kind, (f.get(f"{how} double {value.parts[0]} to i64"),))
        if {kind, value.type} == {INT, UNSIGNED}:
            return Value(kind, value.parts, value.known)
        if kind == UNSIGNED:
            value = Value(UNSIGNED, f.convert(value, INT).parts) if value.type == FLAG else value
        return f.convert(value, kind)

    return write


def _len(f: Expressions, node: ast.Call) -> Value:
    return Value(INT, (f.array(node.args[0]).parts[1],))


# Arrays


def _shape(f: Expressions, node: ast.expr) -> list[str]:
    value = f.value(node)
    lengths = f.items(value) if isinstance(value.type, tuple) else [value]
    return [f.convert(one, INT).parts[0] for one in lengths]


def _item(f: Expressions, node: ast.Call, at: int) -> str:
    named = [one.value for one in node.keywords if one.arg == "dtype"]
    given = [*node.args[at:], *named]
    if not given:
        return FLOAT
    found = _ITEMS.get(f.thing(given[0]))
    if found is None:
        f.refuse(f"no arrays of {ast.unparse(given[0])}")
    return found


def _empty(f: Expressions, node: ast.Call) -> Value:
    return f.new_array(_item(f, node, 1), _shape(f, node.args[0]))


def _zeros(f: Expressions, node: ast.Call) -> Value:
    return f.new_array(_item(f, node, 1), _shape(f, node.args[0]), zero=True)


def _ones(f: Expressions, node: ast.Call) -> Value:
    item = _item(f, node, 1)
    return fill(f, f.new_array(item, _shape(f, node.args[0])), Value(INT, ("1",), 1) if item != FLAG else _TRUE)


def _full(f: Expressions, node: ast.Call) -> Value:
    return fill(f, f.new_array(_item(f, node, 2), _shape(f, node.args[0])), f.value(node.args[1]))


def _empty_like(f: Expressions, node: ast.Call) -> Value:
    like = f.array(node.args[0])
    assert isinstance(like.type, Array)
    return f.new_array(like.type.item, list(like.parts[1:]))


_TRUE = Value(FLAG, ("true",), True)


def fill(f: Expressions, array: Value, value: Value) -> Value:
    assert isinstance(array.type, Array)
    item = array.type.item
    f.written |= array.views
    with f.counting("0", f.size(array)) as (at, _, _):
        f.store(item, value, f.get(f"getelementptr inbounds {MEMORY[item]}, ptr {array.parts[0]}, i64 {at}"))
    return array


def _copy(f: Expressions, array: Value, arguments: list[ast.expr]) -> Value:
    assert isinstance(array.type, Array)
    made = f.new_array(array.type.item, list(array.parts[1:]))
    count = f.times(f.size(array), str(DTYPES[array.type.item].itemsize))
    f.call("void", "llvm.memcpy.p0.p0.i64", f"ptr {made.parts[0]}", f"ptr {array.parts[0]}", f"i64 {count}", "i1 false")
    return made


def _reshape(f: Expressions, array: Value, arguments: list[ast.expr]) -> Value:
    """It must have as many items as before: nothing checks that."""
    assert isinstance(array.type, Array)
    if len(arguments) != 1:
        f.refuse("a shape is one tuple")
    shape = _shape(f, arguments[0])
    return array._replace(type=Array(array.type.item, len(shape)), parts=(array.parts[0], *shape))


def _dot(f: Expressions, node: ast.Call) -> Value:
    """out = a b by BLAS, to which an array in rows is the transpose of one in columns: outᵀ = bᵀ aᵀ."""
    (a, turned_a), (b, turned_b) = (_factor(f, one) for one in node.args[:2])
    out = f.array(node.args[2])
    f.written |= out.views
    rows, columns = out.parts[1], out.parts[2]
    inner = a.parts[1] if turned_a else a.parts[2]
    numbers = [columns, rows, inner, *(f.most(one.parts[2], "1") for one in (b, a)), f.most(columns, "1")]
    n, m, k, ld_b, ld_a, ld_out = (_place(f, "i32", f.get(f"trunc i64 {one} to i32")) for one in numbers)
    one, zero = (_place(f, "double", constant) for constant in ("1.0", "0.0"))
    letters = [_place(f, "i8", str(ord("T" if turned else "N"))) for turned in (turned_b, turned_a)]
    arguments = [*letters, n, m, k, one, b.parts[0], ld_b, a.parts[0], ld_a, zero, out.parts[0], ld_out]
    f.call("void", "halfseen.dgemm", *(f"ptr {argument}" for argument in arguments))
    return Value((), ())


def _factor(f: Expressions, node: ast.expr) -> tuple[Value, bool]:
    if isinstance(node, ast.Attribute) and node.attr == "T":
        return f.array(node.value), True
    return f.array(node), False


def _place(f: Expressions, kind: str, value: str) -> str:
    place = f.reserve(kind)
    f.say(f"store {kind} {value}, ptr {place}")
    return place


# The intrinsics


def _bits(f: Expressions, node: ast.Call) -> Value:
    return Value(INT, (f.get(f"bitcast double {f.number(node.args[0], FLOAT)} to i64"),))


def _double(f: Expressions, node: ast.Call) -> Value:
    return Value(FLOAT, (f.get(f"bitcast i64 {f.number(node.args[0], INT)} to double"),))


def _multiply_high(f: Expressions, node: ast.Call) -> Value:
    a, b = (f.get(f"zext i64 {f.number(one, UNSIGNED)} to i128") for one in node.args)
    high = f.get(f"lshr i128 {f.get(f'mul i128 {a}, {b}')}, 64")
    return Value(UNSIGNED, (f.get(f"trunc i128 {high} to i64"),))


def _prefetch(f: Expressions, node: ast.Call) -> Value:
    row = f.within(f.array(node.args[0]), ast.Tuple(list(node.args[1:]), ast.Load()))
    with f.counting("0", f.times(f.size(row), "8"), intrinsics.LINE) as (at, _, _):
        where = f.get(f"getelementptr inbounds i8, ptr {row.parts[0]}, i64 {at}")
        f.call("void", "llvm.prefetch.p0", f"ptr {where}", "i32 0", "i32 3", "i32 1")  # to be read, kept close, data
    return Value((), ())


FUNCTIONS: dict[Any, Call] = {
    abs: _abs, min: _extreme(ast.Lt), max: _extreme(ast.Gt), len: _len,
    int: _to(INT), float: _to(FLOAT), bool: _to(FLAG), np.int64: _to(INT), np.uint64: _to(UNSIGNED),
    math.isnan: _isnan, np.isnan: _isnan, math.isinf: _isinf,
    math.sqrt: _real("llvm.sqrt.f64"), np.sqrt: _real("llvm.sqrt.f64"),
    math.log: _real("llvm.log.f64"), np.log: _real("llvm.log.f64"), math.exp: _real("llvm.exp.f64"),
    math.log1p: _real("log1p"), math.erf: _real("erf"), math.erfc: _real("erfc"),
    np.empty: _empty, np.zeros: _zeros, np.ones: _ones, np.full: _full, np.empty_like: _empty_like, np.dot: _dot,
    intrinsics.bits_of: _bits, intrinsics.double_of: _double,
    intrinsics.multiply_high: _multiply_high, intrinsics.prefetch: _prefetch,
}  # fmt: skip
METHODS: dict[str, Callable[[Expressions, Value, list[ast.expr]], Value]] = {"copy": _copy, "reshape": _reshape}
