"""Python that kernels are not written in: refused when it is compiled, by the name of the kernel and the line."""

# ruff: noqa: B007, F821, RET503, RET504 — what is refused here is odd on purpose

from __future__ import annotations

import math

import numpy as np
import pytest

from halfseen.compiler.decorators import kernel
from halfseen.compiler.statements import Function
from halfseen.compiler.writer import Untranslatable
from halfseen.kernels import checks

TEXT = "text"


def refused(letters, python):
    one = kernel(letters)(python)
    with pytest.raises(Untranslatable) as refusal:
        Function(one)
    assert str(refusal.value).startswith(one.name)
    return str(refusal.value).removeprefix(one.name)


def a_list(n):
    return [n]


def a_string(n):
    return TEXT


def unknown(n):
    return math.gamma(n)


def a_method(x):
    return x.sum()


def a_step(n):
    total = 0
    for i in range(0, n, n):
        total += i
    return total


def middle_slice(x):
    return x[:1, 0]


def too_many(x):
    return x[0, 0, 0]


def by_a_real(x):
    return x[0.5]


def mixed(x):
    return x[0] + 1 - x.shape[0]


def never_set(n):
    if n > 0:
        n = later
    later = 2
    return later


def two_kinds(x):
    y = x
    y = 1.0
    return y


def no_axis_by_name(x):
    for row in x:
        pass
    return 1.0


def strange(n):
    with open(n):
        pass


def short(n, m):
    return n


def a_view(x):
    y = np.empty(3)
    return y[1:]


def a_parameter(x):
    return x


def returned_twice(x):
    y = np.empty(3)
    return y, y


def loop_else(n):
    for _ in range(n):
        n += 1
    else:
        n = 7
    return n


def open_end(n):
    if n > 0:
        return n


def through_a_module(x):
    return checks.survey(x)


def two_numbers(x):
    y = x.reshape(2, 3)
    return y[0, 0]


def real_remainder(n):
    return n % 0.5


@pytest.mark.parametrize(
    ("letters", "python", "why"),
    [
        ("i -> i", a_list, ", line 2: no List in kernels"),
        ("i -> i", a_string, ", line 2: TEXT is no number or array"),
        ("i -> f", unknown, ", line 2: math.gamma is no kernel, by a name of its own"),
        ("f1 -> f", a_method, ", line 2: arrays have no sum in kernels"),
        ("i -> i", a_step, ", line 3: a step is a number that is written, not 0"),
        ("f2 -> f1", middle_slice, ", line 2: only the last index is a slice, without steps"),
        ("f2 -> f", too_many, ", line 2: 3 indices for 2 axes"),
        ("f1 -> f", by_a_real, ", line 2: an index is f"),
        ("u1 -> f", mixed, ", line 2: u and i do not mix"),
        ("i -> i", never_set, ", line 3: later is no number or array"),
        ("f1 -> f", two_kinds, ", line 3: no type holds both a C-contiguous array of float64 with 1 axes and f"),
        ("f2 -> f", no_axis_by_name, ", line 2: a loop over an array of one axis"),
        ("i", strange, ", line 2: no With in kernels"),
        ("i -> i", short, ", line 0: 2 parameters, but 1 types"),
        ("f1 -> f1", a_view, ", line 3: an array that is returned is made here, whole, and returned once"),
        ("f1 -> f1", a_parameter, ", line 2: an array that is returned is made here, whole, and returned once"),
        ("f1 -> f1 f1", returned_twice, ", line 3: an array that is returned is made here, whole, and returned once"),
        ("i -> i", loop_else, ", line 2: no else after a loop in kernels"),
        ("i -> i", open_end, ", line 3: it may end without a return"),
        ("f2 -> i", through_a_module, ", line 2: checks.survey is no kernel, by a name of its own"),
        ("f1 -> f", two_numbers, ", line 2: a shape is one tuple"),
        ("f -> f", real_remainder, ", line 2: no Mod of f and f"),
    ],
)
def test_it_says_where_and_what(letters, python, why):
    assert refused(letters, python) == why


def test_what_is_not_given_as_declared_is_refused():
    def gives_real(n):
        return n / 2

    assert refused("i -> i", gives_real) == ", line 2: f where i is wanted"
