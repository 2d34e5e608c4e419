"""Means of autocorrelated series: HAC standard errors and the block bootstrap."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from halfseen.kernels.random import Floats, Ints
from halfseen.statistics.distributions import student_sf

DRAWS = 2000  # bootstrap samples
SUM_BLOCKS = 30  # blocks of time in `blocked_sum`


@dataclass(frozen=True)
class SeriesMean:
    """A mean with its HAC standard error. `p_value` is two-sided, for the hypothesis that the mean is 0."""

    value: float
    standard_error: float
    t: float
    p_value: float
    lags: int

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def power_of_two(values: Floats) -> float:
    """Return the power of 2 above the largest absolute value, or 1 if all values are 0.

    Dividing by it changes no digit, and keeps sums of squares from overflowing.
    """
    return float(np.ldexp(1.0, np.frexp(np.abs(values).max(initial=0.0))[1]))


def autocovariances(series: Floats, lags: int) -> Floats:
    """Return the sample autocovariances γ_0 … γ_lags of a series. Each sum is divided by n."""
    centred = series - series.mean()
    return np.array([centred[lag:] @ centred[: len(centred) - lag] for lag in range(lags + 1)]) / len(series)


def automatic_lags(series: Floats) -> int:
    """Return Newey & West's (1994) number of lags for Bartlett's kernel, without prewhitening.

    With γ_j up to j = 4(n/100)^{2/9}, s_0 = γ_0 + 2Σγ_j and s_1 = 2Σ jγ_j, the number of lags is
    1.1447 (s_1/s_0)^{2/3} n^{1/3}, rounded down. It is limited to n/8, because the formula diverges when s_0 is close
    to 0 by chance.
    """
    n = len(series)
    pilot = min(int(4.0 * (n / 100.0) ** (2.0 / 9.0)), n - 1)
    gammas = autocovariances(series, pilot)
    s_0 = gammas[0] + 2.0 * gammas[1:].sum()
    s_1 = 2.0 * (np.arange(1, pilot + 1) @ gammas[1:])
    if s_0 == 0:
        return 0
    return min(int(1.1447 * ((s_1 / s_0) ** 2 * n) ** (1.0 / 3.0)), n // 8)


def hac_mean(series: Floats, lags: int | None = None) -> SeriesMean:
    """Return the mean with Newey & West's (1987) standard error, n·var = γ_0 + 2 Σ_j (1 − j/(lags+1)) γ_j.

    The p-value comes from Student's t distribution with n − 1 degrees of freedom.
    """
    n, unit = len(series), power_of_two(series)
    series = series / unit
    lags = automatic_lags(series) if lags is None else lags
    gammas = autocovariances(series, lags)
    weights = 1.0 - np.arange(1, lags + 1) / (lags + 1.0)
    error = float(np.sqrt((gammas[0] + 2.0 * weights @ gammas[1:]) / n))
    value = float(series.mean())
    if n < 2 or error <= 1e-12 * abs(value):  # a constant series
        return SeriesMean(unit * value, 0.0, np.nan, 1.0 if value == 0 or n < 2 else 0.0, lags)
    t = value / error
    return SeriesMean(unit * value, unit * error, t, float(2.0 * student_sf(abs(t), n - 1)), lags)


def conservative_error(series: Floats) -> float:
    """Return the larger of two standard errors of the mean: Newey & West's, and den Haan & Levin's (1997).

    For the second error, an autoregression x_t = Σ φ_j x_{t−j} + e_t is fitted by the Yule-Walker equations. Akaike's
    criterion selects its order, at most 10 log₁₀ n. Then n·var = σ_e² / (1 − Σφ_j)². The larger one is used because
    Newey & West take too few lags for a short series with strong autocorrelation.
    """
    n, unit = len(series), power_of_two(series)
    series = series / unit
    hac_error = hac_mean(series).standard_error
    gammas = autocovariances(series, int(min(n // 4, 10.0 * np.log10(n))))
    if hac_error == 0.0:
        return hac_error
    lowest, variance = 0.0, gammas[0]
    phi, noise_var = np.empty(0), gammas[0]
    for order in range(1, len(gammas)):  # Levinson's recursion
        reflection = (gammas[order] - phi @ gammas[order - 1 : 0 : -1]) / noise_var
        phi = np.append(phi - reflection * phi[::-1], reflection)
        noise_var *= 1.0 - reflection**2
        if not noise_var > 1e-12 * gammas[0]:  # the past predicts the series exactly
            break
        aic = n * np.log(noise_var / gammas[0]) + 2 * order
        if aic < lowest:
            lowest, variance = aic, noise_var / (1.0 - phi.sum()) ** 2
    return unit * max(hac_error, float(np.sqrt(variance / n)))


def block_length(series: Floats) -> int:
    """Return Politis & White's (2004; corrected 2009) block length for the circular bootstrap of a mean.

    M is twice the lag m̂ after which K_n = max(5, log₁₀ n) autocorrelations in a row are within ±2 √(log₁₀ n / n). With
    the flat-top weights λ(s) = min(1, 2(1 − |s|)), g = Σ λ(k/M) |k| γ_k and h = Σ λ(k/M) γ_k over |k| ≤ M, the length
    is (2g² / (4/3 h²) · n)^{1/3}. It is at least 1 and at most min(3√n, n/3).
    """
    n = len(series)
    most = int(np.ceil(min(3.0 * np.sqrt(n), n / 3.0)))
    run = max(5, int(np.log10(n)))
    largest = min(int(np.ceil(np.sqrt(n))) + run, n - 1)
    gammas = autocovariances(series / power_of_two(series), largest)
    if gammas[0] == 0:
        return 1
    small = np.abs(gammas[1:] / gammas[0]) < 2.0 * np.sqrt(np.log10(n) / n)
    m = next((lag for lag in range(len(small) - run + 1) if small[lag : lag + run].all()), largest)
    M = min(2 * max(m, 1), largest)
    lags = np.arange(1, M + 1)
    weights = np.minimum(1.0, 2.0 * (1.0 - lags / M))
    g = 2.0 * (weights * lags) @ gammas[1 : M + 1]
    h = gammas[0] + 2.0 * weights @ gammas[1 : M + 1]
    if h == 0:
        return most
    return max(1, min(int(np.ceil((1.5 * g**2 / h**2 * n) ** (1.0 / 3.0))), most))


def block_bootstrap(series: Floats, block: int, *, draws: int = DRAWS, seed: int = 0) -> Floats:
    """Resample m series (n, m) with the circular block bootstrap and return their means (draws, m).

    Each draw uses the same blocks of time for all m series, so that the means of the series are paired. The same seed
    gives the same draws.
    """
    n = len(series)
    full, rest = divmod(n, block)
    starts: Ints = np.random.Generator(np.random.Philox(seed)).integers(0, n, size=(draws, full + (rest > 0)))
    summed = np.concatenate([np.zeros((1, series.shape[1])), np.cumsum(np.concatenate([series, series]), axis=0)])
    total = np.zeros((draws, series.shape[1]))
    for i in range(starts.shape[1]):
        length = block if i < full else rest
        total += summed[starts[:, i] + length] - summed[starts[:, i]]
    return total / n


def blocked_sum(values: Floats, times: Ints) -> tuple[float, float]:
    """Return the sum of autocorrelated values and its standard error.

    The standard error is computed from the sums over SUM_BLOCKS blocks of time of equal length. These sums are treated
    as independent.
    """
    block = (times - times.min()) * SUM_BLOCKS // (int(np.ptp(times)) + 1)
    sums = np.bincount(block, weights=values, minlength=SUM_BLOCKS)
    unit = power_of_two(np.asarray(sums, dtype=np.float64))
    return float(sums.sum()), float(unit * np.sqrt(SUM_BLOCKS * (sums / unit).var(ddof=1)))
