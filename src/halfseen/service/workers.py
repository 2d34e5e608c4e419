"""Several processes behind one socket: watched, started again when one ends, and ended together."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable

import uvicorn
from uvicorn.supervisors import Multiprocess

from halfseen.errors import HalfseenError

_LOG = logging.getLogger("halfseen.service")


class Workers(Multiprocess):
    """Says when the first worker answers, and when one has ended that nobody asked to."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket, ready: Callable[[], None]) -> None:
        super().__init__(config, [listening])
        self._ready = ready
        self._not_started = False

    def run(self) -> None:
        """Until SIGTERM or SIGINT; an error if a worker cannot be started: it would fail at every other attempt too."""
        super().run()
        if self._not_started:
            raise HalfseenError("workers: got one that could not be started; its own words are above")

    def init_processes(self) -> None:
        super().init_processes()
        while not self.processes[0].wait_until_ready(1.0, self.should_exit):
            self.handle_signals()
            if self.should_exit.is_set():
                return
            if self.processes[0].exitcode is not None:
                self.should_exit.set()
                self.terminate_all()  # nobody would look after those that are left, and the end would wait for them
                self.join_all()
                raise HalfseenError("workers: got one that ended before it answered; its own words are above")
        self._ready()

    def keep_subprocess_alive(self) -> None:
        if self.should_exit.is_set():
            return
        before = list(self.processes)
        super().keep_subprocess_alive()
        self._not_started = self.should_exit.is_set()  # which is done there for no other reason
        for old, new in zip(before, self.processes, strict=True):
            if new is not old:
                _LOG.error("worker %s ended with %s; worker %s was started", old.pid, _end(old.exitcode), new.pid)


def _end(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
