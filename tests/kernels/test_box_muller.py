"""The Box–Muller transform against decimal arithmetic, at the ends of the range, and with fixed digits."""

from __future__ import annotations

import hashlib
from decimal import Decimal, localcontext

import numpy as np
import pytest

from halfseen.kernels.box_muller import to_normals
from halfseen.kernels.random import Purpose, normal_series, stream_keys

PI = Decimal("3.141592653589793238462643383279502884197169399375")
FIRST, LAST = 0.5 / 2**53, 1.0 - 0.5 / 2**53  # the smallest and the largest uniform


def normals_of(first, second):
    along, across = np.array(first, dtype=float), np.array(second, dtype=float)
    to_normals(along, across, len(along))
    return along, across


def decimal_cos_sin(u: Decimal) -> tuple[Decimal, Decimal]:
    """Return cos 2πu and sin 2πu by their series at 0."""
    angle = 2 * PI * u
    sums, term = [Decimal(0), Decimal(0)], Decimal(1)
    for n in range(120):
        sums[n % 2] += term if n % 4 < 2 else -term
        term *= angle / (n + 1)
    return sums[0], sums[1]


def exact_pair(u: float, v: float) -> tuple[float, float]:
    with localcontext() as context:
        context.prec = 60
        radius = (-2 * Decimal(u).ln()).sqrt()
        cosine, sine = decimal_cos_sin(Decimal(v))
        return float(radius * cosine), float(radius * sine)


EDGES = [FIRST, 2.0**-30, 0.125, 0.25, 0.375, 0.5, np.sqrt(0.5), np.nextafter(np.sqrt(0.5), 0), 0.75, 0.875, LAST]


@pytest.mark.parametrize("seed", range(3))
def test_normals_are_accurate_to_the_last_digits(seed):
    rng = np.random.default_rng(seed)
    first = np.concatenate([rng.random(150), 1.0 - 10.0 ** -rng.uniform(1, 15, 50), 10.0 ** -rng.uniform(1, 15, 50)])
    second = rng.random(first.size)
    got = np.array(normals_of(first, second))
    expected = np.array([exact_pair(u, v) for u, v in zip(first.tolist(), second.tolist(), strict=True)]).T
    assert (np.abs(got - expected) <= 4 * np.spacing(np.abs(expected))).all()


def test_normals_at_the_ends_of_the_range_and_at_quarter_turns():
    first, second = (grid.ravel() for grid in np.meshgrid(EDGES, EDGES))
    got = np.array(normals_of(first, second))
    expected = np.array([exact_pair(u, v) for u, v in zip(first.tolist(), second.tolist(), strict=True)]).T
    np.testing.assert_allclose(got, expected, rtol=1e-15, atol=1e-30)
    assert np.abs(got).max() < 8.7  # the largest normal that a uniform can give


def test_a_normal_does_not_depend_on_the_other_pairs():
    rng = np.random.default_rng(5)
    first, second = rng.random(37), rng.random(37)
    together = normals_of(first, second)
    for j in range(37):
        alone = normals_of(first[j : j + 1], second[j : j + 1])
        assert (alone[0][0], alone[1][0]) == (together[0][j], together[1][j])


def test_the_digits_are_the_same_on_every_machine():
    draws = normal_series(stream_keys(range(4)), 0, 500, Purpose.CHOICE, 15).astype("<f8")
    assert hashlib.sha256(draws.tobytes()).hexdigest() == (
        "ee38025b371d2e92434469fab59627214d0b5ee379d4a1e3a328357bf37e6823"
    )
