"""Expressions of Python in LLVM's language. Numbers behave as NumPy's do: x/0 is inf; // and % round down."""

from __future__ import annotations

import ast
import builtins
import operator
from typing import Any

import numpy as np

from halfseen.compiler.types import FLAG, FLOAT, INT, MEMORY, REGISTER, UNSIGNED, Array, Type, leaves, parse
from halfseen.compiler.writer import Value, Writer, constant

_FLOATS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_WHOLE = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}
_COMPARED = {
    ast.Eq: ("oeq", "eq", "eq"),
    ast.NotEq: ("une", "ne", "ne"),
    ast.Lt: ("olt", "slt", "ult"),
    ast.LtE: ("ole", "sle", "ule"),
    ast.Gt: ("ogt", "sgt", "ugt"),
    ast.GtE: ("oge", "sge", "uge"),
}


_KNOWN: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip


class Expressions(Writer):
    def __init__(self, name: str, sums: str, names: dict[str, Any]) -> None:
        super().__init__(name, sums)
        self.globals = names

    def value(self, node: ast.expr) -> Value:
        self.line = getattr(node, "lineno", self.line)
        how = getattr(self, f"_{type(node).__name__.lower()}", None)
        if how is None:
            self.refuse(f"no {type(node).__name__} in kernels")
        found: Value = how(node)
        return found

    def number(self, node: ast.expr, kind: str) -> str:
        return self.convert(self.value(node), kind).parts[0]

    def flag(self, node: ast.expr) -> str:
        return self.truth(self.value(node))

    def truth(self, value: Value) -> str:
        """Whether it is true."""
        if value.type == FLAG:
            return value.parts[0]
        if value.type == FLOAT:
            return self.get(f"fcmp une double {value.parts[0]}, 0.0")
        return self.get(f"icmp ne i64 {value.parts[0]}, 0")

    def type_of(self, node: ast.expr) -> Type:
        """What `value` would give, with nothing written."""
        kept = (list(self.entry), list(self.lines), list(self.slots), self.count, self.ended)
        kind = self.value(node).type
        self.entry, self.lines, self.slots, self.count, self.ended = kept
        return kind

    # Names

    def thing(self, node: ast.expr) -> Any:
        """The Python object that a name outside the function stands for."""
        if isinstance(node, ast.Name):
            if node.id in self.types:
                return None
            if node.id in self.globals:
                return self.globals[node.id]
            return getattr(builtins, node.id, None)
        if isinstance(node, ast.Attribute):
            return getattr(self.thing(node.value), node.attr, None)
        return None

    def _name(self, node: ast.Name) -> Value:
        return self.read(node.id) if node.id in self.types else self._outside(node)

    def _outside(self, node: ast.expr) -> Value:
        thing = self.thing(node)
        if isinstance(thing, np.uint64):
            return Value(UNSIGNED, (str(int(thing)),), int(thing))
        if isinstance(thing, (bool, int, float)):
            return constant(thing)
        if isinstance(thing, np.ndarray):
            return self._constant_array(thing)
        return self.refuse(f"{ast.unparse(node)} is no number or array")

    def _constant_array(self, array: Any) -> Value:
        if array.dtype != np.float64 or array.ndim != 1:
            self.refuse("an array outside a kernel is one axis of float64")
        items = ", ".join(f"double {constant(float(x)).parts[0]}" for x in array)
        text = f"private constant [{len(array)} x double] [{items}]"
        name = self.constants.setdefault(text, f"@array{len(self.constants)}.{self.name}")
        return Value(Array(FLOAT, 1), (name, str(len(array))))

    def _constant(self, node: ast.Constant) -> Value:
        if not isinstance(node.value, (bool, int, float)):
            self.refuse(f"no {node.value!r} in kernels")
        return constant(node.value)

    def _attribute(self, node: ast.Attribute) -> Value:
        if node.attr == "shape":
            array = self.array(node.value)
            return Value((INT,) * (len(array.parts) - 1), array.parts[1:])
        return self._outside(node)

    def _tuple(self, node: ast.Tuple) -> Value:
        return self.bundle([self.value(one) for one in node.elts])

    # Arithmetic

    def _binop(self, node: ast.BinOp) -> Value:
        return self.combine(type(node.op), self.value(node.left), self.value(node.right))

    def combine(self, op: type[ast.operator], left: Value, right: Value) -> Value:
        if left.known is not None and right.known is not None and UNSIGNED not in (left.type, right.type):
            return constant(_KNOWN[op](left.known, right.known))
        kind = self.common_of(left, right)
        if op is ast.Pow:
            return self._power(left, right)
        if op is ast.Div or (kind == FLOAT and op in _FLOATS):
            a, b = (self.convert(one, FLOAT).parts[0] for one in (left, right))
            return Value(FLOAT, (self.get(f"{_FLOATS[op]} {self.flags}double {a}, {b}"),))
        if kind == FLAG and op not in (ast.BitAnd, ast.BitOr, ast.BitXor):
            kind = INT
        if kind == FLOAT or (op not in _WHOLE and op not in (ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift)):
            self.refuse(f"no {op.__name__} of {left.type} and {right.type}")
        a, b = (self.convert(one, kind).parts[0] for one in (left, right))
        if op in _WHOLE:
            sure = "nsw " if kind == INT and op in (ast.Add, ast.Sub, ast.Mult) else ""
            return Value(kind, (self.get(f"{_WHOLE[op]} {sure}{REGISTER[str(kind)]} {a}, {b}"),))
        if op in (ast.LShift, ast.RShift):
            how = "shl" if op is ast.LShift else "ashr" if kind == INT else "lshr"
            return Value(kind, (self.get(f"{how} i64 {a}, {b}"),))
        return Value(kind, (self._divide(op is ast.Mod, kind, a, b),))

    def common_of(self, left: Value, right: Value) -> Type:
        """As `common`, and a written whole number is of the type of what it meets."""
        for one, other in ((left, right), (right, left)):
            if one.type == UNSIGNED and other.type == INT and other.known is not None and other.known >= 0:
                return UNSIGNED
        if UNSIGNED in (left.type, right.type) and left.type != right.type:
            self.refuse(f"{left.type} and {right.type} do not mix")
        return self.common(left.type, right.type)

    def _divide(self, rest: bool, kind: Type, a: str, b: str) -> str:
        """Rounded down, or what is left then: LLVM rounds towards 0. By 0 both are 0, as in NumPy."""
        if not b.isdigit() or b == "0":
            by_zero = self.get(f"icmp eq i64 {b}, 0")
            a, b = (self.get(f"select i1 {by_zero}, i64 {i}, i64 {x}") for i, x in enumerate((a, b)))
        if kind == UNSIGNED:
            return self.get(f"{'urem' if rest else 'udiv'} i64 {a}, {b}")
        left = self.get(f"srem i64 {a}, {b}")
        other_side = self.get(f"icmp slt i64 {self.get(f'xor i64 {left}, {b}')}, 0")
        inexact = self.get(f"icmp ne i64 {left}, 0")
        below = self.get(f"and i1 {other_side}, {inexact}")
        if rest:
            return self.get(f"add i64 {left}, {self.get(f'select i1 {below}, i64 {b}, i64 0')}")
        return self.get(f"sub i64 {self.get(f'sdiv i64 {a}, {b}')}, {self.get(f'zext i1 {below} to i64')}")

    def _power(self, left: Value, right: Value) -> Value:
        base = self.convert(left, FLOAT).parts[0]
        if right.known == 2:
            return Value(FLOAT, (self.get(f"fmul {self.flags}double {base}, {base}"),))
        exponent = self.convert(right, FLOAT).parts[0]
        return Value(FLOAT, (self.call("double", "llvm.pow.f64", f"double {base}", f"double {exponent}", flags=True),))

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Value(FLAG, (self.get(f"xor i1 {self.flag(node.operand)}, true"),))
        value = self.value(node.operand)
        if not isinstance(node.op, ast.USub) or value.type not in (FLOAT, INT):
            self.refuse(f"no {type(node.op).__name__} of {value.type}")
        if value.known is not None:
            return constant(-value.known)
        if value.type == FLOAT:
            return Value(FLOAT, (self.get(f"fneg {self.flags}double {value.parts[0]}"),))
        return Value(INT, (self.get(f"sub i64 0, {value.parts[0]}"),))

    def _compare(self, node: ast.Compare) -> Value:
        left, all_of = self.value(node.left), ""
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = self.value(other)
            part = self.compare(type(op), left, right)
            all_of = self.get(f"and i1 {all_of}, {part}") if all_of else part
            left = right
        return Value(FLAG, (all_of,))

    def compare(self, op: type[ast.cmpop], left: Value, right: Value) -> str:
        kind = self.common_of(left, right)
        a, b = (self.convert(one, kind).parts[0] for one in (left, right))
        real, signed, unsigned = _COMPARED[op]
        if kind == FLOAT:
            return self.get(f"fcmp {self.flags}{real} double {a}, {b}")
        return self.get(f"icmp {signed if kind == INT else unsigned} {REGISTER[str(kind)]} {a}, {b}")

    def _boolop(self, node: ast.BoolOp) -> Value:
        """The rest is not looked at once the result is known."""
        place, after = self.reserve("i1"), self.fresh("after")
        for one in node.values[:-1]:
            found, further = self.flag(one), self.fresh("further")
            self.say(f"store i1 {found}, ptr {place}")
            self.branch(found, *((further, after) if isinstance(node.op, ast.And) else (after, further)))
            self.block(further)
        self.say(f"store i1 {self.flag(node.values[-1])}, ptr {place}")
        self.block(after)
        return Value(FLAG, (self.get(f"load i1, ptr {place}"),))

    def _ifexp(self, node: ast.IfExp) -> Value:
        kind = self.common(self.type_of(node.body), self.type_of(node.orelse))
        places = [self.reserve(leaf) for leaf in leaves(kind)]
        yes, no, after = self.fresh("yes"), self.fresh("no"), self.fresh("after")
        self.branch(self.flag(node.test), yes, no)
        values = []
        for label, side in ((yes, node.body), (no, node.orelse)):
            self.block(label)
            values.append(self.value(side))
            self.write(self.convert(values[-1], kind), places)
            self.go(after)
        self.block(after)
        sides = self.bundle(values)
        return self.look(kind, places)._replace(views=sides.views, made=sides.made)

    # Arrays

    def array(self, node: ast.expr) -> Value:
        value = self.value(node)
        if not isinstance(value.type, Array):
            self.refuse(f"{ast.unparse(node)} is no array")
        return value

    def _subscript(self, node: ast.Subscript) -> Value:
        outer = self.value(node.value)
        if isinstance(outer.type, tuple):
            at = self.value(node.slice).known
            if at is None:
                self.refuse("a tuple is indexed by a number")
            return self.items(outer)[int(at)]
        found = self.within(outer, node.slice)
        assert isinstance(outer.type, Array)
        return found if isinstance(found.type, Array) else self.load(outer.type.item, found.parts[0])

    def within(self, outer: Value, index: ast.expr) -> Value:
        """The part of an array that is a view of it, or, of the type of its items, the address of one of them."""
        if not isinstance(outer.type, Array):
            self.refuse(f"{outer.type} is no array")
        picks = index.elts if isinstance(index, ast.Tuple) else [index]
        lengths = list(outer.parts[1:])
        if len(picks) > len(lengths):
            self.refuse(f"{len(picks)} indices for {len(lengths)} axes")
        offset, shape = "0", []
        for axis, pick in enumerate(picks):
            if isinstance(pick, ast.Slice):
                if axis < len(picks) - 1 or pick.step is not None:
                    self.refuse("only the last index is a slice, without steps")
                start, length = self._slice(pick, lengths[axis])
                offset, shape = self.plus(self.times(offset, lengths[axis]), start), [length]
            else:
                offset = self.plus(self.times(offset, lengths[axis]), self._index(pick, lengths[axis]))
        rest = lengths[len(picks) :]
        for length in rest:
            offset = self.times(offset, length)
        item = outer.type.item
        address = self.get(f"getelementptr inbounds {MEMORY[item]}, ptr {outer.parts[0]}, i64 {offset}")
        shape += rest
        return Value(Array(item, len(shape)) if shape else item, (address, *shape), views=outer.views)

    def _index(self, node: ast.expr, length: str) -> str:
        value = self.value(node)
        if value.type not in (INT, UNSIGNED):
            self.refuse(f"an index is {value.type}")
        if value.known is not None and value.known < 0:
            return self.plus(length, str(value.known))
        return value.parts[0]

    def _slice(self, node: ast.Slice, length: str) -> tuple[str, str]:
        """Where it begins, within the axis, and how long it is."""
        start = self._index(node.lower, length) if node.lower else "0"
        stop = self._index(node.upper, length) if node.upper else length
        if start != "0":
            start = self.least(self.most(start, "0"), length)
        if stop != length:
            stop = self.least(stop, length)
        return start, self.most(self.get(f"sub nsw i64 {stop}, {start}"), "0")

    # Calls

    def _call(self, node: ast.Call) -> Value:
        from halfseen.compiler.functions import FUNCTIONS, METHODS

        if isinstance(node.func, ast.Attribute) and self.thing(node.func) is None:
            if node.func.attr not in METHODS:
                self.refuse(f"arrays have no {node.func.attr} in kernels")
            return METHODS[node.func.attr](self, self.array(node.func.value), node.args)
        thing = self.thing(node.func)
        try:
            known = FUNCTIONS.get(thing)
        except TypeError:
            known = None
        if known is not None:
            return known(self, node)
        if not hasattr(thing, "letters") or not isinstance(node.func, ast.Name):
            self.refuse(f"{ast.unparse(node.func)} is no kernel, by a name of its own")
        return self.call_kernel(thing, [self.value(one) for one in node.args])

    def call_kernel(self, kernel: Any, arguments: list[Value]) -> Value:
        """Each gives 0, or 1 where memory has run out; what it returns is written where it is told."""
        taken, given = parse(kernel.letters)
        if len(arguments) != len(taken):
            self.refuse(f"{kernel.name} takes {len(taken)} arguments")
        passed = []
        for i, (value, kind) in enumerate(zip(arguments, taken, strict=True)):
            passed += self.convert(value, kind).spelled
            if i in kernel.written:
                self.written |= value.views
        places = [self.reserve(leaf) for leaf in leaves(given)]
        passed += [f"ptr {place}" for place in places]
        self.calls(kernel)
        failed = self.get(f"call i1 @{kernel.symbol}({', '.join(passed)})")
        self.fail_if(failed)
        result = self.look(given, places)
        for leaf, part in zip(leaves(given), result.parts, strict=True):
            if leaf == "ptr":
                self.keep(part)
        return result._replace(made=True)

    def calls(self, kernel: Any) -> None:
        """Told of every kernel that is called."""
