"""`halfseen serve`: how it starts, what it refuses, its workers, what it says of trouble, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from engine_tools import assert_refused, decide, on_engine, spec
from engine_tools import until as eventually
from postgres_server import Server
from service.served import environment, run_command, serving, until, workers_ready

import halfseen as hs
from halfseen.errors import HalfseenError
from halfseen.journal.events import JournalAway
from halfseen.journal.journal import open_journal
from halfseen.service import serving as serving_module
from halfseen.service.app import ServeOptions, running_app
from halfseen.service.auth import Authorizer
from halfseen.service.engine import wait_for_database
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError, refusal
from halfseen.service.serving import serve

NUMBERS = (signal.SIGINT, signal.SIGTERM)
announced: list[str] = []
SPEC = {"name": "s", "observed": 2, "arms": 2, "agent": "ts-pco"}
TESTS = Path(__file__).parents[1]


# ---------------------------------------------------------------------- the command


def test_it_says_where_it_is_and_how_to_try_it(tmp_path: Path) -> None:
    with serving(tmp_path, "--database", "mine.db") as service:
        assert "data: mine.db" in service.text
        tried = [line.split("curl ")[1] for line in service.text.splitlines() if "curl " in line]
        assert len(tried) == 2
        for line in tried:  # as a shell would read them
            url, _, body = line.partition(" -d ")
            answer = httpx.post(url, content=body.strip().strip("'").encode(), timeout=60)
            assert answer.is_success, answer.text
        assert answer.json()["arm"] in ("a", "b")
        assert (tmp_path / "mine.db").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_and_goes_on_where_it_was(tmp_path: Path, number: int) -> None:
    """Under load: every decision that was answered is there afterwards, and the exit code is 0."""
    answered: list[str] = []

    def press(url: str, stop: threading.Event) -> None:
        with httpx.Client(base_url=url) as client:
            while not stop.is_set():
                try:
                    answer = client.post("/v1/streams/s/decisions", json={"observation": [1, 2]})
                except httpx.TransportError:
                    return
                if answer.status_code == 200:
                    answered.append(answer.json()["id"])

    with serving(tmp_path) as service:
        made = httpx.post(service.url + "/v1/streams", json={"name": "s", "observed": 2, "arms": 2, "agent": "ts-pco"})
        assert made.status_code == 201
        stop = threading.Event()
        callers = [threading.Thread(target=press, args=(service.url, stop)) for _ in range(4)]
        for caller in callers:
            caller.start()
        while len(answered) < 50:
            time.sleep(0.01)
        code = service.stop(number)
        stop.set()
        for caller in callers:
            caller.join()
    assert code == 0, service.text
    assert "stopped; everything answered is in" in service.text
    assert "Traceback" not in service.text
    with serving(tmp_path) as service:
        lines = httpx.get(service.url + "/v1/streams/s/journal").text.splitlines()
        kept = [line["id"] for line in map(json.loads, lines) if line["kind"] == "decided"]
        assert set(answered) <= set(kept)
        assert httpx.post(service.url + "/v1/streams/s/decisions", json={"observation": [1, 2]}).status_code == 200


def test_other_machines_need_tokens(tmp_path: Path) -> None:
    refused = run_command(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: host: expected a token first, got 0.0.0.0 without a live token")
    assert len(refused.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []  # no database was made for it
    open_house = run_command(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0", "--no-auth")
    assert open_house.returncode == 2
    assert open_house.stderr.startswith("error: no-auth: ")
    assert run_command(tmp_path, "token", "create", "--scope", "read", "--expires", "0.0000001").returncode == 0
    assert run_command(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0").returncode == 2  # it has ended already
    secret = run_command(tmp_path, "token", "create", "--scope", "read").stdout.strip()
    with serving(tmp_path, "--host", "0.0.0.0") as service:
        url = service.url.replace("0.0.0.0", "127.0.0.1")
        assert "curl" not in service.text
        assert httpx.get(url + "/v1/streams").status_code == 401
        assert httpx.get(url + "/v1/streams", headers={"authorization": f"Bearer {secret}"}).status_code == 200


def test_tokens_may_be_left_aside_on_this_machine(tmp_path: Path) -> None:
    assert run_command(tmp_path, "token", "create", "--scope", "read").returncode == 0
    with serving(tmp_path, "--no-auth") as service:
        assert httpx.get(service.url + "/v1/streams").status_code == 200
        assert httpx.get(service.url + "/v1/streams", headers={"host": "evil.example"}).status_code == 403


def test_limits_are_set_where_it_is_started(tmp_path: Path) -> None:
    with serving(tmp_path, "--limit", "batch=2", "--limit", "streams=1", "--limit", "body_bytes=500") as service:
        spec = {"observed": 1, "arms": 2, "agent": "random"}
        assert httpx.post(service.url + "/v1/streams", json={"name": "a", **spec}).status_code == 201
        assert httpx.post(service.url + "/v1/streams", json={"name": "a", **spec}).status_code == 201
        full = httpx.post(service.url + "/v1/streams", json={"name": "b", **spec})
        assert full.status_code == 413, full.text
        rows = {"decisions": [{"observation": [1]}] * 3}
        assert httpx.post(service.url + "/v1/streams/a/decisions/batch", json=rows).status_code == 413
        assert httpx.post(service.url + "/v1/streams/a/decisions", content=b" " * 501).status_code == 413


def test_several_workers_share_the_streams_and_survive_each_other(tmp_path: Path, postgres: Server) -> None:
    """Two processes on PostgreSQL; one of them is killed under load. Nothing that was answered is lost."""
    answered: list[str] = []
    stop = threading.Event()

    def press(url: str) -> None:
        with hs.Client(url, retries=10) as client:
            while not stop.is_set():
                answered.append(client.decide("s", [1.0, 2.0]).id)

    with serving(tmp_path, "--database", postgres.database(), "--workers", "2") as service:
        with hs.Client(service.url, retries=10) as client:
            client.create_stream("s", observed=2, arms=2, agent="ts-pco")
        callers = [threading.Thread(target=press, args=(service.url,)) for _ in range(4)]
        for caller in callers:
            caller.start()
        until(lambda: len(answered) >= 50 and sum(workers_ready(service.url).values()) == 2)
        os.kill(min(workers_ready(service.url)), signal.SIGKILL)
        seen = len(answered)
        until(lambda: len(answered) >= seen + 50)
        stop.set()
        for caller in callers:
            caller.join()
        lines = httpx.get(service.url + "/v1/streams/s/journal", timeout=60).text.splitlines()
        kept = [line["id"] for line in map(json.loads, lines) if line["kind"] == "decided"]
        assert set(answered) <= set(kept)
        assert len(set(kept)) == len(kept)
        assert service.stop() == 0, service.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "2"], "workers: expected 1, or a database in PostgreSQL, got 2"),
        (["--limit", "bach=2"], "did you mean 'batch'"),
        (["--limit", "batch=two"], "limit batch: got 'two'"),
        (["--limit", "batch=0"], "batch: got 0"),
        (["--database", "mysql://user:hush@host/x"], "database: got"),
        (["--database", "no/such/folder/x.db"], "database: got"),
        (["--host", "999.1.1.1"], "host: got"),
    ],
)
def test_what_cannot_be_served_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run_command(tmp_path, "serve", "--port", "0", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "hush" not in done.stderr


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run_command(tmp_path, "serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert done.stderr.startswith("error: port: got 127.0.0.1:")
    assert len(done.stderr.splitlines()) == 1


def test_requests_are_logged_only_on_request_and_never_their_tokens(tmp_path: Path) -> None:
    secret = run_command(tmp_path, "token", "create", "--scope", "read").stdout.strip()
    headers = {"authorization": f"Bearer {secret}"}
    for arguments, logged in (((), False), (("--access-log",), True)):
        with serving(tmp_path, *arguments) as service:
            assert httpx.get(service.url + "/v1/streams", headers=headers).status_code == 200
            assert httpx.get(service.url + "/v1/streams?after=x", headers={"authorization": "Bearer wrong"}).is_error
            assert service.stop() == 0
            assert ("/v1/streams" in service.text) is logged
            assert secret not in service.text
            assert "wrong" not in service.text


# ---------------------------------------------------------------------- serve() in this process


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(serving_module, "_warm_up", lambda: None)
    before = {number: signal.getsignal(number) for number in NUMBERS}
    announced.clear()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def never(address: str, closed: bool) -> None:
    announced.append(address)
    os.kill(os.getpid(), signal.SIGTERM)  # or it would serve for ever


@pytest.mark.usefixtures("handlers")
def test_a_port_in_use_is_refused_before_a_database_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HalfseenError, match="an address that is free"):
            serve(ServeOptions(str(tmp_path / "x.db")), host="127.0.0.1", port=port, announce=never)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("handlers")
def test_of_two_that_start_at_the_same_moment_one_gets_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are bound before either listens; the other is the first to."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        monkeypatch.setattr(serving_module, "_warm_up", other.listen)
        with pytest.raises(HalfseenError, match=r"port: expected an address that is free, got 127.0.0.1:\d+ \(.+\)"):
            serve(ServeOptions(str(tmp_path / "x.db")), host="127.0.0.1", port=other.getsockname()[1], announce=never)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_that_comes_while_the_engine_opens_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    closed: list[bool] = []
    opening, closing = Engine.open, Engine.close

    async def opened(*arguments: object) -> Engine:
        os.kill(os.getpid(), number)
        return await opening(*arguments)  # type: ignore[arg-type]

    async def close(self: Engine) -> None:
        await closing(self)
        closed.append(True)

    monkeypatch.setattr(Engine, "open", opened)
    monkeypatch.setattr(Engine, "close", close)
    serve(ServeOptions(str(tmp_path / "x.db")), host="127.0.0.1", port=0, announce=never)
    assert closed == [True]
    assert announced == []


# ---------------------------------------------------------------------- workers that do not start


@contextmanager
def played(play: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir()
    source = environment()
    process = subprocess.Popen(
        [sys.executable, "-m", "service.workers_play", play, str(folder)],
        env=source | {"PYTHONPATH": os.pathsep.join([str(TESTS), source["PYTHONPATH"]])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def group(process: subprocess.Popen[str]) -> bool:
    """Whether anybody of its process group is there."""
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_first_worker_that_ends_before_it_answers_ends_all(tmp_path: Path) -> None:
    with played("first_dies", tmp_path / "play") as process:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 2, said
        assert "workers: got one that ended before it answered" in said
        until(lambda: not group(process), 10)  # the tracker of multiprocessing ends a moment later


@pytest.mark.slow
def test_a_worker_that_cannot_be_started_again_is_no_good_end(tmp_path: Path) -> None:
    with played("third_fails", tmp_path / "play") as process:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        until(lambda: len(list((tmp_path / "play").iterdir())) >= 2, 30)
        os.kill(max(workers), signal.SIGKILL)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 2, said
        assert "workers: got one that could not be started" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_its_database_leaves_quietly(tmp_path: Path, number: signal.Signals) -> None:
    with played("waiting", tmp_path / "play") as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert re.fullmatch(r"worker \d+: database: away; it starts when the database is back\n", said)
        process.send_signal(number)
        rest, _ = process.communicate(timeout=30)
        assert process.returncode in (0, -number), rest  # 3 would be a start that failed, which ends all workers
        if number == signal.SIGTERM:
            assert rest == ""


def test_tokens_that_cannot_be_read_at_the_start_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wait_for_database, "_RETRY_SECONDS", 0.01)
    refusals = [refusal("unavailable", "database: away")] * 2 + [refusal("internal", "service: wrong")]
    read = Authorizer.refresh

    async def refresh(self: Authorizer) -> None:
        if refusals:
            raise refusals.pop(0)
        await read(self)

    async def start() -> None:
        async with running_app(ServeOptions(str(tmp_path / "x.db")), wait=True):
            pass

    monkeypatch.setattr(Authorizer, "refresh", refresh)
    with pytest.raises(ServiceError, match="wrong"):  # which no waiting would mend
        asyncio.run(start())
    assert refusals == []
    assert len([1 for record in caplog.records if "it starts when the database is back" in record.message]) == 1
    refusals[:] = [refusal("unavailable", "database: away")]
    asyncio.run(start())
    refusals[:] = [refusal("unavailable", "database: away")]
    with pytest.raises(ServiceError, match="away"):  # a single process says it at once
        asyncio.run(impatient(tmp_path))


async def impatient(folder: Path) -> None:
    async with running_app(ServeOptions(str(folder / "x.db"))):
        pass


# ---------------------------------------------------------------------- what is logged


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_database_that_goes_away_and_comes_back(tmp_path: Path, server: Server, workers: int) -> None:
    with serving(tmp_path, "--database", server.database(), "--workers", str(workers)) as service:
        client = httpx.Client(base_url=service.url, timeout=60)

        def ask() -> int:
            return client.post("/v1/streams/s/decisions", json={"observation": [1, 2]}).status_code

        client.post("/v1/streams", json=SPEC)
        until(lambda: sum(workers_ready(service.url).values()) == workers)  # one that is still starting would not start
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
        until(lambda: sum(workers_ready(service.url).values()) == 2)
        killed = min(workers_ready(service.url))
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(service.said) > announced)
        assert re.fullmatch(rf"worker {killed} ended with SIGKILL; worker \d+ was started\n", service.said[announced])
        assert service.stop() == 0
        assert "ended with" not in "".join(service.said[announced + 1 :])


@pytest.mark.slow
def test_a_worker_that_starts_while_the_database_is_away_waits_for_it(tmp_path: Path, server: Server) -> None:
    """Nor does it take the others with it."""
    with serving(tmp_path, "--database", server.database(), "--workers", "2") as service:
        httpx.post(service.url + "/v1/streams", json=SPEC).raise_for_status()
        until(lambda: sum(workers_ready(service.url).values()) == 2)
        server.stop()
        before = set(workers_ready(service.url))
        os.kill(min(before), signal.SIGKILL)
        until(lambda: "it starts when the database is back" in service.text)
        assert set(workers_ready(service.url)) == {max(before)}
        server.start()
        until(lambda: sum(workers_ready(service.url).values()) == 2)
        with httpx.Client(base_url=service.url, timeout=60) as client:
            until(lambda: client.post("/v1/streams/s/decisions", json={"observation": [1, 2]}).status_code == 200)
        server.stop()
        os.kill(max(before), signal.SIGKILL)
        until(lambda: service.text.count("it starts when the database is back") == 2)
        assert service.stop() == 0  # asked to end while it waits


@on_engine()
async def test_a_full_disk_is_not_back_because_it_can_be_read(engine, tmp_path, caplog) -> None:  # type: ignore[no-untyped-def]
    """Nor is it logged again and again while requests fail."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    await engine.create_stream(spec())
    full = max(file.stat().st_size for file in tmp_path.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (full, before[1]))
    try:
        for _ in range(6):
            assert "cannot be used" in await assert_refused(decide(engine, 1), "unavailable", 503)
            await asyncio.sleep(0.2)  # some sweeps
        assert not engine.ready()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    await eventually(engine.ready)
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
            assert journal.lock_streams(["nobody"]) == {}
        journal.begin()
        journal.lock_streams(["nobody"])
        lose()
        journal._deferred += [(b"SELECT 1", ())] * 20  # type: ignore[attr-defined]  # that go with the commit
        with pytest.raises(JournalAway, match="cannot be used now"):
            journal.commit()
    finally:
        journal.close()
        other.close()
    assert [record.message for record in caplog.records if record.name.startswith("psycopg")] == []
