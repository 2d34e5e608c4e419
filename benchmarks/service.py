"""Measures decisions per second over HTTP, compared with endpoints that do nothing, with one worker each.

python -m benchmarks.service [SECONDS] [REPEATS] [AGENT]
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from uvloop import new_event_loop

from halfseen.reports.tables import Table

OBSERVED, ARMS, CONNECTIONS = 20, 15, 64
STREAM = {"name": "load", "observed": OBSERVED, "arms": ARMS, "agent": "ts-pco", "seed": 1}
PATH = "/v1/streams/load/decisions"
FASTAPI, PLAIN = "empty, FastAPI and pydantic", "empty, plain route and msgspec"
SQLITE, POSTGRES = "decisions on SQLite", "decisions on PostgreSQL"


@dataclass
class Load:
    """The requests of one run."""

    done: int = 0
    refused: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.done / self.seconds

    def percentile(self, share: float) -> float:
        """Return the milliseconds within which this share of the requests was answered."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class _Connection(asyncio.Protocol):
    """Sends a request after every response, until the time is over.

    It uses a raw socket, so that the load generator is not the bottleneck.
    """

    def __init__(self, requests: list[bytes], load: Load, until: float, over: asyncio.Future[None], once: bool) -> None:
        self._requests, self._load, self._until, self._over, self._once = requests, load, until, over, once
        self._next, self._head, self._want, self._got = 0, b"", -1, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._began = time.perf_counter()
        self._transport.write(self._requests[self._next])  # type: ignore[attr-defined]
        self._next = (self._next + 1) % len(self._requests)

    def data_received(self, data: bytes) -> None:
        if self._want < 0:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            at = self._head.find(b"content-length: ") + 16
            self._want = int(self._head[at : self._head.index(b"\r", at)])
            self._got = len(self._head) - end - 4
        else:
            self._got += len(data)
        if self._got < self._want:
            return
        now = time.perf_counter()
        self._load.latencies.append(now - self._began)
        if self._head.startswith(b"HTTP/1.1 200"):
            self._load.done += 1
        else:
            self._load.refused += 1
        self._head, self._want = b"", -1
        if now < self._until and (self._next > 0 or not self._once):
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._over.done():
            self._over.set_result(None)


def request(path: str, value: object) -> bytes:
    body = json.dumps(value).encode()
    fields = ("Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {len(body)}")
    return "\r\n".join((f"POST {path} HTTP/1.1", *fields, "", "")).encode() + body


def drive(port: int, requests: list[bytes], *, connections: int, seconds: float, once: bool = False) -> Load:
    """Send requests on all connections for this many seconds. With `once`, send every request only once."""

    async def main() -> Load:
        loop, load = asyncio.get_running_loop(), Load()
        began = time.perf_counter()
        waiting = []
        for number in range(connections):
            over = loop.create_future()
            own = requests[number % len(requests) :] + requests[: number % len(requests)]
            if once:
                own = requests[number::connections]
            plug = socket.create_connection(("127.0.0.1", port))
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plug.setblocking(False)
            until = began + seconds
            await loop.create_connection(lambda o=over, r=own, u=until: _Connection(r, load, u, o, once), sock=plug)
            waiting.append(over)
        await asyncio.gather(*waiting)
        load.seconds = time.perf_counter() - began
        return load

    gc.collect()
    gc.disable()  # a pause of the load generator would be measured as latency of the server
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(main())
    finally:
        gc.enable()


def decision_requests() -> list[dict[str, list[float]]]:
    draw = random.Random(0)
    return [{"observation": [round(draw.gauss(0, 1), 6) for _ in range(OBSERVED)]} for _ in range(256)]


@contextlib.contextmanager
def started(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=folder, env=os.environ, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextlib.contextmanager
def empty(kind: str) -> Iterator[int]:
    port = free_port()
    with started(["benchmarks.empty_services", kind, str(port)], Path.cwd()):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield port


@contextlib.contextmanager
def served(database: str) -> Iterator[int]:
    with started(["halfseen", "serve", "--port", "0", "--database", database], Path.cwd()) as process:
        assert process.stderr is not None
        found = None
        while not found:
            line = process.stderr.readline()
            if not line:
                raise RuntimeError("The service did not start.")
            found = re.search(r"listens on http://127.0.0.1:(\d+)", line)
        port = int(found[1])
        httpx.post(f"http://127.0.0.1:{port}/v1/streams", json=STREAM, timeout=60).raise_for_status()
        yield port


@contextlib.contextmanager
def postgres() -> Iterator[str | None]:
    """Yield the address of a database on a new PostgreSQL server, or None if PostgreSQL is not installed."""
    try:
        sys.path.append(str(Path(__file__).parents[1] / "tests"))
        from postgres_server import Server

        server = Server()
    except BaseException as error:  # pytest's exceptions are not subclasses of Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        print(f"PostgreSQL is not measured: {error}", file=sys.stderr)
        yield None
        return
    try:
        server.start()
        yield server.database()
    finally:
        server.remove()


def measure(seconds: float, repeats: int) -> dict[str, list[Load]]:
    """Start all servers, and measure each of them under load, in turn and repeatedly."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ports = {
            FASTAPI: stack.enter_context(empty("fastapi")),
            PLAIN: stack.enter_context(empty("plain")),
            SQLITE: stack.enter_context(served(str(Path(folder) / "load.db"))),
        }
        database = stack.enter_context(postgres())
        if database:
            ports[POSTGRES] = stack.enter_context(served(database))
        requests = [request(PATH, value) for value in decision_requests()]
        for port in ports.values():
            drive(port, requests, connections=CONNECTIONS, seconds=min(1.0, seconds))  # warm-up
        loads: dict[str, list[Load]] = {name: [] for name in ports}
        for _ in range(repeats):
            for name, port in ports.items():
                loads[name].append(drive(port, requests, connections=CONNECTIONS, seconds=seconds))
        for name, runs in loads.items():
            refused = sum(load.refused for load in runs)
            if refused:
                raise RuntimeError(f"{name}: {refused} requests failed")
        return loads


def summary(loads: dict[str, list[Load]]) -> list[dict[str, Any]]:
    """Return one row per endpoint. The best run counts, because other load on the machine only slows a run down."""
    rate = {name: max(load.per_second for load in runs) for name, runs in loads.items()}
    p50, p99 = (
        {name: min(load.percentile(share) for load in runs) for name, runs in loads.items()} for share in (0.5, 0.99)
    )
    return [
        {
            "endpoint": name,
            "requests/s": f"{rate[name]:,.0f}",
            "ratio to FastAPI": f"{rate[name] / rate[FASTAPI]:.2f}",
            "ratio to plain": f"{rate[name] / rate[PLAIN]:.2f}",
            "p50 ms": f"{p50[name]:.1f}",
            "p99 ms": f"{p99[name]:.1f}",
            "p99 ratio to plain": f"{p99[name] / p99[PLAIN]:.2f}",
        }
        for name in loads
    ]


def main(arguments: list[str]) -> None:
    seconds = float(arguments[0]) if arguments else 2.0
    repeats = int(arguments[1]) if len(arguments) > 1 else 9
    if len(arguments) > 2:
        STREAM["agent"] = arguments[2]
    loads = measure(seconds, repeats)
    print(Table(summary(loads)).markdown())
    print(
        f"\nOne worker, d = {OBSERVED}, K = {ARMS}, agent {STREAM['agent']}, {CONNECTIONS} connections, every commit "
        f"synced; best of {repeats} runs of {seconds:g} s each, in turn."
    )
    folder = Path("results/bench")
    folder.mkdir(parents=True, exist_ok=True)
    samples = {name: [[load.per_second, load.percentile(0.5), load.percentile(0.99)] for load in runs]
            for name, runs in loads.items()}  # fmt: skip
    (folder / "service.json").write_text(json.dumps(samples, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
