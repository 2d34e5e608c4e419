"""Run the service: bind the socket, start one or several worker processes, and shut down cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.supervisors import Multiprocess

from halfseen.errors import HalfseenError, invalid
from halfseen.journal.journal import Token, open_journal
from halfseen.service.app import HEADERS, ServeOptions, create_app, running_app
from halfseen.service.auth import is_live, is_loopback
from halfseen.service.http_protocol import UpgradeDecliningProtocol
from halfseen.service.metrics import FOLDER_VARIABLE

Announce = Callable[[str, bool], None]  # called with the address, and whether tokens are required
_BACKLOG = 2048
_LOG = logging.getLogger("halfseen.service")
_SHUTDOWN_SECONDS = 10  # for requests in progress


def _is_postgres(database: str) -> bool:
    return database.startswith(("postgresql://", "postgres://"))


def serve(
    options: ServeOptions, *, host: str, port: int, workers: int = 1, access_log: bool = False, announce: Announce
) -> None:
    """Serve until SIGTERM or SIGINT. Raise an error before listening if the settings are unsafe."""
    if workers > 1 and not _is_postgres(options.database):
        raise invalid("workers", "1, because only a PostgreSQL database can be shared by several workers", workers)
    loopback = is_loopback(host)
    if options.no_auth and not loopback:
        raise invalid("host", "a loopback address such as 127.0.0.1, which no-auth requires", host)
    if not loopback and _is_new_file(options.database):
        raise _token_required(host)
    with _bind(host, port) as listening:  # binding comes first, so that no database is created if the port is in use
        tokens = _read_tokens(options.database)
        if not loopback and not any(is_live(token, time.time()) for token in tokens):
            raise _token_required(host)
        options = replace(options, loopback=loopback)
        _warm_up()
        _listen(listening, host, port)
        config = server_settings(access_log, workers)
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        closed = not options.no_auth and (bool(tokens) or not loopback)
        run = _serve_many if workers > 1 else _serve_one
        run(config, options, listening, lambda: announce(address, closed))


def _token_required(host: str) -> HalfseenError:
    expected = "a loopback address such as 127.0.0.1, or a token first (halfseen token create --scope admin)"
    return invalid("host", expected, f"{host} and no valid token")


def _is_new_file(database: str) -> bool:
    """Return whether the database is a file that does not exist. Opening such a database would create the file."""
    return "://" not in database and not os.path.exists(database)


def _read_tokens(database: str) -> list[Token]:
    """Open the journal and read the tokens. Opening it creates or migrates the tables, once for all workers."""
    with contextlib.closing(open_journal(database)) as journal:
        return journal.tokens()


def server_settings(access_log: bool = False, workers: int = 1) -> dict[str, Any]:
    """Return the settings of uvicorn. The access log is off by default, as it costs two fifths of the throughput."""
    return {
        "workers": workers,
        "access_log": access_log,
        "log_level": "info" if access_log else "warning",
        "server_header": False,
        "headers": HEADERS,
        "ws": "none",
        "http": UpgradeDecliningProtocol,
        "proxy_headers": False,  # the address of the caller is not used
        "timeout_graceful_shutdown": _SHUTDOWN_SECONDS,
        "backlog": _BACKLOG,
    }


def _bind(host: str, port: int) -> socket.socket:
    with _address_errors(host, port):
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    bound.set_inheritable(True)
    return bound


def _listen(bound: socket.socket, host: str, port: int) -> None:
    """Listen on a bound socket. This can fail, because several processes can bind a port but only one can listen."""
    with _address_errors(host, port):
        bound.listen(_BACKLOG)


@contextlib.contextmanager
def _address_errors(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise invalid("port", "a free address", f"{host}:{port} ({error.strerror or error})") from None


def _warm_up() -> None:
    """Play two rounds, so that the first request does not have to wait until kernels are compiled or loaded."""
    from halfseen.agents.catalogue import make

    agent = make("adaptive", observed=1, arms=2, seed=0, refit="manual")
    agent.learn(agent.decide([0.0]).id, 0.0)
    agent.refit()
    agent.learn(agent.decide([1.0]).id, 1.0)


class _Server(uvicorn.Server):
    """A server that calls `ready` when it accepts requests, and does not start if a signal to end was received."""

    def __init__(self, config: uvicorn.Config, signals: list[int], ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._signals, self._ready = signals, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._signals:
            self.should_exit = True
            return
        await super().startup(sockets)
        self._ready()


def _serve_one(
    config: dict[str, Any], options: ServeOptions, listening: socket.socket, ready: Callable[[], None]
) -> None:
    signals: list[int] = []

    async def main() -> None:
        async with running_app(options) as app:
            await _Server(uvicorn.Config(app, lifespan="off", **config), signals, ready).serve([listening])

    # uvicorn replaces these handlers while it runs. Afterwards it restores them and raises the signals again.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: signals.append(received))
    loop_factory = uvicorn.Config(None, **config).get_loop_factory()  # type: ignore[arg-type]
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def _serve_many(
    config: dict[str, Any], options: ServeOptions, listening: socket.socket, ready: Callable[[], None]
) -> None:
    app = functools.partial(create_app, options)
    settings = uvicorn.Config(app, factory=True, lifespan="on", **config)
    Workers(settings, listening, ready).run()


class Workers(Multiprocess):
    """Worker processes that share one socket.

    Calls `ready` when the first worker has started, and logs when a worker has died.
    """

    def __init__(self, config: uvicorn.Config, listening: socket.socket, ready: Callable[[], None]) -> None:
        super().__init__(config, [listening])
        self._ready = ready
        self._pids: set[int | None] = set()
        self._start_failed = False

    def run(self) -> None:
        """Run until SIGTERM or SIGINT. Raise an error if a worker cannot be started again."""
        with _shared_metrics():
            super().run()
        if self._start_failed:
            raise HalfseenError("A worker could not be started. Its error messages are above.")

    def init_processes(self) -> None:
        super().init_processes()
        self._pids = {process.pid for process in self.processes}
        while not self.processes[0].wait_until_ready(1.0, self.should_exit):
            self.handle_signals()
            if self.should_exit.is_set():
                return
            if self.processes[0].exitcode is not None:
                self.should_exit.set()
                self.terminate_all()  # the base class would leave the other workers running
                self.join_all()
                raise HalfseenError("A worker ended before it was ready. Its error messages are above.")
        self._ready()

    def keep_subprocess_alive(self) -> None:
        if self.should_exit.is_set():
            return
        before = list(self.processes)
        super().keep_subprocess_alive()
        pids = {process.pid for process in self.processes}
        for pid in self._pids - pids:  # including workers that were ended by a signal
            mark_process_dead(pid)
        self._pids = pids
        self._start_failed = self.should_exit.is_set()  # set if the base class could not start a worker
        for old, new in zip(before, self.processes, strict=True):
            if new is not old:
                _LOG.error(
                    "Worker %s ended with %s. Worker %s was started.", old.pid, _exit_reason(old.exitcode), new.pid
                )


@contextlib.contextmanager
def _shared_metrics() -> Iterator[None]:
    """Make new processes store their metrics in a shared folder, so that each can sum those of all processes."""
    try:
        folder = tempfile.mkdtemp(prefix="halfseen-metrics-")
    except OSError as error:
        reason = f"The folder for the metrics of the workers cannot be created: {error.strerror}."
        raise HalfseenError(f"{reason} Set TMPDIR to a folder that can be written to.") from None
    os.environ[FOLDER_VARIABLE] = folder
    try:
        yield
    finally:
        del os.environ[FOLDER_VARIABLE]
        shutil.rmtree(folder, ignore_errors=True)


def _exit_reason(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def stopped_message(options: ServeOptions) -> str:
    """Return the message to print at the end. It does not contain the URL, which may contain a password."""
    database = "PostgreSQL" if _is_postgres(options.database) else os.path.abspath(options.database)
    return f"Stopped. All answered requests are recorded in {database}."
