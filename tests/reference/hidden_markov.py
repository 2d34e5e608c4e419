"""Expectations of a hidden Markov chain by enumeration of all paths of states."""

from __future__ import annotations

import itertools

import numpy as np


def densities(ys: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """Return p(y_t | state) (n, M) over the observed entries."""
    out = np.ones((len(ys), len(mean)))
    for t, y in enumerate(ys):
        for i in np.flatnonzero(~np.isnan(y)):
            out[t] *= np.exp(-0.5 * (y[i] - mean[:, i]) ** 2 / var[:, i]) / np.sqrt(2 * np.pi * var[:, i])
    return out


def paths(start: np.ndarray, F: np.ndarray, likelihoods: np.ndarray) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Return every path s_0, ..., s_n and its joint probability with y. s_0 is the state before the first round."""
    n, M = likelihoods.shape
    all_paths = list(itertools.product(range(M), repeat=n + 1))
    weights = np.array(
        [
            start[path[0]] * np.prod([F[path[t], path[t + 1]] * likelihoods[t, path[t + 1]] for t in range(n)])
            for path in all_paths
        ]
    )
    return all_paths, weights


def expected_statistics(ys: np.ndarray, F: np.ndarray, mean: np.ndarray, var: np.ndarray) -> dict[str, np.ndarray]:
    """Return the statistics of EM, as means over the rounds, the filtered belief and the log-likelihood."""
    n, k = ys.shape
    M = len(F)
    all_paths, weights = paths(np.full(M, 1 / M), F, densities(ys, mean, var))
    total = weights.sum()
    out = {
        "belief": np.zeros(M),
        "F": np.zeros((M, M)),
        "1": np.zeros(M),
        "y": np.zeros((M, k)),
        "yy": np.zeros((M, k)),
    }
    for path, weight in zip(all_paths, weights / total, strict=True):
        out["belief"][path[-1]] += weight
        for t in range(n):
            s = path[t + 1]
            missing = np.isnan(ys[t])
            out["F"][path[t], s] += weight / n
            out["1"][s] += weight / n
            out["y"][s] += weight / n * np.where(missing, mean[s], ys[t])
            out["yy"][s] += weight / n * np.where(missing, mean[s] ** 2 + var[s], ys[t] ** 2)
    return out | {"log_likelihood": np.log(total)}
