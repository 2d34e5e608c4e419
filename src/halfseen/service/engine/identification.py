"""Identification of models in a process of its own, which is started once and ends with its parent.

Messages go through its standard input and output: eight bytes of length, then an agent as bytes in one direction and
its model as bytes in the other (nothing if none could be identified).
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


class IdentificationProcess:
    """The parent's end. `identify` is for one caller at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def identify(self, agent: bytes) -> bytes | None:
        """The model of an agent, both as bytes; empty if there is none, None if the process died."""
        try:
            process = self._ensure_running()
            assert process.stdin is not None
            assert process.stdout is not None
            _write(process.stdin, agent)
            return _read(process.stdout)
        except (OSError, EOFError, AssertionError):
            self._end()
            return None

    def start(self) -> None:
        """Start the process before it is needed: until its first model a stream decides at random."""
        with contextlib.suppress(OSError, EOFError):
            self._ensure_running()

    def _ensure_running(self) -> subprocess.Popen[bytes]:
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


def _identify(content: bytes) -> bytes:
    from halfseen.agents.loading import from_bytes
    from halfseen.service.engine.loaded_stream import pack_model

    agent = from_bytes(content, "copy")
    agent.refit()
    return pack_model(agent.model())


def _warm_up() -> None:
    """Identify a small model, so that all kernels are compiled and loaded before the first request."""
    import numpy as np

    from halfseen.agents.catalogue import make

    agent = make("adaptive", observed=2, arms=2, seed=0, refit="manual")
    for y in np.random.default_rng(0).normal(size=(30, 2)):
        agent.learn(agent.decide(y), float(y[0]))
    agent.refit()


def main() -> None:
    """The child's end: one task after another until the parent closes the pipe, or dies, which closes it too."""
    if hasattr(os, "nice"):
        os.nice(10)  # decisions first
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # anything printed goes to standard error, and not between the replies
    tasks: queue.Queue[bytes] = queue.Queue()

    def listen() -> None:
        try:
            while True:
                tasks.put(_read(sys.stdin.buffer))
        except (EOFError, OSError):
            os._exit(0)  # in the middle of a task too: nobody waits for it

    threading.Thread(target=listen, daemon=True).start()
    _warm_up()
    while True:
        task = tasks.get()
        try:
            model = _identify(task)
        except Exception as error:
            print(f"identification: {type(error).__name__}: {error}", file=sys.stderr)
            model = b""
        _write(replies, model)


if __name__ == "__main__":
    main()
