"""Measures the assumptions and the bound of the paper's Theorem 1 (docs/mathematics.md, "The theorem")."""

from __future__ import annotations

from typing import Any

import numpy as np

from halfseen.kernels.linalg import all_below
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.ridge import full_matrices
from halfseen.statistics.confidence_intervals import mean_estimate
from halfseen.statistics.growth import growth_exponent, log_grid, power_exponents

_SAFE = 1e-9  # relative margin in comparisons of eigenvalues, far above their rounding error


BOUND_DELTA = 0.1  # the probability with which the theorem's bound may fail


def bound_shape(at: Ints, summed_error: Floats, *, latent: int, arms: int, delta: float = BOUND_DELTA) -> Floats:
    """Return the bound of Theorem 1 without its constant, as in the paper's appendix, at the rounds t (G,) in `at`.

    d √t min(√d, √ln K) (ln t + √(ln t ln 1/δ)) + √(d ln t) Σ_{s≤t} ‖ε_s‖
    """
    t, log_t = at.astype(np.float64), np.log(np.maximum(at, 2))
    learning = latent * np.sqrt(t) * min(np.sqrt(latent), np.sqrt(np.log(max(arms, 2))))
    learning = learning * (log_t + np.sqrt(log_t * np.log(1 / delta)))
    return np.asarray(learning + np.sqrt(latent * log_t) * summed_error)


def theorem_quantities(
    *,
    regret: Floats,  # (S, T)
    error: Floats,  # (S, T)
    context_norm: Floats,  # (S, T)
    arm_norm: Floats,  # (S,)
    checkpoints: Ints,  # (C,)
    gram: Floats,  # (S, C)
    latent: int,
    arms: int,
) -> dict[str, Any]:
    """Return the quantities of Theorem 1 by name."""
    rounds = regret.shape[1]
    at, late = log_grid(rounds), log_grid(rounds, first=max(1, rounds // 10))
    summed_error = np.cumsum(error, axis=1)
    return {
        "A1 largest arm norm": float(arm_norm.max()),
        "A2 largest context norm": float(context_norm.max()),
        "A2 growth of the largest context norm": mean_estimate(
            power_exponents(late, np.maximum.accumulate(context_norm, axis=1)[:, late - 1])
        ).as_dict(),
        "A3 rounds": checkpoints.tolist(),
        "A3 t·|B⁻¹(t)|, mean over seeds": gram.mean(axis=0).tolist(),
        "A3 growth of t·|B⁻¹(t)|": mean_estimate(power_exponents(checkpoints, gram)).as_dict(),
        "summed estimation error": mean_estimate(summed_error[:, -1]).as_dict(),
        "growth of the summed estimation error": growth_exponent(error).as_dict(),
        "regret": mean_estimate(regret.sum(axis=1)).as_dict(),
        "growth of the regret": growth_exponent(regret).as_dict(),
        "bound rounds": at.tolist(),
        "bound shape": bound_shape(at, summed_error.mean(axis=0)[at - 1], latent=latent, arms=arms).tolist(),
    }


def largest_eigenvalues(packed: Floats, size: int, most: float = np.inf) -> Floats:
    """Return the largest eigenvalue (B,) among the K positive definite matrices of each stream.

    `packed` (B, K, p(p+1)/2) contains their upper triangles row by row. `most` is an upper bound of all eigenvalues.

    A Cholesky factorisation of θI − C shows whether an eigenvalue of a matrix C is above θ, and costs much less than
    computing the eigenvalues. Here θ is the largest eigenvalue of the matrix with the largest trace. Few of the
    other matrices have a larger eigenvalue and need an eigenvalue decomposition. None needs it if θ is within a
    relative 1e-9 of `most`.
    """
    rows, columns = np.triu_indices(size)
    traces = packed[:, :, rows == columns].sum(axis=2)
    likely = traces.argmax(axis=1)
    largest = np.linalg.eigvalsh(full_matrices(packed[np.arange(len(packed)), likely], size))[:, -1]
    undecided = np.flatnonzero(~(largest >= (1.0 - _SAFE) * most))
    below = np.empty((len(undecided), traces.shape[1]), dtype=np.bool_)
    all_below(packed[undecided], size, (1.0 - _SAFE) * largest[undecided], below)
    below[np.arange(len(undecided)), likely[undecided]] = True
    row, arm = np.nonzero(~below)
    stream = undecided[row]
    np.maximum.at(largest, stream, np.linalg.eigvalsh(full_matrices(packed[stream, arm], size))[:, -1])
    return np.asarray(largest)
