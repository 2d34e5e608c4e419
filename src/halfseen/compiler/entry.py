"""The function through which Python calls a kernel: it looks at the arguments, takes them apart and wraps the result.

A look at an array is some comparisons with fields of NumPy's object, whose places have been the same since NumPy 1.0.
Arguments that are not as declared are handed to Python (`Kernel.convert`). Of an array that is returned Python gets the
address and the shape, as numbers.
"""

from __future__ import annotations

from typing import Any

from halfseen.compiler.types import DTYPES, FLAG, FLOAT, INT, Array, Type, leaves, parse
from halfseen.compiler.writer import Value, Writer

# Offsets in bytes: of every object its type (8); of an array its memory (16), number of axes (24), shape (32),
# description (56) and flags (64: 0x1 C-contiguous, 0x100 aligned, 0x400 to be written to); of a description the order
# of bytes (26: '=' the processor's, '|' of no matter) and the number of the type (28).
TAKE_ARRAY = """\
define internal i1 @take_array(ptr %thing, i32 %axes, i32 %number, i32 %flags, ptr %into) noinline minsize optsize {
  %at.type = getelementptr i8, ptr %thing, i64 8
  %type = load ptr, ptr %at.type
  %is.array = icmp eq ptr %type, @halfseen.ndarray
  br i1 %is.array, label %array, label %other
array:
  %at.axes = getelementptr i8, ptr %thing, i64 24
  %axes.got = load i32, ptr %at.axes
  %same.axes = icmp eq i32 %axes.got, %axes
  %at.flags = getelementptr i8, ptr %thing, i64 64
  %flags.got = load i32, ptr %at.flags
  %flags.some = and i32 %flags.got, %flags
  %same.flags = icmp eq i32 %flags.some, %flags
  %at.description = getelementptr i8, ptr %thing, i64 56
  %description = load ptr, ptr %at.description
  %at.number = getelementptr i8, ptr %description, i64 28
  %number.got = load i32, ptr %at.number
  %same.number = icmp eq i32 %number.got, %number
  %at.order = getelementptr i8, ptr %description, i64 26
  %order = load i8, ptr %at.order
  %own.order = icmp eq i8 %order, 61
  %no.order = icmp eq i8 %order, 124
  %fine.order = or i1 %own.order, %no.order
  %fine.1 = and i1 %same.axes, %same.flags
  %fine.2 = and i1 %same.number, %fine.order
  %fine = and i1 %fine.1, %fine.2
  br i1 %fine, label %taken, label %other
taken:
  %at.memory = getelementptr i8, ptr %thing, i64 16
  %memory = load ptr, ptr %at.memory
  store ptr %memory, ptr %into
  %at.shape = getelementptr i8, ptr %thing, i64 32
  %shape = load ptr, ptr %at.shape
  br label %again
again:
  %axis = phi i32 [ 0, %taken ], [ %next, %again ]
  %next = add i32 %axis, 1
  %from = getelementptr i64, ptr %shape, i32 %axis
  %length = load i64, ptr %from
  %to = getelementptr i64, ptr %into, i32 %next
  store i64 %length, ptr %to
  %last = icmp uge i32 %next, %axes
  br i1 %last, label %done, label %again
done:
  ret i1 true
other:
  ret i1 false
}"""
PYTHON_FUNCTIONS = (
    "PyBool_FromLong", "PyErr_NoMemory", "PyErr_Occurred", "PyEval_RestoreThread", "PyEval_SaveThread",
    "PyFloat_AsDouble", "PyFloat_FromDouble", "PyLong_AsLongLong", "PyLong_FromLongLong", "PyMem_RawCalloc",
    "PyMem_RawFree", "PyMem_RawMalloc", "PyObject_IsTrue",
    "PyObject_Vectorcall", "PyTuple_New", "PyTuple_SetItem", "Py_IncRef",
)  # fmt: skip


def symbol_of(kernel: Any) -> str:
    return f"{kernel.symbol}.entry"


class Entry(Writer):
    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel.name, "")
        self.declared.add("@halfseen.none = external global i8")
        taken, given = parse(kernel.letters)
        self._go_on_if(self.get(f"icmp eq i64 %count, {len(taken)}"), "convert")
        passed: list[str] = []
        for i, kind in enumerate(taken):
            place = self.get(f"getelementptr inbounds ptr, ptr %arguments, i64 {i}")
            passed += self._unwrap(kind, self.get(f"load ptr, ptr {place}"), i in kernel.written).spelled
        places = [self.reserve(leaf) for leaf in leaves(given)]
        passed += [f"ptr {place}" for place in places]
        thread = self.call("ptr", "PyEval_SaveThread") if kernel.nogil else ""
        failed = self.get(f"call i1 @{kernel.symbol}({', '.join(passed)})")
        if thread:
            self.call("void", "PyEval_RestoreThread", f"ptr {thread}")
        self._go_on_if(self.get(f"xor i1 {failed}, true"), "no.memory")
        self._give(self._wrap(self.look(given, places)))
        self.block("convert")
        self._give(self.call("ptr", "PyObject_Vectorcall", "ptr %self", "ptr %arguments", "i64 %count", "ptr null"))
        self.block("no.memory")
        self._give(self.call("ptr", "PyErr_NoMemory"))
        self.block("error")
        self._give("null")
        head = f"define ptr @{symbol_of(kernel)}(ptr %self, ptr %arguments, i64 %count) minsize optsize {{"
        self.text = "\n".join([head, "entry:", *self.entry, *self.lines, "}"])

    def _give(self, thing: str) -> None:
        self.say(f"ret ptr {thing}")
        self.ended = True

    def _go_on_if(self, condition: str, otherwise: str) -> None:
        on = self.fresh("on")
        self.branch(condition, on, otherwise)
        self.block(on)

    def _unwrap(self, kind: Type, thing: str, written: bool) -> Value:
        if isinstance(kind, Array):
            into = self.reserve(f"[{kind.axes + 1} x i64]")
            wanted = f"i32 {kind.axes}, i32 {DTYPES[kind.item].num}, i32 {0x501 if written else 0x101}"
            self._go_on_if(self.get(f"call i1 @take_array(ptr {thing}, {wanted}, ptr {into})"), "convert")
            places = (f"getelementptr inbounds i64, ptr {into}, i64 {i}" for i in range(kind.axes + 1))
            return self.look(kind, [*map(self.get, places)])
        if kind == FLAG:
            found = self.call("i32", "PyObject_IsTrue", f"ptr {thing}")
            self._go_on_if(self.get(f"icmp sge i32 {found}, 0"), "error")
            return Value(FLAG, (self.get(f"icmp ne i32 {found}, 0"),))
        if kind == FLOAT:
            number = self.call("double", "PyFloat_AsDouble", f"ptr {thing}")
            plain = self.get(f"fcmp une double {number}, -1.0")
        else:
            number = self.call("i64", "PyLong_AsLongLong", f"ptr {thing}")
            plain = self.get(f"icmp ne i64 {number}, -1")
        look, on = self.fresh("look"), self.fresh("on")
        self.branch(plain, on, look)
        self.block(look)  # -1 may be an error
        self._go_on_if(self.get(f"icmp eq ptr {self.call('ptr', 'PyErr_Occurred')}, null"), "error")
        self.block(on)
        return Value(kind, (number,))

    def _wrap(self, value: Value) -> str:
        kind, parts = value.type, value.parts
        if kind == FLOAT:
            return self.call("ptr", "PyFloat_FromDouble", f"double {parts[0]}")
        if kind == FLAG:
            return self.call("ptr", "PyBool_FromLong", f"i64 {self.get(f'zext i1 {parts[0]} to i64')}")
        if kind == INT:
            return self.call("ptr", "PyLong_FromLongLong", f"i64 {parts[0]}")
        if kind == ():
            self.call("void", "Py_IncRef", "ptr @halfseen.none")
            return "@halfseen.none"
        if isinstance(kind, Array):
            address = self.get(f"ptrtoint ptr {parts[0]} to i64")
            items = [Value(INT, (part,)) for part in (address, *parts[1:])]
        else:
            items = self.items(value)
        made = self.call("ptr", "PyTuple_New", f"i64 {len(items)}")
        self._go_on_if(self.get(f"icmp ne ptr {made}, null"), "error")
        for i, item in enumerate(items):
            wrapped = self._wrap(item)
            self._go_on_if(self.get(f"icmp ne ptr {wrapped}, null"), "error")
            self.call("i32", "PyTuple_SetItem", f"ptr {made}", f"i64 {i}", f"ptr {wrapped}")
        return made
