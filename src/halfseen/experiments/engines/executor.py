"""What an executor is: it plays the slices of an experiment. The numbers do not depend on which one does."""

from __future__ import annotations

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from typing import Any, Self, TypeVar

from halfseen.experiments.plan import CHUNK, Slice
from halfseen.experiments.play import OnProgress, play

Outcome = TypeVar("Outcome")
Play = Callable[[Slice, OnProgress], Outcome]
Outcomes = Iterator[tuple[Slice, Outcome]]
_POLL_SECONDS = 0.1


class ParallelExecutor(ABC):
    """Plays slices on several workers. Once this context manager is left, nothing that it started is running."""

    workers: int  # how many slices are played at the same time
    _exit_stack: contextlib.ExitStack

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    def prepare(self, samples: Sequence[Slice]) -> None:
        """Compile the kernels that slices such as `samples` need, once instead of in every worker."""
        for sample in samples:
            compile_kernels(sample)

    def run(self, function: Play[Outcome], tasks: Iterable[Slice], on_progress: OnProgress) -> Outcomes[Outcome]:
        """Call `function(task, on_progress)` for every task, and yield tasks with their outcomes as they finish.

        Tasks are taken only when a worker is about to be free, so that the next one can be chosen by then. The
        `on_progress` that `function` is given raises `Cancelled` when the run was given up. What is reported to it
        anywhere is reported to `on_progress` here: no round twice, and none that is lost with its worker.
        """
        waiting = iter(tasks)
        running: dict[Future[Any], Slice] = {}
        reported = self._rounds_played()
        while True:
            for task in itertools.islice(waiting, max(0, self._capacity() - len(running))):
                running[self._submit(function, task)] = task
            if not running:
                return
            for future in wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                yield task, self._outcome(future, task)
            played = self._rounds_played()
            on_progress(played - reported)
            reported = played

    @abstractmethod
    def _start(self, stack: contextlib.ExitStack) -> None:
        """Start the workers, and register with `stack` what ends them."""

    @abstractmethod
    def _capacity(self) -> int:
        """Return how many tasks are submitted at a time: more than are played, so that no worker waits."""

    @abstractmethod
    def _submit(self, function: Play[Any], task: Slice) -> Future[Any]: ...

    @abstractmethod
    def _outcome(self, future: Future[Any], task: Slice) -> Any: ...

    @abstractmethod
    def _rounds_played(self) -> int:
        """Return how many stream-rounds all workers have played so far."""


def compile_kernels(sample: Slice, _: OnProgress | None = None) -> None:
    """Play a few rounds of the slice. What raises here will raise again when the slice is played."""
    with contextlib.suppress(Exception):
        play(replace(sample, seeds=sample.seeds[:1], rounds=min(sample.rounds, CHUNK + 1)), lambda _: None)
