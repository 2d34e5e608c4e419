"""Wait until the database is available. If a worker failed to start instead, the service would end all workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from halfseen.journal.events import JournalUnavailable
from halfseen.service.errors import ServiceError

T = TypeVar("T")
_LOG = logging.getLogger("halfseen.service")
_RETRY_SECONDS = 0.5


class ShutdownRequested(Exception):
    """The process received a signal to end while it waited."""


async def wait_for_database(attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat `attempt` until the database is available. Raise ShutdownRequested on SIGTERM or SIGINT."""
    with _received_signals() as received:
        logged = False
        while True:
            try:
                return await attempt()
            except (JournalUnavailable, ServiceError) as error:
                if isinstance(error, ServiceError) and error.code != "unavailable":
                    raise
                if not logged and not received:
                    _LOG.error("Worker %s waits until the database is available. %s", os.getpid(), error)
                    logged = True
                if not received:
                    await asyncio.sleep(_RETRY_SECONDS)
                if received:
                    raise ShutdownRequested from None


@contextlib.contextmanager
def _received_signals() -> Iterator[list[int]]:
    """Collect the signals SIGTERM and SIGINT, and also call the previous handlers."""
    received: list[int] = []
    handlers: dict[int, Any] = {}

    def handle(number: int, frame: Any) -> None:
        received.append(number)
        if callable(handlers[number]):
            handlers[number](number, frame)

    for name in (signal.SIGTERM, signal.SIGINT):
        handlers[name] = signal.signal(name, handle)
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
