"""Database servers that stop, stall and start again, database files that are deleted, and damaged snapshots."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import zlib
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from engine_tools import (
    assert_matches_journal,
    decide,
    expect_error,
    metric,
    on_engine,
    open_engine,
    reward,
    reward_from_id,
    spec,
    wait_until,
)
from service.served import serving, until

from halfseen.agents import saving
from halfseen.journal import postgres
from halfseen.journal.journal import open_journal
from halfseen.service.errors import ServiceError


@pytest.fixture
def short_timeout(monkeypatch):
    monkeypatch.setattr(postgres, "_ANSWER_SECONDS", 0.5)


@on_engine(lock_seconds=5.0)
async def test_nothing_acknowledged_is_lost_when_the_server_restarts(engine, url, server):
    acknowledged, errors = {}, []
    async with open_engine(url, lock_seconds=5.0) as idle:
        await engine.create_stream(spec())
        await idle.stream("one")
        running = True

        async def call(caller: int) -> None:
            number = 0
            while running:
                number += 1
                try:
                    decision = await decide(engine, number, key=f"{caller}.{number}")
                    await reward(engine, decision, reward_from_id(decision.id))
                    acknowledged[decision.id] = decision.arm
                except ServiceError as error:
                    errors.append(error)
                    await asyncio.sleep(0.01)

        callers = [asyncio.create_task(call(caller)) for caller in range(4)]
        for mode in ("immediate", "fast"):  # like a crash, then an orderly shutdown
            had = len(acknowledged)
            await wait_until(lambda had=had: len(acknowledged) >= had + 20)
            await asyncio.to_thread(server.stop, mode)
            await wait_until(lambda: not engine.ready())
            await expect_error(decide(engine, 0), "unavailable", 503)
            await asyncio.to_thread(server.start)
            await wait_until(engine.ready)
        had = len(acknowledged)
        await wait_until(lambda: len(acknowledged) >= had + 20)
        running = False
        await asyncio.gather(*callers)
        assert {error.code for error in errors} == {"unavailable"}
        assert_matches_journal(engine, url)
        first = next(iter(acknowledged))
        assert (await reward(idle, first, reward_from_id(first))).repeated  # the first request of this engine succeeds
        recorded = await idle.events("one", limit=100_000)
        decided = {event.id: event.content.arm for event in recorded if event.kind == "decided"}
        rewarded = {event.id: event.content.value for event in recorded if event.kind == "rewarded"}
        for decision_id, arm in acknowledged.items():
            assert decided[decision_id] == arm
            assert rewarded[decision_id] == reward_from_id(decision_id)


@on_engine()
async def test_the_first_request_after_a_restart_of_the_server_succeeds(engine, server):
    await engine.create_stream(spec())
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)
    assert (await decide(engine, 1)).arm in ("a", "b", "c")


@pytest.mark.usefixtures("short_timeout")
@on_engine(lock_seconds=1.0)
async def test_requests_fail_soon_if_the_server_stalls(engine, url, server):
    """All processes of the server are suspended, so that it neither answers nor closes connections."""
    await engine.create_stream(spec())
    first = await decide(engine, 1, key="first")
    stopped = server.processes()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        await expect_error(asyncio.wait_for(decide(engine, 2, key="second"), 30), "unavailable", 503)
        assert time.monotonic() - began < 15
        assert not engine.ready()
    finally:
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGCONT)
    await wait_until(engine.ready)
    assert (await decide(engine, 1, key="first")).id == first.id
    second = await decide(engine, 2, key="second")
    assert (await decide(engine, 2, key="second")).id == second.id
    assert (await engine.stream("one")).decisions == 2
    assert_matches_journal(engine, url)


@pytest.mark.usefixtures("short_timeout")
@on_engine(lock_seconds=1.0)
async def test_a_commit_that_stalls_is_done_once(engine, url, server, monkeypatch):
    """The rows stay locked while the backend is suspended. When the backend continues, the decision is committed."""
    await engine.create_stream(spec())
    await engine.create_stream(spec("two"))
    journal = engine._store._journal
    pid, commit = journal._connection.info.backend_pid, journal.commit

    def stalling_commit() -> None:
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr(journal, "commit", commit)
        commit()

    monkeypatch.setattr(journal, "commit", stalling_commit)
    try:
        for _ in range(2):
            await expect_error(asyncio.wait_for(decide(engine, 1, key="first"), 30), "unavailable", 503)
        assert (await decide(engine, 1, name="two")).arm in ("a", "b", "c")
        assert (await engine.stream("one")).decisions == 0
    finally:
        os.kill(pid, signal.SIGCONT)
    first = await eventually(lambda: decide(engine, 1, key="first"))
    assert first.repeated
    assert (await engine.stream("one")).decisions == 1
    assert_matches_journal(engine, url)


async def eventually(request, seconds: float = 30.0):
    """Repeat a request until it succeeds, and return its reply."""
    end = time.monotonic() + seconds
    while True:
        try:
            return await request()
        except ServiceError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("replaced", [False, True])
def test_requests_are_refused_while_the_database_file_is_deleted_or_replaced(tmp_path, replaced):
    database, kept = tmp_path / "j.db", tmp_path / "kept"
    files = [Path(f"{database}{suffix}") for suffix in ("", "-wal", "-shm")]
    stream = {"name": "one", "observed": 2, "arms": ["a", "b"], "agent": "ts-pco"}
    with (
        serving(tmp_path, "--database", str(database)) as service,
        httpx.Client(base_url=service.url, timeout=30) as client,
    ):

        def ask() -> int:
            reply = client.post("/v1/streams/one/decisions", json={"observation": [1, 2]})
            answered[reply.status_code] = answered.get(reply.status_code, 0) + 1
            return reply.status_code

        answered: dict[int, int] = {}
        client.post("/v1/streams", json=stream).raise_for_status()
        assert ask() == 200
        kept.mkdir()
        for file in files:  # a hard link keeps the file, so that it can come back
            (kept / file.name).hardlink_to(file)
            file.unlink()
        if replaced:
            open_journal(database).close()
        until(lambda: client.get("/readyz").status_code == 503)  # although there was no request
        assert [ask() for _ in range(5)] == [503] * 5
        assert client.get("/v1/journal").status_code == 503
        assert client.get("/v1/streams").status_code == 503
        assert [file.exists() for file in files] == [replaced, False, False]
        for file in files:
            (kept / file.name).rename(file)
        until(lambda: client.get("/readyz").status_code == 200)
        assert ask() == 200
        assert client.get("/v1/journal").text.count('"kind":"decided"') == answered[200] == 2
        assert service.stop() == 0
        assert "was moved, deleted or replaced while in use" in service.text
    with closing(open_journal(database)) as journal:
        assert journal.stream("one").decisions == 2


def flip_bit(state: bytes) -> bytes:
    return state[: len(state) // 2] + bytes([state[len(state) // 2] ^ 1]) + state[len(state) // 2 + 1 :]


@pytest.mark.parametrize("damage", ["flipped bit", "truncated", "other format", "other fields", "later version"])
@on_engine()
async def test_a_damaged_snapshot_is_replaced_by_the_journal(engine, database, damage):
    await engine.create_stream(spec())
    for t in range(60):
        made = await decide(engine, t)
        await reward(engine, made, reward_from_id(made.id))
    await engine.snapshot("one")
    await engine.close()
    with closing(open_journal(database)) as journal:
        row = journal.stream("one")
        seq, state = journal.snapshot(row.id)
        with journal.transaction():
            if damage == "flipped bit":
                journal._rows("UPDATE snapshots SET state = ? RETURNING seq", (flip_bit(state),))
            elif damage == "truncated":
                journal._rows("UPDATE snapshots SET state = ? RETURNING seq", (state[:100],))
            elif damage == "later version":
                journal._rows("UPDATE snapshots SET seq = ? RETURNING seq", (seq + 7,))
            else:
                other = zlib.compress(saving.to_bytes({"a": 1}, {})) if damage == "other fields" else b"something else"
                journal._rows("DELETE FROM snapshots RETURNING seq")
                journal.save_snapshot(row.id, seq, other)
    async with open_engine(database) as engine:
        await decide(engine, 61)
        assert metric(engine, "loads_without_snapshot_total") == 1
        assert_matches_journal(engine, database)
        if damage != "later version":
            await engine.snapshot("one")  # replaces the damaged snapshot
    with closing(open_journal(database)) as journal:
        assert journal.snapshot(row.id)[0] == (seq + 7 if damage == "later version" else 122)
