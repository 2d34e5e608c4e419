"""`halfseen serve` as a process: how it starts, what it refuses, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from postgres_server import Server
from service.served import Served, run_command, serving

import halfseen as hs


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
    assert refused.stderr.startswith("error: host: got 0.0.0.0 without a live token; want a token first")
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

    def workers(url: str) -> set[int]:
        texts = [httpx.get(url + "/metrics").text for _ in range(30)]
        return {int(number) for text in texts for number in re.findall(r'worker="(\d+)"', text)}

    with serving(tmp_path, "--database", postgres.database(), "--workers", "2") as service:
        with hs.Client(service.url, retries=10) as client:
            client.create_stream("s", observed=2, arms=2, agent="ts-pco")
        callers = [threading.Thread(target=press, args=(service.url,)) for _ in range(4)]
        for caller in callers:
            caller.start()
        _until(lambda: len(answered) >= 50 and len(workers(service.url)) == 2)
        os.kill(min(workers(service.url)), signal.SIGKILL)
        seen = len(answered)
        _until(lambda: len(answered) >= seen + 50)
        stop.set()
        for caller in callers:
            caller.join()
        lines = httpx.get(service.url + "/v1/streams/s/journal", timeout=60).text.splitlines()
        kept = [line["id"] for line in map(json.loads, lines) if line["kind"] == "decided"]
        assert set(answered) <= set(kept)
        assert len(set(kept)) == len(kept)
        assert service.stop() == 0, service.text


def _until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 90
    while not done():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "2"], "workers: got 2; want 1, or a database in PostgreSQL"),
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
            _settle(service)
            assert ("/v1/streams" in service.text) is logged
            assert secret not in service.text
            assert "wrong" not in service.text


def _settle(service: Served) -> None:
    assert service.stop() == 0
