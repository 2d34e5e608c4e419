"""The base class of executors, which play the slices of an experiment in parallel.

The result of an experiment does not depend on the executor.
"""

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
    """Plays slices on several workers. It is a context manager, and all workers have ended when it exits."""

    workers: int  # number of slices played at the same time
    _exit_stack: contextlib.ExitStack

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    def prepare(self, samples: Sequence[Slice]) -> None:
        """Compile the kernels that slices like `samples` need, so that the workers need not compile them."""
        for sample in samples:
            compile_kernels(sample)

    def run(self, function: Play[Outcome], tasks: Iterable[Slice], on_progress: OnProgress) -> Outcomes[Outcome]:
        """Call `function(task, on_progress)` for every task in the workers, and yield tasks with their outcomes.

        Tasks are taken from the iterable as late as possible, so that the iterable can use all outcomes so far to
        choose the next task. Each worker gets its own `on_progress`, which raises `Cancelled` if the run was cancelled.
        The `on_progress` given here receives the number of rounds that all workers have played since its last call. A
        round that is played again after a worker was lost counts once.
        """
        remaining = iter(tasks)
        running: dict[Future[Any], Slice] = {}
        reported = self._rounds_played()
        while True:
            for task in itertools.islice(remaining, max(0, self._capacity() - len(running))):
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
        """Start the workers, and register callbacks on `stack` that stop them."""

    @abstractmethod
    def _capacity(self) -> int:
        """Return how many tasks may be submitted at a time: more than there are workers, so that no worker is idle."""

    @abstractmethod
    def _submit(self, function: Play[Any], task: Slice) -> Future[Any]: ...

    @abstractmethod
    def _outcome(self, future: Future[Any], task: Slice) -> Any: ...

    @abstractmethod
    def _rounds_played(self) -> int:
        """Return the number of stream-rounds that all workers have played so far."""


def compile_kernels(sample: Slice, _: OnProgress | None = None) -> None:
    """Play a few rounds of the slice. Exceptions are ignored here, because the whole slice will raise them again."""
    with contextlib.suppress(Exception):
        play(replace(sample, seeds=sample.seeds[:1], rounds=min(sample.rounds, CHUNK + 1)), lambda _: None)
