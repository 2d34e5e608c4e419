"""The engine: many callers, one journal. An answer is given when its event is on disk, and commits are shared.

One task (drain.py) takes all that waits and hands it to one thread (store.py), which locks the streams concerned, folds
what other processes have added, steps the batch and commits. While it does, the next batch gathers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from halfseen.agents.agent import Agent
from halfseen.agents.catalogue import unpacked
from halfseen.diagnostics.health import Health
from halfseen.errors import HalfseenError
from halfseen.journal import transfer
from halfseen.journal.events import Event, JournalAway, StreamExists
from halfseen.journal.journal import Journal, StreamRow, Token, open_journal
from halfseen.service.engine.commit_queue import Drain
from halfseen.service.engine.identification import Identification
from halfseen.service.engine.loaded_stream import bring_up, snapshot
from halfseen.service.engine.store import Store, view_of
from halfseen.service.engine.transaction import Desk
from halfseen.service.engine.work import Create, Work
from halfseen.service.errors import ServiceError, refusal
from halfseen.service.specs import Arm, Ask, Decided, Rewarded, Settings, StreamSpec, StreamView, Told

T = TypeVar("T")
_TOGETHER = 200  # streams that are looked through in one transaction
_TIDY_SECONDS = 0.25
_BEFORE_ANOTHER = 1.0  # seconds from the death of the process that identifies to the start of another
_LOG = logging.getLogger("halfseen.service")


class Engine:
    """Streams of decisions on one journal. Open one with `await Engine.open(url)`, and close it."""

    def __init__(self, store: Store, reader: Journal, settings: Settings) -> None:
        self._store, self._reader, self._settings = store, reader, settings
        self._desk_thread = ThreadPoolExecutor(1, "halfseen-desk")
        self._reader_thread = ThreadPoolExecutor(1, "halfseen-reader")
        self._drain = Drain(store, self._desk_thread, settings)
        self._counts: Counter[str] = Counter()
        self._identification = Identification() if settings.identify else None
        self._tasks = [asyncio.create_task(task) for task in (self._drain.run(), self._sweep(), self._tidy())]
        if self._identification is not None:
            self._tasks.append(asyncio.create_task(self._identify(self._identification)))

    @classmethod
    async def open(cls, url: str | Path, settings: Settings | None = None) -> Engine:
        """The engine on the journal at `url`: the path of an SQLite file, or postgresql://…"""
        chosen = Settings() if settings is None else settings

        def connect() -> tuple[Journal, Journal]:
            journal = open_journal(url, lock_seconds=chosen.lock_seconds)
            try:
                return journal, journal.another()
            except BaseException:
                journal.close()
                raise

        journal, reader = await asyncio.to_thread(connect)
        return cls(Store(journal, chosen), reader, chosen)

    # ------------------------------------------------------------------ decisions and rewards

    async def decide(self, name: str, ask: Ask) -> Decided:
        """Choose an arm."""
        answers: list[Decided | ServiceError] = await self.asked("decide", name, (ask,))
        return _raised(answers[0])

    async def decide_all(self, name: str, asks: Sequence[Ask]) -> list[Decided | ServiceError]:
        """Choose many arms of one stream, in order; each is an answer or a refusal of its own."""
        return await self.asked("decide", name, asks) if asks else []

    async def reward(self, name: str, told: Told) -> Rewarded:
        """Credit a reward."""
        answers: list[Rewarded | ServiceError] = await self.asked("reward", name, (told,))
        return _raised(answers[0])

    async def reward_all(self, name: str, told: Sequence[Told]) -> list[Rewarded | ServiceError]:
        """Credit many rewards of one stream, in order; each is an answer or a refusal of its own."""
        return await self.asked("reward", name, told) if told else []

    def asked(self, what: str, name: str, rows: Sequence[Any]) -> asyncio.Future[list[Any]]:
        """The answers to come of at least one row to "decide" or "reward": what is above, without a coroutine."""
        return self._drain.submit(Work.of(what, name, rows, self._future()))

    # ------------------------------------------------------------------ streams

    async def create_stream(self, spec: StreamSpec) -> StreamView:
        """Make a stream. The same specification again gives the stream there is; another of that name is refused."""
        create = await asyncio.to_thread(Create.checked, spec)
        return await self._one(Work(spec.name, create.act, self._future(), creates=create))

    async def streams(self, after: str = "", limit: int = 100) -> list[StreamView]:
        """Streams by name, those after `after`."""
        rows = await self._read(lambda reader: reader.streams(after, limit))
        return [view_of(row) for row in rows]

    async def stream(self, name: str) -> StreamView:
        return view_of(await self._read(lambda reader: _row(reader, name)))

    async def retire_stream(self, name: str) -> StreamView:
        """No more decisions; rewards of earlier ones are still taken."""
        return await self._one(Work.alone(name, Desk.retire, self._future()))

    async def add_arm(self, name: str, arm: Arm | None = None, params: list[float] | None = None) -> StreamView:
        """One more arm: a new name, or where arms are numbers the next of them. An arm that is there is left alone."""
        return await self._one(Work.alone(name, partial(Desk.add_arm, arm=arm, params=params), self._future()))

    async def retire_arm(self, name: str, arm: Arm) -> StreamView:
        """Never choose an arm again."""
        return await self._one(Work.alone(name, partial(Desk.retire_arm, arm=arm), self._future()))

    async def _one(self, work: Work) -> StreamView:
        """Submit work on a stream itself; the stream afterwards."""
        (result,) = await self._drain.submit(work)
        _raised(result)
        return await self.stream(work.name)

    async def health(self, name: str) -> Health:
        """What the agent of a stream has to say about itself."""
        return await asyncio.to_thread((await self.agent(name)).health)

    async def agent(self, name: str) -> Agent:
        """A copy of the agent of a stream as it is now, to look at."""
        packed = await self._on_desk(lambda: self._store.copy(name))
        return await self._guarded(asyncio.to_thread(unpacked, packed, "copy"))

    async def events(self, name: str, after: int = 0, limit: int = 1000) -> list[Event]:
        """The next events of a stream, in order."""
        return await self._read(lambda reader: reader.events(_row(reader, name).id, after, limit))

    async def snapshot(self, name: str) -> None:
        """Keep the state of a stream as it is, so that it need not be folded from further back."""
        stream_id, version, packed = await self._on_desk(lambda: self._store.packed(name))
        state = await asyncio.to_thread(snapshot, packed)
        await self._on_desk(lambda: self._store.keep(name, stream_id, version, state))

    async def export(self, path: Path, names: Sequence[str] = ()) -> int:
        """Write streams (all, if none are named) to a file, .ndjson or .parquet; the number of them."""
        return await self._guarded(
            asyncio.to_thread(self._beside, lambda journal: transfer.export(journal, path, names))
        )

    async def bring_in(self, path: Path) -> dict[str, int]:
        """Add the streams of such a file, all or none; events of each. Decisions of others wait for it to be done."""

        def added(journal: Journal) -> dict[str, int]:
            try:
                return transfer.import_streams(journal, transfer.read_events(path), bring_up)
            except JournalAway:
                raise
            except StreamExists as error:
                raise refusal("conflict", str(error)) from None
            except HalfseenError as error:
                raise refusal("invalid", str(error)) from None

        return await self._guarded(asyncio.to_thread(self._beside, added))

    def _beside(self, act: Callable[[Journal], T]) -> T:
        """Do something that takes long on a connection of its own."""
        journal = self._reader.another()
        try:
            return act(journal)
        finally:
            journal.close()

    # ------------------------------------------------------------------ tokens

    async def tokens(self) -> list[Token]:
        return await self._read(lambda reader: reader.tokens())

    async def add_token(self, token: Token) -> None:
        await self._on_desk(lambda: self._store.changed(lambda journal: journal.add_token(token)))

    async def revoke_token(self, identity: str) -> bool:
        """Whether there was such a token that was still in force."""
        now = time.time_ns() // 1000
        return await self._on_desk(lambda: self._store.changed(lambda journal: journal.revoke_token(identity, now)))

    # ------------------------------------------------------------------ the engine itself

    def ready(self) -> bool:
        """Whether the database was there when last asked."""
        return self._drain.available and not self._drain.closing

    def measurements(self) -> dict[str, Any]:
        """Counters since the engine was opened, what is the case now, and latencies in seconds."""
        return {
            "counts": self._counts + self._drain.counts + self._store.counts,
            "waiting_rows": self._drain.rows_waiting,
            "resident_streams": len(self._store.residents),
            "resident_bytes": self._store.nbytes,
            "latencies": {
                name: latencies.summary()
                for name, latencies in {**self._drain.latencies, "commit": self._drain.commits}.items()
            },
        }

    async def close(self) -> None:
        """Answer what waits, keep snapshots, let go of the database."""
        if self._drain.closing:
            return
        await self._drain.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._identification is not None:
            await asyncio.to_thread(self._identification.close)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(HalfseenError):
            await loop.run_in_executor(self._desk_thread, self._store.keep_all)
        await loop.run_in_executor(self._desk_thread, self._store.close)
        await loop.run_in_executor(self._reader_thread, self._reader.close)
        self._desk_thread.shutdown()
        self._reader_thread.shutdown()

    # ------------------------------------------------------------------ inside

    def _future(self) -> asyncio.Future[list[Any]]:
        return asyncio.get_running_loop().create_future()

    async def _sweep(self) -> None:
        """Now and then: reward waits that are over, snapshots, and whether a database that was away is back."""
        more = False  # is overdue than one look sees to
        while True:
            await asyncio.sleep(0 if more else self._settings.sweep_seconds)
            more = False
            try:
                if not self._drain.available:
                    await self._on_desk(self._store.ping)
                    self._drain.back()
                overdue = await self._on_desk(self._store.overdue)
                for start in range(0, len(overdue), _TOGETHER):
                    names = overdue[start : start + _TOGETHER]
                    looks = [Work.alone(name, Desk.look_around, self._future(), size=0) for name in names]
                    found = await asyncio.gather(*[self._drain.submit(look) for look in looks], return_exceptions=True)
                    for result in found:
                        if isinstance(result, Exception):  # of one stream: the others are looked at all the same
                            self._report("sweep", result)
                        more = more or result == [True]
                for name in await self._on_desk(self._store.to_keep):
                    await self.snapshot(name)
            except Exception as error:
                self._report("sweep", error)

    async def _tidy(self) -> None:
        """Look after the database beside its commits, as long as there are any."""
        seen = 0
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            if (commits := self._drain.counts["commits"]) != seen:
                seen = commits
                try:
                    await self._read(Journal.tidy)
                except Exception as error:
                    self._report("tidy", error)

    async def _identify(self, identification: Identification) -> None:
        """One model after another, of the streams that want one, in turn."""
        while True:
            await self._drain.wanted.wait()
            self._drain.wanted.clear()
            try:
                await asyncio.to_thread(identification.start)
                while (job := await self._on_desk(self._store.claim_next)) is not None:
                    model = await asyncio.to_thread(identification.find, job.agent)
                    if not model:
                        self._counts["identifications_failed"] += 1
                        if model is None:  # nobody else will ask for it again if the stream is quiet
                            await asyncio.sleep(_BEFORE_ANOTHER)
                            await self._on_desk(partial(self._store.release, job.name))
                        continue
                    accept = partial(Desk.accept, model=model, seen=job.seen, after=job.after)
                    (accepted,) = await self._drain.submit(Work.alone(job.name, accept, self._future(), size=0))
                    self._counts["models_accepted"] += accepted is True
            except Exception as error:
                self._report("identification", error)

    def _report(self, task: str, error: Exception) -> None:
        """Something that nobody waits for went wrong: it is counted, and tried again later."""
        self._counts[f"{task}_errors"] += 1
        if not isinstance(error, ServiceError) or error.code == "internal":
            _LOG.error("%s: %s: %s", task, type(error).__name__, error)

    async def _on_desk(self, act: Callable[[], T]) -> T:
        """Do something in the thread that owns the agents."""
        if self._drain.stalled:
            raise self._drain.no_answer()
        return await self._guarded(asyncio.get_running_loop().run_in_executor(self._desk_thread, act))

    async def _read(self, act: Callable[[Journal], T]) -> T:
        return await self._guarded(asyncio.get_running_loop().run_in_executor(self._reader_thread, act, self._reader))

    async def _guarded(self, doing: Awaitable[T]) -> T:
        try:
            return await doing
        except HalfseenError as error:
            raise self._drain.failure(error) from None


def _row(reader: Journal, name: str) -> StreamRow:
    row = reader.stream(name) if name.isprintable() else None
    if row is None:
        raise refusal("not_found", f"stream: got '{name[:100]}'; there is no such stream")
    return row


def _raised(result: T | ServiceError) -> T:
    if isinstance(result, ServiceError):
        raise result
    return result
