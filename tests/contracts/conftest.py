"""Whichever agent or fleet calls it, a kernel is called with the same types: others would be compiled once more."""

import pytest

from halfseen.kernels.compiling import KERNELS


def signatures():
    return {name: set(getattr(one, "signatures", ())) for name, one in KERNELS.items()}


@pytest.fixture(autouse=True)
def every_kernel_has_one_signature():
    before = signatures()
    yield
    for name, found in signatures().items():
        assert len(found) <= 1 or found == before.get(name), f"{name} was compiled for several types: {found}"
