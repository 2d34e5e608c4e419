"""The largest eigenvalue among many matrices, without the eigenvalues of all of them."""

from __future__ import annotations

import numpy as np

from halfseen.kernels.linalg import all_below
from halfseen.kernels.random import Floats
from halfseen.learners.ridge import full_matrices

_SAFE = 1e-9  # far above the rounding of an eigenvalue


def largest_eigenvalues(packed: Floats, size: int, most: float = np.inf) -> Floats:
    """Of each batch of K positive definite matrices the largest of all eigenvalues, (B,).

    Given are their upper triangles (B, K, p(p+1)/2), row by row. Whether an eigenvalue of C is above θ is what a
    Cholesky factorisation of θI − C tells, at a fraction of the price of the eigenvalues. With θ the largest of one
    likely matrix, few of the others are left to be decomposed; none, if it is `most` to 1e-9, above which none can be.
    """
    rows, columns = np.triu_indices(size)
    traces = packed[:, :, rows == columns].sum(axis=2)
    likely = traces.argmax(axis=1)
    largest = np.linalg.eigvalsh(full_matrices(packed[np.arange(len(packed)), likely], size))[:, -1]
    doubtful = np.flatnonzero(~(largest >= (1.0 - _SAFE) * most))
    below = np.empty((len(doubtful), traces.shape[1]), dtype=np.bool_)
    all_below(packed[doubtful], size, (1.0 - _SAFE) * largest[doubtful], below)
    below[np.arange(len(doubtful)), likely[doubtful]] = True  # done
    place, arm = np.nonzero(~below)
    batch = doubtful[place]
    np.maximum.at(largest, batch, np.linalg.eigvalsh(full_matrices(packed[batch, arm], size))[:, -1])
    return np.asarray(largest)
