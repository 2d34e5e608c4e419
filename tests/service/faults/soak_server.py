"""A process that loads all modules and kernels once, and forks a service for each line on its standard input.

So a service that was killed is running again after a fraction of a second. Its workers and its identification process
are new processes that load everything themselves, as in production. The services read the clock with an offset, which
the soak changes to make the clock jump: the clock of the machine itself must not be changed.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import sys
import time
from pathlib import Path

from halfseen.service import serving
from halfseen.service.app import ServeOptions
from halfseen.service.engine import store
from halfseen.service.schemas import EngineSettings

OFFSET = struct.Struct("q")  # microseconds
SETTINGS = EngineSettings(snapshot_every=150, sweep_seconds=0.2, max_loaded_bytes=400_000, lock_seconds=5.0)


def _use_clock(path: Path) -> None:
    with path.open("rb") as file:
        shared = mmap.mmap(file.fileno(), OFFSET.size, access=mmap.ACCESS_READ)
    store._now = lambda: time.time_ns() // 1000 + OFFSET.unpack(shared)[0]


def _serve(task: dict) -> None:
    log = os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    options = ServeOptions(task["database"], no_auth=True, settings=SETTINGS)
    serving.serve(
        options, host="127.0.0.1", port=task["port"], workers=task["workers"], announce=lambda address, closed: None
    )


def main() -> None:
    serving._warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed services do not stay behind as zombies
    print("loaded", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                _serve(json.loads(line))
            except BaseException as error:
                print(f"The service ended: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(0)
        print(pid, flush=True)


if "SOAK_CLOCK" in os.environ:  # also in workers, which import this file
    _use_clock(Path(os.environ["SOAK_CLOCK"]))

if __name__ == "__main__":
    main()
