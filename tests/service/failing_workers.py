"""Run workers that fail to start, with their supervisor: `python -m service.failing_workers SCENARIO FOLDER`.

The workers need no PostgreSQL database, because they do not answer requests.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from halfseen.errors import HalfseenError
from halfseen.journal.events import JournalUnavailable
from halfseen.service.app import ServeOptions, create_app
from halfseen.service.serving import Workers, server_settings


async def idle(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """An application that starts and ends, but answers no requests."""
    while scope["type"] == "lifespan":
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def failing(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "cannot start"})


def _number(folder: Path) -> int:
    """Return how many processes were started before this one. Each process creates a file in `folder`."""
    number = len(list(folder.iterdir()))
    while True:
        try:
            (folder / str(number)).open("x").close()
            return number
        except FileExistsError:
            number += 1


def first_dies(folder: Path) -> Any:
    """One worker dies before it is ready. It first waits for the other worker, which stays alive."""
    (folder / str(os.getpid())).touch()
    while len(pids := sorted(int(path.name) for path in folder.iterdir())) < 2:
        time.sleep(0.01)
    if os.getpid() == pids[0]:
        os._exit(1)
    return idle


def third_fails(folder: Path) -> Any:
    """Two workers start. A third worker, which replaces one of them, cannot start."""
    return idle if _number(folder) < 2 else failing


def third_is_slow(folder: Path) -> Any:
    """Two workers start. A third worker, which replaces one of them, cannot answer for a while."""
    return idle


def _import_slowly(folder: Path) -> None:
    if _number(folder) == 2:
        time.sleep(4.0)
        (folder / "awake").touch()


def waiting(folder: Path) -> Any:
    """The database is never available, so the worker waits."""

    async def open_nothing(*_: object) -> None:
        raise JournalUnavailable("The database does not answer.")

    import halfseen.service.app as module

    module.Engine.open = open_nothing  # type: ignore[method-assign, assignment]
    return create_app(ServeOptions(str(folder / "none.db")))


def main(scenario: str, folder: Path) -> None:
    app = functools.partial(globals()[scenario], folder)
    listening = socket.create_server(("127.0.0.1", 0))
    if scenario == "waiting":
        config = uvicorn.Config(app, factory=True, lifespan="on", **server_settings())
        uvicorn.Server(config).run([listening])
        return
    config = uvicorn.Config(app, factory=True, lifespan="on", **server_settings(workers=2))
    if scenario == "third_is_slow":
        config.timeout_worker_healthcheck = 1
    workers = Workers(config, listening, lambda: print("ready", flush=True))
    try:
        workers.run()
    except HalfseenError as error:
        print(error, flush=True)
        sys.exit(2)


if __name__ == "__mp_main__" and sys.argv[1] == "third_is_slow":  # a worker imports this file before it can answer
    _import_slowly(Path(sys.argv[2]))

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
