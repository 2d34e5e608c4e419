"""A worker that starts while the database is away waits for it: the others go on, and so does the service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from halfseen.journal.events import JournalAway
from halfseen.service.errors import ServiceError

T = TypeVar("T")
_LOG = logging.getLogger("halfseen.service")
_SECONDS = 0.5  # between two attempts


class AskedToEnd(Exception):
    """The process was asked to end while it waited."""


async def patiently(attempt: Callable[[], Awaitable[T]]) -> T:
    """What `attempt` gives once the database is there, or AskedToEnd if the process is asked to end before."""
    with _asked_to_end() as asked:
        told = False
        while True:
            try:
                return await attempt()
            except (JournalAway, ServiceError) as error:
                if isinstance(error, ServiceError) and error.code != "unavailable":
                    raise
                if not told and not asked:
                    _LOG.error("worker %s: %s; it starts when the database is back", os.getpid(), error)
                    told = True
                if not asked:
                    await asyncio.sleep(_SECONDS)
                if asked:
                    raise AskedToEnd from None


@contextlib.contextmanager
def _asked_to_end() -> Iterator[list[int]]:
    """The signals to end that have come; whoever listened to them before hears of them as well."""
    asked: list[int] = []
    before: dict[int, Any] = {}

    def hear(number: int, frame: Any) -> None:
        asked.append(number)
        if callable(before[number]):
            before[number](number, frame)

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, hear)
    try:
        yield asked
    finally:
        for listened, handler in before.items():
            signal.signal(listened, handler)
