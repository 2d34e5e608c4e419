"""A server that goes away and comes back; snapshots that are not what they were."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import zlib

import pytest
from engine_tools import held, observation, opened, pay, refolded, same, spec, with_engine

from halfseen.agents import saving as savefile
from halfseen.journal import postgres
from halfseen.journal.journal import open_journal
from halfseen.service.errors import ServiceError
from halfseen.service.schemas import DecisionRequest, RewardRequest


def test_a_server_that_goes_away_and_comes_back(server):
    url = server.database()

    async def scenario():
        acknowledged, refused = {}, []
        async with opened(url, lock_seconds=5.0) as engine, opened(url, lock_seconds=5.0) as idle:
            await engine.create_stream(spec())
            await idle.stream("one")
            going = True

            async def call(caller: int) -> None:
                number = 0
                while going:
                    number += 1
                    try:
                        decision = await engine.decide(
                            "one", DecisionRequest(observation(number), key=f"{caller}.{number}")
                        )
                        await engine.reward("one", RewardRequest(decision.id, pay(decision.id)))
                        acknowledged[decision.id] = decision.arm
                    except ServiceError as error:
                        refused.append(error)
                        await asyncio.sleep(0.01)

            callers = [asyncio.create_task(call(caller)) for caller in range(4)]
            for how in (signal.SIGQUIT, signal.SIGINT):  # the plug pulled, then a proper shutdown
                had = len(acknowledged)
                await until(lambda had=had: len(acknowledged) >= had + 20)
                await asyncio.to_thread(server.stop, how)
                await until(lambda: not engine.ready())
                with pytest.raises(ServiceError) as raised:
                    await engine.decide("one", DecisionRequest(observation(0)))
                assert (raised.value.status, raised.value.code) == (503, "unavailable")
                await asyncio.to_thread(server.start)
                await until(engine.ready)
            had = len(acknowledged)
            await until(lambda: len(acknowledged) >= had + 20)
            going = False
            await asyncio.gather(*callers)
            assert {error.code for error in refused} == {"unavailable"}
            assert same(held(engine, "one"), refolded(url, "one"))
            first = next(iter(acknowledged))
            assert (
                await idle.reward("one", RewardRequest(first, pay(first)))
            ).repeated  # at once: it was asked nothing before
            record = await idle.events("one", limit=100_000)
            decided = {event.id: event.content.arm for event in record if event.kind == "decided"}
            rewarded = {event.id: event.content.value for event in record if event.kind == "rewarded"}
            for identity, arm in acknowledged.items():
                assert decided[identity] == arm
                assert rewarded[identity] == pay(identity)

    asyncio.run(scenario())


def test_an_engine_whose_server_is_away_idles_and_serves_again(server):
    """Ready by itself, without a caller who has to fail first."""
    url = server.database()

    async def scenario(engine):
        await engine.create_stream(spec())
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        assert (await engine.decide("one", DecisionRequest(observation(1)))).arm in ("a", "b", "c")

    with_engine(url, scenario)


def test_a_server_that_stalls_is_told_and_waited_for_no_longer(server, monkeypatch):
    """Stopped as a whole, it answers nobody and hangs up on nobody."""
    url = server.database()
    monkeypatch.setattr(postgres, "_WORKING", 0.5)

    async def scenario(engine):
        await engine.create_stream(spec())
        first = await engine.decide("one", DecisionRequest(observation(1), key="first"))
        stopped = server.processes()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(ServiceError) as raised:
                await asyncio.wait_for(engine.decide("one", DecisionRequest(observation(2), key="second")), 30)
            assert (raised.value.status, raised.value.code) == (503, "unavailable")
            assert time.monotonic() - began < 15
            assert not engine.ready()
        finally:
            for pid in reversed(stopped):
                os.kill(pid, signal.SIGCONT)
        await until(engine.ready)
        assert (await engine.decide("one", DecisionRequest(observation(1), key="first"))).id == first.id
        second = await engine.decide("one", DecisionRequest(observation(2), key="second"))
        assert (await engine.decide("one", DecisionRequest(observation(3), key="second"))).id == second.id
        assert (await engine.stream("one")).decisions == 2
        assert same(held(engine, "one"), refolded(url, "one"))

    with_engine(url, scenario, lock_seconds=1.0)


def test_a_backend_that_stalls_in_a_commit_commits_once(server, monkeypatch):
    """The rows it has locked are nobody's until it goes on, and then the decision is there."""
    url = server.database()
    monkeypatch.setattr(postgres, "_WORKING", 0.5)

    async def scenario(engine):
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
                with pytest.raises(ServiceError) as raised:
                    await asyncio.wait_for(engine.decide("one", DecisionRequest(observation(t), key="first")), 30)
                assert (raised.value.status, raised.value.code) == (503, "unavailable")
            assert (await engine.decide("two", DecisionRequest(observation(1)))).arm in ("a", "b", "c")
            assert (await engine.stream("one")).decisions == 0
        finally:
            os.kill(pid, signal.SIGCONT)
        first = await eventually(lambda: engine.decide("one", DecisionRequest(observation(1), key="first")))
        assert first.repeated
        assert (await engine.stream("one")).decisions == 1
        assert same(held(engine, "one"), refolded(url, "one"))

    with_engine(url, scenario, lock_seconds=1.0)


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


async def until(condition, seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to pass")


def damaged(state: bytes) -> bytes:
    return state[: len(state) // 2] + bytes([state[len(state) // 2] ^ 1]) + state[len(state) // 2 + 1 :]


@pytest.mark.parametrize("how", ["a bit flipped", "cut short", "of another package", "of other books", "of the future"])
def test_a_corrupted_snapshot_falls_back_to_the_journal(database, how):
    async def play(engine):
        await engine.create_stream(spec())
        for t in range(60):
            made = await engine.decide("one", DecisionRequest(observation(t)))
            await engine.reward("one", RewardRequest(made.id, pay(made.id)))
        await engine.snapshot("one")

    with_engine(database, play)
    journal = open_journal(database)
    row = journal.stream("one")
    seq, state = journal.snapshot(row.id)
    with journal.transaction():
        if how == "a bit flipped":
            journal._rows("UPDATE snapshots SET state = ? RETURNING seq", (damaged(state),))
        elif how == "cut short":
            journal._rows("UPDATE snapshots SET state = ? RETURNING seq", (state[:100],))
        elif how == "of the future":
            journal._rows("UPDATE snapshots SET seq = ? RETURNING seq", (seq + 7,))
        else:
            other = b"something else" if how == "of another package" else zlib.compress(savefile.to_bytes({"a": 1}, {}))
            journal._rows("DELETE FROM snapshots RETURNING seq")
            journal.keep_snapshot(row.id, seq, other)
    journal.close()

    async def again(engine):
        await engine.decide("one", DecisionRequest(observation(61)))
        assert engine.measurements()["counts"]["loads_without_snapshot"] == 1
        assert same(held(engine, "one"), refolded(database, "one"))
        if how != "of the future":
            await engine.snapshot("one")  # a whole one takes its place

    with_engine(database, again)
    if how != "of the future":
        journal = open_journal(database)
        assert journal.snapshot(row.id)[0] == 122
        journal.close()
