"""The engine serves many callers with one journal. A caller gets its reply when its events are on disk.

The commit queue passes all waiting operations to one thread. This thread locks their streams, applies the events that
other processes have added, runs the operations and commits. New operations wait in the queue for the next batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from halfseen.agents.agent import Agent
from halfseen.agents.loading import from_bytes
from halfseen.diagnostics.health import Health
from halfseen.errors import HalfseenError
from halfseen.journal import transfer
from halfseen.journal.events import Event, JournalUnavailable, StreamExists
from halfseen.journal.journal import Journal, StreamRow, Token, open_journal
from halfseen.service.engine.commit_queue import CommitQueue
from halfseen.service.engine.identification import IdentificationFailed, IdentificationProcess
from halfseen.service.engine.imported_stream import Importer
from halfseen.service.engine.loaded_stream import compress_snapshot, read_spec
from halfseen.service.engine.store import StreamStore, find_row
from halfseen.service.engine.transaction import Operation, StreamCreation, StreamTransaction, finite_or_none
from halfseen.service.errors import ServiceError, refusal
from halfseen.service.metrics import Metrics
from halfseen.service.schemas import (
    Arm,
    DecisionReply,
    DecisionRequest,
    EngineSettings,
    ForecastReply,
    GuardrailSettings,
    Limits,
    ObservationReply,
    ObservationRequest,
    PreviewReply,
    RewardReply,
    RewardRequest,
    StreamSpec,
    StreamView,
)

T = TypeVar("T")
_SWEEP_STREAMS = 200  # streams with overdue decisions that share one transaction
_TIDY_SECONDS = 0.25
_GAUGE_SECONDS = 0.25
_RESTART_SECONDS = 1.0  # before the identification process is started again; doubled with every failure
_FAILURES_TO_DEGRADE = 3  # failed identifications in a row after which the service says that it is degraded
_LOG = logging.getLogger("halfseen.service")


class Engine:
    """Makes decisions and records rewards of streams in one journal. Open it with `await Engine.open(url)`."""

    def __init__(self, store: StreamStore, reader: Journal, settings: EngineSettings, metrics: Metrics) -> None:
        self._store, self._reader, self._settings, self.metrics = store, reader, settings, metrics
        self._store_thread = ThreadPoolExecutor(1, "halfseen-store")
        self._reader_thread = ThreadPoolExecutor(1, "halfseen-reader")
        self._build_thread = ThreadPoolExecutor(1, "halfseen-build")  # one thread, to limit the memory of new agents
        self._queue = CommitQueue(store, self._store_thread, settings, metrics)
        self._identification = IdentificationProcess() if settings.identify else None
        self._identification_failures = 0  # since the last success
        self.degraded: str | None = None  # why models are not updated although decisions are made; otherwise None
        self._tasks = [asyncio.create_task(task) for task in (self._queue.run(), self._sweep(), self._tidy())]
        if self._identification is not None:
            self._tasks.append(asyncio.create_task(self._identify(self._identification)))

    @classmethod
    async def open(cls, url: str | Path, settings: EngineSettings | None = None) -> Engine:
        """Open the journal at `url`, which is the path of an SQLite file or a URL postgresql://…"""
        chosen = EngineSettings() if settings is None else settings

        def connect() -> tuple[Journal, Journal]:
            journal = open_journal(url, lock_seconds=chosen.lock_seconds)
            try:
                return journal, journal.new_connection()
            except BaseException:
                journal.close()
                raise

        journal, reader = await asyncio.to_thread(connect)
        metrics = Metrics()
        return cls(StreamStore(journal, chosen, metrics), reader, chosen, metrics)

    # ------------------------------------------------------------------ decisions and rewards

    async def decide(self, name: str, request: DecisionRequest) -> DecisionReply:
        """Make a decision."""
        replies: list[DecisionReply | ServiceError]
        replies = await self._queue.submit(Operation.decide(name, (request,), _future()))
        return _raise_error(replies[0])

    async def decide_all(self, name: str, requests: Sequence[DecisionRequest]) -> list[DecisionReply | ServiceError]:
        """Make several decisions of one stream, in order. Return a reply or an error for each."""
        return await self._queue.submit(Operation.decide(name, requests, _future())) if requests else []

    async def reward(self, name: str, request: RewardRequest) -> RewardReply:
        """Record the reward of a decision."""
        replies: list[RewardReply | ServiceError]
        replies = await self._queue.submit(Operation.reward(name, (request,), _future()))
        return _raise_error(replies[0])

    async def reward_all(self, name: str, requests: Sequence[RewardRequest]) -> list[RewardReply | ServiceError]:
        """Record several rewards of one stream, in order. Return a reply or an error for each."""
        return await self._queue.submit(Operation.reward(name, requests, _future())) if requests else []

    async def observe(self, name: str, request: ObservationRequest) -> ObservationReply:
        """Record an observation without a decision."""
        (result,) = await self._queue.submit(
            Operation.single(name, lambda transaction: transaction.observe(request), _future())
        )
        reply: ObservationReply = _raise_error(result)
        return reply

    async def preview(self, name: str, request: DecisionRequest) -> PreviewReply:
        """Return the decision that `decide` would make now."""
        (result,) = await self._queue.submit(
            Operation.single(name, lambda transaction: transaction.preview(request), _future())
        )
        reply: PreviewReply = _raise_error(result)
        return reply

    async def forecast(self, name: str, horizon: int) -> ForecastReply:
        """Return the forecast of a stream's agent."""
        view, agent = await self.stream(name), await self.agent(name)
        try:
            ahead = await asyncio.to_thread(agent.forecast, horizon)
        except HalfseenError as error:
            raise refusal("invalid", str(error)) from None
        tables = (
            *ahead.context_in_units(), ahead.expected, ahead.std, *ahead.interval(), ahead.best_arm_probability
        )  # fmt: skip
        lists = ([finite_or_none(row) for row in table.tolist()] for table in tables)
        return ForecastReply(list(ahead.arms), ahead.context_named(view.spec.features or ()), *lists)

    # ------------------------------------------------------------------ streams

    async def create_stream(self, spec: StreamSpec) -> StreamView:
        """Create a stream, or return it if it exists already. Raise 409 if it exists with another specification."""
        loop = asyncio.get_running_loop()
        creation = await loop.run_in_executor(self._build_thread, StreamCreation.prepare, spec, self._settings.limits)
        return await self._change(spec.name, creation.check, creates=creation)

    async def retire_stream(self, name: str) -> StreamView:
        """Retire a stream. It makes no more decisions, but rewards of earlier decisions are still accepted."""
        return await self._change(name, StreamTransaction.retire)

    async def add_arm(self, name: str, arm: Arm | None = None) -> StreamView:
        """Add an arm, with the next number if `arm` is None. If `arm` exists already, nothing changes."""
        return await self._change(name, partial(StreamTransaction.add_arm, arm=arm, limits=self._settings.limits))

    async def retire_arm(self, name: str, arm: Arm) -> StreamView:
        """Retire an arm, so that it is never chosen again."""
        return await self._change(name, partial(StreamTransaction.retire_arm, arm=arm))

    async def set_guardrails(self, name: str, settings: GuardrailSettings) -> GuardrailSettings:
        """Replace the guardrails of a stream. Setting the guardrails that are in force changes nothing."""
        await self._change(name, partial(StreamTransaction.set_guardrails, settings=settings))
        return settings

    async def guardrails(self, name: str) -> GuardrailSettings:
        """Return the guardrails that are in force."""
        return msgspec.convert((await self.agent(name)).guardrails, GuardrailSettings, from_attributes=True)

    async def _change(
        self, name: str, act: Callable[[StreamTransaction], None], creates: StreamCreation | None = None
    ) -> StreamView:
        (result,) = await self._queue.submit(Operation.single(name, act, _future(), creates=creates))
        _raise_error(result)
        return await self.stream(name)

    async def streams(self, after: str = "", limit: int = 100) -> list[StreamView]:
        """Return at most `limit` streams whose names follow `after`, sorted by name."""
        return [_view(row) for row in await self._read(lambda reader: reader.streams(after, limit))]

    async def streams_named(self, names: Sequence[str]) -> list[StreamView]:
        """Return the named streams. Names that do not exist are ignored."""
        rows = await self._read(lambda reader: [reader.stream(name) for name in names])
        return [_view(row) for row in rows if row is not None]

    async def stream(self, name: str) -> StreamView:
        return _view(await self._read(lambda reader: find_row(reader, name)))

    async def health(self, name: str) -> Health:
        """Return the health of a stream's agent."""
        view, agent = await self.stream(name), await self.agent(name)
        return await asyncio.to_thread(agent.health, sensors=view.spec.features)

    async def agent(self, name: str) -> Agent:
        """Return a copy of a stream's agent in its current state."""
        content = await self._on_store_thread(lambda: self._store.copy_agent(name))
        return await self._convert_errors(asyncio.to_thread(from_bytes, content, "copy"))

    async def events(self, name: str, after: int = 0, limit: int = 1000) -> list[Event]:
        """Return at most `limit` events of a stream that follow event number `after`, in order."""
        return await self._read(lambda reader: reader.events(find_row(reader, name).id, after, limit))

    async def snapshot(self, name: str) -> None:
        """Save the state of a stream, so that loading it does not have to replay earlier events."""
        stream_id, version, state = await self._on_store_thread(lambda: self._store.copy_state(name))
        snapshot = await asyncio.to_thread(compress_snapshot, state)
        await self._on_store_thread(lambda: self._store.save_snapshot(name, stream_id, version, snapshot))

    async def export_streams(self, path: Path, names: Sequence[str] = ()) -> int:
        """Write the named streams, or all streams, to a .ndjson or .parquet file. Return the number of streams."""
        return await self._on_own_connection(lambda journal: transfer.export(journal, path, names))

    async def import_streams(self, path: Path, limits: Limits | None = None) -> dict[str, int]:
        """Add either all streams of an exported file or none. Return the number of events per stream.

        During the import, decisions have to wait.
        """
        limits = limits or Limits()

        def add(journal: Journal) -> dict[str, int]:
            importer = Importer(limits, journal.count_streams())
            try:
                events = transfer.read_events(path, limits.import_bytes)
                imported = transfer.import_streams(journal, events, importer.open_stream)
                for name, count in importer.skipped_models.items():
                    self.metrics.models_skipped.inc(count)
                    _LOG.warning("Stream '%s': skipped %d models of another save version.", name, count)
                return imported
            except JournalUnavailable:
                raise
            except StreamExists as error:
                raise refusal("conflict", str(error)) from None
            except HalfseenError as error:
                raise refusal("invalid", str(error)) from None

        return await self._on_own_connection(add)

    async def tokens(self) -> list[Token]:
        return await self._read(lambda reader: reader.tokens())

    # ------------------------------------------------------------------ the engine itself

    def ready(self) -> bool:
        """Return whether the last use of the database succeeded and the engine is not closing."""
        return self._queue.available and not self._queue.closing

    def update_gauges(self) -> None:
        """Set the gauges of the metrics to their current values."""
        self.metrics.ready.set(self.ready())
        self.metrics.waiting_rows.set(self._queue.rows_waiting)
        self.metrics.resident_streams.set(len(self._store.loaded))
        self.metrics.resident_bytes.set(self._store.nbytes)

    async def update_gauges_forever(self) -> None:
        """Update the gauges regularly, because the other workers report the gauges of this worker too."""
        while True:
            self.update_gauges()
            await asyncio.sleep(_GAUGE_SECONDS)

    async def close(self) -> None:
        """Finish the waiting operations, save snapshots and close the database."""
        if self._queue.closing:
            return
        await self._queue.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._identification is not None:
            await asyncio.to_thread(self._identification.close)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(HalfseenError):
            await loop.run_in_executor(self._store_thread, self._store.save_all_snapshots)
        await loop.run_in_executor(self._store_thread, self._store.close)
        await loop.run_in_executor(self._reader_thread, self._reader.close)
        self._build_thread.shutdown()
        self._store_thread.shutdown()
        self._reader_thread.shutdown()

    # ------------------------------------------------------------------ background tasks

    async def _sweep(self) -> None:
        """Regularly expire overdue decisions, save snapshots, and ping a database that is unavailable."""
        more = False  # whether overdue decisions are left, because a transaction expires a limited number of them
        while True:
            await asyncio.sleep(0 if more else self._settings.sweep_seconds)
            more = False
            try:
                if not self._queue.available:
                    await self._on_store_thread(self._store.ping)
                    self._queue.mark_available()
                overdue = await self._on_store_thread(self._store.overdue)
                for start in range(0, len(overdue), _SWEEP_STREAMS):
                    # Every transaction expires overdue decisions, so an operation that changes nothing is enough.
                    sweeps = [
                        self._queue.submit(Operation.single(name, StreamTransaction.has_overdue, _future(), size=0))
                        for name in overdue[start : start + _SWEEP_STREAMS]
                    ]
                    for result in await asyncio.gather(*sweeps, return_exceptions=True):
                        if isinstance(result, Exception):  # an error of one stream does not affect other streams
                            self._report("sweep", result)
                        more = more or result == [True]
                for name in await self._on_store_thread(self._store.snapshots_due):
                    await self.snapshot(name)
            except Exception as error:
                self._report("sweep", error)

    async def _tidy(self) -> None:
        """Run a checkpoint of the database in the background after new commits."""
        seen = 0
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            if (commits := self.metrics.latencies["commit"].count) != seen:
                seen = commits
                try:
                    await self._read(Journal.checkpoint)
                except Exception as error:
                    self._report("tidy", error)

    async def _identify(self, process: IdentificationProcess) -> None:
        """Identify models for the streams that need one, one after another."""
        while True:
            await self._queue.refit_wanted.wait()
            self._queue.refit_wanted.clear()
            try:
                await asyncio.to_thread(process.start)
                while (task := await self._on_store_thread(self._store.claim_identification)) is not None:
                    try:
                        model = await asyncio.to_thread(process.identify, task.agent, self._settings.identify_seconds)
                    except IdentificationFailed as failure:
                        self._note_failed_identification(task.name, failure)
                        if failure.process_ended:  # after other failures, the next attempt waits for the claim to end
                            await asyncio.sleep(_RESTART_SECONDS * 2 ** min(self._identification_failures - 1, 5))
                            await self._on_store_thread(partial(self._store.release_claim, task.name))
                        continue
                    self._note_identification()
                    accept = partial(StreamTransaction.accept_model, model=model, seen=task.seen, after=task.after)
                    (accepted,) = await self._queue.submit(Operation.single(task.name, accept, _future(), size=0))
                    self.metrics.models_accepted.inc(accepted is True)
            except Exception as error:
                self._report("identification", error)

    def _note_failed_identification(self, name: str, failure: IdentificationFailed) -> None:
        self.metrics.identifications_failed.inc()
        self._identification_failures += 1
        _LOG.warning("Stream '%s': No model was identified. %s", name, failure)
        if self._identification_failures >= _FAILURES_TO_DEGRADE:
            times = self._identification_failures
            if self.degraded is None:
                _LOG.error("Worker %d: %d identifications in a row failed. Models are not updated.", os.getpid(), times)
            self.degraded = f"The last {times} identifications of a model failed, so models are not updated. {failure}"

    def _note_identification(self) -> None:
        if self.degraded is not None:
            _LOG.warning("Worker %d: Models are identified again.", os.getpid())
        self._identification_failures, self.degraded = 0, None

    def _report(self, task: str, error: Exception) -> None:
        """Count an error of a background task, and log it if it is unexpected. The task will try again."""
        self.metrics.task_errors[task].inc()
        if not isinstance(error, ServiceError) or error.code == "internal":
            _LOG.error("Error in the task '%s': %s: %s", task, type(error).__name__, error)

    # ------------------------------------------------------------------ threads

    async def _on_store_thread(self, act: Callable[[], T]) -> T:
        if self._queue.stalled:
            raise self._queue.stall_error()
        return await self._convert_errors(asyncio.get_running_loop().run_in_executor(self._store_thread, act))

    async def _read(self, act: Callable[[Journal], T]) -> T:
        loop = asyncio.get_running_loop()
        return await self._convert_errors(loop.run_in_executor(self._reader_thread, act, self._reader))

    async def _on_own_connection(self, act: Callable[[Journal], T]) -> T:
        """Run a long task on a separate connection to the database."""

        def run() -> T:
            with contextlib.closing(self._reader.new_connection()) as journal:
                return act(journal)

        return await self._convert_errors(asyncio.to_thread(run))

    async def _convert_errors(self, result: Awaitable[T]) -> T:
        try:
            return await result
        except HalfseenError as error:
            raise self._queue.convert_and_mark_unavailable(error) from None


def _future() -> asyncio.Future[list[Any]]:
    return asyncio.get_running_loop().create_future()


def _raise_error(result: T | ServiceError) -> T:
    if isinstance(result, ServiceError):
        raise result
    return result


def _view(row: StreamRow) -> StreamView:
    copied = ("name", "version", "decisions", "rewards", "created", "updated", "retired")
    return StreamView(
        spec=read_spec(row),
        arms=[arm for arm, _ in row.arms],
        active=[arm for arm, active in row.arms if active],
        **{field: getattr(row, field) for field in copied},
    )
