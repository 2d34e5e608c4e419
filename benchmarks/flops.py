"""Floating-point operations of a few building blocks: a multiplication and an addition are one each.

Square roots, comparisons and random draws are left out. The formulas of the jobs, in their own files, are made of
these and count the form that needs fewest: symmetric matrices once, gains that no longer change not at all.
"""

from __future__ import annotations


def product(m: int, n: int, p: int = 1) -> int:
    """(m, n) times (n, p)."""
    return 2 * m * n * p


def triangle(d: int) -> int:
    """Entries of a symmetric matrix."""
    return d * (d + 1) // 2


def steady_filter_step(d: int, k: int) -> int:
    """x ← Dx + G(y − ADx), with A = [I 0] and the gain known: the product Dx, k differences, G times them, d sums."""
    return product(d, d) + k + product(d, k) + d


def score(d: int, arms: int) -> int:
    """cᵀm_a and cᵀC_a c of every arm: ccᵀ once, one triangle, doubled off the diagonal; two dot products an arm."""
    return triangle(d) + d - 1 + arms * (2 * triangle(d) + 2 * d)


def learn(d: int) -> int:
    """A rank-one update of one arm: g = Cc, q = cᵀg, r − cᵀm, m += g·step, g scaled, C −= ggᵀ (one triangle)."""
    return product(d, d) + 2 * d + 2 * d + 1 + 2 * d + d + 2 * triangle(d)
