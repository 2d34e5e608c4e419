"""Every call of a kernel that looks at no types is looked at here instead, whichever agent or fleet makes it."""

import gc

import numba
import pytest

from halfseen import warmup


@pytest.fixture(autouse=True)
def direct_calls_are_of_the_types_compiled_for(monkeypatch):
    for kernel in [one for one in gc.get_objects() if isinstance(one, warmup.Direct)]:
        compiled, wanted = warmup.kernels()[kernel._name]

        def checked(*arguments, call=compiled.compile(wanted), wanted=wanted):
            got = tuple(numba.typeof(argument) for argument in arguments)
            assert got == wanted, "a kernel was called directly with arguments of other types"
            return call(*arguments)

        monkeypatch.setattr(kernel, "call", checked)
