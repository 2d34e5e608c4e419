"""What tests of the engine share."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import numpy as np
import pytest

import halfseen as hs
from halfseen.journal.journal import open_journal
from halfseen.service.engine.engine import Engine
from halfseen.service.engine.loaded_stream import LoadedStream, fold_stream
from halfseen.service.errors import ServiceError
from halfseen.service.schemas import DecisionRequest, EngineSettings, RewardRequest, StreamSpec

PLAIN = {"identify": False, "sweep_seconds": 0.05}


def spec(name: str = "one", **changes: Any) -> StreamSpec:
    return StreamSpec(**{"name": name, "observed": 3, "arms": ["a", "b", "c"], "agent": "ts-pco", "seed": 5} | changes)


@asynccontextmanager
async def opened(url: str, **settings: Any):
    engine = await Engine.open(url, EngineSettings(**PLAIN | settings))
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def restarted(engine: Engine, url: str, **settings: Any):
    """Close an engine and open another on the same database."""
    await engine.close()
    async with opened(url, **settings) as another:
        yield another


def with_engine(url: str, scenario: Callable[[Engine], Awaitable[Any]], **settings: Any) -> Any:
    """Run a scenario on an engine of its own."""

    async def run() -> Any:
        async with opened(url, **settings) as engine:
            return await scenario(engine)

    return asyncio.run(run())


def on_engine(**settings: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Run an async test on an engine of its own, which is its argument `engine`; `url` is the database.

    That is a database of the fixture `server`, the fixture `database`, or else a new SQLite file.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        names = list(inspect.signature(test).parameters)
        fixtures = [name for name in names if name not in ("engine", "url")]
        place = next((name for name in ("server", "database") if name in fixtures), "tmp_path")

        @functools.wraps(test)
        def run(**given: Any) -> None:
            where = given[place]
            url = where.database() if place == "server" else where if place == "database" else str(where / "j.db")
            rest = {name: given[name] for name in fixtures} | ({"url": url} if "url" in names else {})
            with_engine(url, lambda engine: test(engine=engine, **rest), **settings)

        kind = inspect.Parameter.KEYWORD_ONLY
        run.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in {*fixtures, place}])
        return run

    return decorate


def observation(number: int, entries: int = 3) -> list[float | None]:
    """One of a fixed sequence; an entry is missing now and then."""
    drawn = np.random.default_rng([7, number]).normal(size=entries).tolist()
    return [None if (number + place) % 11 == 0 else value for place, value in enumerate(drawn)]


async def decide(engine: Engine, y: Any, available: Any = None, key: str | None = None, name: str = "one"):
    """Decide on an observation, or on the one of that number."""
    return await engine.decide(name, DecisionRequest(observation(y) if type(y) is int else y, available, key))


async def decide_all(engine: Engine, numbers: Any, name: str = "one"):
    return await engine.decide_all(name, [DecisionRequest(observation(number)) for number in numbers])


async def reward(engine: Engine, decision: Any, value: Any, name: str = "one"):
    """Reward a decision, which is given as such or by its id."""
    identity = decision if isinstance(decision, str) else decision.id
    return await engine.reward(name, RewardRequest(identity, value))


async def refused(doing: Awaitable[Any], code: str, status: int) -> str:
    """The message of the error, which is one line."""
    with pytest.raises(ServiceError) as raised:
        await doing
    assert (raised.value.code, raised.value.status) == (code, status)
    assert "\n" not in raised.value.message
    return raised.value.message


async def until(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def metric(engine: Engine, name: str) -> float:
    """The current value of a counter or a gauge."""
    engine.update_gauges()
    value = engine.metrics.registry.get_sample_value(f"halfseen_{name}")
    assert value is not None, name
    return value


def plain(value: Any) -> Any:
    """An option of an agent as JSON has it."""
    if isinstance(value, hs.LinearGaussianModel):
        fields = ("transition", "process_cov", "observation_cov", "observation", "initial_mean", "initial_cov")
        return {name: getattr(value, name).tolist() for name in fields}
    return value.tolist() if isinstance(value, np.ndarray) else value


def pay(identity: str) -> float:
    """A reward that everybody can work out from the id of the decision."""
    return int(hashlib.sha256(identity.encode()).hexdigest()[:8], 16) / 2**32 - 0.5


def refolded(url: str, name: str) -> LoadedStream:
    """The stream as it follows from the journal alone."""
    with closing(open_journal(url)) as journal:
        return fold_stream(journal, journal.stream(name))


def held(engine: Engine, name: str = "one") -> LoadedStream:
    """The stream as the engine has it in memory."""
    return engine._store.loaded[name]


def same(one: LoadedStream, other: LoadedStream) -> bool:
    """Whether two streams are in the same state, bit for bit."""
    names = ("version", "time", "last_id", "decisions", "rewards", "retired", "model_seq", "open_decisions", "arms")
    fields = all(getattr(one, name) == getattr(other, name) for name in names)
    mine, theirs = one.agent.state(), other.agent.state()
    return fields and mine.keys() == theirs.keys() and all(mine[key].tobytes() == theirs[key].tobytes() for key in mine)


def assert_folds(engine: Engine, url: str, name: str = "one") -> None:
    """The stream in memory is, bit for bit, the one that follows from the journal."""
    assert same(held(engine, name), refolded(url, name))
