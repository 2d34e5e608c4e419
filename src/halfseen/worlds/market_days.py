"""Daily S&P 500, NASDAQ and WTI, 1999 to 2018, as the package `arch` carries them, and the context made of them.

Everything in row t is known at the close of day t; rewards are of day t + 1 (docs/real-data.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from halfseen.kernels.random import Floats
from halfseen.worlds import packaged
from halfseen.worlds.trailing import log_returns, log_volatility, parkinson, root_mean_square, trailing_mean

PACKAGE = "arch"
_STOCKS = {"S&P": "sp500", "NASDAQ": "nasdaq"}
WINDOW = 66  # days of the trailing mean that an anomaly is measured from
SOURCE_DATA = "daily S&P 500, NASDAQ and WTI, 1999 to 2018"
OBSERVED = ("return S&P", "return NASDAQ", "return WTI", "volatility NASDAQ", "volatility WTI")
HIDDEN = ("volatility S&P 1 day", "volatility S&P 5 days", "volatility S&P 22 days")


@dataclass(frozen=True)
class MarketDays:
    """The days of the S&P 500, oldest first; NaN while a window is not full."""

    returns: dict[str, Floats]  # log returns of day t: S&P, NASDAQ, WTI
    log_volatility: dict[str, Floats]  # of day t for S&P and NASDAQ, of the last 5 days for WTI

    def strike(self, market: str) -> Floats:
        """The mean log-volatility of the last 66 days, day t included."""
        return trailing_mean(self.log_volatility[market], WINDOW)

    def context(self) -> dict[str, Floats]:
        """The columns of `OBSERVED` and `HIDDEN`."""
        strike = self.strike("S&P")
        return {
            **{f"return {market}": values for market, values in self.returns.items()},
            **{
                f"volatility {market}": self.log_volatility[market] - self.strike(market)
                for market in ("NASDAQ", "WTI")
            },
            HIDDEN[0]: self.log_volatility["S&P"] - strike,
            HIDDEN[1]: trailing_mean(self.log_volatility["S&P"], 5) - strike,
            HIDDEN[2]: trailing_mean(self.log_volatility["S&P"], 22) - strike,
        }


@cache
def market_days() -> MarketDays:
    """Read from the package; oil has other holidays, on which its last price stands."""
    stocks = {name: _load(module, ("High", "Low", "Close")) for name, module in _STOCKS.items()}
    days = stocks["S&P"].index
    if not days.equals(stocks["NASDAQ"].index) or not days.is_monotonic_increasing:
        raise packaged.changed(PACKAGE, "S&P 500 and NASDAQ on different days")
    oil = _load("wti", ("DCOILWTICO",))["DCOILWTICO"].dropna()
    known = np.searchsorted(oil.index.to_numpy(), days.to_numpy(), side="right") - 1  # the last price up to that day
    if known.min() < 0:
        raise packaged.changed(PACKAGE, "no oil price before the first day of the S&P 500")
    prices = {name: packaged.numbers(frame, "Close", PACKAGE) for name, frame in stocks.items()}
    prices["WTI"] = np.asarray(oil.to_numpy(), dtype=np.float64)[known]
    returns = {name: log_returns(values) for name, values in prices.items()}
    ranges = {
        name: parkinson(packaged.numbers(frame, "High", PACKAGE), packaged.numbers(frame, "Low", PACKAGE))
        for name, frame in stocks.items()
    }
    volatility = {**ranges, "WTI": root_mean_square(returns["WTI"], 5)}
    return MarketDays(returns, {name: log_volatility(values) for name, values in volatility.items()})


def _load(module: str, columns: tuple[str, ...]) -> Any:
    return packaged.load(
        PACKAGE, f"arch.data.{module}", lambda found: found.load(), columns=columns, purpose="this world"
    )


def complete(columns: dict[str, Floats]) -> dict[str, Floats]:
    """The rows in which every column has its number: windows fill at the start, the last day has no tomorrow."""
    whole = np.isfinite(np.stack(list(columns.values()))).all(axis=0)
    return {name: values[whole] for name, values in columns.items()}


def tomorrow(values: Floats) -> Floats:
    """Entry t is what entry t + 1 will be: for rewards only."""
    return np.concatenate([values[1:], [np.nan]])
