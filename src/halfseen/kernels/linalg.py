"""Small dense linear algebra as plain loops: Cholesky with a floor, linear recursions, spectral clipping."""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Flags, Float, Matrix, Stack, Vector
from halfseen.kernels.compiling import kernel

PIVOT_FLOOR = 1e-14  # a pivot below this share of its diagonal entry is rounding error, not information
FREEZE = 1e-12  # relative change of a covariance below which it counts as converged
CANCELLATION = 1e-14  # rounding error of a covariance, in units of the one it was subtracted from


@kernel()
def dot(a: Matrix, b: Matrix, out: Matrix) -> None:
    """out = a b, by BLAS."""
    np.dot(a, b, out)


@kernel()
def dot_transposed(a: Matrix, b: Matrix, out: Matrix) -> None:
    """out = a bᵀ."""
    np.dot(a, b.T, out)


@kernel()
def transposed_dot(a: Matrix, b: Matrix, out: Matrix) -> None:
    """out = aᵀ b."""
    np.dot(a.T, b, out)


@kernel()
def _factor(S: Matrix, share: Float, U: Matrix) -> bool:
    """U upper with UᵀU = S + share·diag(S); False when a pivot is not safely positive."""
    n = S.shape[0]
    for i in range(n):
        for j in range(i, n):
            U[i, j] = S[i, j]
        # A zero on the diagonal of a PSD matrix means a zero row: any positive pivot leaves the rest alone.
        U[i, i] = S[i, i] * (1.0 + share) if S[i, i] > 0.0 else 1.0
    for i in range(n):
        pivot = U[i, i]
        if not pivot > PIVOT_FLOOR * S[i, i]:
            return False
        scale = 1.0 / np.sqrt(pivot)
        for j in range(i, n):
            U[i, j] *= scale
        for r in range(i + 1, n):
            factor = U[i, r]
            for j in range(r, n):
                U[r, j] -= factor * U[i, j]
    return True


@kernel()
def whitener(S: Matrix, U: Matrix, W: Matrix) -> float:
    """W = L⁻¹ (lower triangular, zeros above) with LLᵀ = S, so S⁻¹ = WᵀW and log|S| = −2 Σ log W_ii.

    S is positive semi-definite. When it is singular to working precision the diagonal is raised by the
    smallest share of itself in 1e-13, 1e-11, .. that lets the factorisation through; relative to each
    entry, so the result does not depend on the units of the coordinates. Returns that share. U is scratch.
    """
    n = S.shape[0]
    share = 0.0
    while not _factor(S, share, U):
        share = max(1e-13, share * 100.0)
        if share > 1.0:  # not positive semi-definite, or not finite: leave a harmless whitener
            for i in range(n):
                for j in range(n):
                    W[i, j] = 0.0
                W[i, i] = 1.0
            return share
    for i in range(n):
        for j in range(n):
            W[i, j] = 0.0
        W[i, i] = 1.0
        for r in range(i):
            factor = U[r, i]
            for j in range(r + 1):
                W[i, j] -= factor * W[r, j]
        scale = 1.0 / U[i, i]
        for j in range(i + 1):
            W[i, j] *= scale
    return share


@kernel()
def copy_into(target: Matrix, source: Matrix) -> None:
    """target[:len(source)] = source."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@kernel()
def symmetrise(P: Matrix) -> None:
    for i in range(P.shape[0]):
        for j in range(i):
            mean = 0.5 * (P[i, j] + P[j, i])
            P[i, j] = mean
            P[j, i] = mean


@kernel()
def agree(P_new: Matrix, P_old: Matrix, P_pred: Matrix, tolerance: Float) -> bool:
    """|ΔP_ij| ≤ tolerance·sqrt(P_ii P_jj) + rounding: with FREEZE, the test by which a covariance freezes.

    Entry by entry, so that the units of the coordinates do not matter. P comes out of P⁻ by subtraction, so its
    rounding error is in proportion to P⁻, of which next to nothing is left where there is no noise. Leaves at
    the first entry that differs.
    """
    n = P_new.shape[0]
    for i in range(n):
        for j in range(i + 1):
            size = np.sqrt(max(P_new[i, i] * P_new[j, j], 0.0))
            rounding = CANCELLATION * np.sqrt(P_pred[i, i] * P_pred[j, j])
            bound = tolerance * size + rounding
            if not (abs(P_new[i, j] - P_old[i, j]) <= bound and bound < np.inf):  # what overflows has not settled
                return False
    return True


@kernel()
def recur(FT: Matrix, start: Vector, X: Matrix, backward: bool) -> None:
    """X_t ← X_t + F X_{t−1} down the rows of X, or X_t + F X_{t+1} up them, from `start`; FT is Fᵀ.

    The heart of every frozen pass. Column-wise and four columns at a time, because the inner loop then
    vectorises and the accumulator is stored a quarter as often.
    """
    n, d = X.shape
    four = d - d % 4
    for s in range(n):
        t = n - 1 - s if backward else s
        row = X[t]
        last = start if s == 0 else (X[t + 1] if backward else X[t - 1])
        for j in range(0, four, 4):
            a, b, c, e = last[j], last[j + 1], last[j + 2], last[j + 3]
            for i in range(d):
                row[i] += (FT[j, i] * a + FT[j + 1, i] * b) + (FT[j + 2, i] * c + FT[j + 3, i] * e)
        for j in range(four, d):
            a = last[j]
            for i in range(d):
                row[i] += FT[j, i] * a


@kernel()
def _above(C: Matrix, floor: Vector) -> bool:
    """Whether C − diag(floor) is positive definite: its Cholesky factorisation goes through."""
    n = C.shape[0]
    L = np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = C[i, j] - (floor[i] if i == j else 0.0)
            for r in range(j):
                total -= L[i, r] * L[j, r]
            if i > j:
                L[i, j] = total / L[j, j]
            elif total > 0.0:
                L[i, i] = np.sqrt(total)
            else:
                return False
    return True


@kernel()
def all_below(packed: Stack, size: int, ceilings: Vector, below: Flags) -> None:
    """Into `below` (B, K), whether all eigenvalues of C are below ceilings[b]: ceiling·I − C is positive definite.

    C is given by its upper triangle, row by row, (B, K, p(p+1)/2).
    """
    S, U = np.empty((size, size)), np.empty((size, size))
    for b in range(packed.shape[0]):
        for k in range(packed.shape[1]):
            at = 0
            positive = True
            for i in range(size):
                for j in range(i, size):
                    S[i, j] = -packed[b, k, at]
                    at += 1
                S[i, i] += ceilings[b]
                positive = positive and S[i, i] > 0.0
            below[b, k] = positive and _factor(S, 0.0, U)


def raise_to_floor(C: Matrix, floor: Vector) -> Matrix:
    """The X ⪰ diag(floor) that maximises −log|X| − tr(X⁻¹C): C itself where it is above the floor already.

    In coordinates in which the floor is the identity this lifts every eigenvalue below 1 to 1. A floor that
    is 0 anywhere is no floor. Lifting is plain NumPy: it is seldom needed.
    """
    if not (floor > 0.0).all() or _above(C, floor) or not np.isfinite(C).all():
        return C
    scale = np.sqrt(floor)
    values, vectors = np.linalg.eigh(C / np.outer(scale, scale))
    lifted = (vectors * np.maximum(values, 1.0)) @ vectors.T * np.outer(scale, scale)
    return np.asarray(0.5 * (lifted + lifted.T))
