"""Tests of the innovations: their size, bias and whiteness (docs/mathematics.md, "Model health")."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halfseen.kernels.filter import filter_series
from halfseen.kernels.kalman import NOISE_FLOOR, ROUNDING
from halfseen.kernels.random import Floats, Ints
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.statistics.distributions import chi2_cdf, chi2_quantile, chi2_sf
from halfseen.statistics.time_series import hac_mean

SIGNIFICANCE = 0.001  # of one test; so small that a report of about ten tests rarely has a false alarm
OUTLIER = 4.0  # an outlier is more than this many robust standard deviations from the median
IQR_OF_NORMAL, MAD_OF_NORMAL = 1.349, 0.6745  # interquartile range and median absolute deviation of N(0, 1)
BLOCK_SPREADS = 4.0  # an unusual block is at least this many standard deviations of log ratios from the median


class Innovations(NamedTuple):
    """Prediction errors of y, standardised. They are independent standard normals if the model is correct."""

    standardised: Floats  # (n, k), NaN where not observed
    by_sensor: Floats  # (n, k) e_i/√S_ii, each divided by its own standard deviation, but correlated
    contexts: Floats  # (n, d) E[x_t | y_1..y_t], in canonical coordinates
    predicted: Floats  # (n, k) E[y_t | y_1..y_{t−1}]
    end_cov: Floats  # (d, d) P after the last round


def innovations(model: LinearGaussianModel, series: Floats, tested: Floats | None = None) -> Innovations:
    """Compute w_t = L_t⁻¹ e_t with e_t = y_t − A x⁻_t and L_tL_tᵀ = S_t, over the observed entries.

    The filter uses all of `series` (n, k). After a row of infinite entries, another series begins. Entries that are NaN
    in `tested` are left out of the innovations.
    """
    ys = np.where(np.isinf(series), np.nan, series)
    p = model.canonical().model.arrays()
    D, R = p.D, p.R
    k = len(R)
    x, _, rows, P_filt, P_pred, _ = filter_series(*p, series[None])
    predicted = (x[0, :-1] @ D.T)[:, :k]
    errors = ys - predicted
    present = ~np.isnan(ys if tested is None else tested)
    # Rounds with the same covariance and the same pattern of tested entries share a Cholesky factor.
    keys = np.column_stack([rows[0, 1:], present])
    _, first, where = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    where = where.ravel()  # NumPy 2.0 returns an array of shape (n, 1)
    pattern = present[first]
    S = P_pred[rows[0, 1:][first]][:, :k, :k] + R
    variances = np.diagonal(S, axis1=1, axis2=2)
    lift = np.where(np.diag(R) == 0.0, NOISE_FLOOR, ROUNDING) * variances
    # A missing entry gets variance 1 and no correlation, so it does not change the Cholesky factor of the others.
    S = np.where(pattern[:, :, None] & pattern[:, None, :], S, 0.0)
    S[:, np.arange(k), np.arange(k)] = np.where(pattern, variances + lift, 1.0)
    factors = np.linalg.cholesky(S)
    white = np.linalg.solve(factors[where], np.where(present, errors, 0.0)[:, :, None])[:, :, 0]
    white[~present] = np.nan
    alone = np.where(present, errors / np.sqrt(variances + lift)[where], np.nan)
    return Innovations(np.asarray(white, dtype=np.float64), alone, x[0, 1:], predicted, P_filt[rows[0, -1]])


class NisTest(NamedTuple):
    """Test of the normalised innovation squared (NIS).

    If the model is correct, Σ wᵀw has a χ² distribution with as many degrees of freedom as there are observed entries.
    With heavy tails or autocorrelation, the variance of the sum is larger. Then the degrees of freedom are chosen such
    that a scaled χ² distribution has the same mean and variance (`nis_degrees_of_freedom`).
    """

    ratio: float  # mean square of w, 1 if the model is correct
    low: float  # ends of the interval that contains the ratio with probability 0.95 if the model is correct
    high: float
    p_value: float  # two-sided


def nis_test(white: Floats) -> NisTest:
    dof = nis_degrees_of_freedom(white)
    ratio = float(np.nanmean(white**2))
    low, high = chi2_quantile([0.025, 0.975], dof) / dof
    tail = min(chi2_cdf(ratio * dof, dof), chi2_sf(ratio * dof, dof))
    return NisTest(ratio, float(low), float(high), float(min(1.0, 2 * tail)))


def nis_degrees_of_freedom(white: Floats) -> float:
    """Return 2 E[N]²/Var N for N = Σ wᵀw (Satterthwaite 1946), at most the number of entries.

    The variance allows for autocorrelation (Newey and West 1987).
    """
    squares, counts = np.nansum(white**2, axis=1), (~np.isnan(white)).sum(axis=1)
    total, entries = float(squares.sum()), int(counts.sum())
    deviations = squares - total / entries * counts
    spread = len(deviations) * hac_mean(deviations).standard_error
    freedom = 2.0 * np.square(total / spread) if spread > 0.0 else np.inf  # `total` squared could overflow
    return min(float(entries), float(freedom))


class BiasTest(NamedTuple):
    """Test of the means of w. Σ_i (Σ_t w_ti)²/n_i has a χ² distribution with k degrees of freedom.

    If sensors are correlated, an entry of w mixes their errors. The biased sensor is therefore found from `by_sensor`.
    """

    largest: float  # largest absolute mean of a sensor, in standard deviations of its innovation
    sensor: int  # the index of this sensor
    p_value: float


def bias_test(white: Floats, by_sensor: Floats) -> BiasTest:
    counts = (~np.isnan(white)).sum(axis=0)
    known = counts > 0
    sums = np.nansum(white, axis=0)
    means = np.where(known, np.nansum(by_sensor, axis=0) / np.maximum(counts, 1), 0.0)
    statistic = float((sums[known] ** 2 / counts[known]).sum())
    worst = int(np.argmax(np.abs(means)))
    return BiasTest(float(abs(means[worst])), worst, float(chi2_sf(statistic, int(known.sum()))))


class WhitenessTest(NamedTuple):
    """Hosking's portmanteau test over `lags` lags. For one feature it is the test of Ljung and Box."""

    statistic: float
    degrees_of_freedom: int
    p_value: float
    predictable: float  # share of the innovations' variance that earlier innovations explain; 0 if not significant
    lags: int
    autocorrelations: Floats  # (lags,) root mean square of the k² entries of each lag's correlation matrix
    upper: Floats  # (lags,) 95 % quantiles of the autocorrelations if the model is correct


def whiteness_lags(model: LinearGaussianModel) -> int:
    """Return 10 + 2d/k lags, rounded up. A fit uses up 2kd degrees of freedom, and every lag adds k²."""
    return 10 + -(-2 * model.latent // model.observed)


def whiteness_test(white: Floats, lags: int, fitted_parameters: int = 0) -> WhitenessTest | None:
    """Run Hosking's (1980) test. Return None if there are too few rounds.

    For every entry, let C_l be the mean of w_t w_{t−l}ᵀ over the observed pairs, and n_l the number of these pairs. Let
    M_l = C_l·sqrt(n_l). Then (1 + 2/n) Σ_l tr(M_lᵀ C_0⁻¹ M_l C_0⁻¹) has a χ² distribution with k²L −
    `fitted_parameters` degrees of freedom. Using C_0 instead of I makes the test independent of the size of the
    innovations, which `nis_test` tests. If entries are missing, some pairs of sensors are rarely observed together, so
    only the diagonal of C_0 is used.
    """
    present = ~np.isnan(white)
    used = (present.sum(axis=0) > 4 * lags) & (np.nan_to_num(white) != 0.0).any(axis=0)
    white, present = white[:, used], present[:, used].astype(np.float64)
    n, k = white.shape
    dof = k * k * lags - fitted_parameters
    if k == 0 or n <= 4 * lags or dof <= 0:
        return None
    filled = np.nan_to_num(white)
    together = present.T @ present
    C0 = filled.T @ filled / np.maximum(together, 1.0)
    if not present.all():
        C0 = np.diag(np.diag(C0))
    values, vectors = np.linalg.eigh(0.5 * (C0 + C0.T))
    root = (vectors / np.sqrt(np.maximum(values, max(1e-12 * values[-1], 1e-300)))) @ vectors.T  # C_0^(−1/2)
    total, sizes, counts = 0.0, np.empty(lags), np.empty(lags)
    for lag in range(1, lags + 1):
        pairs = np.maximum(present[lag:].T @ present[:-lag], 1.0)
        M = root @ (filled[lag:].T @ filled[:-lag] / np.sqrt(pairs)) @ root
        sizes[lag - 1] = np.sqrt((M**2 / pairs).mean())
        counts[lag - 1] = pairs.mean()
        total += float((M**2).sum())
    total *= 1.0 + 2.0 / n
    p_value = float(chi2_sf(total, dof))
    predictable = min(1.0, (total - dof) / (k * float(counts.mean()))) if p_value < SIGNIFICANCE else 0.0
    upper = np.sqrt(chi2_quantile(0.95, k * k) / (k * k * counts))
    return WhitenessTest(total, dof, p_value, max(0.0, predictable), lags, sizes, upper)


class NisByBlock(NamedTuple):
    """Normalised innovation squared in blocks of rounds, divided by the number of observed entries of the block.

    Innovations more than OUTLIER robust standard deviations from 0 are limited to this distance, so that a single
    outlier does not look like a change of the dynamics.
    """

    starts: Ints
    ratios: Floats
    low: Floats  # ends of the intervals that contain all ratios with probability 0.95 if the model is correct
    high: Floats
    limit: Floats  # upper bounds of the ratios relative to their median


def nis_by_block(white: Floats) -> NisByBlock:
    """Compute the NIS of at most 30 blocks of about equal length, with at least 20 rounds each.

    Blocks without an observed entry are left out. A ratio is unusual if it is more than `limit` times the median ratio.
    If the model is correct, the probability that any ratio is unusual is about SIGNIFICANCE. If the model is wrong
    throughout, all ratios vary more. So log(limit) is at least BLOCK_SPREADS times the standard deviation of the log
    ratios, which is estimated from their median absolute deviation.
    """
    low_quartile, high_quartile = np.nanquantile(white, [0.25, 0.75])
    farthest = OUTLIER * (high_quartile - low_quartile) / IQR_OF_NORMAL
    white = np.clip(white, -farthest, farthest) if farthest > 0.0 else white
    n = len(white)
    edges = np.linspace(0, n, max(1, min(30, n // 20)) + 1).astype(np.int64)
    squares, numbers = np.nansum(white**2, axis=1), (~np.isnan(white)).sum(axis=1)
    total = np.add.reduceat(squares, edges[:-1])
    dof = np.add.reduceat(numbers, edges[:-1])
    some = dof > 0
    total, dof = total[some], dof[some]
    tail = 0.025 / max(1, len(dof))
    low, high = chi2_quantile(tail, dof) / dof, chi2_quantile(1 - tail, dof) / dof
    ratios = total / dof
    quantile = chi2_quantile(1 - SIGNIFICANCE / max(1, len(dof)), dof) / dof
    limit = 1.0 + (quantile - 1.0) * np.sqrt(1.0 + np.pi / (2 * max(1, len(dof))))  # the median varies, too
    spread = np.median(np.abs(np.log(ratios / np.median(ratios)))) / MAD_OF_NORMAL if ratios.all() else 0.0
    limit = np.maximum(limit, np.exp(BLOCK_SPREADS * spread))
    return NisByBlock(edges[:-1][some], ratios, low, high, limit)
