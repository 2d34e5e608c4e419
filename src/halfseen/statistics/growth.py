"""Slopes and growth exponents of curves, with confidence intervals."""

from __future__ import annotations

import itertools

import numpy as np

from halfseen.kernels.random import Floats, Ints
from halfseen.statistics.confidence_intervals import NO_ESTIMATE, Estimate, student_interval


def log_grid(rounds: int, points: int = 40, *, first: int = 1) -> Ints:
    """Return distinct rounds from `first` to `rounds`, evenly spaced on a log scale."""
    return np.unique(np.round(np.geomspace(first, rounds, points)).astype(np.int64))


def slope(x: Floats, y: Floats) -> Estimate:
    """Return the least-squares slope of y on x with Student's interval."""
    if len(x) < 3 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return NO_ESTIMATE
    if np.ptp(y) == 0:
        return Estimate(0.0, 0.0, 0.0)
    from scipy.stats import linregress

    fit = linregress(x, y)
    return student_interval(float(fit.slope), fit.stderr, len(x) - 2)


def power_exponents(at: Ints, curves: Floats) -> Floats:
    """Return the exponents β (S,) of curves ∝ t^β, by least squares of the log curves (S, G) on log t (G,)."""
    if len(at) < 3:
        return np.full(len(curves), np.nan)
    x = np.log(at) - np.log(at).mean()
    with np.errstate(divide="ignore", invalid="ignore"):  # a curve that is 0 somewhere gives NaN
        logs = np.log(curves)
        return np.asarray((logs - logs.mean(axis=1, keepdims=True)) @ x / (x @ x))


def block_edges(rounds: int) -> Ints:
    """Return T/16, T/8, T/4, T/2 and T, the edges of the blocks of rounds from which growth is estimated."""
    return np.asarray(rounds // np.array([16, 8, 4, 2, 1]))


def block_means(per_round: Floats) -> Floats:
    """Return the means of `per_round` (S, T) in each of the four blocks of rounds between `block_edges(T)`.

    The result (S, 4) is NaN if T is below 16.
    """
    edges = block_edges(per_round.shape[1])
    if edges[0] < 1:
        return np.full((len(per_round), len(edges) - 1), np.nan)
    return np.stack([per_round[:, a:b].mean(axis=1) for a, b in itertools.pairwise(edges)], axis=1)


def growth_exponent(per_round: Floats) -> Estimate:
    """Estimate the exponent β of a sum that grows as t^β late in a run, from the terms (S, T) of the sum.

    The terms of such a sum are proportional to t^{β−1}. So β − 1 is the slope of log(mean per round) on log t over the
    four blocks with the edges T/16, T/8, T/4, T/2 and T. The sum itself is not used: it includes the cost of learning
    in the first rounds, so its slope would be too small. The mean over replications is taken before the logarithm. The
    interval is a jackknife over replications.
    """
    return growth_from_blocks(block_means(per_round), per_round.shape[1])


def growth_from_blocks(blocks: Floats, rounds: int) -> Estimate:
    """Return `growth_exponent` of a run of T = `rounds` rounds, given its `block_means` (S, 4)."""
    replications, edges = len(blocks), block_edges(rounds)
    if edges[0] < 1:
        return NO_ESTIMATE
    log_middles = np.log((edges[1:] + edges[:-1]) / 2)
    x = log_middles - log_middles.mean()

    def exponent(means: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(1.0 + np.log(means) @ x / (x @ x))

    value = float(exponent(blocks.mean(axis=0)))
    if replications == 1 or not np.isfinite(value):
        return Estimate(value if np.isfinite(value) else np.nan, np.nan, np.nan)
    jackknife = exponent((blocks.sum(axis=0) - blocks) / (replications - 1))
    if not np.isfinite(jackknife).all():  # without one replication, the mean of a block is 0
        return Estimate(value, np.nan, np.nan)
    error = np.sqrt((replications - 1) / replications * ((jackknife - jackknife.mean()) ** 2).sum())
    return student_interval(value, float(error), replications - 1)
