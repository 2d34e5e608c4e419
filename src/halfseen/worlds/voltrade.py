"""`voltrade`: bets on tomorrow's volatility against its recent mean (docs/real-data.md)."""

from __future__ import annotations

from halfseen.worlds import packaged
from halfseen.worlds.market_days import HIDDEN, OBSERVED, PACKAGE, SOURCE_DATA, complete, market_days, tomorrow
from halfseen.worlds.recorded import NOT_TRADABLE, RecordedWorld, recorded

ABOUT = (
    "Every day a bet on tomorrow's log-range volatility against its mean over the last 66 days, long or short, of the "
    "S&P 500 or the NASDAQ, or none. A reward is a difference of log volatilities."
)


def voltrade() -> RecordedWorld:
    """Bets on tomorrow's volatility of S&P 500 and NASDAQ; the volatility of the S&P 500 is hidden."""
    days = market_days()
    columns = days.context()
    arms = []
    for market in ("S&P", "NASDAQ"):
        gain = tomorrow(days.log_volatility[market]) - days.strike(market)
        columns |= {f"long {market}": gain, f"short {market}": -gain}
        arms += [f"long {market}", f"short {market}"]
    columns["flat"] = 0.0 * gain
    return recorded(
        complete(columns),
        name="voltrade",
        observed=OBSERVED,
        hidden=HIDDEN,
        rewards=[*arms, "flat"],
        source=packaged.source(PACKAGE, SOURCE_DATA),
        about=ABOUT,
        caveat=NOT_TRADABLE,
        intercept=False,
    )
