"""The engine for one machine: slices in this process, or over several."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from halfseen.compiler import QUIET
from halfseen.errors import HalfseenError
from halfseen.experiments.play import Track, play
from halfseen.experiments.specs import CHUNK, Slice

Tick = Callable[[int], None]
_POLL_SECONDS = 0.1


class Stopped(Exception):
    """Raised inside a worker when the run has been given up."""


def play_all(slices: list[Slice], jobs: int, tick: Tick) -> list[dict[str, Track]]:
    """Every slice played, in the order given. The numbers do not depend on `jobs`."""
    if jobs == 1 or len(slices) == 1:
        return [play(piece, tick) for piece in slices]
    _compile_for(slices[0])
    context = multiprocessing.get_context("spawn")
    done, stop = context.Value("q", 0), context.Value("b", 0)
    pool = ProcessPoolExecutor(
        min(jobs, len(slices)), mp_context=context, initializer=_start_worker, initargs=(done, stop, os.getpid())
    )
    told = 0
    try:
        with _starting_children():  # within the `try` that ends them
            futures = [pool.submit(_play_in_worker, piece) for piece in slices]
        waiting = set(futures)
        while waiting:
            finished, waiting = wait(waiting, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()
            now = done.value
            tick(now - told)
            told = now
        return [future.result() for future in futures]
    except BrokenProcessPool:
        raise HalfseenError(
            "a worker process ended before its work was done: killed, out of memory, or jobs > 1 was asked for by a "
            "script without `if __name__ == '__main__':`"
        ) from None
    finally:
        stop.value = 1
        pool.shutdown(wait=True, cancel_futures=True)


def _compile_for(piece: Slice) -> None:
    """A first taste of the work, so that kernels are compiled once and not by every worker at the same time."""
    play(replace(piece, seeds=piece.seeds[:1], rounds=min(piece.rounds, CHUNK + 1)), lambda _: None)


@contextmanager
def _starting_children() -> Iterator[None]:
    """Children start with one BLAS thread each, because the processes are the parallelism, and deaf to Ctrl-C."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", QUIET)
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    can_block = hasattr(signal, "pthread_sigmask")  # not on Windows
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if can_block else set()
    try:
        yield
    finally:
        if can_block:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_worker: dict[str, Any] = {}


def _start_worker(done: Any, stop: Any, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    _worker.update(done=done, stop=stop)
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    """A worker whose parent was killed has nobody to work for, and would wait for ever to be told so."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _tick_in_worker(rounds: int) -> None:
    if _worker["stop"].value:
        raise Stopped
    with _worker["done"].get_lock():
        _worker["done"].value += rounds


def _play_in_worker(piece: Slice) -> dict[str, Track]:
    return play(piece, _tick_in_worker)
