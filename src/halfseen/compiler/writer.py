"""The code of one function in LLVM's language, as it is written: lines, blocks, variables, memory.

Variables live on the stack, which LLVM turns into registers. An array is its address and its shape. What a function
reserves it frees when it ends, unless it returns it: then it is the caller's. A place in the code that reserves memory
frees what it reserved the last time it was reached, so no two arrays made at one place may be in use together.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from halfseen.compiler.types import DTYPES, FLAG, FLOAT, INT, MEMORY, REGISTER, SHORT, UNSIGNED, Array, Type, leaves


class Untranslatable(Exception):
    """Python that is not of the part that kernels are written in."""


class Value(NamedTuple):
    type: Type
    parts: tuple[str, ...]
    known: Any = None  # a Python number, where it is one already
    views: frozenset[str] = frozenset()  # the parameters that an array may be a part of
    made: bool = False  # all of an array that was reserved here
    items: tuple[Any, ...] = ()  # the values that a tuple was made of

    @property
    def spelled(self) -> list[str]:
        """As the arguments of a call."""
        return [f"{leaf} {part}" for leaf, part in zip(leaves(self.type), self.parts, strict=True)]


def constant(number: Any) -> Value:
    if isinstance(number, bool):
        return Value(FLAG, ("true" if number else "false",), number)
    if isinstance(number, int):
        return Value(INT, (str(number),), number)
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return Value(FLOAT, (f"0x{bits:016X}",), number)


class Writer:
    def __init__(self, name: str, sums: str) -> None:
        self.name = name
        self.flags = f"{sums} " if sums else ""  # with which LLVM may change the order of sums, or fuse them
        self.types: dict[str, Type] = {}  # of the variables
        self.views: dict[str, frozenset[str]] = {}  # and what they may be a part of,
        self.made: dict[str, bool] = {}  # or whether they are always a whole array of this function's
        self.written: set[str] = set()  # the parameters that are written into
        self.declared: set[str] = set()  # what is elsewhere
        self.constants: dict[str, str] = {}  # arrays of the module
        self.line = 0  # of the source
        self.begin()

    def begin(self) -> None:
        """Nothing is written yet."""
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.stack: dict[str, list[str]] = {}
        self.slots: list[str] = []
        self.count = 0
        self.ended = False  # the present block is left already

    def refuse(self, why: str) -> NoReturn:
        raise Untranslatable(f"{self.name}, line {self.line}: {why}")

    # Lines and blocks

    def fresh(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def say(self, text: str) -> None:
        if not self.ended:
            self.lines.append(f"  {text}")

    def get(self, text: str) -> str:
        name = f"%{self.fresh()}"
        self.say(f"{name} = {text}")
        return name

    def go(self, label: str) -> None:
        self.say(f"br label %{label}")
        self.ended = True

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.say(f"br i1 {condition}, label %{yes}, label %{no}")
        self.ended = True

    def block(self, label: str) -> None:
        if not self.ended:
            self.go(label)
        self.lines.append(f"{label}:")
        self.ended = False

    @contextmanager
    def counting(self, start: str, stop: str, step: int = 1, kind: str = INT) -> Iterator[tuple[str, str, str]]:
        """A loop: its counter, and where to go for the next turn and to leave it."""
        order = ("slt" if kind == INT else "ult") if step > 0 else "sgt"
        place, again, body, further, after = (self.reserve("i64"), *map(self.fresh, ("again", "body", "next", "after")))
        self.say(f"store i64 {start}, ptr {place}")
        self.block(again)
        at = self.get(f"load i64, ptr {place}")
        self.branch(self.get(f"icmp {order} i64 {at}, {stop}"), body, after)
        self.block(body)
        yield at, further, after
        self.block(further)
        beyond = self.get(f"add {'nsw' if kind == INT else 'nuw'} i64 {self.get(f'load i64, ptr {place}')}, {step}")
        self.say(f"store i64 {beyond}, ptr {place}")
        self.go(again)
        self.block(after)

    def reserve(self, kind: str, start: str = "") -> str:
        """A place on the stack."""
        name = f"%{self.fresh('s')}"
        self.entry.append(f"  {name} = alloca {kind}")
        if start:
            self.entry.append(f"  store {kind} {start}, ptr {name}")
        return name

    def call(self, result: str, symbol: str, *arguments: str, flags: bool = False) -> str:
        """A function of C's or LLVM's; arguments with their types in front."""
        kinds = ", ".join(one.split(" ", 1)[0] for one in arguments)
        self.declared.add(f"declare {result} @{symbol}({kinds})")
        text = f"call {self.flags if flags else ''}{result} @{symbol}({', '.join(arguments)})"
        if result == "void":
            self.say(text)
            return ""
        return self.get(text)

    # Variables

    def assign(self, name: str, value: Value) -> None:
        """A variable is of the widest type that it is ever given: `Function` begins again when that changes."""
        before = self.types.get(name, value.type)
        self.types[name] = kind = self.common(before, value.type)
        self.views[name] = self.views.get(name, frozenset()) | value.views
        self.made[name] = self.made.get(name, True) and value.made
        if name not in self.stack:
            self.stack[name] = [self.reserve(leaf) for leaf in leaves(kind)]
        self.write(self.convert(value, kind), self.stack[name])

    def read(self, name: str) -> Value:
        kind = self.types[name]
        if name not in self.stack:
            self.refuse(f"{name} is read before it is set")
        return self.look(kind, self.stack[name])._replace(views=self.views[name], made=self.made[name])

    def write(self, value: Value, places: list[str]) -> None:
        for part, place in zip(value.spelled, places, strict=False):
            self.say(f"store {part}, ptr {place}")

    def look(self, kind: Type, places: list[str]) -> Value:
        loads = (f"load {leaf}, ptr {place}" for leaf, place in zip(leaves(kind), places, strict=False))
        return Value(kind, tuple(map(self.get, loads)))

    def common(self, one: Type, other: Type) -> Type:
        """The type that holds both."""
        if one == other:
            return one
        if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
            return tuple(self.common(a, b) for a, b in zip(one, other, strict=True))
        for wider, narrower in ((FLOAT, (INT, UNSIGNED, FLAG)), (INT, (FLAG,))):
            if (one == wider and other in narrower) or (other == wider and one in narrower):
                return wider
        return self.refuse(f"no type holds both {one} and {other}")

    def convert(self, value: Value, kind: Type) -> Value:
        if value.type == kind:
            return value
        if isinstance(kind, tuple) and isinstance(value.type, tuple):
            items = [self.convert(part, to).parts for part, to in zip(self.items(value), kind, strict=True)]
            return Value(kind, tuple(leaf for parts in items for leaf in parts))
        if value.known is not None and kind == FLOAT:
            return constant(float(value.known))
        if value.known is not None and kind in (INT, UNSIGNED) and value.type != FLOAT:
            return Value(kind, (str(int(value.known)),), int(value.known))
        (part,) = value.parts
        if kind == FLOAT and value.type in (INT, UNSIGNED, FLAG):
            how = "sitofp" if value.type == INT else "uitofp"
            return Value(FLOAT, (self.get(f"{how} {REGISTER[str(value.type)]} {part} to double"),))
        if kind == INT and value.type == FLAG:
            return Value(INT, (self.get(f"zext i1 {part} to i64"),))
        return self.refuse(f"{value.type} where {kind} is wanted")

    def items(self, value: Value) -> list[Value]:
        """The parts of a tuple."""
        if value.items:
            return list(value.items)
        found, at = [], 0
        assert isinstance(value.type, tuple)
        for kind in value.type:
            count = len(leaves(kind))
            found.append(Value(kind, value.parts[at : at + count], views=value.views, made=value.made))
            at += count
        return found

    def bundle(self, values: list[Value]) -> Value:
        parts = tuple(part for one in values for part in one.parts)
        arrays = [one for one in values if "ptr" in leaves(one.type)]
        views, made = frozenset().union(*(one.views for one in arrays)), all(one.made for one in arrays)
        return Value(tuple(one.type for one in values), parts, views=views, made=made, items=tuple(values))

    # Arithmetic on whole numbers, for addresses and shapes

    def times(self, a: str, b: str) -> str:
        if "1" in (a, b):
            return b if a == "1" else a
        return self.get(f"mul nsw i64 {a}, {b}")

    def plus(self, a: str, b: str) -> str:
        if "0" in (a, b):
            return b if a == "0" else a
        return self.get(f"add nsw i64 {a}, {b}")

    def least(self, a: str, b: str) -> str:
        return self.call("i64", "llvm.smin.i64", f"i64 {a}", f"i64 {b}")

    def most(self, a: str, b: str) -> str:
        return self.call("i64", "llvm.smax.i64", f"i64 {a}", f"i64 {b}")

    # Memory

    def load(self, item: str, address: str) -> Value:
        part = self.get(f"load {MEMORY[item]}, ptr {address}")
        if item == SHORT:
            return Value(INT, (self.get(f"sext i32 {part} to i64"),))
        if item == FLAG:
            return Value(FLAG, (self.get(f"icmp ne i8 {part}, 0"),))
        return Value(item, (part,))

    def store(self, item: str, value: Value, address: str) -> None:
        if item == UNSIGNED and value.type != UNSIGNED:
            self.refuse(f"{value.type} where {UNSIGNED} is wanted")
        (part,) = self.convert(value, INT if item == SHORT else item).parts
        if item == SHORT:
            part = self.get(f"trunc i64 {part} to i32")
        if item == FLAG:
            part = self.get(f"zext i1 {part} to i8")
        self.say(f"store {MEMORY[item]} {part}, ptr {address}")

    def size(self, array: Value) -> str:
        """How many items it has."""
        total = "1"
        for length in array.parts[1:]:
            total = self.times(total, length)
        return total

    def new_array(self, item: str, shape: list[str], zero: bool = False) -> Value:
        lengths = tuple(self.most(length, "0") for length in shape)
        count = self.most(self.size(Value(Array(item, len(shape)), ("", *lengths))), "1")
        bytes_each = DTYPES[item].itemsize
        if zero:
            memory = self.call("noalias ptr", "PyMem_RawCalloc", f"i64 {count}", f"i64 {bytes_each}")
        else:
            memory = self.call("noalias ptr", "PyMem_RawMalloc", f"i64 {self.times(count, str(bytes_each))}")
        self.fail_if(self.get(f"icmp eq ptr {memory}, null"))
        self.keep(memory)
        return Value(Array(item, len(shape)), (memory, *lengths), made=True)

    def keep(self, memory: str) -> None:
        """To be freed when this place is reached again, or at the end."""
        slot = self.reserve("ptr", "null")
        self.slots.append(slot)
        self.call("void", "PyMem_RawFree", f"ptr {self.get(f'load ptr, ptr {slot}')}")
        self.say(f"store ptr {memory}, ptr {slot}")

    def fail_if(self, condition: str) -> None:
        after = self.fresh("fine")
        self.branch(condition, "fail", after)
        self.block(after)

    def free_all(self, but: list[str]) -> None:
        for slot in self.slots:
            memory = self.get(f"load ptr, ptr {slot}")
            for kept in but:
                same = self.get(f"icmp eq ptr {memory}, {kept}")
                memory = self.get(f"select i1 {same}, ptr null, ptr {memory}")
            self.call("void", "PyMem_RawFree", f"ptr {memory}")
