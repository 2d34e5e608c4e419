"""Identify models in a separate process, which ends with its parent and is started again if it ends earlier.

The parent writes agents to the standard input of the process and reads replies from its standard output. Each message
is eight bytes with the length, followed by the content. A reply is one byte that says whether a model was identified,
followed by the model or by the reason why there is none.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from typing import IO

_LENGTH = struct.Struct(">Q")
_MODEL, _FAILURE = b"+", b"-"
_EXIT_SECONDS = 1.0  # how long to wait for the exit code of a process that has closed its output


class IdentificationFailed(Exception):
    """No model was identified, for the reason in the message."""

    def __init__(self, reason: str, *, process_ended: bool = False) -> None:
        super().__init__(reason)
        self.process_ended = process_ended


class IdentificationProcess:
    """The identification process, as seen by its parent. Only one thread at a time may call `identify`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def identify(self, agent: bytes, seconds: float) -> bytes:
        """Return the model of an agent as bytes. Raise IdentificationFailed if there is none within `seconds`."""
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        try:
            process = self._ensure_running()
            assert process.stdin is not None
            assert process.stdout is not None
            timer.start()
            _write(process.stdin, agent)
            reply = _read(process.stdout)
        except (OSError, EOFError, AssertionError) as error:
            ended = self._exit_reason()
            self._end()
            if late.is_set():
                raise IdentificationFailed(f"The identification took more than {seconds:g} seconds.") from None
            what = f"ended with {ended}." if ended else f"cannot be started: {error}"
            raise IdentificationFailed(f"The identification process {what}", process_ended=True) from None
        finally:
            timer.cancel()
        if reply[:1] == _FAILURE:
            raise IdentificationFailed(reply[1:].decode(errors="replace"))
        return reply[1:]

    def _exit_reason(self) -> str | None:
        if self._process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)
        return exit_reason(self._process.returncode)

    def start(self) -> None:
        """Start the process early, because a stream decides at random until its agent is first refitted."""
        with contextlib.suppress(OSError, EOFError):
            self._ensure_running()

    def _ensure_running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise EOFError
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                # -P: a file in the working directory must not take the place of a module.
                [sys.executable, "-P", "-m", "halfseen.service.engine.identification"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # so that Ctrl-C interrupts only the parent, which then ends this process
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
        """End the process, even in the middle of a task."""
        self._closed = True
        self._end()


def exit_reason(code: int | None) -> str:
    """Return how a process ended: "exit code 1" or the name of a signal."""
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


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
    """Identify a small model, so that all kernels are compiled and loaded before the first task."""
    import numpy as np

    from halfseen.agents.catalogue import make

    agent = make("adaptive", observed=2, arms=2, seed=0, refit="manual")
    for y in np.random.default_rng(0).normal(size=(30, 2)):
        agent.learn(agent.decide(y), float(y[0]))
    agent.refit()


def main() -> None:
    """Run in the separate process: identify one model after another until the parent closes the pipe or dies."""
    if hasattr(os, "nice"):
        os.nice(10)  # decisions have priority
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # text printed to standard output goes to standard error, so that it does not mix with the replies
    tasks: queue.Queue[bytes] = queue.Queue()

    def listen() -> None:
        try:
            while True:
                tasks.put(_read(sys.stdin.buffer))
        except (EOFError, OSError):
            os._exit(0)  # even in the middle of a task, because nobody waits for its result

    threading.Thread(target=listen, daemon=True).start()
    _warm_up()
    while True:
        task = tasks.get()
        try:
            reply = _MODEL + _identify(task)
        except Exception as error:
            reply = _FAILURE + f"{type(error).__name__}: {error}".encode()
        _write(replies, reply)


if __name__ == "__main__":
    main()
