"""No kernel is handed arrays that it has to have converted, whichever agent or fleet calls it: that would be slow."""

import pytest

from halfseen.compiler import decorators


@pytest.fixture(autouse=True)
def arrays_are_of_the_types_that_kernels_take(monkeypatch):
    def refuse(given, kind, written):
        raise AssertionError(f"a kernel that takes {kind} was called with another")

    monkeypatch.setattr(decorators, "as_declared", refuse)
