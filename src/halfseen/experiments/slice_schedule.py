"""Plays slices of one agent each, in parallel, and saves their summaries, so that an interrupted run can continue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple

from halfseen.experiments.cache import SliceStore
from halfseen.experiments.engines.executor import ParallelExecutor
from halfseen.experiments.engines.local import SerialExecutor
from halfseen.experiments.plan import Slice
from halfseen.experiments.slice_summary import SliceSummary, play_and_summarise, world_and_agent


class Progress(NamedTuple):
    """The progress of a run, counted in slices."""

    done: int  # including the slices of an earlier run
    total: int
    resumed: int  # slices of an earlier run
    failed: int  # slices whose agent raised an exception
    others: int  # slices in the folder that are not part of this run: they have other settings or other code
    seconds_left: float | None  # None while there is no estimate


class Schedule:
    """The slices to play. The slowest slice comes first, so that no worker plays it alone at the end.

    The duration of a slice is estimated from finished slices of the same agent in the same world, or else from finished
    slices of the same agent in other worlds. The first slice of each agent comes before all slices whose duration can
    be estimated, so that every agent soon has a finished slice.
    """

    def __init__(self, slices: Iterable[Slice]) -> None:
        self._unstarted = list(slices)
        self._running: dict[int, Slice] = {}  # by `id`, because slices with arrays as options cannot be compared
        self._started_agents: set[str] = set()
        self._spent: dict[str | tuple[str, str], tuple[float, int]] = {}  # seconds and stream-rounds

    def __iter__(self) -> Iterator[Slice]:
        """Yield the slices. The next slice is chosen only when it is requested."""
        while self._unstarted:
            task = self._unstarted.pop(
                max(range(len(self._unstarted)), key=lambda index: self._priority(self._unstarted[index]))
            )
            self._running[id(task)] = task
            self._started_agents.add(task.agents[0].label)
            yield task

    def finished(self, task: Slice, seconds: float) -> None:
        """Record the duration of a finished slice of this run or of an earlier run."""
        self._running.pop(id(task), None)
        self._started_agents.add(task.agents[0].label)
        for key in (world_and_agent(task), task.agents[0].label):
            spent, size = self._spent.get(key, (0.0, 0))
            self._spent[key] = spent + seconds, size + task.size

    def seconds_left(self) -> float | None:
        """Return the remaining time, summed over workers, or None while some agent has no finished slice."""
        expected = [self._expected_seconds(task) for task in [*self._unstarted, *self._running.values()]]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) if len(known) == len(expected) else None

    def _priority(self, task: Slice) -> float:
        is_first = task.agents[0].label not in self._started_agents
        return float("inf") if is_first else self._expected_seconds(task) or 0.0

    def _expected_seconds(self, task: Slice) -> float | None:
        for key in (world_and_agent(task), task.agents[0].label):
            if key in self._spent:
                seconds, size = self._spent[key]
                return seconds * task.size / size
        return None


def play_slices(
    slices: Sequence[Slice],
    executor: SerialExecutor | ParallelExecutor,
    store: SliceStore | None,
    progress: Callable[[Progress], None],
) -> tuple[list[SliceSummary], int]:
    """Return the summary of every slice in the given order, and the number of summaries read from the store."""
    results: dict[int, SliceSummary] = {}  # by `id` of the slice
    if store is not None:
        results = {id(task): saved for task in slices if (saved := _read_summary(store, task)) is not None}
    todo = [task for task in slices if id(task) not in results]
    resumed, others = len(results), 0 if store is None else len(store.others(slices))
    schedule = Schedule(todo)
    for task in slices:
        if id(task) in results:
            schedule.finished(task, results[id(task)].wall_seconds)
    workers = max(1, min(executor.workers, len(todo)))

    def report() -> None:
        left = schedule.seconds_left()
        failed = sum(result.error is not None for result in results.values())
        left_per_worker = None if left is None else left / workers
        progress(Progress(len(results), len(slices), resumed, failed, others, left_per_worker))

    report()
    if todo:
        executor.prepare(list({task.agents[0].label: task for task in todo}.values()))
        for task, result in executor.run(play_and_summarise, schedule, lambda _: None):
            if store is not None and result.error is None:
                store.write(task, asdict(result))
            results[id(task)] = result
            schedule.finished(task, result.wall_seconds)
            report()
    return [results[id(task)] for task in slices], resumed


def _read_summary(store: SliceStore, task: Slice) -> SliceSummary | None:
    outcome = store.read(task)
    try:
        return None if outcome is None else SliceSummary(**outcome)
    except TypeError:  # a slice that was saved by `run`
        return None
