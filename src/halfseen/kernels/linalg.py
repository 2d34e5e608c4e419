"""Linear algebra of small dense matrices: Cholesky factors, linear recursions, comparison of covariances."""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Flags, Float, Matrix, Stack, Vector
from halfseen.kernels.compiling import AS_WRITTEN, kernel

PIVOT_FLOOR = 1e-14  # a pivot below this share of its diagonal entry is rounding error
FREEZE = 1e-12  # a covariance whose relative change is below this has converged
MAX_RAISE = 1e-3  # the largest share by which rounding errors may increase a variance
CANCELLATION = 1e-14  # rounding error of a difference of two covariances, relative to the larger of the two


@kernel()
def dot(a: Matrix, b: Matrix, out: Matrix) -> None:
    """Compute out = a b with BLAS."""
    np.dot(a, b, out)


@kernel()
def dot_transposed(a: Matrix, b: Matrix, out: Matrix) -> None:
    """Compute out = a bᵀ with BLAS."""
    np.dot(a, b.T, out)


@kernel()
def transposed_dot(a: Matrix, b: Matrix, out: Matrix) -> None:
    """Compute out = aᵀ b with BLAS."""
    np.dot(a.T, b, out)


@kernel()
def _cholesky(S: Matrix, share: Float, U: Matrix) -> bool:
    """Compute the upper triangular U with UᵀU = S + share·diag(S). Return False if a pivot is not safely positive."""
    n = S.shape[0]
    for i in range(n):
        for j in range(i, n):
            U[i, j] = S[i, j]
        # A zero on the diagonal of a positive semi-definite matrix means a zero row, so any positive pivot will do.
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
    """Compute W = L⁻¹ with LLᵀ = S, so that S⁻¹ = WᵀW and log|S| = −2 Σ log W_ii.

    S (n, n) is positive semi-definite and W (n, n) lower triangular. If S is singular to working precision, its
    diagonal is increased by the smallest of the shares 1e-13, 1e-11, ... with which the factorisation succeeds. Because
    each diagonal entry is increased by the same share of itself, the result does not depend on the units of the
    coordinates. Returns the share, which is 0 if S is not singular. U (n, n) is scratch.
    """
    n = S.shape[0]
    share = 0.0
    while not _cholesky(S, share, U):
        share = max(1e-13, share * 100.0)
        if share > 1.0:  # S is not positive semi-definite or not finite: return the identity
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
    """Copy source (m, n) to the first m rows of target."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@kernel()
def symmetrise(P: Matrix) -> None:
    """Replace P (n, n) by (P + Pᵀ)/2."""
    for i in range(P.shape[0]):
        for j in range(i):
            mean = 0.5 * (P[i, j] + P[j, i])
            P[i, j] = mean
            P[j, i] = mean


@kernel(AS_WRITTEN)
def raise_pivots(C: Matrix, scale: Vector) -> None:
    """Raise diagonal entries of C (n, n), so that C is positive definite in spite of rounding errors.

    The rounding error of row i is proportional to entry i of `scale` (n,), the diagonal of the matrix from which C was
    computed. A pivot of the Cholesky factorisation that is below the rounding error of its row is raised to this error.
    If no pivot is that small, C does not change.
    """
    n = C.shape[0]
    U = np.zeros((n, n))
    for i in range(n):
        pivot = C[i, i]
        for r in range(i):
            pivot -= U[r, i] * U[r, i]
        least = CANCELLATION * abs(scale[i])
        if pivot < least:
            C[i, i] += least - pivot
            pivot = least
        if pivot > 0.0:
            for j in range(i + 1, n):
                total = C[i, j]
                for r in range(i):
                    total -= U[r, i] * U[r, j]
                U[i, j] = total / np.sqrt(pivot)


@kernel()
def subtract_outer(C: Matrix, gain: Vector, share: Float, safe: bool) -> None:
    """Subtract gain gainᵀ·share from the covariance C (n, n), which stays positive definite.

    If the subtraction is not `safe`, rounding errors could make C indefinite, so pivots are raised. If so few digits of
    C are right that a variance would become larger than before, C does not change.
    """
    n = C.shape[0]
    before = C if safe else C.copy()
    for i in range(n):
        for j in range(i + 1):
            C[i, j] -= gain[i] * gain[j] * share
            C[j, i] = C[i, j]
    if safe:
        return
    raise_pivots(C, np.diag(before))
    for i in range(n):
        if not C[i, i] <= (1.0 + MAX_RAISE) * abs(before[i, i]):
            copy_into(C, before)
            return


@kernel()
def nearly_equal(P_new: Matrix, P_old: Matrix, P_pred: Matrix, tolerance: Float) -> bool:
    """Return whether |P_new − P_old| ≤ tolerance·sqrt(P_ii P_jj) + rounding error for all entries i, j; all (n, n).

    Because each entry has its own bound, the result does not depend on the units of the coordinates. A filtered
    covariance P is P⁻ minus another matrix, so its rounding error is proportional to P⁻ (`P_pred`), however small P is.
    """
    n = P_new.shape[0]
    for i in range(n):
        for j in range(i + 1):
            size = np.sqrt(max(P_new[i, i] * P_new[j, j], 0.0))
            rounding = CANCELLATION * np.sqrt(P_pred[i, i] * P_pred[j, j])
            bound = tolerance * size + rounding
            if not (abs(P_new[i, j] - P_old[i, j]) <= bound and bound < np.inf):  # an infinite bound means overflow
                return False
    return True


@kernel()
def run_recursion(FT: Matrix, start: Vector, X: Matrix, backward: bool) -> None:
    """Compute X_t ← X_t + F X_{t−1} for the rows of X (n, d) in order, or X_t + F X_{t+1} if `backward`.

    `start` (d,) is the row before the first one to be computed. FT (d, d) is Fᵀ. Once the gain has converged, the
    filter and the smoother spend most of their time here. Columns are processed four at a time, because the inner loop
    then vectorises and stores the sum less often.
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
def _exceeds_floor(C: Matrix, floor: Vector) -> bool:
    """Return whether C (n, n) − diag(floor) is positive definite."""
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
    """Set below[b, k] to whether all eigenvalues of the matrix C of stream b and arm k are below ceilings[b].

    `packed` (B, K, p(p + 1)/2) holds the upper triangles of the matrices, row by row, with p = `size`.
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
            below[b, k] = positive and _cholesky(S, 0.0, U)


def raise_to_floor(C: Matrix, floor: Vector) -> Matrix:
    """Return the matrix X ⪰ diag(floor) that maximises −log|X| − tr(X⁻¹C). If C ⪰ diag(floor), this is C.

    In coordinates in which the floor is the identity, eigenvalues of C below 1 are replaced by 1. If an entry
    of the floor is 0, C is returned.
    """
    if not (floor > 0.0).all() or _exceeds_floor(C, floor) or not np.isfinite(C).all():
        return C
    scale = np.sqrt(floor)
    values, vectors = np.linalg.eigh(C / np.outer(scale, scale))
    raised = (vectors * np.maximum(values, 1.0)) @ vectors.T * np.outer(scale, scale)
    return np.asarray(0.5 * (raised + raised.T))
