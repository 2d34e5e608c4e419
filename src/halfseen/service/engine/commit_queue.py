"""The queue, and the task that empties it: all that waits is one batch, and one commit."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter, deque
from concurrent.futures import Executor
from typing import Any

from halfseen.errors import HalfseenError
from halfseen.journal.events import JournalAway
from halfseen.service.engine.store import Store
from halfseen.service.engine.work import Work
from halfseen.service.errors import ServiceError, refusal
from halfseen.service.measured import Latencies
from halfseen.service.specs import Settings

_LOG = logging.getLogger("halfseen.service")
_LONGEST = 0.02  # seconds that requests on their way are waited for
_IDLE_TURNS = 3  # of the event loop that bring nothing new, after which they are not


class Drain:
    """Work in, answers out, once they are on disk. `thread` is the one that owns the store."""

    def __init__(self, store: Store, thread: Executor, settings: Settings) -> None:
        self._store, self._thread, self._settings = store, thread, settings
        self._queue: deque[Work] = deque()
        self._wake = asyncio.Event()
        self.rows_waiting = 0
        self.closing = False
        self.available = True  # whether the database was there when last asked
        self._away_since = 0.0
        self.stalled = False  # whether the thread does not come back: no database, no disk, or very much to fold
        self.wanted = asyncio.Event()  # set when a stream wants a model, and once before, when the first will
        self._expected = False
        self.counts: Counter[str] = Counter()
        self.commits = Latencies()
        self.latencies = {"decide": Latencies(), "reward": Latencies()}

    def submit(self, work: Work) -> asyncio.Future[list[Any]]:
        """The answers of a work to come, each a result or a refusal; refused altogether if too much is waiting."""
        if self.closing:
            raise refusal("unavailable", "service: it is shutting down; try another worker, or again later")
        if self.stalled:
            raise self.no_answer()
        if self.rows_waiting + work.size > self._settings.queue_rows:
            self.counts["busy"] += work.size
            if work.size > self._settings.queue_rows:
                raise refusal("too_large", f"rows: got {work.size} at once; want at most {self._settings.queue_rows}")
            raise refusal("busy", f"service: {self.rows_waiting} rows are waiting; try again later")
        self.rows_waiting += work.size
        self._queue.append(work)
        self._wake.set()
        return work.future

    async def run(self) -> None:
        """Take all that waits, have it done, answer. For ever."""
        loop, lasted = asyncio.get_running_loop(), 0.0
        while True:
            await self._wake.wait()
            await self._gather(lasted)
            batch = self._taken()
            if not batch:
                self._wake.clear()
                continue
            began = time.perf_counter()
            watch = loop.call_later(self._settings.stall_seconds, self._stall, batch)
            try:
                results = await loop.run_in_executor(self._thread, self._store.step, batch)
                self.back()
            except Exception as error:
                results = [self.failure(error)] * len(batch)
            watch.cancel()
            self.stalled = False
            ended = time.perf_counter()
            lasted = ended - began
            self.commits.add(lasted)
            self.counts["commits"] += 1
            if self._store.due or (self._store.identifies and not self._expected):
                self._expected = True
                self.wanted.set()
            for work, result in zip(batch, results, strict=True):
                self.rows_waiting -= work.size
                future = work.future
                if isinstance(result, BaseException):
                    if not future.done():
                        future.set_exception(result)
                    continue
                if work.what is not None:
                    self._measure(work, result, ended)
                if not future.done():  # or the caller has gone
                    future.set_result(result)

    def _stall(self, batch: list[Work]) -> None:
        """Let nobody wait for a thread that does not come back, until it does. What it has begun may still be done."""
        self.stalled = True
        self.away(self.no_answer().message)
        self.counts["stalls"] += 1
        queued = list(self._queue)
        self._queue.clear()
        self.rows_waiting -= sum(work.size for work in queued)
        for work in batch + queued:
            if not work.future.done():
                work.future.set_exception(self.no_answer())

    def away(self, why: str) -> None:
        """The database cannot be used. It is said once, and not for every request that is refused for it."""
        if self.available:
            self.available, self._away_since = False, time.monotonic()
            _LOG.error("worker %d: %s; until it is back requests get 503", os.getpid(), why)

    def back(self) -> None:
        if not self.available:
            self.available = True
            seconds = time.monotonic() - self._away_since
            _LOG.warning("worker %d: database: it is back, after %.1f seconds", os.getpid(), seconds)

    def no_answer(self) -> ServiceError:
        seconds = self._settings.stall_seconds
        return refusal("unavailable", f"database: no answer within {seconds:g} seconds; try again later")

    async def _gather(self, lasted: float) -> None:
        """Let requests that are on their way share the commit: wait as long as every turn of the loop brings more.

        But no longer than the last commit `lasted`. One that comes alone waits for a few turns, which is microseconds;
        many at once are all answered, all ask again and are all committed together, and no thread waits for another.
        """
        until, before, idle = time.perf_counter() + min(lasted, _LONGEST), -1, 0
        while idle < _IDLE_TURNS and self.rows_waiting < self._settings.batch_rows and time.perf_counter() < until:
            idle = idle + 1 if self.rows_waiting == before else 0
            before = self.rows_waiting
            await asyncio.sleep(0)

    def _measure(self, work: Work, results: list[Any], now: float) -> None:
        assert work.what is not None
        refused = sum(map(_is_refusal, results))
        self.counts[f"{work.what}s"] += len(results) - refused
        if refused:
            self.counts["refused"] += refused
        self.latencies[work.what].add(now - work.began)

    def _taken(self) -> list[Work]:
        batch: list[Work] = []
        rows = 0
        while self._queue and (not batch or rows + self._queue[0].size <= self._settings.batch_rows):
            batch.append(self._queue.popleft())
            rows += batch[-1].size
        return batch

    async def close(self) -> None:
        """Take nothing more, and wait until all is answered."""
        self.closing = True
        while self._queue or self.rows_waiting:
            self._wake.set()
            await asyncio.sleep(0.005)

    def failure(self, error: Exception) -> ServiceError:
        """What callers are told when a whole batch, or something beside the batches, went wrong."""
        if isinstance(error, ServiceError):
            return error
        if isinstance(error, JournalAway):
            self.away(str(error))
            return refusal("unavailable", str(error))
        if isinstance(error, HalfseenError):
            return refusal("internal", str(error))
        return refusal("internal", f"service: {type(error).__name__}: {error}")


def _is_refusal(result: object) -> bool:
    return isinstance(result, ServiceError)
