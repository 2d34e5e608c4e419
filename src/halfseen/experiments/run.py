"""Agents × worlds → a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from halfseen.errors import invalid
from halfseen.experiments.cache import SliceStore
from halfseen.experiments.engines.engine import choose_engine
from halfseen.experiments.files import check_folder, staged
from halfseen.experiments.plan import AgentSpec, Experiment, Slice, experiment
from halfseen.experiments.play import Track, in_order, join, of_rows, play
from halfseen.experiments.result import Result
from halfseen.experiments.resuming import check_resumable
from halfseen.worlds.world import World

SLICE = 64  # most streams of a batch: enough to make the Python between the kernels cheap, few enough for the cache
CAREFUL_SLICE, CAREFUL_COUNT = 10, 16  # where slices can be lost or kept: no more streams, unless there are many slices
BETWEEN_KERNELS = 6  # streams that could be played in the time of the Python between the kernels
SLICES = "slices"  # the folder of what is kept


class Kept(NamedTuple):
    """How many slices are safe on disk."""

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
    kept: Callable[[Kept], None] | None = None,
) -> Result:
    """Play a ready-made experiment; of what `out` is for, only the slices are written. `kept` is told of them."""
    if resume and out is None:
        raise invalid("resume", "no folder", "out, the folder of the run to go on with")
    store = None if out is None else SliceStore(Path(out) / SLICES)
    total = sum(plan.of_world(world).size for world in plan.worlds)
    engine = choose_engine(jobs, cluster, most=len(plan.seeds) * len(plan.worlds))
    began = time.perf_counter()
    found = _Found(plan)
    if resume and store is not None:
        for world in plan.worlds:
            for seeds, outcome in store.of_subject(plan.of_world(world)):
                found.add(world, seeds, [Track(**track) for track in outcome["tracks"]])
        if not found.slices:
            check_resumable(store, plan)
    resumed, done = found.slices, found.size
    with engine:
        careful = store is not None or cluster is not None
        slices = found.missing(engine.workers, careful)
        counts = resumed + len(slices)

        def tick(rounds: int) -> None:
            nonlocal done
            done += rounds
            if progress is not None:
                progress(done, total)

        def heard(number: int, tracks: dict[str, Track]) -> None:
            piece = slices[number]
            if store is not None:
                store.write(piece, {"tracks": [vars(tracks[spec.label]) for spec in plan.agents]})
            found.add(piece.world, piece.seeds, [tracks[spec.label] for spec in plan.agents])
            tell()

        def tell() -> None:
            if kept is not None and store is not None:
                kept(Kept(found.slices, counts, resumed))

        tell()
        if slices:
            tick(0)
            engine.prepare([next(piece for piece in slices if piece.world is world) for world in found.unfinished()])
            engine.work_through(play, slices, tick, heard)
    if store is not None and not resume:
        store.discard(keeping=slices)
    return Result(plan, found.tracks(), wall_seconds=time.perf_counter() - began, jobs=engine.workers)


def slice_size(seeds: int, worlds: int, workers: int, careful: bool) -> int:
    """Seeds of a slice: those that let all workers be done first, if a slice takes a little time whatever its size."""
    most = min(SLICE, max(CAREFUL_SLICE, seeds * worlds // CAREFUL_COUNT)) if careful else SLICE

    def needed(size: int) -> int:
        slices = worlds * -(-seeds // size)
        return -(-slices // workers) * (size + BETWEEN_KERNELS)

    return min(range(min(most, seeds), 0, -1), key=needed)


class _Found:
    """The tracks there are, in whatever slices they came."""

    def __init__(self, plan: Experiment) -> None:
        self._plan = plan
        self._parts: dict[str, list[tuple[list[int], list[Track]]]] = {world.name: [] for world in plan.worlds}

    def add(self, world: World, seeds: Sequence[int], tracks: list[Track]) -> None:
        """Tracks of all agents on some seeds; those not asked for, or there already, are left out."""
        wanted = set(self._left(world))
        rows = [row for row, seed in enumerate(seeds) if seed in wanted]
        if rows:
            parts = tracks if len(rows) == len(seeds) else [of_rows(track, rows) for track in tracks]
            self._parts[world.name].append(([seeds[row] for row in rows], parts))

    @property
    def slices(self) -> int:
        return sum(len(parts) for parts in self._parts.values())

    @property
    def size(self) -> int:
        """Stream-rounds."""
        seeds = sum(len(seeds) for parts in self._parts.values() for seeds, _ in parts)
        return seeds * len(self._plan.agents) * self._plan.rounds

    def unfinished(self) -> list[World]:
        return [world for world in self._plan.worlds if self._left(world)]

    def missing(self, workers: int, careful: bool) -> list[Slice]:
        """What is left to play, cut for so many workers."""
        left = {world.name: self._left(world) for world in self.unfinished()}
        if not left:
            return []
        size = slice_size(max(map(len, left.values())), len(left), workers, careful)
        return [
            Slice(world, self._plan.agents, tuple(left[world.name][at : at + size]), self._plan.rounds)
            for world in self.unfinished()
            for at in range(0, len(left[world.name]), size)
        ]

    def tracks(self) -> dict[tuple[str, str], Track]:
        """By world and agent, in the order of the seeds."""
        whole = {}
        for name, parts in self._parts.items():
            at = {seed: row for row, seed in enumerate(seed for seeds, _ in parts for seed in seeds)}
            order = [at[seed] for seed in self._plan.seeds]
            for number, spec in enumerate(self._plan.agents):
                track = join([tracks[number] for _, tracks in parts])
                whole[name, spec.label] = track if order == sorted(order) else in_order(track, order)
        return whole

    def _left(self, world: World) -> list[int]:
        there = {seed for seeds, _ in self._parts[world.name] for seed in seeds}
        return [seed for seed in self._plan.seeds if seed not in there]
