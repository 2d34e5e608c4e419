"""The queries of the dashboard. They cache what they have read, so that a request reads only new events."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from halfseen.agents.agent import Agent
from halfseen.agents.forecast import Forecast
from halfseen.diagnostics.health import Health, terms
from halfseen.errors import HalfseenError
from halfseen.journal.events import Event
from halfseen.service.dashboard.context import ContextFilter, context_filter
from halfseen.service.dashboard.series import AHEAD, StreamSeries, stream_series
from halfseen.service.dashboard.window import DecisionWindow, max_events
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError
from halfseen.service.schemas import StreamView

MAX_CACHED = 8  # streams in the cache
_PAGE = 1_000  # events per read, so that other readers do not have to wait long
_FRESH = 1.0  # seconds for which a cached result is used
_AGENT_FRESH = 10.0  # seconds for which a cached result is used if computing it requires a copy of an agent
_NEVER = -float("inf")


class StreamSummary(Struct, frozen=True):
    """A stream in the list of all streams."""

    name: str
    agent: str
    arms: int  # number of active arms
    decisions: int
    rewards: int
    created: float  # seconds since 1970
    updated: float
    retired: bool


class Overview(Struct, frozen=True):
    """A page of streams, sorted by name.

    `after` is the value of the query parameter `after` for the next page, or null on the last page.
    """

    now: float
    streams: list[StreamSummary]
    after: str | None
    service: dict[str, Any]


class FindingView(Struct, frozen=True):
    """One finding about the model of a stream."""

    name: str
    shown: str
    expected: str
    verdict: str
    sentence: str


class HealthView(Struct, frozen=True):
    """The result of `agent.health()`: the answer, notes, findings about the model, facts, and explanations of terms."""

    answer: str
    ok: bool
    heading: str
    notes: list[str]
    findings: list[FindingView]
    terms: dict[str, str]
    facts: dict[str, Any]


class _CachedStream:
    """The cached window, context filter, forecast and health of one stream, with the times when they were computed."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.window: DecisionWindow | None = None
        self.created = 0
        self.window_at = _NEVER
        self.context, self.context_at, self.context_version = ContextFilter(), _NEVER, -1
        self.forecast: Forecast | str = ""
        self.health: HealthView | None = None
        self.health_at = _NEVER


class DashboardQueries:
    """Reads the data of the dashboard from an engine, with a cache of the most recently used streams."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cached: OrderedDict[str, _CachedStream] = OrderedDict()

    async def series(self, name: str, points: int, coordinate: int) -> StreamSeries:
        async with self._locked(name) as cached:
            view = await self._engine.stream(name)
            if time.monotonic() - cached.window_at >= _FRESH:
                await self._catch_up(cached, view)
                cached.window_at = time.monotonic()
            window = cached.window
            assert window is not None
            if cached.context_version != window.version and time.monotonic() - cached.context_at >= _AGENT_FRESH:
                cached.context_version = window.version
                agent = await self._engine.agent(name)
                cached.context = await asyncio.to_thread(context_filter, agent, view.spec.features)
                cached.forecast = await asyncio.to_thread(_forecast, agent)
                cached.context_at = time.monotonic()
            return await asyncio.to_thread(
                stream_series,
                name,
                window,
                cached.context,
                cached.forecast,
                features=view.spec.features,
                points=points,
                coordinate=coordinate,
                now=time.time_ns() // 1000,
                service=self.service(),
            )

    async def _catch_up(self, cached: _CachedStream, view: StreamView) -> None:
        """Add the new events to the window, or read a new window if there are more events than a window holds."""
        maximum, window = max_events(view), cached.window
        if window is None or not 0 <= view.version - window.version <= maximum or cached.created != view.created:
            last_events = await self._events(view.name, max(0, view.version - maximum), view.version)
            cached.window, cached.created = await asyncio.to_thread(DecisionWindow, view, last_events), view.created
            return
        await asyncio.to_thread(window.fold, await self._events(view.name, window.version, view.version))

    async def _events(self, name: str, after: int, last: int) -> list[Event]:
        """Return the events after number `after` up to number `last`."""
        events: list[Event] = []
        while after < last and (page := await self._engine.events(name, after=after, limit=min(_PAGE, last - after))):
            events += page
            after = page[-1].seq
        return events

    async def health(self, name: str) -> HealthView:
        async with self._locked(name) as cached:
            if cached.health is None or time.monotonic() - cached.health_at >= _AGENT_FRESH:
                cached.health = _health_view(await self._engine.health(name))
                cached.health_at = time.monotonic()
            return cached.health

    async def overview(self, after: str, limit: int, only: list[str] | None) -> Overview:
        """Return a page of the streams. If the token is limited to some streams, `only` lists them."""
        if only is None:
            views = await self._engine.streams(after=after, limit=limit)
        else:
            views = [view for name in sorted(only) if name > after and (view := await self._if_exists(name))][:limit]
        streams = [
            StreamSummary(
                name=view.name,
                agent=view.spec.agent,
                arms=len(view.active),
                decisions=view.decisions,
                rewards=view.rewards,
                created=view.created / 1e6,
                updated=view.updated / 1e6,
                retired=view.retired,
            )
            for view in views
        ]
        return Overview(time.time(), streams, streams[-1].name if len(streams) == limit else None, self.service())

    def service(self) -> dict[str, Any]:
        """Return whether this worker is ready, the reason if it is degraded, and its latencies."""
        latencies = {name: latency.summary() for name, latency in self._engine.metrics.latencies.items()}
        return {"ready": self._engine.ready(), "degraded": self._engine.degraded, "latencies": latencies}

    async def _if_exists(self, name: str) -> StreamView | None:
        try:
            return await self._engine.stream(name)
        except ServiceError as error:
            if error.status != 404:
                raise
            return None

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[_CachedStream]:
        """Give one request at a time access to a cached stream. An error removes the stream from the cache."""
        cached = self._cached.setdefault(name, _CachedStream())
        self._cached.move_to_end(name)
        while len(self._cached) > MAX_CACHED:
            self._cached.popitem(last=False)
        async with cached.lock:
            try:
                yield cached
            except BaseException:
                if self._cached.get(name) is cached:
                    del self._cached[name]
                raise


def _forecast(agent: Agent) -> Forecast | str:
    """Return the forecast of an agent, or the reason why there is none."""
    try:
        return agent.forecast(AHEAD)
    except HalfseenError as error:
        return str(error)


def _health_view(health: Health) -> HealthView:
    findings = [
        FindingView(finding.name, finding.shown, finding.expected, str(finding.verdict), finding.sentence)
        for finding in health.findings
    ]
    facts = {name: _as_json(fact) for name, fact in health.facts.items()}
    return HealthView(
        health.answer, health.ok, health.heading, list(health.notes), findings, terms(health.findings), facts
    )


def _as_json(fact: object) -> Any:
    if isinstance(fact, list | tuple):
        return [_as_json(entry) for entry in fact]
    return fact if isinstance(fact, bool | int | float | str | None) else str(fact)
