"""Least squares of the paper's M-step on a window of filtered means (docs/mathematics.md, "EMKF")."""

from __future__ import annotations

import numpy as np

from halfseen.kernels.arrays import Index, Matrix, Stack, Vector
from halfseen.kernels.compiling import FUSED, kernel


@kernel(FUSED)
def _add_pairs(b: int, before: Matrix, after: Matrix, X: Stack, Psi: Stack) -> None:
    """X += Σ_t before_t before_tᵀ and Ψ += Σ_t after_t before_tᵀ, of stream b, each entry in the order of the rows.

    Four rows at a time, so that the sums are stored a quarter as often.
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
def _open(b: int, mean: Vector, opening: Matrix, X: Stack, Psi: Stack) -> None:
    """A window of stream b begins with x̂_t: no pair yet."""
    for i in range(mean.shape[0]):
        opening[b, i] = mean[i]
        for j in range(mean.shape[0]):
            X[b, i, j] = 0.0
            Psi[b, i, j] = 0.0


@kernel()
def add_pairs(
    rows: Index,  # (n,)
    first: Index,  # (n,) 1 where this round opens a window, else 0
    means: Matrix,  # x̂_t (B, d)
    previous: Matrix,  # x̂_{t−1} (B, d), changed
    opening: Matrix,  # x̂ of the window's first round (B, d), changed
    X: Stack,  # Σ x̂_{t−1} x̂_{t−1}ᵀ (B, d, d), changed
    Psi: Stack,  # Σ x̂_t x̂_{t−1}ᵀ (B, d, d), changed
) -> None:
    """Add the pair (x̂_{t−1}, x̂_t) to X and Ψ; the first round of a window starts both anew and has no pair."""
    for s in range(rows.shape[0]):
        b = rows[s]
        if first[s] != 0:
            _open(b, means[b], opening, X, Psi)
        else:
            _add_pairs(b, previous[b : b + 1], means[b : b + 1], X, Psi)
        for i in range(means.shape[1]):
            previous[b, i] = means[b, i]


@kernel()
def add_pairs_ahead(
    means: Stack,  # x̂ (B, n, d)
    start: int,
    stop: int,
    opens: bool,  # whether round `start` opens a window
    previous: Matrix,  # as above, like all that follows
    opening: Matrix,
    X: Stack,
    Psi: Stack,
) -> None:
    """`add_pairs` of all streams in the rounds start:stop, all of one window, all of one stream before the next."""
    for b in range(means.shape[0]):
        if opens:
            _open(b, means[b, start], opening, X, Psi)
        else:
            _add_pairs(b, previous[b : b + 1], means[b, start : start + 1], X, Psi)
        _add_pairs(b, means[b, start : stop - 1], means[b, start + 1 : stop], X, Psi)
        for i in range(means.shape[2]):
            previous[b, i] = means[b, stop - 1, i]


def maximise(X: Stack, Psi: Stack, opening: Matrix, closing: Matrix, pairs: int) -> tuple[Stack, Stack]:
    """D̂ = Ψ(X + λI)⁻¹ with λ = 1e-6 tr(X)/d, and Q̂ = (Y − D̂Ψᵀ − ΨD̂ᵀ + D̂XD̂ᵀ)/n + 1e-9 I, for a batch of windows.

    Y = Σ x̂_t x̂_tᵀ is X with the window's first mean taken out and its last put in. X must not be 0.
    """
    d = X.shape[-1]
    identity = np.eye(d)
    ridge = (1e-6 * np.trace(X, axis1=-2, axis2=-1) / d)[:, None, None]
    D = np.linalg.solve(X + ridge * identity, Psi.swapaxes(-1, -2)).swapaxes(-1, -2)
    Y = X - opening[:, :, None] * opening[:, None, :] + closing[:, :, None] * closing[:, None, :]
    DPsi = D @ Psi.swapaxes(-1, -2)
    Q = (Y - DPsi - DPsi.swapaxes(-1, -2) + D @ X @ D.swapaxes(-1, -2)) / pairs
    Q = 0.5 * (Q + Q.swapaxes(-1, -2)) + 1e-9 * identity
    return np.ascontiguousarray(D), Q
