"""From Python into a kernel and back: what is taken as it is, what is converted, what is refused, what is freed."""

from __future__ import annotations

import resource
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

from halfseen.compiler.decorators import helper, inline, kernel


@kernel("f2 i1 f i b -> f")
def weigh(matrix, picks, factor, shift, doubled):
    total = 0.0
    for i in picks:
        for j in range(matrix.shape[1]):
            total += matrix[i + shift, j] * factor
            matrix[i + shift, j] = 0.0
    return 2.0 * total if doubled else total


@kernel("i -> f2 i")
def square(n):
    return np.zeros((n, n)), n


@kernel("f -> f1")
def one(x):
    made = np.empty(1)
    made[0] = x
    return made


@helper("f -> f")
def twice(x):
    return 2.0 * x


@inline("f -> f")
def thrice(x):
    return 3.0 * x


MATRIX, PICKS = np.arange(12.0).reshape(3, 4), np.array([0, 1])
WEIGHT = 2.0 * MATRIX[1:].sum()


def test_numbers_of_any_kind_are_taken():
    for factor, shift, doubled in [
        (2.0, 1, False),
        (2, np.int64(1), 0),
        (np.float32(1), True, [1]),
        (np.float64(2), 1, ""),
    ]:
        assert weigh(MATRIX.copy(), PICKS, factor, shift, doubled) == WEIGHT


@pytest.mark.parametrize(
    "matrix",
    [
        np.asfortranarray(MATRIX),
        np.repeat(MATRIX, 2, axis=1)[:, ::2],
        MATRIX.astype(">f8"),
        MATRIX.astype(np.float32),
        np.frombuffer(b"\0" + MATRIX.tobytes(), np.uint8).copy()[1:].view(np.float64).reshape(3, 4),
        MATRIX.copy().view(type("Sub", (np.ndarray,), {})),
    ],
    ids=["fortran", "strided", "big-endian", "float32", "unaligned", "subclass"],
)
def test_arrays_of_other_layouts_and_types_are_copied_and_copied_back(matrix):
    assert weigh(matrix, PICKS, 2.0, 1, False) == WEIGHT
    np.testing.assert_array_equal(matrix[0], MATRIX[0])
    assert not matrix[1:].any()


def test_lists_that_are_only_read_are_taken_too():
    assert weigh(MATRIX.copy(), [0, 1], 2.0, 1, False) == WEIGHT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MATRIX, PICKS), "got 2 arguments; want 5"),
        ((MATRIX, PICKS, 1.0, 0, False, 3), "got 6 arguments; want 5"),
        (
            (MATRIX[0], PICKS, 1.0, 0, False),
            r"got an array of float64, \(4,\), for argument 1; want a C-contiguous .* 2",
        ),
        (
            (MATRIX, PICKS + 0.5, 1.0, 0, False),
            r"got an array of float64, \(2,\), for argument 2; want .* int64 with 1",
        ),
        ((MATRIX * 1j, PICKS, 1.0, 0, False), "got an array of complex128"),
        ((None, PICKS, 1.0, 0, False), "got None for argument 1; want a C-contiguous"),
        ((MATRIX, PICKS, "1", 0, False), "must be real number, not str"),
        ((MATRIX, PICKS, 1.0, 0.5, False), "'float' object cannot be interpreted as an integer"),
    ],
)
def test_anything_else_is_refused_and_nothing_is_changed(arguments, message):
    before = MATRIX.copy()
    with pytest.raises(TypeError, match=message):
        weigh(*arguments)
    np.testing.assert_array_equal(MATRIX, before)


@kernel("f1 f1 j1 -> f")
def read_and_write(read, write, short):
    total = 0.0
    for i in range(write.shape[0]):
        write[i] = read[i] + short[i]
        total += write[i]
    return total


def test_what_a_kernel_only_reads_is_never_changed():
    assert read_and_write.written == {1}
    large = np.array([2**53 + 1, 3])  # as a real number it is one less
    read_and_write(large, np.empty(2), np.zeros(2, np.int32))
    assert large.tolist() == [2**53 + 1, 3]
    both = np.arange(6.0)
    assert read_and_write(both[::2], both[:3], np.zeros(3, np.int32)) == 6.0
    assert both.tolist() == [0.0, 2.0, 4.0, 3.0, 4.0, 5.0]


@kernel("f1 f1 f2 f1")
def through_names(a, b, c, d):
    first, second = a, b
    row = c[0] if a[0] > 0.0 else c[1]
    second[0] = first[0] + row[0]
    np.dot(c, c, d.reshape((2, 2)))


@kernel("f1 f1 f2 f1")
def through_a_call(a, b, c, d):
    through_names(b, a, c, d)


def test_what_is_written_is_known_through_views_names_and_calls():
    assert (through_names.written, through_a_call.written) == ({1, 3}, {0, 3})


def test_read_only_arrays_are_read_and_never_written_to():
    fixed, short = np.array([1.0, 2.0]), np.zeros(2, np.int32)
    fixed.setflags(write=False)
    assert read_and_write(fixed, np.empty(2), short) == 3.0
    for target in (fixed, np.broadcast_to(np.ones(1), (2,))):
        with pytest.raises(TypeError, match=r"got a read-only array of float64, \(2,\), .* want .* to write into"):
            read_and_write(np.zeros(2), target, short)
    assert fixed.tolist() == [1.0, 2.0]


def test_what_would_lose_digits_is_refused():
    with pytest.raises(TypeError, match=r"int64, .* for argument 3; want .* int32"):
        read_and_write(np.zeros(2), np.empty(2), np.array([2**32, 0]))
    with pytest.raises(TypeError, match=r"int64, .* for argument 2; want .* float64 .* to write into"):
        read_and_write(np.zeros(2), np.array([1, 2]), np.zeros(2, np.int32))
    with pytest.raises(TypeError, match=r"got \[0.0, 0.0\] for argument 2"):
        read_and_write(np.zeros(2), [0.0, 0.0], np.zeros(2, np.int32))


def test_numbers_too_large_are_refused():
    with pytest.raises(OverflowError):
        weigh(MATRIX, PICKS, 1.0, 2**64, False)


def test_minus_one_is_a_number_like_any_other():
    assert weigh(MATRIX.copy(), np.array([1, 2]), -1.0, -1, False) == -MATRIX[:2].sum()


def test_what_only_kernels_call_python_does_not():
    for inner in (twice, thrice):
        with pytest.raises(TypeError, match=r"test_entry.t\w+ is called by kernels alone"):
            inner(1.0)


def test_no_references_are_kept():
    matrix, number = MATRIX.copy(), 1e300
    weigh(matrix, PICKS, number, 1, False)
    before = [sys.getrefcount(thing) for thing in (matrix, PICKS, number, None)]
    for _ in range(1000):
        weigh(matrix, PICKS, number, 1, False)
        one.call(number)
    after = [sys.getrefcount(thing) for thing in (matrix, PICKS, number, None)]
    assert all(abs(b - a) < 20 for a, b in zip(before, after, strict=True))


def test_an_array_returned_lives_as_long_as_a_view_of_it_and_then_is_freed():
    view = square(1000)[0][3:5]
    view[...] = 1.0
    assert view.sum() == 2000.0
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            square(1000)
        assert tracemalloc.get_traced_memory()[0] - before < 1_000_000  # one is 8 MB
        held = [square(1000) for _ in range(3)]
        assert tracemalloc.get_traced_memory()[0] - before > 24_000_000  # as Python's tools see it too
        del held
    finally:
        tracemalloc.stop()


def test_memory_that_is_not_there_is_an_error_and_leaves_nothing_behind():
    with pytest.raises(MemoryError):
        square(2**31)
    assert square(2)[1] == 2


@kernel("i -> f")
def scratch(times):
    total = 0.0
    for i in range(times):
        work = np.zeros((1000, 1000))
        work[0, 0] = i
        total += work[0, 0]
    return total


def test_what_a_loop_reserves_it_frees_at_the_next_turn():
    scratch(2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert scratch(200) == 199 * 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB; all of it would be 1.6 GB


@kernel("f1 i f1", nogil=True)
def alone(clock, turns, out):
    for i in range(turns):
        out[0] += clock[i % clock.shape[0]]


def test_other_threads_go_on_beside_a_kernel_that_lets_them():
    out, ticks = np.zeros(1), []
    alone(np.ones(3), 1, out)
    worker = threading.Thread(target=alone, args=(np.ones(3), 300_000_000, out))
    worker.start()
    while worker.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    assert len(ticks) > 10
    assert out[0] == 300_000_001.0
