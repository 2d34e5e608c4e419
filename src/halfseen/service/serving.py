"""Running the service: the socket, one process or several, and an end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import uvicorn

from halfseen.errors import HalfseenError, invalid
from halfseen.journal.journal import Token, open_journal
from halfseen.service.app import HEADERS, ServeOptions, create_app, running
from halfseen.service.auth import is_loopback, live
from halfseen.service.one_write import OneWrite
from halfseen.service.workers import Workers

Announce = Callable[[str, bool], None]  # the address, and whether tokens are asked for
_BACKLOG = 2048
_GRACE = 10  # seconds for requests under way when the service is asked to end


def is_postgres(database: str) -> bool:
    return database.startswith(("postgresql://", "postgres://"))


def serve(
    options: ServeOptions, *, host: str, port: int, workers: int = 1, access_log: bool = False, announce: Announce
) -> None:
    """Serve until SIGTERM or SIGINT. What is not safe is refused before anything listens."""
    if workers > 1 and not is_postgres(options.database):
        raise invalid("workers", workers, "1, or a database in PostgreSQL, which several can share")
    loopback = is_loopback(host)
    if options.no_auth and not loopback:
        raise invalid("no-auth", f"with host {host}", "a loopback host such as 127.0.0.1")
    if not loopback and _is_new_file(options.database):
        raise _without_token(host)
    with _bind(host, port) as listening:  # first: who is refused for a port in use need not find a database made
        tokens = _tokens(options.database)
        if not loopback and not any(live(token, time.time()) for token in tokens):
            raise _without_token(host)
        options = replace(options, loopback=loopback)
        _warm_up()
        _listen(listening, host, port)
        config = server_settings(access_log, workers)
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        closed = not options.no_auth and (bool(tokens) or not loopback)
        run = _serve_many if workers > 1 else _serve_one
        run(config, options, listening, lambda: announce(address, closed))


def _without_token(host: str) -> HalfseenError:
    wanted = "a token first (halfseen token create --scope admin), or host 127.0.0.1"
    return invalid("host", f"{host} without a live token", wanted)


def _is_new_file(database: str) -> bool:
    """Whether it is a file that is not there: who is refused for want of a token in it need not find one made."""
    return "://" not in database and not os.path.exists(database)


def _tokens(database: str) -> list[Token]:
    """Read from the journal, whose tables are made or migrated here, once; what is wrong with them is said now."""
    journal = open_journal(database)
    try:
        return journal.tokens()
    finally:
        journal.close()


def server_settings(access_log: bool = False, workers: int = 1) -> dict[str, Any]:
    """What uvicorn is told. No access log unless it is asked for: it costs two fifths of the speed."""
    return {
        "workers": workers,
        "access_log": access_log,
        "log_level": "info" if access_log else "warning",
        "server_header": False,
        "headers": HEADERS,
        "ws": "none",
        "http": OneWrite,
        "proxy_headers": False,  # nobody here asks for the caller's address
        "timeout_graceful_shutdown": _GRACE,
        "backlog": _BACKLOG,
    }


def _bind(host: str, port: int) -> socket.socket:
    with _told(host, port):
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(where)
        except OSError:
            bound.close()
            raise
    bound.set_inheritable(True)
    return bound


def _listen(bound: socket.socket, host: str, port: int) -> None:
    """Take the port for good: until one of them listens, several can be bound to it."""
    with _told(host, port):
        bound.listen(_BACKLOG)


@contextlib.contextmanager
def _told(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise invalid("port", f"{host}:{port} ({error.strerror or error})", "an address that is free") from None


def _warm_up() -> None:
    """One round, so that the first request does not wait for kernels to be compiled, or read from their cache."""
    from halfseen.agents.catalogue import make

    agent = make("adaptive", observed=1, arms=2, seed=0, refit="manual")
    agent.learn(agent.decide([0.0]).id, 0.0)
    agent.refit()
    agent.learn(agent.decide([1.0]).id, 1.0)


class _Server(uvicorn.Server):
    """Says when it listens; does not even begin to if the process was asked to end before."""

    def __init__(self, config: uvicorn.Config, asked: list[int], ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._asked, self._ready = asked, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._asked:
            self.should_exit = True
            return
        await super().startup(sockets)
        self._ready()


def _serve_one(
    config: dict[str, Any], options: ServeOptions, listening: socket.socket, ready: Callable[[], None]
) -> None:
    asked: list[int] = []

    async def main() -> None:
        async with running(options) as app:
            await _Server(uvicorn.Config(app, lifespan="off", **config), asked, ready).serve([listening])

    # Heard until uvicorn listens to them itself. It ends in good order and then raises them again: nobody minds.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda number, _: asked.append(number))
    loop_factory = uvicorn.Config(None, **config).get_loop_factory()  # type: ignore[arg-type]
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def _serve_many(
    config: dict[str, Any], options: ServeOptions, listening: socket.socket, ready: Callable[[], None]
) -> None:
    app = functools.partial(create_app, options)
    settings = uvicorn.Config(app, factory=True, lifespan="on", **config)
    Workers(settings, listening, ready).run()


def stopped_words(options: ServeOptions) -> str:
    """Said at the end; never a password."""
    where = "PostgreSQL" if is_postgres(options.database) else os.path.abspath(options.database)
    return f"stopped; everything answered is in {where}"
