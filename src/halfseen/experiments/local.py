"""The engine for one machine: slices in this process, or over several."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from halfseen.compiler import QUIET
from halfseen.errors import HalfseenError
from halfseen.experiments.play import Track, play
from halfseen.experiments.specs import CHUNK, Slice

Tick = Callable[[int], None]
Piece = TypeVar("Piece")
Done = TypeVar("Done")
_POLL_SECONDS = 0.1


class Stopped(Exception):
    """Raised inside a worker when the run has been given up."""


def play_all(slices: list[Slice], jobs: int, tick: Tick) -> list[dict[str, Track]]:
    """Every slice played, in the order given. The numbers do not depend on `jobs`."""
    jobs = min(jobs, len(slices))
    if jobs > 1:
        compile_for(slices[0])
    played: dict[int, dict[str, Track]] = {}
    work_through(play, slices, jobs, tick, played.__setitem__)
    return [played[number] for number in range(len(slices))]


def work_through(
    work: Callable[[Piece, Tick], Done],
    pieces: Iterable[Piece],
    jobs: int,
    tick: Tick,
    heard: Callable[[int, Done], None],
) -> None:
    """`work` on every piece, in this process or over several; `heard` is given each outcome, numbered, as it comes.

    Pieces are taken only when somebody is about to be free, so that what is known by then may decide which is next.
    `work` is given a `tick` to call now and then; it raises when the run has been given up.
    """
    if jobs == 1:
        for number, piece in enumerate(pieces):
            heard(number, work(piece, tick))
        return
    context = multiprocessing.get_context("spawn")
    done, stop = context.Value("q", 0), context.Value("b", 0)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(done, stop, os.getpid()))
    told = 0
    todo = enumerate(pieces)
    running: dict[Future[Done], int] = {}
    try:
        while True:
            if taken := list(itertools.islice(todo, jobs + 1 - len(running))):  # one more, so that nobody waits
                with _starting_children():  # within the `try` that ends them
                    running |= {pool.submit(_in_worker, work, piece): number for number, piece in taken}
            if not running:
                return
            for future in wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED).done:
                heard(running.pop(future), future.result())
            now = done.value
            tick(now - told)
            told = now
    except BrokenProcessPool:
        raise HalfseenError(
            "a worker process ended before its work was done: killed, out of memory, or jobs > 1 was asked for by a "
            "script without `if __name__ == '__main__':`"
        ) from None
    finally:
        stop.value = 1
        pool.shutdown(wait=True, cancel_futures=True)


def compile_for(piece: Slice) -> None:
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


def _in_worker(work: Callable[[Piece, Tick], Done], piece: Piece) -> Done:
    return work(piece, _tick_in_worker)
