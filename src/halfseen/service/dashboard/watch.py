"""What the page asks about, kept between two looks so that a look costs what is new and not what there is."""

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
from halfseen.service.dashboard.context import Context, context_of
from halfseen.service.dashboard.series import Series, series
from halfseen.service.dashboard.window import Window, events_read
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError
from halfseen.service.schemas import StreamView

MOST_WATCHED = 8  # streams whose windows are kept
_PAGE = 1_000  # events read at a time, so that others who read get their turn
_FRESH = 1.0  # seconds for which an answer is the answer
_AGENT_FRESH = 10.0  # ... if an agent must be copied for it


class Glance(Struct, frozen=True):
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
    streams: list[Glance]
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
    """`agent.health()`: a note for each thing that wants a look, what was found out about the model, facts."""

    ok: bool
    heading: str
    notes: list[str]
    findings: list[FindingView]
    facts: dict[str, Any]


class _Watched:
    """One stream: its window, its model, and the last answers."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.window: Window | None = None
        self.created = 0
        self.read = -float("inf")
        self.context, self.context_at, self.context_of = Context(), -float("inf"), -1
        self.health: HealthView | None = None
        self.health_at = -float("inf")


class Watcher:
    """The streams that are being looked at, those looked at last at the end."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._watched: OrderedDict[str, _Watched] = OrderedDict()

    async def series(self, name: str, points: int, coordinate: int) -> Series:
        async with self._watching(name) as watched:
            view = await self._engine.stream(name)
            if time.monotonic() - watched.read >= _FRESH:
                await self._catch_up(watched, view)
                watched.read = time.monotonic()
            window = watched.window
            assert window is not None
            if watched.context_of != window.version and time.monotonic() - watched.context_at >= _AGENT_FRESH:
                watched.context_of = window.version
                agent = await self._engine.agent(name)
                watched.context = await asyncio.to_thread(context_of, agent, view.spec.features)
                watched.context_at = time.monotonic()
            return await asyncio.to_thread(
                series,
                name,
                window,
                watched.context,
                points=points,
                coordinate=coordinate,
                now=time.time_ns() // 1000,
                service=self.service(),
            )

    async def _catch_up(self, watched: _Watched, view: StreamView) -> None:
        """Read the events since the last look; where there are more of them than a window holds, a new window."""
        most, window = events_read(view), watched.window
        if window is None or not 0 <= view.version - window.version <= most or watched.created != view.created:
            record = await self._events(view.name, max(0, view.version - most), view.version)
            watched.window, watched.created = await asyncio.to_thread(Window, view, record), view.created
            return
        await asyncio.to_thread(window.add, await self._events(view.name, window.version, view.version))

    async def _events(self, name: str, after: int, last: int) -> list[Event]:
        """Those after `after` up to `last`, page by page."""
        found: list[Event] = []
        while after < last and (page := await self._engine.events(name, after=after, limit=min(_PAGE, last - after))):
            found += page
            after = page[-1].seq
        return found

    async def health(self, name: str) -> HealthView:
        async with self._watching(name) as watched:
            if watched.health is None or time.monotonic() - watched.health_at >= _AGENT_FRESH:
                watched.health = _shown(await self._engine.health(name))
                watched.health_at = time.monotonic()
            return watched.health

    async def overview(self, after: str, limit: int, only: list[str] | None) -> Overview:
        """A page of the streams; `only` those, if the token is not for all."""
        if only is None:
            views = await self._engine.streams(after=after, limit=limit)
        else:
            views = [view for name in sorted(only) if name > after and (view := await self._if_there(name))][:limit]
        found = [_glance(view) for view in views]
        return Overview(time.time(), found, found[-1].name if len(found) == limit else None, self.service())

    def service(self) -> dict[str, Any]:
        """How this worker does."""
        measured = self._engine.measurements()
        return {"ready": self._engine.ready(), "latencies": measured.get("latencies", {})}

    async def _if_there(self, name: str) -> StreamView | None:
        try:
            return await self._engine.stream(name)
        except ServiceError as error:
            if error.status != 404:
                raise
            return None

    @asynccontextmanager
    async def _watching(self, name: str) -> AsyncIterator[_Watched]:
        """The stream, for one at a time. What goes wrong is not kept: a name that somebody made up, half a window."""
        watched = self._watched.setdefault(name, _Watched())
        self._watched.move_to_end(name)
        while len(self._watched) > MOST_WATCHED:
            self._watched.popitem(last=False)
        async with watched.lock:
            try:
                yield watched
            except BaseException:
                if self._watched.get(name) is watched:
                    del self._watched[name]
                raise


def _glance(view: StreamView) -> Glance:
    return Glance(
        view.name,
        view.spec.agent,
        len(view.active),
        view.decisions,
        view.rewards,
        view.created / 1e6,
        view.updated / 1e6,
        view.retired,
    )


def _shown(health: Health) -> HealthView:
    found = [FindingView(one.name, one.shown, one.expected, str(one.verdict), one.sentence) for one in health.findings]
    facts = {name: _plain(fact) for name, fact in health.facts.items()}
    return HealthView(health.ok, health.heading, list(health.notes), found, facts)


def _plain(fact: object) -> Any:
    if isinstance(fact, list | tuple):
        return [_plain(one) for one in fact]
    return fact if isinstance(fact, bool | int | float | str | None) else str(fact)
