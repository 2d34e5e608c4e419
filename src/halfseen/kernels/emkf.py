"""The M-step of EMKF-Bandit: each filtered mean is regressed on the one before it (docs/mathematics.md, "EMKF").

Each window of rounds has the sums X = Σ x̂_{t−1} x̂_{t−1}ᵀ and Ψ = Σ x̂_t x̂_{t−1}ᵀ over its pairs of consecutive
rounds.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Index, Matrix, Stack, Vector
from halfseen.kernels.compiling import FUSED, kernel
from halfseen.kernels.linalg import raise_pivots


@kernel(FUSED)
def _add_pairs(b: int, before: Matrix, after: Matrix, X: Stack, Psi: Stack) -> None:
    """Add Σ_t before_t before_tᵀ to X[b] and Σ_t after_t before_tᵀ to Ψ[b], from `before` and `after` (n, d).

    Rows are added four at a time, so that the sums are stored less often. The additions are still done in the order of
    the rows.
    """
    n, d = before.shape[0], before.shape[1]
    whole = n - n % 4
    for t in range(0, whole, 4):
        t_1, t_2, t_3 = t + 1, t + 2, t + 3
        for i in range(d):
            x, x_1, x_2, x_3 = before[t, i], before[t_1, i], before[t_2, i], before[t_3, i]
            y, y_1, y_2, y_3 = after[t, i], after[t_1, i], after[t_2, i], after[t_3, i]
            for j in range(d):
                first, second = X[b, i, j], Psi[b, i, j]
                first += x * before[t, j]
                second += y * before[t, j]
                first += x_1 * before[t_1, j]
                second += y_1 * before[t_1, j]
                first += x_2 * before[t_2, j]
                second += y_2 * before[t_2, j]
                X[b, i, j] = first + x_3 * before[t_3, j]
                Psi[b, i, j] = second + y_3 * before[t_3, j]
    for t in range(whole, n):
        for i in range(d):
            for j in range(d):
                X[b, i, j] += before[t, i] * before[t, j]
                Psi[b, i, j] += after[t, i] * before[t, j]


@kernel()
def _start_window(b: int, mean: Vector, opening: Matrix, X: Stack, Psi: Stack) -> None:
    """Start a window of stream b whose first filtered mean is `mean` (d,), and which has no pair yet."""
    for i in range(mean.shape[0]):
        opening[b, i] = mean[i]
        for j in range(mean.shape[0]):
            X[b, i, j] = 0.0
            Psi[b, i, j] = 0.0


@kernel()
def add_pairs(
    rows: Index,  # (n,), the streams of the round
    first: Index,  # (n,), 1 if the round is the first of a window, else 0
    means: Matrix,  # (B, d), x̂_t
    previous: Matrix,  # (B, d), x̂_{t−1}, updated in place
    opening: Matrix,  # (B, d), x̂ in the first round of the window, updated in place
    X: Stack,  # (B, d, d), updated in place
    Psi: Stack,  # (B, d, d), updated in place
) -> None:
    """Add the pair (x̂_{t−1}, x̂_t) to X and Ψ. In the first round of a window, set X and Ψ to 0 instead."""
    for s in range(rows.shape[0]):
        b = rows[s]
        if first[s] != 0:
            _start_window(b, means[b], opening, X, Psi)
        else:
            _add_pairs(b, previous[b : b + 1], means[b : b + 1], X, Psi)
        for i in range(means.shape[1]):
            previous[b, i] = means[b, i]


@kernel()
def add_pairs_ahead(
    means: Stack,  # (B, n, d), x̂
    start: int,
    stop: int,
    opens: bool,  # whether round `start` is the first of a window
    previous: Matrix,  # the remaining arguments are those of `add_pairs`
    opening: Matrix,
    X: Stack,
    Psi: Stack,
) -> None:
    """Call `add_pairs` for all streams in the rounds start:stop of one window, stream by stream."""
    for b in range(means.shape[0]):
        if opens:
            _start_window(b, means[b, start], opening, X, Psi)
        else:
            _add_pairs(b, previous[b : b + 1], means[b, start : start + 1], X, Psi)
        _add_pairs(b, means[b, start : stop - 1], means[b, start + 1 : stop], X, Psi)
        for i in range(means.shape[2]):
            previous[b, i] = means[b, stop - 1, i]


def maximise(X: Stack, Psi: Stack, opening: Matrix, closing: Matrix, pairs: int) -> tuple[Stack, Stack]:
    """Return D̂ and Q̂ (B, d, d) of B windows from their X and Ψ (B, d, d) and their first and last x̂ (B, d).

    D̂ = Ψ(X + λI)⁻¹ with λ = 1e-6 tr(X)/d, and Q̂ = (Y − D̂Ψᵀ − ΨD̂ᵀ + D̂XD̂ᵀ)/n + 1e-9 I with n = `pairs`. Y = Σ x̂_t
    x̂_tᵀ is X minus the term of the first mean of the window plus the term of the last mean. X must not be 0. Q̂ is a
    small difference of large matrices, so its diagonal is raised where their rounding errors could make it indefinite.
    """
    d = X.shape[-1]
    identity = np.eye(d)
    ridge = (1e-6 * np.trace(X, axis1=-2, axis2=-1) / d)[:, None, None]
    D = np.linalg.solve(X + ridge * identity, Psi.swapaxes(-1, -2)).swapaxes(-1, -2)
    Y = X - opening[:, :, None] * opening[:, None, :] + closing[:, :, None] * closing[:, None, :]
    DPsi = D @ Psi.swapaxes(-1, -2)
    Q = (Y - DPsi - DPsi.swapaxes(-1, -2) + D @ X @ D.swapaxes(-1, -2)) / pairs
    Q = 0.5 * (Q + Q.swapaxes(-1, -2)) + 1e-9 * identity
    for process_cov, second_moment in zip(Q, Y, strict=True):
        raise_pivots(process_cov, np.diag(second_moment) / pairs)
    return np.ascontiguousarray(D), Q
