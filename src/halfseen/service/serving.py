"""Run the service: bind the socket, start one or several worker processes, and shut down cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from halfseen.errors import HalfseenError, invalid
from halfseen.journal.address import is_new_file, is_postgres, sqlite_path
from halfseen.journal.journal import Token, open_journal
from halfseen.service.app import HEADERS, ServeOptions, create_app, running_app
from halfseen.service.auth import is_live, is_loopback
from halfseen.service.engine.identification import exit_reason
from halfseen.service.http_protocol import HttpProtocol
from halfseen.service.metrics import FOLDER_VARIABLE

Announce = Callable[[str, bool], None]  # called with the address, and whether tokens are required
_BACKLOG = 2048
_LOG = logging.getLogger("halfseen.service")
_SHUTDOWN_SECONDS = 10  # for requests in progress
_START_SECONDS = 120.0  # for a worker, which may have to compile kernels


def serve(
    options: ServeOptions, *, host: str, port: int, workers: int = 1, access_log: bool = False, announce: Announce
) -> None:
    """Serve until SIGTERM or SIGINT. Raise an error before listening if the settings are unsafe."""
    if workers > 1 and not is_postgres(options.database):
        raise invalid("workers", "1, because only a PostgreSQL database can be shared by several workers", workers)
    loopback = is_loopback(host)
    if options.no_auth and not loopback:
        raise invalid("host", "a loopback address such as 127.0.0.1, which no-auth requires", host)
    if not loopback and is_new_file(options.database):
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
        "http": HttpProtocol,
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
    settings = uvicorn.Config(functools.partial(_create_worker_app, options), factory=True, lifespan="on", **config)
    Workers(settings, listening, ready).run()


def _create_worker_app(options: ServeOptions) -> ASGIApp:
    end_with_supervisor()
    return create_app(options)


def end_with_supervisor() -> None:
    """Make this worker end when its supervisor ends, even if the supervisor is killed.

    The worker ends as it would end after SIGTERM. A worker without a supervisor would keep the port, and nothing would
    end or restart the worker.
    """
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None

    def wait() -> None:
        supervisor.join()  # waits for the end of a pipe that only the supervisor holds open
        _LOG.error("Worker %d: The supervisor has ended, so this worker ends too.", os.getpid())
        signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=wait, name="halfseen-supervisor", daemon=True).start()


class Workers(Multiprocess):
    """Worker processes that share one socket.

    Calls `ready` when the first worker has started, and logs when a worker has died.
    """

    def __init__(self, config: uvicorn.Config, listening: socket.socket, ready: Callable[[], None]) -> None:
        super().__init__(config, [listening])
        self._ready = ready
        self._pids: set[int | None] = set()
        self._started: dict[int | None, float] = {}  # when each worker was first seen, by process id
        self._answered: set[int | None] = set()  # the workers that have answered since they were started
        self._start_failed = False

    def run(self) -> None:
        """Run until SIGTERM or SIGINT. Raise an error if a worker cannot be started again."""
        # Without this, a new worker would import modules from the working directory until it gets the `sys.path` of
        # this process.
        os.environ["PYTHONSAFEPATH"] = "1"
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
        """Replace the workers that have ended, have not started in time or do not answer any more."""
        if self.should_exit.is_set():
            return
        for index, old in enumerate(self.processes):
            if self._is_alive(old):
                continue
            old.kill()
            old.join()
            if old.exitcode == STARTUP_FAILURE:  # it would fail in the same way again
                self._start_failed = True
                self.should_exit.set()
                return
            new = Process(self.config, self.sockets)
            new.start()
            self.processes[index] = new
            _LOG.error("Worker %s ended with %s. Worker %s was started.", old.pid, exit_reason(old.exitcode), new.pid)
        pids = {process.pid for process in self.processes}
        for pid in self._pids - pids:  # including workers that were ended by a signal
            mark_process_dead(pid)
            self._started.pop(pid, None)
            self._answered.discard(pid)
        self._pids = pids

    def _is_alive(self, worker: Process) -> bool:
        """Return whether a worker answers, or has been starting for less than `_START_SECONDS`.

        The base class gives a new worker five seconds. On a busy machine it would kill one worker after another.
        """
        if worker.pid in self._answered:
            return worker.is_alive(timeout=self.config.timeout_worker_healthcheck)
        began = self._started.setdefault(worker.pid, time.monotonic())
        if worker.is_alive(timeout=0):
            self._answered.add(worker.pid)
        return worker.exitcode is None and time.monotonic() - began < _START_SECONDS


@contextlib.contextmanager
def _shared_metrics() -> Iterator[None]:
    """Make new processes store their metrics in a shared folder, so that each process can sum all of them."""
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


def stopped_message(options: ServeOptions) -> str:
    """Return the message to print at the end. It does not contain the URL, which may contain a password."""
    path = sqlite_path(options.database)
    database = "PostgreSQL" if path is None else os.path.abspath(path)
    return f"Stopped. All answered requests are recorded in {database}."
