"""Group commit: all operations that wait are run as one batch, with one commit."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from concurrent.futures import Executor
from typing import Any

from halfseen.errors import HalfseenError
from halfseen.journal.events import JournalAway
from halfseen.service.engine.store import StreamStore
from halfseen.service.engine.transaction import Operation
from halfseen.service.errors import ServiceError, as_service_error, refusal
from halfseen.service.metrics import Metrics
from halfseen.service.schemas import EngineSettings

_LOG = logging.getLogger("halfseen.service")
_LONGEST_WAIT = 0.02  # seconds to wait for more operations
_IDLE_TURNS = 3  # turns of the event loop without new operations, after which none are waited for


class CommitQueue:
    """Operations in, results out, once they are on disk. `thread` is the only one that uses the store."""

    def __init__(self, store: StreamStore, thread: Executor, settings: EngineSettings, metrics: Metrics) -> None:
        self._store, self._thread, self._settings, self._metrics = store, thread, settings, metrics
        self._queue: deque[Operation] = deque()
        self._wake = asyncio.Event()
        self.rows_waiting = 0
        self.closing = False
        self.available = True  # whether the database answered last time
        self._away_since = 0.0
        self.stalled = False  # whether the thread does not come back: no database, no disk, or very much to fold
        self.refit_wanted = asyncio.Event()  # set when a stream needs a model, and once before, when the first will
        self._identification_announced = False

    def submit(self, operation: Operation) -> asyncio.Future[list[Any]]:
        """Queue an operation; the future has a reply or an error per row. Raises an error if the queue is full."""
        if self.closing:
            raise refusal("unavailable", "service: it is shutting down; try another worker, or again later")
        if self.stalled:
            raise self.stall_error()
        size, most = operation.size, self._settings.queue_rows
        if self.rows_waiting + size > most:
            self._metrics.busy.inc(size)
            if size > most:
                raise refusal("too_large", f"rows: expected at most {most}, got {size}")
            raise refusal("busy", f"service: {self.rows_waiting} rows are waiting; try again later")
        self.rows_waiting += size
        self._queue.append(operation)
        self._wake.set()
        return operation.future

    async def run(self) -> None:
        """Commit batch after batch, until cancelled."""
        loop, lasted = asyncio.get_running_loop(), 0.0
        while True:
            await self._wake.wait()
            await self._wait_for_more(lasted)
            batch = self._next_batch()
            if not batch:
                self._wake.clear()
                continue
            began = time.perf_counter()
            timeout = loop.call_later(self._settings.stall_seconds, self._stall, batch)
            try:
                results = await loop.run_in_executor(self._thread, self._store.commit_batch, batch)
                self.mark_available()
            except Exception as error:
                results = [self.convert_and_mark_away(error)] * len(batch)
            timeout.cancel()
            self.stalled = False
            ended = time.perf_counter()
            lasted = ended - began
            self._metrics.latencies["commit"].add(lasted)
            self._metrics.commits.inc()
            self._measure(batch, results, ended)
            if self._store.refit_due or (self._store.has_refitting_stream and not self._identification_announced):
                self._identification_announced = True
                self.refit_wanted.set()
            for operation, result in zip(batch, results, strict=True):
                self.rows_waiting -= operation.size
                _set_result(operation.future, result)

    def _stall(self, batch: list[Operation]) -> None:
        """Fail everything that waits for a thread that does not come back. What it has begun may still be done."""
        self.stalled = True
        self._mark_away(self.stall_error().message)
        self._metrics.stalls.inc()
        queued = list(self._queue)
        self._queue.clear()
        self.rows_waiting -= sum(operation.size for operation in queued)
        for operation in batch + queued:
            _set_result(operation.future, self.stall_error())

    def _mark_away(self, why: str) -> None:
        """The database cannot be used. This is logged once, and not for every request that fails."""
        if self.available:
            self.available, self._away_since = False, time.monotonic()
            _LOG.error("worker %d: %s; until it is back requests get 503", os.getpid(), why)

    def mark_available(self) -> None:
        if not self.available:
            self.available = True
            seconds = time.monotonic() - self._away_since
            _LOG.warning("worker %d: database: it is back, after %.1f seconds", os.getpid(), seconds)

    def stall_error(self) -> ServiceError:
        seconds = self._settings.stall_seconds
        return refusal("unavailable", f"database: no answer within {seconds:g} seconds; try again later")

    async def _wait_for_more(self, lasted: float) -> None:
        """Let operations that are about to come share the commit: wait while every turn of the loop brings more.

        The wait is never longer than the last commit, which took `lasted` seconds. A lone operation waits for a few
        turns, which is microseconds. Many concurrent clients are all answered together, so they ask again together and
        share the next commit too.
        """
        until, before, idle = time.perf_counter() + min(lasted, _LONGEST_WAIT), -1, 0
        while idle < _IDLE_TURNS and self.rows_waiting < self._settings.batch_rows and time.perf_counter() < until:
            idle = idle + 1 if self.rows_waiting == before else 0
            before = self.rows_waiting
            await asyncio.sleep(0)

    def _next_batch(self) -> list[Operation]:
        batch: list[Operation] = []
        rows = 0
        while self._queue and (not batch or rows + self._queue[0].size <= self._settings.batch_rows):
            batch.append(self._queue.popleft())
            rows += batch[-1].size
        return batch

    def _measure(self, batch: list[Operation], results: list[Any], ended: float) -> None:
        """Measure latencies, and count rows per batch, which is faster than per operation."""
        rows, refused = {"decide": 0, "reward": 0}, 0
        for operation, replies in zip(batch, results, strict=True):
            if operation.kind is not None and not isinstance(replies, BaseException):
                errors = sum(isinstance(reply, ServiceError) for reply in replies)
                rows[operation.kind] += len(replies) - errors
                refused += errors
                self._metrics.latencies[operation.kind].add(ended - operation.began)
        self._metrics.decides.inc(rows["decide"])
        self._metrics.rewards.inc(rows["reward"])
        self._metrics.refused.inc(refused)

    async def close(self) -> None:
        """Accept no more operations, and wait until those in the queue are done."""
        self.closing = True
        while self._queue or self.rows_waiting:
            self._wake.set()
            await asyncio.sleep(0.005)

    def convert_and_mark_away(self, error: Exception) -> ServiceError:
        """The error for callers when a batch, or work beside the batches, failed as a whole.

        If the database could not be used, it counts as unavailable from now on.
        """
        if isinstance(error, JournalAway):
            self._mark_away(str(error))
            return refusal("unavailable", str(error))
        return as_service_error(error, "internal" if isinstance(error, HalfseenError) else None)


def _set_result(future: asyncio.Future[list[Any]], result: list[Any] | BaseException) -> None:
    if future.done():  # the caller has gone, or the batch has stalled
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
