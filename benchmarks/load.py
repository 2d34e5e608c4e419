"""A load generator that is not the bottleneck: raw sockets on one event loop, each connection one request at a time."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from dataclasses import dataclass, field

from uvloop import new_event_loop


@dataclass
class Load:
    """What came out of one run."""

    done: int = 0
    refused: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.done / self.seconds

    def percentile(self, share: float) -> float:
        """Milliseconds within which that share of the requests was answered."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class _Connection(asyncio.Protocol):
    """Sends the next request when the last is answered, until the time is over."""

    def __init__(self, requests: list[bytes], load: Load, until: float, over: asyncio.Future[None]) -> None:
        self._requests, self._load, self._until, self._over = requests, load, until, over
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
        if now < self._until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._over.done():
            self._over.set_result(None)


def request(path: str, body: bytes) -> bytes:
    fields = ("Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {len(body)}")
    return "\r\n".join((f"POST {path} HTTP/1.1", *fields, "", "")).encode() + body


def drive(port: int, requests: list[bytes], *, connections: int, seconds: float) -> Load:
    """All connections for so many seconds."""

    async def main() -> Load:
        loop, load = asyncio.get_running_loop(), Load()
        began = time.perf_counter()
        waiting = []
        for number in range(connections):
            over = loop.create_future()
            own = requests[number % len(requests) :] + requests[: number % len(requests)]
            plug = socket.create_connection(("127.0.0.1", port))
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plug.setblocking(False)
            until = began + seconds
            await loop.create_connection(lambda o=over, r=own, u=until: _Connection(r, load, u, o), sock=plug)
            waiting.append(over)
        await asyncio.gather(*waiting)
        load.seconds = time.perf_counter() - began
        return load

    gc.collect()
    gc.disable()  # a pause here would be counted against the server
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(main())
    finally:
        gc.enable()
