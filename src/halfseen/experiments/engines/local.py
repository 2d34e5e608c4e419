"""Executors for one machine: this process, or several processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from typing import Any

from halfseen.errors import HalfseenError, invalid
from halfseen.experiments.cache import source_hash
from halfseen.experiments.engines.executor import Outcome, Outcomes, ParallelExecutor, Play
from halfseen.experiments.plan import Slice
from halfseen.experiments.play import Cancelled, OnProgress
from halfseen.kernels.compiling import QUIET

CHILD_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", QUIET), "1")
NO_GUARD = "used by a script without `if __name__ == '__main__':`"


class SerialExecutor(contextlib.AbstractContextManager["SerialExecutor", None]):
    """Plays one slice after the other in this process."""

    workers = 1

    def __exit__(self, *_: object) -> None: ...

    def prepare(self, samples: Sequence[Slice]) -> None:
        """Do nothing, because the first slice compiles the kernels."""

    def run(self, function: Play[Outcome], tasks: Iterable[Slice], on_progress: OnProgress) -> Outcomes[Outcome]:
        """Call `function(task, on_progress)` for every task, and yield each task with its outcome."""
        for task in tasks:
            yield task, function(task, on_progress)


class ProcessExecutor(ParallelExecutor):
    """Plays slices in child processes that end with this process."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def _start(self, stack: contextlib.ExitStack) -> None:
        context = multiprocessing.get_context("spawn")
        self._played, cancelled = context.Value("q", 0), context.Event()
        self._pool = ProcessPoolExecutor(
            self.workers,
            mp_context=context,
            initializer=_start_worker,
            initargs=(self._played, cancelled, source_hash()),
        )
        stack.callback(self._pool.shutdown, wait=True, cancel_futures=True)
        stack.callback(cancelled.set)

    def prepare(self, samples: Sequence[Slice]) -> None:
        """Check that the slices can be sent to other processes, and compile the kernels."""
        for sample in samples:
            _check_picklable(sample)
        super().prepare(samples)

    def _capacity(self) -> int:
        return self.workers + 1

    def _submit(self, function: Play[Any], task: Slice) -> Future[Any]:
        with starting_children(), _reporting_lost_workers():
            return self._pool.submit(_run_in_worker, function, task)

    def _outcome(self, future: Future[Any], task: Slice) -> Any:
        with _reporting_lost_workers():
            return future.result()

    def _rounds_played(self) -> int:
        return int(self._played.value)


def _check_picklable(sample: Slice) -> None:
    """Raise if a user's own agent or world cannot be sent to another process, for example a local function."""
    parts: dict[str, Any] = {spec.label: spec for spec in sample.agents if spec.is_own}
    for label, part in (parts | {sample.world.name: sample.world}).items():
        try:
            pickle.dumps(part)
        except Exception:
            expected = f"1, or '{label}' at the top level of a module, where other processes find it"
            raise invalid("jobs", expected, "more processes") from None


@contextlib.contextmanager
def _reporting_lost_workers() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool:
        raise HalfseenError(
            f"A worker process ended early. It was killed, ran out of memory, or jobs > 1 was {NO_GUARD}"
        ) from None


@contextlib.contextmanager
def starting_children() -> Iterator[None]:
    """Set the environment for starting child processes: one BLAS thread per process, and Ctrl-C blocked."""
    before = {name: os.environ.get(name) for name in CHILD_ENVIRONMENT}
    os.environ.update(CHILD_ENVIRONMENT)
    can_block = hasattr(signal, "pthread_sigmask")  # not on Windows
    if can_block:
        resource_tracker.ensure_running()  # starting the tracker later would reset the signal mask of this thread
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


_worker: dict[str, Any] = {}  # the arguments of `_start_worker`, if this process is a worker


def _start_worker(played: Any, cancelled: Any, source: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles Ctrl-C
    _worker.update(played=played, cancelled=cancelled, source=source)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Wait for the parent process, and end this worker when the parent ends or is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _count_rounds(rounds: int) -> None:
    if _worker["cancelled"].is_set():
        raise Cancelled
    with _worker["played"].get_lock():
        _worker["played"].value += rounds


def _run_in_worker(function: Play[Outcome], task: Slice) -> Outcome:
    if source_hash() != _worker["source"]:  # the files may have changed since the parent started
        raise HalfseenError("The source code of halfseen changed during the run. Start the run again.")
    try:
        return function(task, _count_rounds)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # the parent could not unpickle the error, and would report a lost worker
            readable = RuntimeError(f"{type(error).__name__}: {error}")
            readable.__notes__ = getattr(error, "__notes__", [])
            raise readable from error
        raise
