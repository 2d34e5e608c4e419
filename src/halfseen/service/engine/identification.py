"""Finding models in a process of its own, started once and gone with its parent.

Frames go both ways through its standard input and output: eight bytes of length, then a packed agent there, a packed
model back (nothing if there was none to be found).
"""

from __future__ import annotations

import contextlib
import os
import queue
import struct
import subprocess
import sys
import threading
from typing import IO

_LENGTH = struct.Struct(">Q")


class Identification:
    """The parent's end. `find` is for one caller at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def find(self, agent: bytes) -> bytes | None:
        """The model of a packed agent, empty if none was found; None if the process did not live to tell."""
        try:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            _write(process.stdin, agent)
            return _read(process.stdout)
        except (OSError, EOFError, AssertionError):
            self._end()
            return None

    def start(self) -> None:
        """Have the process there, and warm, before it is needed: until a first model a stream decides by lot."""
        with contextlib.suppress(OSError, EOFError):
            self._started()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _started(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise EOFError
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "halfseen.service.engine.identification"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the parent, which ends it
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def close(self) -> None:
        """End the process, whatever it is at."""
        self._closed = True
        self._end()


def _write(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    content = pipe.read(length)
    if len(content) < length:
        raise EOFError
    return content


def _found(content: bytes) -> bytes:
    """The packed model of a packed agent."""
    from halfseen.agents.catalogue import from_bytes
    from halfseen.service.engine.loaded_stream import pack_model

    agent = from_bytes(content, "copy")
    agent.refit()
    return pack_model(agent.model())


def _warm_up() -> None:
    """One identification, so that the first that is waited for finds all kernels compiled and loaded."""
    import numpy as np

    from halfseen.agents.catalogue import make

    agent = make("adaptive", observed=2, arms=2, seed=0, refit="manual")
    for y in np.random.default_rng(0).normal(size=(30, 2)):
        agent.learn(agent.decide(y), float(y[0]))
    agent.refit()


def main() -> None:
    """The child's end: one job after another until the parent closes the pipe, or dies, which closes it too."""
    if hasattr(os, "nice"):
        os.nice(10)  # decisions first
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints is no frame
    jobs: queue.Queue[bytes] = queue.Queue()

    def listen() -> None:
        try:
            while True:
                jobs.put(_read(sys.stdin.buffer))
        except (EOFError, OSError):
            os._exit(0)  # in the middle of a job too: nobody waits for it

    threading.Thread(target=listen, daemon=True).start()
    _warm_up()
    while True:
        job = jobs.get()
        try:
            model = _found(job)
        except Exception as error:
            print(f"identification: {type(error).__name__}: {error}", file=sys.stderr)
            model = b""
        _write(answers, model)


if __name__ == "__main__":
    main()
