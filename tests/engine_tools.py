"""What tests of the engine share."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import numpy as np

import halfseen as hs
from halfseen.journal.journal import open_journal
from halfseen.service.engine.engine import Engine
from halfseen.service.engine.loaded_stream import LoadedStream, fold_stream
from halfseen.service.schemas import EngineSettings, StreamSpec

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


def with_engine(url: str, scenario: Callable[[Engine], Awaitable[Any]], **settings: Any) -> Any:
    """Run a scenario on an engine of its own."""

    async def run() -> Any:
        async with opened(url, **settings) as engine:
            return await scenario(engine)

    return asyncio.run(run())


def observation(number: int, entries: int = 3) -> list[float | None]:
    """One of a fixed sequence; an entry is missing now and then."""
    drawn = np.random.default_rng([7, number]).normal(size=entries).tolist()
    return [None if (number + place) % 11 == 0 else value for place, value in enumerate(drawn)]


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


def held(engine: Engine, name: str) -> LoadedStream:
    """The stream as the engine has it in memory."""
    return engine._store.loaded[name]


def same(one: LoadedStream, other: LoadedStream) -> bool:
    """Whether two streams are in the same state, bit for bit."""
    fields = all(
        getattr(one, name) == getattr(other, name)
        for name in (
            "version",
            "time",
            "last_id",
            "decisions",
            "rewards",
            "retired",
            "model_seq",
            "open_decisions",
            "arms",
        )
    )
    mine, theirs = one.agent.state(), other.agent.state()
    return fields and mine.keys() == theirs.keys() and all(mine[key].tobytes() == theirs[key].tobytes() for key in mine)
