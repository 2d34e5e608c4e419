"""No kernel is handed arrays that it has to have converted, whichever agent or fleet calls it: that would be slow."""

import pytest

from halfseen.compiler.kernel import Kernel


@pytest.fixture(autouse=True)
def arrays_are_of_the_types_that_kernels_take(monkeypatch):
    def refuse(self, arguments):
        raise AssertionError(f"{self.name} was called with arrays of other types")

    monkeypatch.setattr(Kernel, "_converted", refuse)
