"""Workers that meet with trouble, and a supervisor for them: `python -m service.workers_play PLAY FOLDER`.

PostgreSQL is what several workers share in earnest; how they start and end is the same without.
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


async def quiet(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Starts, ends, and answers nothing."""
    while scope["type"] == "lifespan":
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def broken(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "cannot start"})


def _number(folder: Path) -> int:
    """How many came before; each process leaves a file."""
    number = len(list(folder.iterdir()))
    while True:
        try:
            (folder / str(number)).open("x").close()
            return number
        except FileExistsError:
            number += 1


def first_dies(folder: Path) -> Any:
    """Both wait to see each other, so that one is there when the first of them ends."""
    (folder / str(os.getpid())).touch()
    while len(pids := sorted(int(path.name) for path in folder.iterdir())) < 2:
        time.sleep(0.01)
    if os.getpid() == pids[0]:
        os._exit(1)
    return quiet


def third_fails(folder: Path) -> Any:
    """Two that start; one of them ends, and the one in its place cannot start."""
    return quiet if _number(folder) < 2 else broken


def waiting(folder: Path) -> Any:
    """The database is away for good."""

    async def away(*_: object) -> None:
        raise JournalUnavailable("database: away")

    import halfseen.service.app as module

    module.Engine.open = away  # type: ignore[method-assign, assignment]
    return create_app(ServeOptions(str(folder / "none.db")))


def main(play: str, folder: Path) -> None:
    app = functools.partial(globals()[play], folder)
    listening = socket.create_server(("127.0.0.1", 0))
    if play == "waiting":
        config = uvicorn.Config(app, factory=True, lifespan="on", **server_settings())
        uvicorn.Server(config).run([listening])
        return
    config = uvicorn.Config(app, factory=True, lifespan="on", **server_settings(workers=2))
    workers = Workers(config, listening, lambda: print("ready", flush=True))
    try:
        workers.run()
    except HalfseenError as error:
        print(error, flush=True)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
