"""What a kernel computes is what its Python computes: each construct, compiled and not, on the same numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfseen.compiler.decorators import AS_WRITTEN, helper, inline, kernel
from halfseen.compiler.intrinsics import bits_of, double_of, multiply_high, prefetch

TABLE = np.array([0.5, -1.25, 3.0])
STEP, ODD = 3, np.uint64(0x9E3779B97F4A7C15)
WHOLE = st.integers(-(2**40), 2**40)
REAL = st.floats(allow_subnormal=False, width=64)


def agree(one, *arguments):
    """Compiled and as Python, on copies: results and what is written into arrays."""
    copies = [[a.copy() if isinstance(a, np.ndarray) else a for a in arguments] for _ in range(2)]
    with np.errstate(all="ignore"):
        got, want = one(*copies[0]), one.python(*copies[1])
    for a, b in zip([got, *copies[0]], [want, *copies[1]], strict=True):
        if b is not None:
            np.testing.assert_array_equal(a, b)
    return got


@kernel("i i -> i i i i i", AS_WRITTEN)
def whole_numbers(a, b):
    return a + b, a - b * 2, a // b, a % b, -a


@settings(max_examples=200, deadline=None)
@given(WHOLE, WHOLE.filter(bool))
def test_whole_numbers_are_divided_as_in_python(a, b):
    agree(whole_numbers, a, b)


def test_whole_numbers_by_zero_are_zero_as_in_numpy():
    assert whole_numbers(7, 0) == (7, 7, 0, 0, -7)


@kernel("i i -> i i i i i", AS_WRITTEN)
def bits(a, b):
    return a & b, a | b, a ^ b, a >> 3, (a & 255) << 5


@settings(max_examples=50, deadline=None)
@given(WHOLE, WHOLE)
def test_bits(a, b):
    agree(bits, a, b)


@kernel("f f -> f f f f f", AS_WRITTEN)
def real_numbers(a, b):
    return a + b, a - b, a * b, -a, a**2


@settings(max_examples=100, deadline=None)
@given(REAL.filter(lambda x: abs(x) < 1e150), REAL)
def test_real_numbers(a, b):
    agree(real_numbers, a, b)


@kernel("f f -> f f", AS_WRITTEN)
def quotients(a, b):
    return a / b, 1 / b


def test_division_by_zero_is_infinite_as_in_numpy():
    assert quotients(-1.0, 0.0) == (-math.inf, math.inf)
    assert quotients(3.0, -2.0) == (-1.5, -0.5)


@kernel("f f -> b b b b b b b", AS_WRITTEN)
def compared(a, b):
    return a < b, a <= b, a > b, a >= b, a == b, a != b, 0.0 < a <= b


@kernel("i i -> b b b b b b b", AS_WRITTEN)
def compared_whole(a, b):
    return a < b, a <= b, a > b, a >= b, a == b, a != b, 0 < a <= b


@pytest.mark.parametrize("a", [-1.0, 0.0, 2.0, math.nan, math.inf])
@pytest.mark.parametrize("b", [-1.0, 0.0, 2.0, math.nan, -math.inf])
def test_comparisons_with_nan_are_false(a, b):
    agree(compared, a, b)
    if math.isfinite(a) and math.isfinite(b):
        agree(compared_whole, int(a), int(b))


@kernel("f f f -> f f f b b", AS_WRITTEN)
def extremes(a, b, c):
    return min(a, b), max(a, b), max(a, b, c), math.isnan(a), math.isinf(b)


@pytest.mark.parametrize("a", [-1.0, 0.0, math.nan, math.inf])
@pytest.mark.parametrize("b", [-0.0, 2.0, math.nan, -math.inf])
def test_the_least_and_the_most_treat_nan_as_python_does(a, b):
    agree(extremes, a, b, 1.0)


@kernel("f -> f f f f f f f", AS_WRITTEN)
def functions(x):
    return math.sqrt(x), math.log(x), math.exp(x), math.log1p(x), math.erf(x), math.erfc(x), x**1.5


@pytest.mark.parametrize("x", [0.1, 1.0, 7.25])
def test_functions_of_a_real_number(x):
    np.testing.assert_allclose(functions(x), functions.python(x), rtol=4e-16)


@kernel("i f b -> f i f i b", AS_WRITTEN)
def converted(a, x, flag):
    total = 0  # an integer here, a real number below
    total += x
    count = flag
    count += 2
    return total, count, float(a) / 4, int(x), bool(a)


def test_a_variable_is_of_the_widest_type_it_is_given():
    agree(converted, 7, -2.75, True)
    agree(converted, 0, 2.75, False)


@kernel("i i -> i", AS_WRITTEN)
def turns(n, skipped):
    total = 0
    for i in range(n):
        if i == skipped:
            continue
        for j in range(i, 0, -1):
            total += 10 * i + j
            if j < 2:
                break
        else_ = i
        while else_ > 0:
            else_ //= 2
            total += 1
            if else_ == 2:
                break
        if total > 500:
            return -total
    for k in range(1, n, STEP):
        total += k
    return total


@pytest.mark.parametrize("n", [0, 1, 5, 9, 40])
@pytest.mark.parametrize("skipped", [-1, 3])
def test_loops(n, skipped):
    agree(turns, n, skipped)


@kernel("f1 -> i", AS_WRITTEN)
def counted(calls):
    calls[0] += 1.0
    return 1


@kernel("f1 b b -> i b b", AS_WRITTEN)
def once(calls, p, q):
    first = bool(counted(calls))
    while True:
        if calls[0] > 3.0:
            return int(first), max(p, q), min(p, q)
        calls[0] += 1.0


@pytest.mark.parametrize("p", [False, True])
def test_what_is_asked_for_its_truth_is_computed_once(p):
    agree(once, np.zeros(1), p, True)


@kernel("f b b -> f b b b", AS_WRITTEN)
def choices(x, p, q):
    if x > 1.0 and p:
        y = 1.0 if q else 2.0
    elif x > 1.0 or q:
        y = 3.0
    else:
        y, q = 4.0, not p
    return y if not (p and q and x > 0.0) else -y, p and q, p or q, not p


@pytest.mark.parametrize("x", [0.0, 1.5])
@pytest.mark.parametrize("p", [False, True])
@pytest.mark.parametrize("q", [False, True])
def test_branches(x, p, q):
    agree(choices, x, p, q)


@kernel("f1 i -> b", AS_WRITTEN)
def looks_no_further(values, i):
    return i < values.shape[0] and values[i] > 0.0


def test_what_follows_a_false_condition_is_not_looked_at():
    assert looks_no_further(np.array([1.0]), 0)
    assert not looks_no_further(np.array([1.0]), 2**40)


@kernel("f1 -> f f", AS_WRITTEN)
def swapped(values):
    a, b = values[0], values[1]
    a, b = b, a
    values[0], values[1] = values[1], values[0]
    values[2] = values[3] = a
    pair = (a, b)
    return pair[1], pair[0]


def test_all_of_the_right_side_comes_first():
    agree(swapped, np.arange(4.0))


@kernel("f3 f2 i i1", AS_WRITTEN)
def views(stack, matrix, i, shape):
    row = stack[i, 1]
    row[0] = 7.0
    stack[i, -1, 2] += row[1]
    part = matrix[1:]
    part[0, 0] = -1.0
    matrix[0, 1:3][1] *= 2.0
    flat = stack[0].reshape((stack.shape[1] * stack.shape[2],))
    flat[1] -= 0.5
    beyond = matrix[2:99]
    shape[0], shape[1], shape[2] = beyond.shape[0], len(part), matrix[5:3].shape[0]
    stack[1, 0, :] = 9.0
    matrix[-1][:2] = 4


def test_parts_of_arrays_are_views():
    rng = np.random.default_rng(1)
    agree(views, rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 5)), 1, np.zeros(3, np.int64))


@kernel("j2 u1 b1 i1 -> i i", AS_WRITTEN)
def other_items(short, unsigned, flags, whole):
    short[0, 1] = whole[0]
    short[1, 1] -= 5
    unsigned[0] = unsigned[1] * ODD
    unsigned[1] = (unsigned[1] >> np.uint64(60)) + unsigned[2] % np.uint64(7)
    count = 0
    for flag in flags:
        count += flag
    flags[0] = not flags[1]
    whole[1] = flags[2]
    whole[2] = np.int64(unsigned[2] >> np.uint64(1))
    return count, short[0, 0] + short[1, 0]


def test_arrays_of_integers_and_flags():
    short = np.array([[-7, 1], [2**31 - 1, 3]], np.int32)
    unsigned = np.array([1, 2**64 - 3, 2**63 + 5], np.uint64)
    agree(other_items, short, unsigned, np.array([True, False, True]), np.array([-9, 0, 0]))


@kernel("i -> f1 f2 i2 b1 f1", AS_WRITTEN)
def made(n):
    first, second = np.zeros(n), np.full((2, n), 1.5)
    third, fourth = np.ones((n, 1), np.int64), np.empty(n, dtype=np.bool_)
    fourth[:] = n > 2
    copied = second[1].copy()
    for i in range(n):
        copied[i] += TABLE[i % TABLE.shape[0]]
    other = np.empty_like(copied)
    for i in range(n):
        other[i] = 2.0 * copied[i]
    return first, second, third, fourth, other


@pytest.mark.parametrize("n", [0, 1, 4])
def test_arrays_are_made_and_returned(n):
    got, want = made(n), made.python(n)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)
        a[...] = 0  # it is the caller's


@kernel("f2 f2 f2")
def product(a, b, out):
    np.dot(a, b, out)


@kernel("f2 f2 f2")
def product_transposed(a, b, out):
    np.dot(a, b.T, out)


@kernel("f2 f2 f2")
def transposed_product(a, b, out):
    np.dot(a.T, b, out)


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (5, 0, 2), (0, 3, 4), (7, 20, 11)])
def test_matrix_products(shape):
    m, k, n = shape
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    for one, left, right in [
        (product, a, b),
        (product_transposed, a, np.ascontiguousarray(b.T)),
        (transposed_product, np.ascontiguousarray(a.T), b),
    ]:
        out = np.full((m, n), np.nan)
        one(left, right, out)
        np.testing.assert_allclose(out, a @ b, rtol=1e-13, atol=1e-13)


@inline("f f -> f f", AS_WRITTEN)
def sum_and_difference(a, b):
    return a + b, a - b


@helper("f1 i -> f1 i b", AS_WRITTEN)
def repeat(vector, times):
    repeated = np.empty(len(vector) * times)
    for i in range(len(repeated)):
        repeated[i] = vector[i % len(vector)]
    return repeated, len(repeated), times > 1


@kernel("f1 i -> f1 f b", AS_WRITTEN)
def calling(vector, times):
    kept, length, several = vector, 0, False
    for _ in range(times):
        kept, length, several = repeat(kept, 2)
    more, less = sum_and_difference(float(length), 1.0)
    return kept.copy(), more * less, several


@pytest.mark.parametrize("times", [0, 1, 4])
def test_kernels_call_each_other_and_hand_arrays_back(times):
    got, want = calling(np.array([1.0, 2.0]), times), (np.tile([1.0, 2.0], 2**times), times)
    np.testing.assert_array_equal(got[0], want[0])
    length = float(2 * 2**times if times else 0)
    assert got[1:] == ((length + 1) * (length - 1), times > 0)


@kernel("f i u1 -> i f")
def by_the_bit(x, bits, words):
    words[2] = multiply_high(words[0], words[1])
    return bits_of(x), double_of(bits)


@kernel("f3 i -> f")
def fetched(stack, i):
    prefetch(stack, i, 0)
    return stack[i, 0, 0]


def test_the_intrinsics_are_what_they_are_in_python():
    assert bits_of(1.0) == 1023 << 52
    assert double_of(1023 << 52) == 1.0
    words = np.array([2**63 + 12345, 2**64 - 59, 0], np.uint64)
    agree(by_the_bit, -math.pi, 0x4009_21FB_5444_2D18, words)
    assert fetched(np.ones((2, 3, 4)), 1) == 1.0


@kernel("f1 f1 -> f f")
def added(a, b):
    forward, product = 0.0, 0.0
    for i in range(a.shape[0]):
        forward += a[i]
        product += a[i] * b[i]
    return forward, product


def test_sums_may_be_taken_in_another_order_but_lose_nothing():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=1001), rng.normal(size=1001)
    np.testing.assert_allclose(added(a, b), (a.sum(), a @ b), rtol=1e-12)
    a[77] = np.nan
    assert np.isnan(added(a, b)).all()
