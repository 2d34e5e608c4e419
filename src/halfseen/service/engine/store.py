"""The streams in memory and the journal they are folded from. One thread owns both."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from halfseen.errors import HalfseenError
from halfseen.journal.events import JournalAway, JournalError
from halfseen.journal.journal import Journal, StreamRow
from halfseen.service.engine.loaded_stream import Resident, snapshot
from halfseen.service.engine.transaction import Desk, Made
from halfseen.service.engine.work import Work
from halfseen.service.errors import ServiceError, refusal
from halfseen.service.specs import Settings, StreamSpec, StreamView

T = TypeVar("T")
_LOG = logging.getLogger("halfseen.service")
_CLAIM = 60_000_000  # microseconds that a process has to find a model before another may try
_PATIENCE = 5_000_000  # before it looks again whether another process has found one
_MOST_OVERDUE = 2_000  # streams that one look finds
_MOST_EXPIRED = 2_000  # waits that are ended in one transaction, for which others wait
_WORTH_KEEPING = 50  # events since the last snapshot, below which folding them is as quick as writing one


class Job(NamedTuple):
    """A copy of an agent whose model is to be found."""

    name: str
    agent: bytes
    seen: int  # events it has lived through
    after: int  # the last model it has


class Store:
    """Agents by the names of their streams, the least recently used first."""

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self._journal, self._settings = journal, settings
        self.residents: OrderedDict[str, Resident] = OrderedDict()
        self.nbytes = 0
        self._sizes: dict[str, int] = {}
        self.due: OrderedDict[str, None] = OrderedDict()  # streams that want a model
        self.identifies = False  # whether there has been a stream that will
        self._patience: dict[str, int] = {}  # until when another process is left to find one
        self._may_expire = 0  # reward waits, in the transaction that is going on
        self.counts: Counter[str] = Counter()
        self._reported: set[str] = set()  # streams whose snapshots fail, once each

    # ------------------------------------------------------------------ a batch

    def step(self, batch: Sequence[Work]) -> list[Any]:
        """Do all of it in one transaction; results a work, after the commit. If that fails, nothing has happened."""
        now = _now()
        self._may_expire = _MOST_EXPIRED
        by_name: dict[str, list[int]] = {}
        for place, work in enumerate(batch):
            by_name.setdefault(work.name, []).append(place)
        results: list[Any] = [None] * len(batch)
        desks: dict[str, Desk] = {}
        try:
            with self._journal.transaction():
                fresh = self._create(batch, now)
                rows = self._journal.lock(name for name in by_name if name.isprintable())
                for name, places in by_name.items():
                    works = [batch[place] for place in places]
                    try:
                        answers = self._serve(name, rows.get(name), fresh.get(name), works, desks, now)
                    except JournalAway:
                        raise
                    except Exception as error:  # this stream only: the others of the batch have done nothing wrong
                        self._forget(name)
                        desks.pop(name, None)
                        if name in fresh:
                            raise
                        answers = [_failure(error)] * len(works)
                    for place, answer in zip(places, answers, strict=True):
                        results[place] = answer
                changed = [desk for desk in desks.values() if desk.new or desk.row.due != desk.resident.due]
                entries = [(desk.row.id, event) for desk in changed for event in desk.new]
                self._journal.append([desk.settled() for desk in changed], entries)
        except BaseException:
            for name in by_name:
                self._forget(name)
            raise
        self.counts["events"] += len(entries)
        for name, desk in desks.items():
            self._use(name, desk.resident)
        self._make_room()
        return results

    def _create(self, batch: Sequence[Work], now: int) -> dict[str, Resident]:
        """Add the streams that are to be made and are not there; their states, before their first event."""
        wanted = {work.name: work.creates for work in batch if work.creates is not None}
        made: dict[str, Resident] = {}
        room = self._settings.max_streams - self._journal.count() if wanted else 0
        for name in sorted(wanted):
            create = wanted[name]
            if create is None or len(made) >= room:
                continue
            spec = msgspec.json.encode(create.spec).decode()
            row = StreamRow(0, name, spec, create.resident.arms, 0, 0, 0, now, now)
            if self._journal.create(row):
                made[name] = create.resident
        return made

    def _serve(
        self,
        name: str,
        row: StreamRow | None,
        fresh: Resident | None,
        works: Sequence[Work],
        desks: dict[str, Desk],
        now: int,
    ) -> list[Any]:
        """The answers of one stream, which is locked."""
        if row is None:
            missing = refusal("not_found", f"stream: got '{name[:100]}'; there is no such stream")
            full = refusal("too_large", f"streams: there are {self._settings.max_streams} already, as many as may be")
            return [[full if work.creates else missing] * max(1, work.size) for work in works]
        resident = fresh or self._caught_up(row)
        desk = desks[name] = Desk(row, resident, self._journal, now, self._may_expire)
        self._may_expire -= desk.expired
        if fresh is not None:
            desk.begin()
        desk.look_up(
            [key for work in works for key in work.keys], [one for work in works for one in work.decisions]
        )  # fmt: skip
        answers = [work.act(desk) for work in works]
        desk.settle()
        return [[one.answer if type(one) is Made else one for one in rows] for rows in answers]

    # ------------------------------------------------------------------ residents

    def _caught_up(self, row: StreamRow) -> Resident:
        """The stream as it is now: what is in memory, or a snapshot, and the events since."""
        resident = self.residents.get(row.name) or self._loaded(row)
        if resident.version != row.version:
            if resident.version > row.version:  # a database that was put back to an earlier day
                resident = self._loaded(row)
            resident.fold(self._journal.all_events(row.id, resident.version))
            if resident.version < row.version:
                raise JournalError(f"journal: stream '{row.name}' has {resident.version} events; want {row.version}")
        return resident

    def _loaded(self, row: StreamRow) -> Resident:
        self.counts["loads"] += 1
        spec = msgspec.json.decode(row.spec, type=StreamSpec)
        kept = self._journal.snapshot(row.id)
        if kept is not None:
            try:
                resident = Resident.unpacked(spec, kept[1])
                if resident.version == kept[0] <= row.version:
                    return resident
            except HalfseenError:
                pass  # of another version of this package: the journal has it all
        self.counts["loads_without_snapshot"] += 1
        return Resident(spec)

    def _use(self, name: str, resident: Resident) -> None:
        self.residents[name] = resident
        self.residents.move_to_end(name)
        self.nbytes += resident.nbytes - self._sizes.get(name, 0)
        self._sizes[name] = resident.nbytes
        self.identifies = self.identifies or resident.agent.policy.can_refit
        if resident.agent.refit_due and not resident.retired and self._patience.get(name, 0) <= _now():
            self.due.setdefault(name)

    def _forget(self, name: str) -> None:
        if self.residents.pop(name, None) is not None:
            self.nbytes -= self._sizes.pop(name)

    def _make_room(self) -> None:
        """Let go of agents that were not used for longest; what they are is in the journal.

        It never raises: whoever is waiting for an answer has asked for another stream, and what he did is committed.
        """
        while self.nbytes > self._settings.resident_bytes and len(self.residents) > 1:
            name, resident = next(iter(self.residents.items()))
            if resident.version - resident.kept >= _WORTH_KEEPING and not self._kept(name):
                return
            self._forget(name)
            self.counts["evictions"] += 1

    def _kept(self, name: str) -> bool:
        """Keep a snapshot of a stream, if one can be made; False if the database is away, and trying later helps."""
        try:
            stream_id, version, packed = self._packed(name)
            self.keep(name, stream_id, version, snapshot(packed))
        except JournalAway:
            return False
        except Exception as error:
            self.counts["snapshot_errors"] += 1
            if name not in self._reported:
                self._reported.add(name)
                _LOG.error("stream '%s' cannot be kept: %s: %s", name, type(error).__name__, error)
        return True

    def _packed(self, name: str) -> tuple[int, int, bytes]:
        row, resident = self._present(name)
        return row.id, resident.version, resident.packed()

    def _present(self, name: str) -> tuple[StreamRow, Resident]:
        """A stream as it is now, without changing it."""
        row = self._journal.stream(name) if name.isprintable() else None
        if row is None:
            raise refusal("not_found", f"stream: got '{name[:100]}'; there is no such stream")
        try:
            resident = self._caught_up(row)
        except BaseException:  # it may have folded half of it
            self._forget(name)
            raise
        self._use(name, resident)
        return row, resident

    def copy(self, name: str) -> bytes:
        """The agent of a stream as it is now, packed, to be used elsewhere: to unpack it keeps nobody waiting."""
        _, resident = self._present(name)
        packed = resident.agent.packed(small=False)
        self._make_room()
        return packed

    # ------------------------------------------------------------------ now and then

    def packed(self, name: str) -> tuple[int, int, bytes]:
        """For a snapshot of a stream as it is now: its number, version and content."""
        packed = self._packed(name)
        self._make_room()
        return packed

    def keep(self, name: str, stream_id: int, version: int, state: bytes) -> None:
        """Write a snapshot."""
        with self._journal.transaction():
            self._journal.keep_snapshot(stream_id, version, state)
        if name in self.residents:
            self.residents[name].kept = version
        self.counts["snapshots"] += 1

    def to_keep(self) -> list[str]:
        """The streams whose snapshots are due: the rarer, the more decisions wait, as all of them are in each."""
        every = self._settings.snapshot_every
        return [
            name
            for name, resident in self.residents.items()
            if resident.version - resident.kept >= max(every, resident.held // 2)
        ]

    def keep_all(self) -> None:
        """Write the snapshots that save a fold."""
        for name in [name for name, one in self.residents.items() if one.version - one.kept >= _WORTH_KEEPING]:
            if not self._kept(name):
                return

    def overdue(self) -> list[str]:
        """The streams with a decision whose reward wait is over, in memory or not."""
        return self._journal.due(_now(), _MOST_OVERDUE)

    def claim_next(self) -> Job | None:
        """A copy of the agent that has waited longest for a model, if no other process is looking for it."""
        while self.due:
            name = self.due.popitem(last=False)[0]
            row, resident = self._present(name)
            now = _now()
            if row.identifying > now:
                self._patience[name] = min(row.identifying, now + _PATIENCE)
            elif resident.agent.refit_due and not resident.retired:
                self._patience.pop(name, None)
                if self.changed(partial(Journal.claim, stream_id=row.id, now=now, until=now + _CLAIM)):
                    job = Job(name, resident.agent.packed(small=False), resident.version, resident.model_seq)
                    self._make_room()
                    return job
            self._make_room()
        return None

    def release(self, name: str) -> None:
        """Give up a claim of `claim_next` and let the stream wait for a model again."""
        row, _ = self._present(name)
        self.changed(partial(Journal.claim, stream_id=row.id, now=_now() + _CLAIM, until=0))
        self.due.setdefault(name)
        self._make_room()

    def ping(self) -> None:
        self._journal.ping()

    def changed(self, act: Callable[[Journal], T]) -> T:
        """Change something of the journal that is no event."""
        with self._journal.transaction():
            return act(self._journal)

    def close(self) -> None:
        self._journal.close()


def _now() -> int:
    return time.time_ns() // 1000


def view_of(row: StreamRow) -> StreamView:
    """A row of the journal for callers."""
    return StreamView(
        name=row.name,
        spec=msgspec.json.decode(row.spec, type=StreamSpec),
        arms=[arm for arm, _ in row.arms],
        active=[arm for arm, active in row.arms if active],
        version=row.version,
        decisions=row.decisions,
        rewards=row.rewards,
        created=row.created,
        updated=row.updated,
        retired=row.retired,
    )


def _failure(error: Exception) -> ServiceError:
    if isinstance(error, ServiceError):
        return error
    return refusal("internal", f"service: {type(error).__name__}: {error}")
