"""`halfseen serve`: how it starts and ends, the settings it refuses, its workers, and what it logs."""

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
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from engine_tools import decide, expect_error, on_engine, spec
from engine_tools import wait_until as eventually
from postgres_server import Server
from service.served import environment, run_command, run_here, serving, until, workers_ready

import halfseen as hs
from halfseen.errors import HalfseenError
from halfseen.journal.events import JournalUnavailable
from halfseen.journal.journal import open_journal
from halfseen.service import serving as serving_module
from halfseen.service.app import ServeOptions, running_app
from halfseen.service.auth import Authorizer
from halfseen.service.engine import wait_for_database
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError, refusal
from halfseen.service.serving import serve

NUMBERS = (signal.SIGINT, signal.SIGTERM)
announced: list[str] = []  # addresses of services that have started in this process
SPEC = {"name": "s", "observed": 2, "arms": 2, "agent": "ts-pco"}
TESTS = Path(__file__).parents[1]


# ---------------------------------------------------------------------- the command


def test_the_first_message_has_the_address_and_commands_that_work(tmp_path: Path) -> None:
    with serving(tmp_path, "--database", "mine.db") as service:
        assert "database: mine.db" in service.text
        commands = [line.split("curl ")[1] for line in service.text.splitlines() if "curl " in line]
        assert len(commands) == 2
        for command in commands:
            url, _, body = command.partition(" -d ")
            answer = httpx.post(url, content=body.strip().strip("'").encode(), timeout=60)
            assert answer.is_success, answer.text
        assert answer.json()["arm"] in ("a", "b")
        assert (tmp_path / "mine.db").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_service_that_ends_under_load_loses_no_answered_decision(tmp_path: Path, number: int) -> None:
    answered: list[str] = []

    def send_requests(url: str, stop: threading.Event) -> None:
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
        callers = [threading.Thread(target=send_requests, args=(service.url, stop)) for _ in range(4)]
        for caller in callers:
            caller.start()
        while len(answered) < 50:
            time.sleep(0.01)
        code = service.stop(number)
        stop.set()
        for caller in callers:
            caller.join()
    assert code == 0, service.text
    assert "Stopped. All answered requests are recorded in" in service.text
    assert "Traceback" not in service.text
    with serving(tmp_path) as service:
        lines = httpx.get(service.url + "/v1/streams/s/journal").text.splitlines()
        recorded = [line["id"] for line in map(json.loads, lines) if line["kind"] == "decided"]
        assert set(answered) <= set(recorded)
        assert httpx.post(service.url + "/v1/streams/s/decisions", json={"observation": [1, 2]}).status_code == 200


def test_unfinished_requests_leave_no_traceback_when_the_service_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "from halfseen.cli.app import main; from halfseen.service import serving; serving._SHUTDOWN_SECONDS = 1"
    monkeypatch.setattr("service.served.COMMAND", [sys.executable, "-c", f"{program}; main()"])
    with serving(tmp_path) as service:
        port = urlsplit(service.url).port
        assert httpx.post(service.url + "/v1/streams", json=SPEC).status_code == 201
        connections = []
        for number in range(400):
            path = ("/v1/streams/s/decisions", "/v1/streams", "/v1/journal")[number % 3]
            connections.append(socket.create_connection(("127.0.0.1", port)))
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n"
            connections[-1].sendall(head.encode() + b'{"observation": [1, 2]}')
        assert httpx.get(service.url + "/healthz").status_code == 200
        assert service.stop() == 0
        replies = [connection.recv(12) for connection in connections]
        for connection in connections:
            connection.close()
    assert set(replies) == {b"HTTP/1.1 503"}
    assert "Traceback" not in service.text
    assert len(service.text.splitlines()) < 20, service.text


def test_databases_may_be_urls_and_hosts_any_loopback_address(tmp_path: Path) -> None:
    """sqlite:///file is the file in the current folder, and sqlite:////folder/file is an absolute path."""
    relative, absolute = "sqlite:///mine.db", f"sqlite:///{tmp_path / 'mine.db'}"
    with serving(tmp_path, "--database", relative, "--host", "127.0.0.2") as service:
        assert service.url.startswith("http://127.0.0.2:")
        assert "database: mine.db" in service.text
        assert httpx.post(service.url + "/v1/streams", json=SPEC).status_code == 201
        assert service.stop() == 0
        assert str(tmp_path / "mine.db") in service.text
    assert "no tokens" in run_here(tmp_path, "token", "list", "--database", "sqlite:///none.db").stdout
    assert run_here(tmp_path, "token", "create", "--scope", "read", "--database", absolute).returncode == 0
    assert "read" in run_here(tmp_path, "token", "list", "--database", relative).stdout
    assert run_here(tmp_path, "export", "all.ndjson", "--database", absolute).stdout.startswith("1 stream ")
    done = run_here(tmp_path, "import", "all.ndjson", "--database", "sqlite:///other.db")
    assert done.stdout == "s: 1 events\n", done.stderr
    refused = run_here(tmp_path, "export", "x.ndjson", "--database", "sqlite:///none.db")
    assert "database: expected an existing file" in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.ndjson", "mine.db", "other.db"]


def test_a_service_for_other_machines_requires_tokens(tmp_path: Path) -> None:
    refused = run_here(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: host: expected a loopback address such as 127.0.0.1, or a token first")
    assert refused.stderr.endswith("got 0.0.0.0 and no valid token\n")
    assert len(refused.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []  # no database was created
    without_auth = run_here(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0", "--no-auth")
    assert without_auth.returncode == 2
    assert without_auth.stderr.startswith("error: host: expected a loopback address such as 127.0.0.1, which")
    assert run_here(tmp_path, "token", "create", "--scope", "read", "--expires", "0.0000001").returncode == 0
    assert run_here(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0").returncode == 2  # the token has expired
    secret = run_here(tmp_path, "token", "create", "--scope", "read").stdout.strip()
    with serving(tmp_path, "--host", "0.0.0.0") as service:
        url = service.url.replace("0.0.0.0", "127.0.0.1")
        assert "curl" not in service.text
        assert httpx.get(url + "/v1/streams").status_code == 401
        assert httpx.get(url + "/v1/streams", headers={"authorization": f"Bearer {secret}"}).status_code == 200


def test_no_auth_ignores_tokens_on_the_same_machine(tmp_path: Path) -> None:
    assert run_here(tmp_path, "token", "create", "--scope", "read").returncode == 0
    with serving(tmp_path, "--no-auth") as service:
        assert httpx.get(service.url + "/v1/streams").status_code == 200
        assert httpx.get(service.url + "/v1/streams", headers={"host": "evil.example"}).status_code == 403


def test_limits_are_set_on_the_command_line(tmp_path: Path) -> None:
    with serving(tmp_path, "--limit", "batch=2", "--limit", "streams=1", "--limit", "body_bytes=500") as service:
        spec = {"observed": 1, "arms": 2, "agent": "random"}
        assert httpx.post(service.url + "/v1/streams", json={"name": "a", **spec}).status_code == 201
        assert httpx.post(service.url + "/v1/streams", json={"name": "a", **spec}).status_code == 201
        full = httpx.post(service.url + "/v1/streams", json={"name": "b", **spec})
        assert full.status_code == 413, full.text
        rows = {"decisions": [{"observation": [1]}] * 3}
        assert httpx.post(service.url + "/v1/streams/a/decisions/batch", json=rows).status_code == 413
        assert httpx.post(service.url + "/v1/streams/a/decisions", content=b" " * 501).status_code == 413


@pytest.mark.slow
def test_no_answered_decision_is_lost_if_one_of_two_workers_is_killed(tmp_path: Path, postgres: Server) -> None:
    answered: list[str] = []
    stop = threading.Event()

    def send_requests(url: str) -> None:
        with hs.Client(url, retries=10) as client:
            while not stop.is_set():
                answered.append(client.decide("s", [1.0, 2.0]).id)

    with serving(tmp_path, "--database", postgres.database(), "--workers", "2") as service:
        with hs.Client(service.url, retries=10) as client:
            client.create_stream("s", observed=2, arms=2, agent="ts-pco")
        callers = [threading.Thread(target=send_requests, args=(service.url,)) for _ in range(4)]
        for caller in callers:
            caller.start()
        until(lambda: len(answered) >= 50 and sum(workers_ready(service.url).values()) == 2)
        os.kill(min(workers_ready(service.url)), signal.SIGKILL)
        before = len(answered)
        until(lambda: len(answered) >= before + 50)
        stop.set()
        for caller in callers:
            caller.join()
        lines = httpx.get(service.url + "/v1/streams/s/journal", timeout=60).text.splitlines()
        recorded = [line["id"] for line in map(json.loads, lines) if line["kind"] == "decided"]
        assert set(answered) <= set(recorded)
        assert len(set(recorded)) == len(recorded)
        assert service.stop() == 0, service.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--workers", "2"],
            "workers: expected 1, because only a PostgreSQL database can be shared by several workers, got 2",
        ),
        (["--limit", "bach=2"], "Did you mean 'batch'?"),
        (["--limit", "batch=two"], "limit batch: expected a number, got 'two'"),
        (["--limit", "batch=0"], "batch: expected a number of at least 1, got 0"),
        (["--database", "mysql://user:hush@host/x"], "database: expected"),
        (["--database", "no/such/folder/x.db"], "Cannot open the database 'no/such/folder/x.db'"),
        (["--host", "999.1.1.1"], "host: expected"),
    ],
)
def test_invalid_options_are_refused_in_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run_here(tmp_path, "serve", "--port", "0", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "hush" not in done.stderr


def test_a_port_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run_command(tmp_path, "serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert done.stderr.startswith("error: port: expected a free address, got 127.0.0.1:")
    assert len(done.stderr.splitlines()) == 1


def test_the_access_log_is_optional_and_does_not_contain_tokens(tmp_path: Path) -> None:
    secret = run_here(tmp_path, "token", "create", "--scope", "read").stdout.strip()
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


def announce_and_stop(address: str, closed: bool) -> None:
    announced.append(address)
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("handlers")
def test_a_port_in_use_is_refused_before_a_database_is_created(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HalfseenError, match="expected a free address"):
            serve(ServeOptions(str(tmp_path / "x.db")), host="127.0.0.1", port=port, announce=announce_and_stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("handlers")
def test_if_two_services_start_at_the_same_time_only_one_gets_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have bound the port before one of them listens."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        monkeypatch.setattr(serving_module, "_warm_up", other.listen)
        options, port = ServeOptions(str(tmp_path / "x.db")), other.getsockname()[1]
        with pytest.raises(HalfseenError, match=r"port: expected a free address, got 127.0.0.1:\d+ \(.+\)"):
            serve(options, host="127.0.0.1", port=port, announce=announce_and_stop)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_the_engine_is_opening_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    closed: list[bool] = []
    original_open, original_close = Engine.open, Engine.close

    async def open_with_signal(*arguments: object) -> Engine:
        os.kill(os.getpid(), number)
        return await original_open(*arguments)  # type: ignore[arg-type]

    async def close(self: Engine) -> None:
        await original_close(self)
        closed.append(True)

    monkeypatch.setattr(Engine, "open", open_with_signal)
    monkeypatch.setattr(Engine, "close", close)
    serve(ServeOptions(str(tmp_path / "x.db")), host="127.0.0.1", port=0, announce=announce_and_stop)
    assert closed == [True]
    assert announced == []


# ---------------------------------------------------------------------- workers that do not start


@contextmanager
def failing_workers(scenario: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir()
    variables = environment()
    process = subprocess.Popen(
        [sys.executable, "-m", "service.failing_workers", scenario, str(folder)],
        env=variables | {"PYTHONPATH": os.pathsep.join([str(TESTS), variables["PYTHONPATH"]])},
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


def group_exists(process: subprocess.Popen[str]) -> bool:
    """Return whether a process of the process group is running."""
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_all_workers_end_if_the_first_ends_before_it_is_ready(tmp_path: Path) -> None:
    with failing_workers("first_dies", tmp_path / "workers") as process:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 2, output
        assert "A worker ended before it was ready." in output
        until(lambda: not group_exists(process), 10)  # the resource tracker of multiprocessing ends a little later


@pytest.mark.slow
def test_all_workers_end_if_one_cannot_be_started_again(tmp_path: Path) -> None:
    with failing_workers("third_fails", tmp_path / "workers") as process:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        until(lambda: len(list((tmp_path / "workers").iterdir())) >= 2, 30)
        os.kill(max(workers), signal.SIGKILL)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 2, output
        assert "A worker could not be started." in output


@pytest.mark.slow
def test_a_worker_that_starts_slowly_is_not_replaced(tmp_path: Path) -> None:
    """On a busy machine it may take longer to start than a running worker may take to answer."""
    with failing_workers("third_is_slow", tmp_path / "workers") as process:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        until(lambda: len(list((tmp_path / "workers").iterdir())) >= 2, 30)
        os.kill(max(workers), signal.SIGKILL)
        until(lambda: (tmp_path / "workers" / "awake").exists())


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_worker_that_waits_for_its_database_can_be_ended(tmp_path: Path, number: signal.Signals) -> None:
    with failing_workers("waiting", tmp_path / "workers") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        expected = r"Worker \d+ waits until the database is available. The database does not answer.\n"
        assert re.fullmatch(expected, line)
        process.send_signal(number)
        output, _ = process.communicate(timeout=30)
        assert process.returncode in (0, -number), output  # 3 would mean a failed start, which ends all workers
        if number == signal.SIGTERM:
            assert output == ""


def test_a_worker_waits_until_tokens_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wait_for_database, "_RETRY_SECONDS", 0.01)
    errors = [refusal("unavailable", "no answer")] * 2 + [refusal("internal", "a bug")]
    original_refresh = Authorizer.refresh

    async def refresh(self: Authorizer) -> None:
        if errors:
            raise errors.pop(0)
        await original_refresh(self)

    async def start() -> None:
        async with running_app(ServeOptions(str(tmp_path / "x.db")), wait=True):
            pass

    monkeypatch.setattr(Authorizer, "refresh", refresh)
    with pytest.raises(ServiceError, match="a bug"):  # no wait, because waiting does not fix a bug
        asyncio.run(start())
    assert errors == []
    assert len([1 for record in caplog.records if "waits until the database is available" in record.message]) == 1
    errors[:] = [refusal("unavailable", "no answer")]
    asyncio.run(start())
    errors[:] = [refusal("unavailable", "no answer")]
    with pytest.raises(ServiceError, match="no answer"):  # a single process does not wait
        asyncio.run(start_without_waiting(tmp_path))


async def start_without_waiting(folder: Path) -> None:
    async with running_app(ServeOptions(str(folder / "x.db"))):
        pass


# ---------------------------------------------------------------------- what is logged


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_each_worker_logs_once_that_the_database_is_unavailable_and_available(
    tmp_path: Path, server: Server, workers: int
) -> None:
    with serving(tmp_path, "--database", server.database(), "--workers", str(workers)) as service:
        client = httpx.Client(base_url=service.url, timeout=60)

        def ask() -> int:
            return client.post("/v1/streams/s/decisions", json={"observation": [1, 2]}).status_code

        client.post("/v1/streams", json=SPEC)
        until(lambda: sum(workers_ready(service.url).values()) == workers)  # otherwise a worker might not start
        before = len(service.output)
        server.stop()
        until(lambda: ask() == 503)
        for _ in range(10):
            assert ask() == 503
        until(lambda: len(service.output) >= before + workers)
        server.start()
        until(lambda: len(service.output) >= before + 2 * workers)  # also from workers that got no request
        assert ask() == 200
        client.close()
        logged = sorted(service.output[before:], key=lambda line: "available again" in line)
        assert service.stop() == 0, service.text
    assert len(logged) == 2 * workers, logged
    for line in logged[:workers]:
        expected = r"Worker \d+: The database is unavailable, so requests get 503. .+ cannot be used now: .+\n"
        assert re.fullmatch(expected, line)
    for line in logged[workers:]:
        assert re.fullmatch(r"Worker \d+: The database is available again, after [\d.]+ seconds.\n", line)


def test_workers_end_with_a_supervisor_that_is_killed(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answered request is recorded, as at SIGTERM.

    The service is started as by the command `halfseen`, in a folder with files that have the names of modules.
    """
    script = tmp_path / "halfseen"
    script.write_text("from halfseen.cli.app import main\nif __name__ == '__main__':\n    main()\n")
    monkeypatch.setattr("service.served.COMMAND", [sys.executable, str(script)])
    folder, answered, stop = tmp_path / "folder", [], threading.Event()
    folder.mkdir()
    for module in ("token", "multiprocessing"):
        (folder / f"{module}.py").write_text("raise SystemExit(7)")
    database = postgres.database()

    def call(caller: int) -> None:
        with httpx.Client(base_url=service.url, timeout=30) as client:
            while not stop.is_set():
                try:
                    reply = client.post("/v1/streams/s/decisions", json={"observation": [caller, 1]})
                except httpx.TransportError:
                    return
                assert reply.status_code in (200, 503), reply.text
                answered.extend([reply.json()["id"]] * (reply.status_code == 200))

    with serving(folder, "--database", database, "--workers", "2") as service:
        httpx.post(service.url + "/v1/streams", json=SPEC | {"agent": "adaptive"}).raise_for_status()
        until(lambda: sum(workers_ready(service.url).values()) == 2)
        callers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
        for caller in callers:
            caller.start()
        until(lambda: len(answered) > 200)
        processes = descendants(service.process.pid)
        assert len(processes) >= 3  # two workers, and the identification process of at least one
        os.kill(service.process.pid, signal.SIGKILL)
        until(lambda: not any(is_running(pid) for pid in processes), 20)
        stop.set()
        for caller in callers:
            caller.join()
        with socket.create_server(("127.0.0.1", httpx.URL(service.url).port or 0)):
            pass  # the port is free
        assert service.text.count("The supervisor has ended") == 2
        assert "Traceback" not in service.text
    journal = open_journal(database)
    recorded = {event.id for event in journal.all_events(journal.stream("s").id) if event.kind == "decided"}  # type: ignore[union-attr]
    journal.close()
    assert len(set(answered)) == len(answered)
    assert recorded.issuperset(answered)


def descendants(pid: int) -> list[int]:
    """Return the children of a process and their children."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    return children + [one for child in children for one in descendants(child)]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_death_of_a_worker_is_logged(tmp_path: Path, postgres: Server) -> None:
    with serving(tmp_path, "--database", postgres.database(), "--workers", "2") as service:
        before = len(service.output)
        until(lambda: sum(workers_ready(service.url).values()) == 2)
        killed = min(workers_ready(service.url))
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(service.output) > before)
        expected = rf"Worker {killed} ended with SIGKILL. Worker \d+ was started.\n"
        assert re.fullmatch(expected, service.output[before])
        assert service.stop() == 0
        assert "ended with" not in "".join(service.output[before + 1 :])


@pytest.mark.slow
def test_a_worker_that_starts_without_a_database_waits_and_does_not_end_others(tmp_path: Path, server: Server) -> None:
    with serving(tmp_path, "--database", server.database(), "--workers", "2") as service:
        httpx.post(service.url + "/v1/streams", json=SPEC).raise_for_status()
        until(lambda: sum(workers_ready(service.url).values()) == 2)
        server.stop()
        before = set(workers_ready(service.url))
        os.kill(min(before), signal.SIGKILL)
        until(lambda: "waits until the database is available" in service.text)
        assert set(workers_ready(service.url)) == {max(before)}
        server.start()
        until(lambda: sum(workers_ready(service.url).values()) == 2)
        with httpx.Client(base_url=service.url, timeout=60) as client:
            until(lambda: client.post("/v1/streams/s/decisions", json={"observation": [1, 2]}).status_code == 200)
        server.stop()
        os.kill(max(before), signal.SIGKILL)
        until(lambda: service.text.count("waits until the database is available") == 2)
        assert service.stop() == 0  # although a worker is waiting


@on_engine()
async def test_a_full_disk_is_logged_once_until_it_can_be_written_again(engine, tmp_path, caplog) -> None:  # type: ignore[no-untyped-def]
    """A database on a full disk can still be read, but it still counts as unavailable."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    await engine.create_stream(spec())
    full = max(file.stat().st_size for file in tmp_path.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (full, before[1]))
    try:
        for _ in range(6):
            assert "cannot be used" in await expect_error(decide(engine, 1), "unavailable", 503)
            await asyncio.sleep(0.2)  # several sweeps, which read the database
        assert not engine.ready()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    await eventually(engine.ready)
    logged = [record.message for record in caplog.records if record.name == "halfseen.service"]
    states = [("cannot be used" in line, "available again" in line) for line in logged]
    assert states == [(True, False), (False, True)], logged


def test_the_database_driver_logs_nothing_about_a_lost_connection(
    postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres.database()
    journal = open_journal(url)
    other = psycopg.connect(url, autocommit=True)

    def close_connection() -> None:
        pid = journal._connection.info.backend_pid  # type: ignore[attr-defined]
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        until(lambda: not other.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall())

    try:
        close_connection()
        with journal.transaction():  # nothing was locked yet, so the journal connects again
            assert journal.lock_streams(["nobody"]) == {}
        journal.begin()
        journal.lock_streams(["nobody"])
        close_connection()
        journal._deferred += [(b"SELECT 1", ())] * 20  # type: ignore[attr-defined]  # sent with the commit
        with pytest.raises(JournalUnavailable, match="cannot be used now"):
            journal.commit()
    finally:
        journal.close()
        other.close()
    assert [record.message for record in caplog.records if record.name.startswith("psycopg")] == []
