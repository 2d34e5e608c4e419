"""Least squares of the paper's M-step on a window of filtered means (docs/mathematics.md, "EMKF")."""

from __future__ import annotations

import numpy as np

from halfseen.compiler import njit
from halfseen.kernels._types import Index, Matrix, Stack
from halfseen.kernels.linalg import INNER, KERNEL


@njit(**INNER)
def _gather(
    b: int, opens: bool, s: int, means: Matrix, previous: Matrix, opening: Matrix, X: Stack, Psi: Stack
) -> None:
    """One round of stream b, whose x̂_t is row s of the means."""
    d = means.shape[1]
    if opens:
        for i in range(d):
            opening[b, i] = means[s, i]
            for j in range(d):
                X[b, i, j] = 0.0
                Psi[b, i, j] = 0.0
    else:
        for i in range(d):
            for j in range(d):
                X[b, i, j] += previous[b, i] * previous[b, j]
                Psi[b, i, j] += means[s, i] * previous[b, j]
    for i in range(d):
        previous[b, i] = means[s, i]


@njit(**KERNEL)
def gather_pairs(
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
        _gather(rows[s], first[s] != 0, rows[s], means, previous, opening, X, Psi)


@njit(**KERNEL)
def gather_ahead(
    means: Stack,  # x̂ (B, n, d)
    start: int,
    stop: int,
    opens: bool,  # whether round `start` opens a window
    previous: Matrix,  # as above, like all that follows
    opening: Matrix,
    X: Stack,
    Psi: Stack,
) -> None:
    """`gather_pairs` of all streams in the rounds start:stop, all of one window, all of one stream before the next."""
    streams, n, d = means.shape
    flat = means.reshape((streams * n, d))
    for b in range(streams):
        for t in range(start, stop):
            _gather(b, opens and t == start, b * n + t, flat, previous, opening, X, Psi)


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
