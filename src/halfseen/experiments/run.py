"""Run agents in worlds and collect a `Result`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from halfseen.agents.catalogue import AgentSpec
from halfseen.errors import invalid
from halfseen.experiments.cache import SliceStore
from halfseen.experiments.engines import choose_executor
from halfseen.experiments.plan import Experiment, Slice, experiment
from halfseen.experiments.play import Trajectories, play
from halfseen.experiments.result import Result
from halfseen.reports.files import check_folder, staged
from halfseen.worlds.world import World

MOST_SEEDS = 64  # of a slice: enough to make the Python between the kernels cheap, few enough for the cache
SAFE_SEEDS, SAFE_SLICES = 10, 16  # where slices can be lost or saved: no more seeds, unless there are that many slices
BETWEEN_KERNELS = 6  # streams that could be played in the time of the Python between the kernels
SLICES = "slices"  # the folder of the slices that are saved


class SavedSlices(NamedTuple):
    """How many slices are on disk."""

    done: int  # those of an earlier run included
    total: int
    resumed: int  # of an earlier run


def run(
    agents: Sequence[str | AgentSpec] | str | None = None,
    *,
    world: str | World | Sequence[str | World],
    rounds: int | None = None,
    seeds: int | Iterable[int] | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Play every agent in every world, on common random numbers.

    `seeds` is a count or the seeds themselves; every seed is one replication with its own world and noise, the
    same for all agents; recorded data are the same for all seeds. Left out, `agents` are a usual choice, `seeds` 20 and
    `rounds` 10,000; in recorded worlds 10 and all there are. `jobs` processes share the work without changing a
    number (a script that asks for more than one needs the usual `if __name__ == "__main__":`). So do the workers of a
    Dask `cluster`: "local:4" for four on this machine, or the address of a scheduler. `progress(done, total)` is told
    of stream-rounds.

    With `out`, a folder, the result is saved there, and slices (all agents on some seeds of one world) are kept in
    `out/slices` as soon as they are done: `resume` goes on from those of a run that was cut short, with any number of
    processes or workers.
    """
    plan = experiment(agents, world, rounds, seeds)
    if out is not None:
        check_folder(out)
    result = run_experiment(plan, jobs=jobs, cluster=cluster, out=out, resume=resume, progress=progress)
    if out is not None:
        with staged(out) as stage:
            result.save(stage)
    return result


def run_experiment(
    plan: Experiment,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    on_saved: Callable[[SavedSlices], None] | None = None,
) -> Result:
    """Run a ready-made experiment. Only its slices are written to `out`; `on_saved` is called after each of them."""
    if resume and out is None:
        raise invalid("resume", "out, the folder of the run to go on with", "no folder")
    store = None if out is None else SliceStore(Path(out) / SLICES)
    total = sum(plan.slice_of(world).size for world in plan.worlds)
    executor = choose_executor(jobs, cluster, most=len(plan.seeds) * len(plan.worlds))
    began = time.perf_counter()
    finished = _FinishedSlices(plan)
    if resume and store is not None:
        for world in plan.worlds:
            for seeds, outcome in store.read_same_key(plan.slice_of(world)):
                finished.add(world, seeds, [Trajectories(**one) for one in outcome["tracks"]])
        if not finished.count:
            store.check_resumable(plan)
    resumed, done = finished.count, finished.size

    def on_progress(rounds: int) -> None:
        nonlocal done
        done += rounds
        if progress is not None:
            progress(done, total)

    with executor:
        slices = finished.missing(executor.workers, safe=store is not None or cluster is not None)

        def report_saved() -> None:
            if on_saved is not None and store is not None:
                on_saved(SavedSlices(finished.count, resumed + len(slices), resumed))

        report_saved()
        if slices:
            on_progress(0)
            executor.prepare(list({task.world.name: task for task in slices}.values()))
            for task, trajectories in executor.run(play, slices, on_progress):
                per_agent = [trajectories[spec.label] for spec in plan.agents]
                if store is not None:
                    store.write(task, {"tracks": [vars(one) for one in per_agent]})
                finished.add(task.world, task.seeds, per_agent)
                report_saved()
    if store is not None and not resume:
        store.discard(keeping=slices)
    return Result(plan, finished.trajectories(), wall_seconds=time.perf_counter() - began, jobs=executor.workers)


def slice_size(seeds: int, worlds: int, workers: int, safe: bool) -> int:
    """Return the number of seeds per slice with which the workers finish first; `safe` asks for smaller slices."""
    most = min(MOST_SEEDS, max(SAFE_SEEDS, seeds * worlds // SAFE_SLICES)) if safe else MOST_SEEDS

    def duration(size: int) -> int:
        slices = worlds * -(-seeds // size)
        return -(-slices // workers) * (size + BETWEEN_KERNELS)

    return min(range(min(most, seeds), 0, -1), key=duration)


class _FinishedSlices:
    """The trajectories of a plan that are known, however its seeds were divided into slices."""

    def __init__(self, plan: Experiment) -> None:
        self._plan = plan
        self._slices: dict[str, list[tuple[list[int], list[Trajectories]]]] = {world.name: [] for world in plan.worlds}

    def add(self, world: World, seeds: Sequence[int], per_agent: list[Trajectories]) -> None:
        """Add all agents on some seeds; seeds that are not in the plan, or known already, are left out."""
        wanted = set(self._missing_seeds(world))
        rows = [row for row, seed in enumerate(seeds) if seed in wanted]
        if rows:
            chosen = [one.select_seeds(rows) for one in per_agent]
            self._slices[world.name].append(([seeds[row] for row in rows], chosen))

    @property
    def count(self) -> int:
        return sum(len(slices) for slices in self._slices.values())

    @property
    def size(self) -> int:
        """Stream-rounds."""
        seeds = sum(len(seeds) for slices in self._slices.values() for seeds, _ in slices)
        return seeds * len(self._plan.agents) * self._plan.rounds

    def missing(self, workers: int, safe: bool) -> list[Slice]:
        """Return what is left to play, divided for so many workers."""
        left = {world.name: seeds for world in self._plan.worlds if (seeds := self._missing_seeds(world))}
        if not left:
            return []
        size = slice_size(max(map(len, left.values())), len(left), workers, safe)
        return [
            Slice(world, self._plan.agents, tuple(left[world.name][at : at + size]), self._plan.rounds)
            for world in self._plan.worlds
            for at in range(0, len(left.get(world.name, [])), size)
        ]

    def trajectories(self) -> dict[tuple[str, str], Trajectories]:
        """Return all of them by world and agent, in the order of the plan's seeds."""
        by_world_and_agent = {}
        for name, slices in self._slices.items():
            row_of = {seed: row for row, seed in enumerate(seed for seeds, _ in slices for seed in seeds)}
            rows = [row_of[seed] for seed in self._plan.seeds]
            for number, spec in enumerate(self._plan.agents):
                joined = Trajectories.concatenate([per_agent[number] for _, per_agent in slices])
                by_world_and_agent[name, spec.label] = joined if rows == sorted(rows) else joined.select_seeds(rows)
        return by_world_and_agent

    def _missing_seeds(self, world: World) -> list[int]:
        known = {seed for seeds, _ in self._slices[world.name] for seed in seeds}
        return [seed for seed in self._plan.seeds if seed not in known]
