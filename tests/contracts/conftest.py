"""Check that every kernel is compiled for one signature only, whichever agent or fleet calls it."""

import pytest

from halfseen.kernels.compiling import KERNELS


def signatures():
    return {name: set(getattr(kernel, "signatures", ())) for name, kernel in KERNELS.items()}


@pytest.fixture(autouse=True)
def every_kernel_has_one_signature():
    before = signatures()
    yield
    for name, found in signatures().items():
        assert len(found) <= 1 or found == before.get(name), f"{name} was compiled for several types: {found}"
