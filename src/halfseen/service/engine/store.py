"""The streams in memory and their journal. Only one thread uses them."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from halfseen.errors import HalfseenError
from halfseen.journal.events import JournalError, JournalUnavailable
from halfseen.journal.journal import Journal, StreamRow
from halfseen.service.engine.loaded_stream import LoadedStream, compress_snapshot, read_spec
from halfseen.service.engine.transaction import Operation, StreamTransaction, UnrecordedDecision
from halfseen.service.errors import ServiceError, as_service_error, refusal
from halfseen.service.metrics import Metrics
from halfseen.service.schemas import EngineSettings

T = TypeVar("T")
_LOG = logging.getLogger("halfseen.service")
_CLAIM = 60_000_000  # microseconds for which a claim lets only one process identify the model of a stream
_CLAIM_CHECK = 5_000_000  # microseconds between two checks whether the claim of another process has ended
_MAX_OVERDUE = 2_000  # the most streams that one sweep handles
_MAX_EXPIRED = 2_000  # the most decisions that one transaction expires, so that other requests do not wait too long
_MIN_SNAPSHOT_EVENTS = 50  # fewest new events for a snapshot; replaying fewer takes no longer than loading a snapshot


class IdentificationTask(NamedTuple):
    """A copy of an agent whose model is to be identified."""

    name: str
    agent: bytes
    seen: int  # version of the stream
    after: int  # number of the event in which the stream accepted its last model


class StreamStore:
    """The streams in memory. `loaded` maps names to streams, the least recently used stream first."""

    def __init__(self, journal: Journal, settings: EngineSettings, metrics: Metrics) -> None:
        self._journal, self._settings, self._metrics = journal, settings, metrics
        self.loaded: OrderedDict[str, LoadedStream] = OrderedDict()
        self.nbytes = 0
        self._sizes: dict[str, int] = {}
        self.refit_due: OrderedDict[str, None] = OrderedDict()  # names of streams whose agents need a model
        self.has_refitting_stream = False  # whether an agent that refits its model has been loaded
        # Per stream whose model another process is identifying: when to check again whether the claim has ended.
        self._claimed_until: dict[str, int] = {}
        self._expirations_left = 0  # how many decisions the current transaction may still expire
        self._reported: set[str] = set()  # streams whose failed snapshots have been logged

    # ------------------------------------------------------------------ transactions

    def commit_batch(self, batch: Sequence[Operation]) -> list[Any]:
        """Run operations in one transaction and return their results after the commit.

        If the transaction fails, nothing is changed, and the streams are loaded again when they are next used.
        """
        now = _now()
        self._expirations_left = _MAX_EXPIRED
        by_name: dict[str, list[int]] = {}
        for index, operation in enumerate(batch):
            by_name.setdefault(operation.name, []).append(index)
        results: list[Any] = [None] * len(batch)
        transactions: dict[str, StreamTransaction] = {}
        try:
            with self._journal.transaction():
                created = self._create(batch, now)
                rows = self._journal.lock_streams(name for name in by_name if name.isprintable())
                for name, indices in by_name.items():
                    operations = [batch[index] for index in indices]
                    try:
                        replies = self._run(name, rows.get(name), created.get(name), operations, transactions, now)
                    except JournalUnavailable:
                        raise
                    except Exception as error:  # an error of this stream does not affect the other streams
                        self._unload(name)
                        transactions.pop(name, None)
                        if name in created:
                            raise
                        replies = [as_service_error(error)] * len(operations)
                    for index, reply in zip(indices, replies, strict=True):
                        results[index] = reply
                changed = [transaction for transaction in transactions.values() if transaction.changed]
                entries = [(one.row.id, event) for one in changed for event in one.new_events]
                self._journal.append([one.row for one in changed], entries)
        except BaseException:
            for name in by_name:
                self._unload(name)
            raise
        self._metrics.events.inc(len(entries))
        for name, transaction in transactions.items():
            self._mark_used(name, transaction.stream)
        self._evict()
        return results

    def _create(self, batch: Sequence[Operation], now: int) -> dict[str, LoadedStream]:
        """Add the requested streams that do not exist yet, and return their initial states."""
        creations = {operation.name: operation.creates for operation in batch if operation.creates is not None}
        created: dict[str, LoadedStream] = {}
        allowed = self._settings.limits.streams - self._journal.count_streams() if creations else 0
        for name, creation in sorted(creations.items()):
            if len(created) < allowed:
                spec = msgspec.json.encode(creation.spec).decode()
                if self._journal.create_stream(StreamRow(0, name, spec, creation.stream.arms, 0, 0, 0, now, now)):
                    created[name] = creation.stream
        return created

    def _run(
        self,
        name: str,
        row: StreamRow | None,
        created: LoadedStream | None,
        operations: Sequence[Operation],
        transactions: dict[str, StreamTransaction],
        now: int,
    ) -> list[Any]:
        """Run the operations on one locked stream and return their results."""
        if row is None:
            maximum = self._settings.limits.streams
            full = refusal("too_large", f"streams: expected at most {maximum}, got {maximum + 1}")
            missing = _stream_not_found(name)
            return [[full if operation.creates else missing] * max(1, operation.size) for operation in operations]
        stream = created or self._up_to_date(row)
        transaction = transactions[name] = StreamTransaction(row, stream, self._journal, now, self._expirations_left)
        self._expirations_left -= transaction.expired
        if created is not None:
            transaction.create()
        keys = [key for operation in operations for key in operation.keys]
        transaction.find_decisions(keys, [one for operation in operations for one in operation.decision_ids])
        results = [operation.run(transaction) for operation in operations]
        transaction.finish()
        return [[one.reply if type(one) is UnrecordedDecision else one for one in rows] for rows in results]

    def in_transaction(self, act: Callable[[Journal], T]) -> T:
        """Run `act`, which changes something other than events, in a transaction of the journal."""
        with self._journal.transaction():
            return act(self._journal)

    # ------------------------------------------------------------------ streams in memory

    def _up_to_date(self, row: StreamRow) -> LoadedStream:
        """Return the stream in its latest state, loading it first if necessary."""
        stream = self.loaded.get(row.name) or self._load(row)
        if stream.version != row.version:
            if stream.version > row.version:  # the database was restored from a backup
                stream = self._load(row)
            skipped = stream.skipped_models
            stream.fold(self._journal.all_events(row.id, stream.version))
            if stream.skipped_models > skipped:
                self._metrics.models_skipped.inc(stream.skipped_models - skipped)
                _LOG.warning("Stream '%s': skipped %d models of another save version.", row.name, stream.skipped_models)
            if stream.version < row.version:
                raise JournalError(
                    f"journal: expected {row.version} events of stream '{row.name}', got {stream.version}"
                )
        return stream

    def _load(self, row: StreamRow) -> LoadedStream:
        self._metrics.loads.inc()
        spec, snapshot = read_spec(row), self._journal.snapshot(row.id)
        if snapshot is not None:
            try:
                stream = LoadedStream.from_snapshot(spec, snapshot[1])
                if stream.version == snapshot[0] <= row.version:
                    return stream
            except HalfseenError:
                pass  # the snapshot is damaged or from another version of this package, but the journal is complete
        self._metrics.loads_without_snapshot.inc()
        return LoadedStream(spec)

    def _find(self, name: str) -> tuple[StreamRow, LoadedStream]:
        """Return a stream in its latest state. The caller must not change the stream."""
        row = find_row(self._journal, name)
        try:
            stream = self._up_to_date(row)
        except BaseException:  # only some of the events may have been applied
            self._unload(name)
            raise
        self._mark_used(name, stream)
        return row, stream

    def _mark_used(self, name: str, stream: LoadedStream) -> None:
        self.loaded[name] = stream
        self.loaded.move_to_end(name)
        self.nbytes += stream.nbytes - self._sizes.get(name, 0)
        self._sizes[name] = stream.nbytes
        self.has_refitting_stream = self.has_refitting_stream or stream.agent.policy.can_refit
        if stream.agent.refit_due and not stream.retired:
            now = _now()
            if not now < self._claimed_until.get(name, 0) <= now + _CLAIM_CHECK:
                self.refit_due.setdefault(name)

    def _unload(self, name: str) -> None:
        if self.loaded.pop(name, None) is not None:
            self.nbytes -= self._sizes.pop(name)

    def _evict(self) -> None:
        """Unload the least recently used streams until the remaining streams fit into memory.

        This never raises an error, because the requests that wait for a reply have been committed.
        """
        while self.nbytes > self._settings.max_loaded_bytes and len(self.loaded) > 1:
            name, stream = next(iter(self.loaded.items()))
            if stream.version - stream.snapshot_version >= _MIN_SNAPSHOT_EVENTS and not self._try_snapshot(name):
                return
            self._unload(name)
            self._metrics.evictions.inc()

    def copy_agent(self, name: str) -> bytes:
        """Return a copy of the agent as bytes, which another thread can load."""
        agent = self._find(name)[1].agent.packed(small=False)
        self._evict()
        return agent

    # ------------------------------------------------------------------ snapshots

    def copy_state(self, name: str) -> tuple[int, int, bytes]:
        """Return the id and version of a stream, and its state as bytes, which another thread can compress."""
        row, stream = self._find(name)
        state = stream.to_bytes()
        self._evict()
        return row.id, stream.version, state

    def save_snapshot(self, name: str, stream_id: int, version: int, snapshot: bytes) -> None:
        self.in_transaction(lambda journal: journal.save_snapshot(stream_id, version, snapshot))
        if name in self.loaded:
            self.loaded[name].snapshot_version = version
        self._metrics.snapshots.inc()

    def snapshots_due(self) -> list[str]:
        """Return the streams that need a snapshot.

        A snapshot contains all open decisions, so a stream with many open decisions gets snapshots less often.
        """
        every = self._settings.snapshot_every
        return [
            name
            for name, stream in self.loaded.items()
            if stream.version - stream.snapshot_version >= max(every, stream.unrewarded // 2)
        ]

    def save_all_snapshots(self) -> None:
        """Save a snapshot of every stream that has enough events since its last snapshot."""
        for name, stream in list(self.loaded.items()):
            if stream.version - stream.snapshot_version >= _MIN_SNAPSHOT_EVENTS and not self._try_snapshot(name):
                return

    def _try_snapshot(self, name: str) -> bool:
        """Save a snapshot, or log the error. Return False if the database is unavailable."""
        try:
            row, stream = self._find(name)
            self.save_snapshot(name, row.id, stream.version, compress_snapshot(stream.to_bytes()))
        except JournalUnavailable:
            return False
        except Exception as error:
            self._metrics.snapshot_errors.inc()
            if name not in self._reported:
                self._reported.add(name)
                _LOG.error("Cannot save a snapshot of stream '%s': %s: %s", name, type(error).__name__, error)
        return True

    # ------------------------------------------------------------------ background work

    def overdue(self) -> list[str]:
        """Return streams, loaded or not, that have decisions whose reward wait has ended, the most overdue first."""
        return self._journal.overdue_streams(_now(), _MAX_OVERDUE)

    def claim_identification(self) -> IdentificationTask | None:
        """Claim the stream that has waited longest for a model and that no other process has claimed."""
        while self.refit_due:
            name = self.refit_due.popitem(last=False)[0]
            row, stream = self._find(name)
            now, task = _now(), None
            if now < row.identifying <= now + _CLAIM:  # a later `identifying` was written while the clock was ahead
                self._claimed_until[name] = min(row.identifying, now + _CLAIM_CHECK)
            elif stream.agent.refit_due and not stream.retired:
                self._claimed_until.pop(name, None)
                claim = partial(Journal.claim_identification, stream_id=row.id, now=now, until=now + _CLAIM)
                if self.in_transaction(claim):
                    task = IdentificationTask(name, stream.agent.packed(small=False), stream.version, stream.model_seq)
            self._evict()
            if task is not None:
                return task
        return None

    def release_claim(self, name: str) -> None:
        """Undo `claim_identification`, so that the stream can be claimed again."""
        row, _ = self._find(name)
        self.in_transaction(partial(Journal.claim_identification, stream_id=row.id, now=_now() + _CLAIM, until=0))
        self.refit_due.setdefault(name)
        self._evict()

    def ping(self) -> None:
        self._journal.ping()

    def close(self) -> None:
        self._journal.close()


def find_row(journal: Journal, name: str) -> StreamRow:
    row = journal.stream(name) if name.isprintable() else None
    if row is None:
        raise _stream_not_found(name)
    return row


def _stream_not_found(name: str) -> ServiceError:
    return refusal("not_found", f"There is no stream '{name[:100]}'.")


def _now() -> int:
    return time.time_ns() // 1000
