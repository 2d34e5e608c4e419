"""Sums over the past of a series. Nothing here looks ahead: entry t depends on entries up to t only."""

from __future__ import annotations

import numpy as np

from halfseen.kernels.random import Floats

DAYS_A_YEAR = 252


def trailing_mean(values: Floats, window: int) -> Floats:
    """The mean of the last `window` entries, the present one included; NaN where there are fewer, or one is NaN."""
    out = np.full(len(values), np.nan)
    if len(values) >= window:
        out[window - 1 :] = np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=1)
    return out


def delayed(values: Floats, steps: int) -> Floats:
    """Entry t is what entry t − `steps` was; NaN before there was one."""
    out = np.full(len(values), np.nan)
    out[steps:] = values[: len(values) - steps]
    return out


def log_returns(prices: Floats) -> Floats:
    """ln(p_t / p_{t−1}), NaN for the first."""
    return np.concatenate([[np.nan], np.diff(np.log(prices))])


def log_volatility(volatility: Floats) -> Floats:
    """log(σ + 0.01): a day without any movement has a volatility, too."""
    return np.asarray(np.log(volatility + 0.01))


def parkinson(high: Floats, low: Floats) -> Floats:
    """Parkinson's (1980) volatility of a day from its range, annualised: σ² = 252 ln(high/low)² / (4 ln 2)."""
    return np.asarray(np.log(high / low) * np.sqrt(DAYS_A_YEAR / (4.0 * np.log(2.0))))


def root_mean_square(returns: Floats, window: int) -> Floats:
    """The volatility of the last `window` daily returns, annualised; their mean is taken to be 0."""
    return np.asarray(np.sqrt(DAYS_A_YEAR * trailing_mean(returns**2, window)))
