"""The engine for one machine: several processes."""

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
from multiprocessing import resource_tracker
from typing import Any

from halfseen.errors import HalfseenError
from halfseen.experiments.engines.engine import Done, Engine, Tick, Work, check_source
from halfseen.experiments.play import Stopped
from halfseen.experiments.source import source_hash
from halfseen.kernels.compiling import QUIET

CHILD_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", QUIET), "1")
NO_GUARD = "asked for by a script without `if __name__ == '__main__':`"
_POLL_SECONDS = 0.1


class Processes(Engine):
    """Processes that live as long as the work, and no longer than this one."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def work_through(
        self,
        work: Callable[[Work, Tick], Done],
        pieces: Iterable[Work],
        tick: Tick,
        heard: Callable[[int, Done], None],
    ) -> None:
        context = multiprocessing.get_context("spawn")
        done, stop = context.Value("q", 0), context.Value("b", 0)
        start = (done, stop, os.getpid(), source_hash())
        pool = ProcessPoolExecutor(self.workers, mp_context=context, initializer=_start_worker, initargs=start)
        told = 0
        todo = enumerate(pieces)
        running: dict[Future[Done], int] = {}
        try:
            while True:
                wanted = self.workers + 1 - len(running)  # one more than can play, so that nobody waits
                if taken := list(itertools.islice(todo, wanted)):
                    with starting_children():  # within the `try` that ends them
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
                f"a worker process ended before its work was done: killed, out of memory, or jobs > 1 was {NO_GUARD}"
            ) from None
        finally:
            stop.value = 1
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def starting_children() -> Iterator[None]:
    """Children start with one BLAS thread each, because the processes are the parallelism, and deaf to Ctrl-C."""
    before = {name: os.environ.get(name) for name in CHILD_ENVIRONMENT}
    os.environ.update(CHILD_ENVIRONMENT)
    can_block = hasattr(signal, "pthread_sigmask")  # not on Windows
    if can_block:
        resource_tracker.ensure_running()  # started later, it would lift the mask of the thread that starts it
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


def _start_worker(done: Any, stop: Any, parent: int, source: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    _worker.update(done=done, stop=stop, source=source)
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


def _in_worker(work: Callable[[Work, Tick], Done], piece: Work) -> Done:
    check_source(_worker["source"])
    return work(piece, _tick_in_worker)
