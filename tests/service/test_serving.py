"""`serve` in this process: who gets the port, what is made before a refusal, and a signal that comes too early."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfseen.errors import HalfseenError
from halfseen.service import serving
from halfseen.service.app import ServeOptions
from halfseen.service.engine.engine import Engine
from halfseen.service.serving import serve

NUMBERS = (signal.SIGINT, signal.SIGTERM)
announced: list[str] = []


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(serving, "_warm_up", lambda: None)
    before = {number: signal.getsignal(number) for number in NUMBERS}
    announced.clear()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def never(address: str, closed: bool) -> None:
    announced.append(address)
    os.kill(os.getpid(), signal.SIGTERM)  # or it would serve for ever


def test_a_port_in_use_is_refused_before_a_database_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HalfseenError, match="an address that is free"):
            serve(ServeOptions(str(tmp_path / "x.db")), host="127.0.0.1", port=port, announce=never)
    assert list(tmp_path.iterdir()) == []


def test_of_two_that_start_at_the_same_moment_one_gets_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are bound before either listens; the other is the first to."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        monkeypatch.setattr(serving, "_warm_up", other.listen)
        with pytest.raises(HalfseenError, match=r"port: got 127.0.0.1:\d+ \(.+\); want an address that is free"):
            serve(ServeOptions(str(tmp_path / "x.db")), host="127.0.0.1", port=other.getsockname()[1], announce=never)


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
