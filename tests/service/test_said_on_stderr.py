"""What the service says of trouble on stderr: a line when it begins and one when it is over, not one a request."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psycopg
import pytest
from engine_tools import observation, spec, with_engine
from postgres_server import Server
from service.served import serving

from halfseen.journal.events import JournalAway
from halfseen.journal.journal import open_journal
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError
from halfseen.service.schemas import DecisionRequest

SPEC = {"name": "s", "observed": 2, "arms": 2, "agent": "ts-pco"}


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def answering(url: str) -> set[str]:
    """The workers that some requests meet, each over a connection of its own."""
    texts = [httpx.get(url + "/metrics").text for _ in range(20)]
    return {number for text in texts for number in re.findall(r'worker="(\d+)"', text)}


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_database_that_goes_away_and_comes_back(tmp_path: Path, server: Server, workers: int) -> None:
    with serving(tmp_path, "--database", server.database(), "--workers", str(workers)) as service:
        client = httpx.Client(base_url=service.url, timeout=60)

        def ask() -> int:
            return client.post("/v1/streams/s/decisions", json={"observation": [1, 2]}).status_code

        client.post("/v1/streams", json=SPEC)
        until(lambda: len(answering(service.url)) == workers)  # one that is still starting would not start
        announced = len(service.said)
        server.stop()
        until(lambda: ask() == 503)
        for _ in range(10):
            assert ask() == 503
        until(lambda: len(service.said) >= announced + workers)
        server.start()
        until(lambda: len(service.said) >= announced + 2 * workers)  # also of a worker that is asked nothing
        assert ask() == 200
        client.close()
        said = sorted(service.said[announced:], key=lambda line: "back, after" in line)
    assert len(said) == 2 * workers, said
    for line in said[:workers]:
        assert re.fullmatch(r"worker \d+: database: PostgreSQL cannot be used now: .+; until it is back .+503\n", line)
    for line in said[workers:]:
        assert re.fullmatch(r"worker \d+: database: it is back, after [\d.]+ seconds\n", line)


def test_a_worker_that_was_killed(tmp_path: Path, postgres: Server) -> None:
    with serving(tmp_path, "--database", postgres.database(), "--workers", "2") as service:
        announced = len(service.said)
        until(lambda: len(answering(service.url)) == 2)
        killed = min(answering(service.url))
        os.kill(int(killed), signal.SIGKILL)
        until(lambda: len(service.said) > announced)
        assert re.fullmatch(rf"worker {killed} ended with SIGKILL; worker \d+ was started\n", service.said[announced])
        assert service.stop() == 0
        assert "ended with" not in "".join(service.said[announced + 1 :])


@pytest.mark.slow
def test_a_worker_that_starts_while_the_database_is_away_waits_for_it(tmp_path: Path, server: Server) -> None:
    """Nor does it take the others with it."""
    with serving(tmp_path, "--database", server.database(), "--workers", "2") as service:
        httpx.post(service.url + "/v1/streams", json=SPEC).raise_for_status()
        until(lambda: len(answering(service.url)) == 2)
        server.stop()
        before = answering(service.url)
        os.kill(int(min(before)), signal.SIGKILL)
        until(lambda: "it starts when the database is back" in service.text)
        assert answering(service.url) == {max(before)}
        server.start()
        until(lambda: len(answering(service.url)) == 2)
        with httpx.Client(base_url=service.url, timeout=60) as client:
            until(lambda: client.post("/v1/streams/s/decisions", json={"observation": [1, 2]}).status_code == 200)
        server.stop()
        os.kill(int(max(before)), signal.SIGKILL)
        until(lambda: service.text.count("it starts when the database is back") == 2)
        assert service.stop() == 0  # asked to end while it waits


def test_a_full_disk_is_not_back_because_it_can_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is it said again and again while requests fail."""
    path = tmp_path / "journal.db"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def scenario(engine: Engine) -> None:
        await engine.create_stream(spec())
        full = max(file.stat().st_size for file in tmp_path.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (full, before[1]))
        try:
            for _ in range(6):
                with pytest.raises(ServiceError, match="cannot be used"):
                    await engine.decide("one", DecisionRequest(observation(1)))
                await asyncio.sleep(0.2)  # some sweeps
            assert not engine.ready()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        end = time.monotonic() + 30
        while not engine.ready():
            assert time.monotonic() < end
            await asyncio.sleep(0.05)

    with_engine(str(path), scenario)
    said = [record.message for record in caplog.records if record.name == "halfseen.service"]
    assert [("cannot be used" in line, "back, after" in line) for line in said] == [(True, False), (False, True)], said


def test_the_driver_says_nothing_of_its_own_about_a_lost_connection(
    postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres.database()
    journal = open_journal(url)
    other = psycopg.connect(url, autocommit=True)

    def lose() -> None:
        pid = journal._connection.info.backend_pid  # type: ignore[attr-defined]
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        until(lambda: not other.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall())

    try:
        lose()
        with journal.transaction():  # nothing was locked yet: another connection is made
            assert journal.lock(["nobody"]) == {}
        journal.begin()
        journal.lock(["nobody"])
        lose()
        journal._later += [(b"SELECT 1", ())] * 20  # type: ignore[attr-defined]  # that go with the commit
        with pytest.raises(JournalAway, match="cannot be used now"):
            journal.commit()
    finally:
        journal.close()
        other.close()
    assert [record.message for record in caplog.records if record.name.startswith("psycopg")] == []
