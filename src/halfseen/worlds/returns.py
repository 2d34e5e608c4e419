"""`returns`: the negative control, tomorrow's returns from the context of `voltrade` (docs/real-data.md)."""

from __future__ import annotations

import numpy as np

from halfseen.worlds import packaged
from halfseen.worlds.market_days import HIDDEN, OBSERVED, PACKAGE, SOURCE_DATA, complete, market_days, tomorrow
from halfseen.worlds.recorded import NOT_TRADABLE, RecordedWorld, recorded

ABOUT = (
    "Every day a choice of what to hold until tomorrow's close. A reward is the log return of that day. Daily returns "
    "are next to unforecastable, so no agent should be expected to gain by its context."
)


def returns() -> RecordedWorld:
    """The negative control: tomorrow's return of S&P 500, NASDAQ, oil, the S&P 500 sold short, or cash."""
    days = market_days()
    gains = {f"hold {market}": tomorrow(values) for market, values in days.returns.items()}
    gains |= {"short S&P": -gains["hold S&P"], "cash": np.zeros_like(gains["hold S&P"])}
    return recorded(
        complete(days.context() | gains),
        name="returns",
        observed=OBSERVED,
        hidden=HIDDEN,
        rewards=gains,
        source=packaged.source(PACKAGE, SOURCE_DATA),
        about=ABOUT,
        caveat=NOT_TRADABLE,
        intercept=False,
    )
