"""What kernels share: the same result as a copy of it, and nothing lost when it cannot be had at once."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest

import halfseen
from halfseen import linker
from halfseen.linker import shared

SOURCE = Path(halfseen.__file__).parents[1]


@shared("f2 f1 -> f", error_model="numpy")
def weigh(matrix, vector):
    total = 0.0
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * vector[j]
    return total


@shared("f1 i -> f1 i b")
def repeat(vector, times):
    repeated = np.empty(len(vector) * times)
    for i in range(len(repeated)):
        repeated[i] = vector[i % len(vector)]
    return repeated, len(repeated), times > 1


@numba.njit
def weigh_all(stack, vector):
    total = 0.0
    for b in range(stack.shape[0]):
        total += weigh(stack[b], vector)
    return total


@numba.njit
def repeated(vector, times):
    return repeat(vector, times)


def test_a_kernel_calls_what_it_shares_and_has_no_copy_of_it():
    stack, vector = np.random.default_rng(1).normal(size=(4, 3, 5)), np.arange(5.0)
    assert weigh_all(stack, vector) == pytest.approx(float((stack @ vector).sum()))
    (code,) = weigh_all.inspect_llvm().values()
    assert "halfseen.test_linker.weigh" in code
    assert not [line for line in code.splitlines() if line.startswith("define") and "weighB" in line]


def test_arrays_and_tuples_are_given_back():
    for _ in range(3):
        got, length, more = repeated(np.array([1.0, 2.0]), 3)
        np.testing.assert_array_equal(got, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0])
        assert (length, more) == (6, True)


def test_an_array_given_back_is_freed():
    repeated(np.ones(1000), 2000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(50):
        repeated(np.ones(1000), 2000)  # 16 MB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_an_error_in_what_is_shared_reaches_the_caller():
    with pytest.raises((MemoryError, ValueError)):
        repeated(np.ones(1000), 2**58)


def test_arguments_of_other_types_are_refused_when_the_kernel_is_compiled():
    with pytest.raises(numba.TypingError):
        weigh_all(np.zeros((2, 3, 5), order="F"), np.zeros(5))


def fresh(compile):
    """A kernel and what it shares, not compiled yet, whose first compilation is `compile`."""

    @shared("f -> f")
    def twice(x):
        return 2.0 * x

    one = linker.NAMED[f"{__name__}.fresh.<locals>.twice"]
    genuine = one.dispatcher.get_compile_result
    calls = []

    def first_other(signature):
        calls.append(signature)
        if len(calls) == 1:
            compile(genuine, signature)
        return genuine(signature)

    one.dispatcher.get_compile_result = first_other

    @numba.njit
    def kernel(x):
        return 1.0 + twice(x)

    return kernel, one


def _keep(kernel, got):
    got.append(kernel(3.0))
    time.sleep(60.0)  # the interrupt comes between two steps of the interpreter


def test_an_interrupt_waits_until_the_kernel_is_through():
    def interrupted(genuine, signature):
        raise KeyboardInterrupt

    kernel, one = fresh(interrupted)
    got = []
    with pytest.raises(KeyboardInterrupt):
        _keep(kernel, got)
    assert got == [7.0]
    assert one.compiled


def test_a_cache_that_cannot_be_written_costs_nothing():
    def full(genuine, signature):
        genuine(signature)
        raise OSError("no space left on device")

    kernel, _ = fresh(full)
    assert kernel(3.0) == 7.0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_cannot_be_compiled_is_an_error_and_no_crash():
    def impossible(genuine, signature):
        raise MemoryError("for the compiler")

    kernel, _ = fresh(impossible)
    with pytest.raises(RuntimeError, match=r"fresh.<locals>.twice could not be compiled; see above"):
        kernel(3.0)
    assert kernel(3.0) == 7.0  # the next time there is memory


@pytest.mark.parametrize("first", ["kalman", "smoother", "evidence"])
def test_a_kernel_from_the_cache_finds_what_it_shares_whatever_was_imported_before(first):
    code = (
        f"import halfseen.kernels.{first}\n"
        "import numpy as np\n"
        "from halfseen.kernels.linalg import all_below\n"
        "below = np.zeros((1, 2), np.bool_)\n"
        "all_below(np.array([[[1.0, 0.0, 1.0], [3.0, 0.0, 1.0]]]), 2, np.array([2.0]), below)\n"
        "print(below.tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "[[True, False]]\n"), done.stderr


def test_without_compiling_it_is_the_function_itself():
    code = "from halfseen.kernels.linalg import agree; import numpy as np; e = np.eye(2); print(agree(e, e, e, 1e-9))"
    without = {"PYTHONPATH": str(SOURCE), "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | without, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
