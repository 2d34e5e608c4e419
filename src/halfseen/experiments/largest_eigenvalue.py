"""The largest eigenvalue among many matrices, without the eigenvalues of all of them."""

from __future__ import annotations

import numpy as np

from halfseen.kernels.linalg import all_below
from halfseen.randomness import Floats

_SAFE = 1e-9  # far above the rounding of an eigenvalue


def largest_eigenvalues(matrices: Floats) -> Floats:
    """Of each batch in (B, K, p, p), symmetric and positive definite, the largest eigenvalue of all K, (B,).

    Whether an eigenvalue of C is above θ is what a Cholesky factorisation of θI − C tells, at a fraction of the price
    of the eigenvalues. With θ the largest of one likely matrix, few of the others are left to be decomposed.
    """
    traces = np.einsum("bkii->bk", matrices)
    likely = (np.arange(len(matrices)), traces.argmax(axis=1))
    largest = np.linalg.eigvalsh(matrices[likely])[:, -1]
    held = np.empty(traces.shape, dtype=np.bool_)
    all_below(matrices, (1.0 - _SAFE) * largest, held)
    np.logical_not(held, out=held)
    held[likely] = False
    batch, arm = np.nonzero(held)
    np.maximum.at(largest, batch, np.linalg.eigvalsh(matrices[batch, arm])[:, -1])
    return np.asarray(largest)
