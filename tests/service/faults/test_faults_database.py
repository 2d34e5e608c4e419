"""A server that goes away and comes back; snapshots that are not what they were."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import zlib
from contextlib import closing

import pytest
from engine_tools import assert_folds, decide, metric, on_engine, opened, pay, refused, reward, spec, until

from halfseen.agents import saving
from halfseen.journal import postgres
from halfseen.journal.journal import open_journal
from halfseen.service.errors import ServiceError


@pytest.fixture
def short_timeout(monkeypatch):
    monkeypatch.setattr(postgres, "_ANSWER_SECONDS", 0.5)


@on_engine(lock_seconds=5.0)
async def test_a_server_that_goes_away_and_comes_back(engine, url, server):
    acknowledged, errors = {}, []
    async with opened(url, lock_seconds=5.0) as idle:
        await engine.create_stream(spec())
        await idle.stream("one")
        going = True

        async def call(caller: int) -> None:
            number = 0
            while going:
                number += 1
                try:
                    decision = await decide(engine, number, key=f"{caller}.{number}")
                    await reward(engine, decision, pay(decision.id))
                    acknowledged[decision.id] = decision.arm
                except ServiceError as error:
                    errors.append(error)
                    await asyncio.sleep(0.01)

        callers = [asyncio.create_task(call(caller)) for caller in range(4)]
        for how in (signal.SIGQUIT, signal.SIGINT):  # the plug pulled, then a proper shutdown
            had = len(acknowledged)
            await until(lambda had=had: len(acknowledged) >= had + 20)
            await asyncio.to_thread(server.stop, how)
            await until(lambda: not engine.ready())
            await refused(decide(engine, 0), "unavailable", 503)
            await asyncio.to_thread(server.start)
            await until(engine.ready)
        had = len(acknowledged)
        await until(lambda: len(acknowledged) >= had + 20)
        going = False
        await asyncio.gather(*callers)
        assert {error.code for error in errors} == {"unavailable"}
        assert_folds(engine, url)
        first = next(iter(acknowledged))
        assert (await reward(idle, first, pay(first))).repeated  # at once: it was asked nothing before
        record = await idle.events("one", limit=100_000)
        decided = {event.id: event.content.arm for event in record if event.kind == "decided"}
        rewarded = {event.id: event.content.value for event in record if event.kind == "rewarded"}
        for identity, arm in acknowledged.items():
            assert decided[identity] == arm
            assert rewarded[identity] == pay(identity)


@on_engine()
async def test_an_engine_whose_server_is_away_idles_and_serves_again(engine, server):
    """Ready by itself, without a caller who has to fail first."""
    await engine.create_stream(spec())
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)
    assert (await decide(engine, 1)).arm in ("a", "b", "c")


@pytest.mark.usefixtures("short_timeout")
@on_engine(lock_seconds=1.0)
async def test_a_server_that_stalls_is_told_and_waited_for_no_longer(engine, url, server):
    """Stopped as a whole, it answers nobody and hangs up on nobody."""
    await engine.create_stream(spec())
    first = await decide(engine, 1, key="first")
    stopped = server.processes()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        await refused(asyncio.wait_for(decide(engine, 2, key="second"), 30), "unavailable", 503)
        assert time.monotonic() - began < 15
        assert not engine.ready()
    finally:
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGCONT)
    await until(engine.ready)
    assert (await decide(engine, 1, key="first")).id == first.id
    second = await decide(engine, 2, key="second")
    assert (await decide(engine, 3, key="second")).id == second.id
    assert (await engine.stream("one")).decisions == 2
    assert_folds(engine, url)


@pytest.mark.usefixtures("short_timeout")
@on_engine(lock_seconds=1.0)
async def test_a_backend_that_stalls_in_a_commit_commits_once(engine, url, server, monkeypatch):
    """The rows it has locked are nobody's until it goes on, and then the decision is there."""
    await engine.create_stream(spec())
    await engine.create_stream(spec("two"))
    journal = engine._store._journal
    pid, commit = journal._connection.info.backend_pid, journal.commit

    def stalled() -> None:
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(journal, "commit", commit)
        commit()

    monkeypatch.setattr(journal, "commit", stalled)
    try:
        for t in range(2):
            await refused(asyncio.wait_for(decide(engine, t, key="first"), 30), "unavailable", 503)
        assert (await decide(engine, 1, name="two")).arm in ("a", "b", "c")
        assert (await engine.stream("one")).decisions == 0
    finally:
        os.kill(pid, signal.SIGCONT)
    first = await eventually(lambda: decide(engine, 1, key="first"))
    assert first.repeated
    assert (await engine.stream("one")).decisions == 1
    assert_folds(engine, url)


async def eventually(ask, seconds: float = 30.0):
    """The answer, as soon as the database is there."""
    end = time.monotonic() + seconds
    while True:
        try:
            return await ask()
        except ServiceError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.05)


def damaged(state: bytes) -> bytes:
    return state[: len(state) // 2] + bytes([state[len(state) // 2] ^ 1]) + state[len(state) // 2 + 1 :]


@pytest.mark.parametrize("how", ["bit flipped", "cut short", "of another package", "of other fields", "of the future"])
@on_engine()
async def test_a_corrupted_snapshot_falls_back_to_the_journal(engine, database, how):
    await engine.create_stream(spec())
    for t in range(60):
        made = await decide(engine, t)
        await reward(engine, made, pay(made.id))
    await engine.snapshot("one")
    await engine.close()
    with closing(open_journal(database)) as journal:
        row = journal.stream("one")
        seq, state = journal.snapshot(row.id)
        with journal.transaction():
            if how == "bit flipped":
                journal._rows("UPDATE snapshots SET state = ? RETURNING seq", (damaged(state),))
            elif how == "cut short":
                journal._rows("UPDATE snapshots SET state = ? RETURNING seq", (state[:100],))
            elif how == "of the future":
                journal._rows("UPDATE snapshots SET seq = ? RETURNING seq", (seq + 7,))
            else:
                other = zlib.compress(saving.to_bytes({"a": 1}, {})) if how == "of other fields" else b"something else"
                journal._rows("DELETE FROM snapshots RETURNING seq")
                journal.save_snapshot(row.id, seq, other)
    async with opened(database) as engine:
        await decide(engine, 61)
        assert metric(engine, "loads_without_snapshot_total") == 1
        assert_folds(engine, database)
        if how != "of the future":
            await engine.snapshot("one")  # a whole one takes its place
    with closing(open_journal(database)) as journal:
        assert journal.snapshot(row.id)[0] == (seq + 7 if how == "of the future" else 122)
