"""Run agents in worlds and collect a `Result`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from halfseen.agents.catalogue import AgentLike
from halfseen.errors import invalid
from halfseen.experiments.cache import SliceStore
from halfseen.experiments.engines import choose_executor
from halfseen.experiments.plan import Experiment, Slice, check_memory, experiment
from halfseen.experiments.play import Trajectories, play
from halfseen.experiments.result import Result
from halfseen.reports.files import check_folder, staged
from halfseen.worlds.world import World

# A slice has at most 64 seeds: enough to make the Python code between kernel calls cheap, few enough for the L2 cache.
MOST_SEEDS = 64
# Slices that are saved, or that can be lost with a worker, are smaller. They have at most SAFE_SEEDS or
# (seeds × worlds)/SAFE_SLICES seeds, whichever is more.
SAFE_SEEDS, SAFE_SLICES = 10, 16
PYTHON_OVERHEAD = 6  # the Python code between kernel calls takes as long as playing this many streams
SLICES = "slices"  # name of the folder for saved slices


class SavedSlices(NamedTuple):
    """How many slices are on disk, and how many there will be."""

    done: int  # including the slices of an earlier run
    total: int
    resumed: int  # slices of an earlier run


def run(
    agents: Sequence[AgentLike] | AgentLike | None = None,
    *,
    world: str | World | Sequence[str | World],
    rounds: int | None = None,
    seeds: int | Iterable[int] | None = None,
    grid: Mapping[str, Iterable[Any]] | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Play every agent in every world with common random numbers.

    Parameters
    ----------
    agents : sequence of str, AgentSpec, class, callable or tuple, optional
        Agents by name ("kf-ts"), by name with options ("lag-ts:lags=3"), or as `AgentSpec`. By default, six agents
        that suit the kind of world. Your own agent is a class or function that makes objects with two methods:
        `decide(observation)` returns the number of an arm, and `learn(round, reward)` learns from a reward, with rounds
        counted from 1. The class or function is called once per seed. If it has parameters `observed`, `arms`, `seed`
        or `rounds`, it receives them as keyword arguments. Your own agent can also be a tuple of three classes: an
        estimator, a learner and a chooser.
    world : str, World, or sequence of them
        Worlds by name ("orbit"), by name with options ("paper:noise=0.5"), or as objects. Recorded and simulated
        worlds cannot be combined in one run.
    rounds : int, optional
        Number of rounds. By default 10,000, or all rounds of a recorded world.
    seeds : int or iterable of int, optional
        Number of replications, or their seeds. By default 20, or 10 in recorded worlds. Every seed is one replication
        with its own world parameters and noise, which are the same for all agents. Recorded data are the same for all
        seeds.
    grid : mapping of str to iterable, optional
        Values of options to try, such as ``{"window": [100, 200, 500]}``. Every agent is played with every combination
        of the options that it has. Agents that have none of them are played once. See `Result.grid_table` and
        `Result.plot_grid`.
    jobs : int, default 1
        Number of processes that share the work. It does not change the result. A script that uses more than one
        process needs `if __name__ == "__main__":`.
    cluster : str, optional
        A Dask cluster whose workers share the work, instead of `jobs` processes: "local:4" starts four workers on this
        machine, and "tcp://host:8786" is the address of a scheduler.
    out : str or Path, optional
        Folder in which the result is saved, as by `Result.save`. While the experiment runs, every finished slice (all
        agents on some seeds of one world) is saved in `out/slices`.
    resume : bool, default False
        Continue an interrupted run from the slices in `out/slices`. The number of processes need not be the same.
    progress : callable, optional
        Called as `progress(done, total)`, in stream-rounds (one round of one replication of one agent).

    Returns
    -------
    Result

    Raises
    ------
    HalfseenError
        If an argument is invalid, or if worker processes fail.

    Examples
    --------
    >>> import halfseen as hs
    >>> result = hs.run(["kf-ts", "random"], world="orbit", rounds=50, seeds=3)
    >>> result.agents
    ('kf-ts', 'random')
    >>> result.total_regret("orbit", "random").shape
    (3,)
    >>> sweep = hs.run(["lag-ts", "random"], world="orbit", rounds=50, seeds=3, grid={"lags": [1, 2]})
    >>> sweep.agents
    ('lag-ts:lags=1', 'lag-ts:lags=2', 'random')
    """
    plan = experiment(agents, world, rounds, seeds, grid)
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
    """Run an experiment. Saves the slices in `out`, but not the result. Calls `on_saved` after every saved slice."""
    if resume and out is None:
        raise invalid("resume", "out, the folder of the interrupted run", "no folder")
    store = None if out is None else SliceStore(Path(out) / SLICES)
    total = sum(plan.slice_of(world).size for world in plan.worlds)
    check_memory(total, plan.rounds)
    executor = choose_executor(jobs, cluster, most=len(plan.seeds) * len(plan.worlds))
    began = time.perf_counter()
    finished = _FinishedSlices(plan)
    if resume and store is not None:
        for world in plan.worlds:
            for seeds, outcome in store.read_same_key(plan.slice_of(world)):
                finished.add(world, seeds, [Trajectories(**arrays) for arrays in outcome["tracks"]])
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
                    store.write(task, {"tracks": [vars(trajectories) for trajectories in per_agent]})
                finished.add(task.world, task.seeds, per_agent)
                report_saved()
    if store is not None and not resume:
        store.discard(keeping=slices)
    return Result(plan, finished.trajectories(), wall_seconds=time.perf_counter() - began, jobs=executor.workers)


def slice_size(seeds: int, worlds: int, workers: int, safe: bool) -> int:
    """Return the number of seeds per slice that minimises the duration.

    If `safe`, slices are smaller, so that an interruption loses less work.
    """
    most = min(MOST_SEEDS, max(SAFE_SEEDS, seeds * worlds // SAFE_SLICES)) if safe else MOST_SEEDS

    def duration(size: int) -> int:
        slices = worlds * -(-seeds // size)
        return -(-slices // workers) * (size + PYTHON_OVERHEAD)

    return min(range(min(most, seeds), 0, -1), key=duration)


class _FinishedSlices:
    """Collects the trajectories of a plan. The seeds may have been divided into slices in any way."""

    def __init__(self, plan: Experiment) -> None:
        self._plan = plan
        self._slices: dict[str, list[tuple[list[int], list[Trajectories]]]] = {world.name: [] for world in plan.worlds}

    def add(self, world: World, seeds: Sequence[int], per_agent: list[Trajectories]) -> None:
        """Add the trajectories of all agents on some seeds. Seeds already added or not in the plan are ignored."""
        wanted = set(self._missing_seeds(world))
        rows = [row for row, seed in enumerate(seeds) if seed in wanted]
        if rows:
            chosen = [trajectories.select_seeds(rows) for trajectories in per_agent]
            self._slices[world.name].append(([seeds[row] for row in rows], chosen))

    @property
    def count(self) -> int:
        return sum(len(slices) for slices in self._slices.values())

    @property
    def size(self) -> int:
        """Number of stream-rounds."""
        seeds = sum(len(seeds) for slices in self._slices.values() for seeds, _ in slices)
        return seeds * len(self._plan.agents) * self._plan.rounds

    def missing(self, workers: int, safe: bool) -> list[Slice]:
        """Return the slices that have not been played, with a size that suits the number of workers."""
        missing = {world.name: seeds for world in self._plan.worlds if (seeds := self._missing_seeds(world))}
        if not missing:
            return []
        size = slice_size(max(map(len, missing.values())), len(missing), workers, safe)
        return [
            Slice(world, self._plan.agents, tuple(missing[world.name][start : start + size]), self._plan.rounds)
            for world in self._plan.worlds
            for start in range(0, len(missing.get(world.name, [])), size)
        ]

    def trajectories(self) -> dict[tuple[str, str], Trajectories]:
        """Return the trajectories by world and agent, in the order of the plan's seeds."""
        by_world_and_agent = {}
        for name, slices in self._slices.items():
            row_of = {seed: row for row, seed in enumerate(seed for seeds, _ in slices for seed in seeds)}
            rows = [row_of[seed] for seed in self._plan.seeds]
            for position, spec in enumerate(self._plan.agents):
                joined = Trajectories.concatenate([per_agent[position] for _, per_agent in slices])
                by_world_and_agent[name, spec.label] = joined if rows == sorted(rows) else joined.select_seeds(rows)
        return by_world_and_agent

    def _missing_seeds(self, world: World) -> list[int]:
        finished = {seed for seeds, _ in self._slices[world.name] for seed in seeds}
        return [seed for seed in self._plan.seeds if seed not in finished]
