"""Group commit. All waiting operations are run as one batch, with one commit."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from concurrent.futures import Executor
from typing import Any

from halfseen.errors import HalfseenError
from halfseen.journal.events import JournalUnavailable
from halfseen.service.engine.store import StreamStore
from halfseen.service.engine.transaction import Operation
from halfseen.service.errors import ServiceError, as_service_error, refusal, shutting_down
from halfseen.service.metrics import Metrics
from halfseen.service.schemas import EngineSettings

_LOG = logging.getLogger("halfseen.service")
_LONGEST_WAIT = 0.02  # the longest wait for more operations, in seconds
_IDLE_TURNS = 3  # iterations of the event loop without new operations, after which the wait ends


class CommitQueue:
    """A queue of operations. The future of each operation gets its results once its events are on disk.

    All operations are run in `thread`, which is the only thread that uses the store.
    """

    def __init__(self, store: StreamStore, thread: Executor, settings: EngineSettings, metrics: Metrics) -> None:
        self._store, self._thread, self._settings, self._metrics = store, thread, settings, metrics
        self._queue: deque[Operation] = deque()
        self._wake = asyncio.Event()
        self.rows_waiting = 0
        self.closing = False
        self.available = True  # whether the database answered last time
        self._unavailable_since = 0.0
        self.stalled = False  # whether the current batch takes too long, for example because the disk is slow
        # Set when a stream needs a model. It is also set once before, when the first agent that refits its model is
        # loaded, so that the identification process is started in advance.
        self.refit_wanted = asyncio.Event()
        self._identification_announced = False

    def submit(self, operation: Operation) -> asyncio.Future[list[Any]]:
        """Queue an operation. Its future gets a reply or an error per row. Raise an error if the queue is full."""
        if self.closing:
            raise shutting_down()
        if self.stalled:
            raise self.stall_error()
        size, most = operation.size, self._settings.queue_rows
        if self.rows_waiting + size > most:
            self._metrics.busy.inc(size)
            if size > most:
                raise refusal("too_large", f"rows: expected at most {most}, got {size}")
            raise refusal("busy", f"The service is busy: {self.rows_waiting} rows are waiting. Try again later.")
        self.rows_waiting += size
        self._queue.append(operation)
        self._wake.set()
        return operation.future

    async def run(self) -> None:
        """Commit one batch after another until cancelled."""
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
                results = [self.convert_and_mark_unavailable(error)] * len(batch)
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
        """Fail all waiting operations because a batch takes too long. The batch itself may still be committed."""
        self.stalled = True
        self._mark_unavailable(self.stall_error().message)
        self._metrics.stalls.inc()
        queued = list(self._queue)
        self._queue.clear()
        self.rows_waiting -= sum(operation.size for operation in queued)
        for operation in batch + queued:
            _set_result(operation.future, self.stall_error())

    def _mark_unavailable(self, why: str) -> None:
        """Note that the database is unavailable. This is logged once, and not for every request that fails."""
        if self.available:
            self.available, self._unavailable_since = False, time.monotonic()
            _LOG.error("Worker %d: The database is unavailable, so requests get 503. %s", os.getpid(), why)

    def mark_available(self) -> None:
        if not self.available:
            self.available = True
            seconds = time.monotonic() - self._unavailable_since
            _LOG.warning("Worker %d: The database is available again, after %.1f seconds.", os.getpid(), seconds)

    def stall_error(self) -> ServiceError:
        seconds = self._settings.stall_seconds
        return refusal("unavailable", f"The database did not answer within {seconds:g} seconds. Try again later.")

    async def _wait_for_more(self, lasted: float) -> None:
        """Wait as long as more operations keep arriving, so that they share one commit.

        The wait is never longer than the last commit, which took `lasted` seconds. A single operation waits for a few
        iterations of the event loop, which take microseconds. Concurrent clients get their replies at the same time, so
        their next requests arrive together and share the next commit too.
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
        """Record latencies and count rows. Counting once per batch is faster than once per operation."""
        metrics, rows = self._metrics, {"decide": 0, "reward": 0, "refused": 0}
        for operation, replies in zip(batch, results, strict=True):
            if operation.kind is not None and not isinstance(replies, BaseException):
                metrics.latencies[operation.kind].add(ended - operation.began)
                for reply in replies:
                    rows["refused" if isinstance(reply, ServiceError) else operation.kind] += 1
        metrics.decides.inc(rows["decide"])
        metrics.rewards.inc(rows["reward"])
        metrics.refused.inc(rows["refused"])

    async def close(self) -> None:
        """Accept no more operations, and wait until the queued operations are done."""
        self.closing = True
        while self._queue or self.rows_waiting:
            self._wake.set()
            await asyncio.sleep(0.005)

    def convert_and_mark_unavailable(self, error: Exception) -> ServiceError:
        """Convert an error of a whole batch, or of other work on the database, to an error for callers.

        If the error says that the database is unavailable, mark the database as unavailable.
        """
        if isinstance(error, JournalUnavailable):
            self._mark_unavailable(str(error))
            return refusal("unavailable", str(error))
        return as_service_error(error, "internal" if isinstance(error, HalfseenError) else None)


def _set_result(future: asyncio.Future[list[Any]], result: list[Any] | BaseException) -> None:
    if future.done():  # the caller has disconnected, or the batch took too long
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
