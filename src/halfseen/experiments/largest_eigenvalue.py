"""The largest eigenvalue among many matrices, without the eigenvalues of all of them."""

from __future__ import annotations

import numpy as np

from halfseen.kernels.linalg import all_below
from halfseen.learners.ridge import full_matrices
from halfseen.randomness import Floats

_SAFE = 1e-9  # far above the rounding of an eigenvalue


def largest_eigenvalues(packed: Floats, size: int) -> Floats:
    """Of each batch of K positive definite matrices the largest of all eigenvalues, (B,).

    Given are their upper triangles (B, K, p(p+1)/2), row by row. Whether an eigenvalue of C is above θ is what a
    Cholesky factorisation of θI − C tells, at a fraction of the price of the eigenvalues. With θ the largest of one
    likely matrix, few of the others are left to be decomposed.
    """
    rows, columns = np.triu_indices(size)
    traces = packed[:, :, rows == columns].sum(axis=2)
    likely = (np.arange(len(packed)), traces.argmax(axis=1))
    largest = np.linalg.eigvalsh(full_matrices(packed[likely], size))[:, -1]
    below = np.empty(traces.shape, dtype=np.bool_)
    all_below(packed, size, (1.0 - _SAFE) * largest, below)
    below[likely] = True  # done
    batch, arm = np.nonzero(~below)
    np.maximum.at(largest, batch, np.linalg.eigvalsh(full_matrices(packed[batch, arm], size))[:, -1])
    return np.asarray(largest)
