"""The queries of the dashboard. What they read is cached, so that a request reads only the events that are new."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from halfseen.diagnostics.health import Health
from halfseen.journal.events import Event
from halfseen.service.dashboard.context import ContextFilter, context_filter
from halfseen.service.dashboard.series import StreamSeries, stream_series
from halfseen.service.dashboard.window import DecisionWindow, max_events
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError
from halfseen.service.schemas import StreamView

MAX_CACHED = 8  # streams whose windows are in memory
_PAGE = 1_000  # events read at a time, so that others who read get their turn
_FRESH = 1.0  # seconds for which an answer is the answer
_AGENT_FRESH = 10.0  # ... if an agent must be copied for it
_NEVER = -float("inf")


class StreamSummary(Struct, frozen=True):
    """One stream in the list of all."""

    name: str
    agent: str
    arms: int  # that can be chosen
    decisions: int
    rewards: int
    created: float  # seconds since 1970
    updated: float
    retired: bool


class Overview(Struct, frozen=True):
    """Streams by name; `after` the last of them the next ones follow, null where there are no more."""

    now: float
    streams: list[StreamSummary]
    after: str | None
    service: dict[str, Any]


class FindingView(Struct, frozen=True):
    """One thing that was examined about a stream's model."""

    name: str
    shown: str
    expected: str
    verdict: str
    sentence: str


class HealthView(Struct, frozen=True):
    """`agent.health()`: notes on what needs attention, the findings about the model, and facts."""

    ok: bool
    heading: str
    notes: list[str]
    findings: list[FindingView]
    facts: dict[str, Any]


class _CachedStream:
    """The window, the model and the last answers about one stream, each with the time it was made."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.window: DecisionWindow | None = None
        self.created = 0
        self.window_at = _NEVER
        self.context, self.context_at, self.context_version = ContextFilter(), _NEVER, -1
        self.health: HealthView | None = None
        self.health_at = _NEVER


class DashboardQueries:
    """The data of the dashboard, read from an engine. The streams read last are cached, the latest at the end."""

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
                cached.context_at = time.monotonic()
            return await asyncio.to_thread(
                stream_series,
                name,
                window,
                cached.context,
                points=points,
                coordinate=coordinate,
                now=time.time_ns() // 1000,
                service=self.service(),
            )

    async def _catch_up(self, cached: _CachedStream, view: StreamView) -> None:
        """Read the events since the last time; where there are more of them than a window holds, a new window."""
        most, window = max_events(view), cached.window
        if window is None or not 0 <= view.version - window.version <= most or cached.created != view.created:
            record = await self._events(view.name, max(0, view.version - most), view.version)
            cached.window, cached.created = await asyncio.to_thread(DecisionWindow, view, record), view.created
            return
        await asyncio.to_thread(window.fold, await self._events(view.name, window.version, view.version))

    async def _events(self, name: str, after: int, last: int) -> list[Event]:
        """Those after `after` up to `last`, page by page."""
        found: list[Event] = []
        while after < last and (page := await self._engine.events(name, after=after, limit=min(_PAGE, last - after))):
            found += page
            after = page[-1].seq
        return found

    async def health(self, name: str) -> HealthView:
        async with self._locked(name) as cached:
            if cached.health is None or time.monotonic() - cached.health_at >= _AGENT_FRESH:
                cached.health = _health_view(await self._engine.health(name))
                cached.health_at = time.monotonic()
            return cached.health

    async def overview(self, after: str, limit: int, only: list[str] | None) -> Overview:
        """A page of the streams; `only` those, if the token is not for all."""
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
        """Whether this worker is ready, and its latencies."""
        latencies = {name: one.summary() for name, one in self._engine.metrics.latencies.items()}
        return {"ready": self._engine.ready(), "latencies": latencies}

    async def _if_exists(self, name: str) -> StreamView | None:
        try:
            return await self._engine.stream(name)
        except ServiceError as error:
            if error.status != 404:
                raise
            return None

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[_CachedStream]:
        """The stream, for one request at a time. After an error nothing of it stays cached."""
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


def _health_view(health: Health) -> HealthView:
    found = [FindingView(one.name, one.shown, one.expected, str(one.verdict), one.sentence) for one in health.findings]
    facts = {name: _plain(fact) for name, fact in health.facts.items()}
    return HealthView(health.ok, health.heading, list(health.notes), found, facts)


def _plain(fact: object) -> Any:
    if isinstance(fact, list | tuple):
        return [_plain(one) for one in fact]
    return fact if isinstance(fact, bool | int | float | str | None) else str(fact)
