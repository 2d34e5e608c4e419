"""Hidden Markov chains by the textbook: every path of states written out, and forward–backward sums."""

from __future__ import annotations

import itertools

import numpy as np


def densities(ys: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """p(y_t | state), (n, M), over the entries seen."""
    out = np.ones((len(ys), len(mean)))
    for t, y in enumerate(ys):
        for i in np.flatnonzero(~np.isnan(y)):
            out[t] *= np.exp(-0.5 * (y[i] - mean[:, i]) ** 2 / var[:, i]) / np.sqrt(2 * np.pi * var[:, i])
    return out


def paths(start: np.ndarray, F: np.ndarray, likely: np.ndarray) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Every path s_0, s_1, .., s_n and its joint probability with what was seen; s_0 is before the first round."""
    n, M = likely.shape
    listed = list(itertools.product(range(M), repeat=n + 1))
    weights = np.array(
        [
            start[path[0]] * np.prod([F[path[t], path[t + 1]] * likely[t, path[t + 1]] for t in range(n)])
            for path in listed
        ]
    )
    return listed, weights


def expected_statistics(ys: np.ndarray, F: np.ndarray, mean: np.ndarray, var: np.ndarray) -> dict[str, np.ndarray]:
    """What EM needs, averaged over the rounds, and the filtered belief: by summing over all paths."""
    n, k = ys.shape
    M = len(F)
    listed, weights = paths(np.full(M, 1 / M), F, densities(ys, mean, var))
    total = weights.sum()
    out = {
        "belief": np.zeros(M),
        "F": np.zeros((M, M)),
        "1": np.zeros(M),
        "y": np.zeros((M, k)),
        "yy": np.zeros((M, k)),
    }
    for path, weight in zip(listed, weights / total, strict=True):
        out["belief"][path[-1]] += weight
        for t in range(n):
            s = path[t + 1]
            gone = np.isnan(ys[t])
            out["F"][path[t], s] += weight / n
            out["1"][s] += weight / n
            out["y"][s] += weight / n * np.where(gone, mean[s], ys[t])
            out["yy"][s] += weight / n * np.where(gone, mean[s] ** 2 + var[s], ys[t] ** 2)
    return out | {"log_likelihood": np.log(total)}
