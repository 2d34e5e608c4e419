"""Helpers for tests of the engine of the decision service."""

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

SETTINGS = {"identify": False, "sweep_seconds": 0.05}


def spec(name: str = "one", **changes: Any) -> StreamSpec:
    return StreamSpec(**{"name": name, "observed": 3, "arms": ["a", "b", "c"], "agent": "ts-pco", "seed": 5} | changes)


@asynccontextmanager
async def open_engine(url: str, **settings: Any):
    engine = await Engine.open(url, EngineSettings(**SETTINGS | settings))
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def restart_engine(engine: Engine, url: str, **settings: Any):
    """Close an engine and open another one on the same database."""
    await engine.close()
    async with open_engine(url, **settings) as another:
        yield another


def with_engine(url: str, scenario: Callable[[Engine], Awaitable[Any]], **settings: Any) -> Any:
    """Run a scenario on a new engine."""

    async def run() -> Any:
        async with open_engine(url, **settings) as engine:
            return await scenario(engine)

    return asyncio.run(run())


def on_engine(**settings: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Run an async test on a new engine.

    The test receives the engine as its argument `engine` and, if it wants it, the address of the database as `url`.
    The database is a new database of the fixture `server`, the fixture `database`, or otherwise a new SQLite file.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        names = list(inspect.signature(test).parameters)
        fixtures = [name for name in names if name not in ("engine", "url")]
        source = next((name for name in ("server", "database") if name in fixtures), "tmp_path")

        @functools.wraps(test)
        def run(**given: Any) -> None:
            value = given[source]
            url = value.database() if source == "server" else value if source == "database" else str(value / "j.db")
            arguments = {name: given[name] for name in fixtures} | ({"url": url} if "url" in names else {})
            with_engine(url, lambda engine: test(engine=engine, **arguments), **settings)

        kind = inspect.Parameter.KEYWORD_ONLY
        run.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in {*fixtures, source}])
        return run

    return decorate


def observation(number: int, entries: int = 3) -> list[float | None]:
    """Return the observation with this number from a fixed sequence, in which some entries are missing."""
    drawn = np.random.default_rng([7, number]).normal(size=entries).tolist()
    return [None if (number + index) % 11 == 0 else value for index, value in enumerate(drawn)]


async def decide(engine: Engine, y: Any, available: Any = None, key: str | None = None, name: str = "one"):
    """Ask the engine for a decision. If `y` is an integer, it is the number of the observation."""
    return await engine.decide(name, DecisionRequest(observation(y) if type(y) is int else y, available, key))


async def decide_all(engine: Engine, numbers: Any, name: str = "one"):
    return await engine.decide_all(name, [DecisionRequest(observation(number)) for number in numbers])


async def reward(engine: Engine, decision: Any, value: Any, name: str = "one"):
    """Reward a decision, given as an object or by its id."""
    decision_id = decision if isinstance(decision, str) else decision.id
    return await engine.reward(name, RewardRequest(decision_id, value))


async def expect_error(call: Awaitable[Any], code: str, status: int) -> str:
    """Check that a call fails with this code and status, and return the message, which is one line."""
    with pytest.raises(ServiceError) as raised:
        await call
    assert (raised.value.code, raised.value.status) == (code, status)
    assert "\n" not in raised.value.message
    return raised.value.message


async def wait_until(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def metric(engine: Engine, name: str) -> float:
    """Return the current value of a counter or a gauge."""
    engine.update_gauges()
    value = engine.metrics.registry.get_sample_value(f"halfseen_{name}")
    assert value is not None, name
    return value


def to_json_value(value: Any) -> Any:
    """Convert an option of an agent to what JSON can represent."""
    if isinstance(value, hs.LinearGaussianModel):
        fields = ("transition", "process_cov", "observation_cov", "observation", "initial_mean", "initial_cov")
        return {name: getattr(value, name).tolist() for name in fields}
    return value.tolist() if isinstance(value, np.ndarray) else value


def reward_from_id(decision_id: str) -> float:
    """Compute a reward from the id of a decision, so that every process of a test gives the same reward."""
    return int(hashlib.sha256(decision_id.encode()).hexdigest()[:8], 16) / 2**32 - 0.5


def fold_from_journal(url: str, name: str) -> LoadedStream:
    """Compute the state of a stream from the journal alone."""
    with closing(open_journal(url)) as journal:
        return fold_stream(journal, journal.stream(name))


def loaded_stream(engine: Engine, name: str = "one") -> LoadedStream:
    """Return a stream from the memory of the engine."""
    return engine._store.loaded[name]


def same_state(first: LoadedStream, second: LoadedStream) -> bool:
    """Whether two streams are in the same state, bit for bit."""
    names = (
        "version",
        "time",
        "tick",
        "last_id",
        "decisions",
        "rewards",
        "retired",
        "model_seq",
        "open_decisions",
        "arms",
    )
    fields = all(getattr(first, name) == getattr(second, name) for name in names)
    one, two = first.agent.state(), second.agent.state()
    return fields and one.keys() == two.keys() and all(one[key].tobytes() == two[key].tobytes() for key in one)


def assert_matches_journal(engine: Engine, url: str, name: str = "one") -> None:
    """Check that the stream in memory equals, bit for bit, the stream computed from the journal."""
    assert same_state(loaded_stream(engine, name), fold_from_journal(url, name))
