"""Statements of Python, and whole functions, in LLVM's language."""

from __future__ import annotations

import ast
from typing import Any

from halfseen.compiler.expressions import Expressions
from halfseen.compiler.functions import fill
from halfseen.compiler.types import INT, MEMORY, UNSIGNED, Array, leaves, parse
from halfseen.compiler.writer import Value


class Function(Expressions):
    """One kernel, translated when it is made."""

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel.name, kernel.sums, kernel.python.__globals__)
        self.kernel = kernel
        self.called: dict[str, Any] = {}  # kernels, by symbol
        self.taken, self.given = parse(kernel.letters)
        (tree,) = ast.parse(kernel.source()).body
        assert isinstance(tree, ast.FunctionDef)
        self.tree = tree
        self.parameters = [one.arg for one in tree.args.args]
        if len(self.parameters) != len(self.taken):
            self.refuse(f"{len(self.parameters)} parameters, but {len(self.taken)} types")
        before = None
        while before != (found := (dict(self.types), dict(self.views), dict(self.made))):
            before = found  # until no variable turns out to be of a wider type
            self.begin()
            self._body()

    def calls(self, kernel: Any) -> None:
        self.called[kernel.symbol] = kernel

    def _body(self) -> None:
        self.loops: list[tuple[str, str]] = []  # where `continue` and `break` go
        self.left: set[str] = set()  # where a `break` went
        signature, at = [], 0
        for name, kind in zip(self.parameters, self.taken, strict=True):
            parts = []
            for leaf in leaves(kind):
                parts.append(f"%a{at}")
                signature.append(f"{leaf} %a{at}")
                at += 1
            self.assign(name, Value(kind, tuple(parts), views=frozenset([name])))
        self.results = [f"%out{i}" for i in range(len(leaves(self.given)))]
        signature += [f"ptr {place}" for place in self.results]
        self.statements(self.tree.body)
        if not self.ended and self.given != ():
            self.refuse("it may end without a return")
        self.block("exit")
        returned = (place for leaf, place in zip(leaves(self.given), self.results, strict=True) if leaf == "ptr")
        self.free_all([self.get(f"load ptr, ptr {place}") for place in returned])
        self.say("ret i1 false")
        self.lines.append("fail:")
        self.ended = False
        self.free_all([])
        self.say("ret i1 true")
        linkage, attributes = ("internal ", "alwaysinline") if self.kernel.inlined else ("", "noinline")
        head = f"define {linkage}i1 @{self.kernel.symbol}({', '.join(signature)}) {attributes} {{"
        self.text = "\n".join([head, "entry:", *self.entry, *self.lines, "}"])

    # Statements

    def statements(self, body: list[ast.stmt]) -> None:
        for one in body:
            self.line = one.lineno
            how = getattr(self, f"_{type(one).__name__.lower()}", None)
            if how is None:
                self.refuse(f"no {type(one).__name__} in kernels")
            how(one)

    def _expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def _pass(self, node: ast.Pass) -> None:
        pass

    def _assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.put(target, value)

    def put(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Tuple):
            parts = self.items(value) if isinstance(value.type, tuple) else []
            if len(parts) != len(target.elts):
                self.refuse(f"{len(target.elts)} targets for {len(parts)} values")
            for one, part in zip(target.elts, parts, strict=True):
                self.put(one, part)
        elif isinstance(target, ast.Subscript):
            outer = self.array(target.value)
            assert isinstance(outer.type, Array)
            place = self.within(outer, target.slice)
            self.written |= outer.views
            if isinstance(place.type, Array):
                fill(self, place, value)
            else:
                self.store(outer.type.item, value, place.parts[0])
        else:
            self.refuse(f"{ast.unparse(target)} cannot be set")

    def _augassign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.assign(node.target.id, self.combine(type(node.op), self._name(node.target), self.value(node.value)))
            return
        assert isinstance(node.target, ast.Subscript)
        outer = self.array(node.target.value)
        assert isinstance(outer.type, Array)
        place, item = self.within(outer, node.target.slice), outer.type.item
        if isinstance(place.type, Array):
            self.refuse("one item at a time is changed")
        self.written |= outer.views
        before = self.load(item, place.parts[0])
        self.store(item, self.combine(type(node.op), before, self.value(node.value)), place.parts[0])

    def _return(self, node: ast.Return) -> None:
        if node.value is not None:
            value = self.value(node.value)
            parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            names = [one.id for one in parts if isinstance(one, ast.Name) and isinstance(self.types.get(one.id), Array)]
            if "ptr" in leaves(self.given) and not (value.made and len(set(names)) == len(names)):
                self.refuse("an array that is returned is made here, whole, and returned once")
            self.write(self.convert(value, self.given), self.results)
        self.go("exit")

    def _if(self, node: ast.If) -> None:
        yes, no, after = self.fresh("yes"), self.fresh("no"), self.fresh("after")
        self.branch(self.flag(node.test), yes, no if node.orelse else after)
        self.block(yes)
        self.statements(node.body)
        if node.orelse:
            if not self.ended:
                self.go(after)
            self.block(no)
            self.statements(node.orelse)
        self.block(after)

    def _while(self, node: ast.While) -> None:
        self._no_else(node)
        again, body, after = self.fresh("again"), self.fresh("body"), self.fresh("after")
        self.block(again)
        self.branch(self.flag(node.test), body, after)
        self.block(body)
        self._loop(node.body, again, after)
        if isinstance(node.test, ast.Constant) and node.test.value is True and after not in self.left:
            self.ended = False
            self.lines.append(f"{after}:")
            self.say("unreachable")
            self.ended = True
        else:
            self.block(after)

    def _no_else(self, node: ast.While | ast.For) -> None:
        if node.orelse:
            self.refuse("no else after a loop in kernels")

    def _loop(self, body: list[ast.stmt], again: str, after: str) -> None:
        self.loops.append((again, after))
        self.statements(body)
        self.loops.pop()
        if not self.ended:
            self.go(again)

    def _break(self, node: ast.Break) -> None:
        self.left.add(self.loops[-1][1])
        self.go(self.loops[-1][1])

    def _continue(self, node: ast.Continue) -> None:
        self.go(self.loops[-1][0])

    def _for(self, node: ast.For) -> None:
        self._no_else(node)
        if isinstance(node.iter, ast.Call) and self.thing(node.iter.func) is range:
            self._for_range(node, node.iter)
        else:
            self._for_items(node)

    def _for_range(self, node: ast.For, call: ast.Call) -> None:
        numbers = [self.value(one) for one in call.args]
        if len(numbers) == 1:
            numbers.insert(0, Value(INT, ("0",), 0))
        step = numbers.pop() if len(numbers) == 3 else Value(INT, ("1",), 1)
        if not step.known:
            self.refuse("a step is a number that is written, not 0")
        kind = self.common_of(*numbers)
        if kind not in ((INT, UNSIGNED) if step.known > 0 else (INT,)):
            self.refuse(f"a range of {kind} by {step.known}")
        start, stop = (self.convert(one, kind).parts[0] for one in numbers)
        with self.counting(start, stop, step.known, str(kind)) as (at, further, after):
            self.put(node.target, Value(kind, (at,)))
            self._loop(node.body, further, after)

    def _for_items(self, node: ast.For) -> None:
        array = self.array(node.iter)
        assert isinstance(array.type, Array)
        if array.type.axes != 1:
            self.refuse("a loop over an array of one axis")
        item = array.type.item
        with self.counting("0", array.parts[1]) as (at, further, after):
            address = self.get(f"getelementptr inbounds {MEMORY[item]}, ptr {array.parts[0]}, i64 {at}")
            self.put(node.target, self.load(item, address))
            self._loop(node.body, further, after)
