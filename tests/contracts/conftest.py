"""Calls of kernels that look at no types are looked at here instead, whichever agent or fleet makes them."""

import gc
import itertools

import numba
import pytest

from halfseen import warmup


@pytest.fixture(autouse=True)
def direct_calls_are_of_the_types_compiled_for(monkeypatch):
    for kernel in [one for one in gc.get_objects() if isinstance(one, warmup.Direct)]:
        monkeypatch.setattr(kernel, "call", _checked(*warmup.kernels()[kernel._name]))


def _checked(kernel, wanted):
    call, calls = kernel.compile(wanted), itertools.count()

    def checked(*arguments):
        number = next(calls)
        if number < 100 or number % 10 == 0:  # looking takes far longer than the call
            got = tuple(numba.typeof(argument) for argument in arguments)
            assert got == wanted, "a kernel was called directly with arguments of other types"
        return call(*arguments)

    return checked
