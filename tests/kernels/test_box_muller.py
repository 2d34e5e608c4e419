"""Normals from uniforms: against decimals of forty places, at the ends of the range, and with fixed digits."""

from __future__ import annotations

import hashlib
from decimal import Decimal, localcontext

import numpy as np
import pytest

from halfseen.kernels.box_muller import to_normals
from halfseen.kernels.random import Purpose, normal_series, stream_keys

PI = Decimal("3.141592653589793238462643383279502884197169399375")
FIRST, LAST = 0.5 / 2**53, 1.0 - 0.5 / 2**53  # of the uniforms there are


def normals_of(first, second):
    along, across = np.array(first, dtype=float), np.array(second, dtype=float)
    to_normals(along, across, len(along))
    return along, across


def decimal_turn(u: Decimal) -> tuple[Decimal, Decimal]:
    """cos 2πu and sin 2πu by their series about 0, with places to spare."""
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
        cosine, sine = decimal_turn(Decimal(v))
        return float(radius * cosine), float(radius * sine)


EDGES = [FIRST, 2.0**-30, 0.125, 0.25, 0.375, 0.5, np.sqrt(0.5), np.nextafter(np.sqrt(0.5), 0), 0.75, 0.875, LAST]


@pytest.mark.parametrize("seed", range(3))
def test_they_are_right_to_the_last_digits(seed):
    rng = np.random.default_rng(seed)
    first = np.concatenate([rng.random(150), 1.0 - 10.0 ** -rng.uniform(1, 15, 50), 10.0 ** -rng.uniform(1, 15, 50)])
    second = rng.random(first.size)
    got = np.array(normals_of(first, second))
    want = np.array([exact_pair(u, v) for u, v in zip(first.tolist(), second.tolist(), strict=True)]).T
    assert (np.abs(got - want) <= 4 * np.spacing(np.abs(want))).all()


def test_at_the_ends_of_the_range_and_at_quarter_turns():
    first, second = (grid.ravel() for grid in np.meshgrid(EDGES, EDGES))
    got = np.array(normals_of(first, second))
    want = np.array([exact_pair(u, v) for u, v in zip(first.tolist(), second.tolist(), strict=True)]).T
    np.testing.assert_allclose(got, want, rtol=1e-15, atol=1e-30)
    assert np.abs(got).max() < 8.7  # no uniform is further out


def test_the_digits_depend_neither_on_neighbours_nor_on_how_many_there_are():
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
