"""Agents × worlds → a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from halfseen.component import at_least
from halfseen.experiments.local import play_all
from halfseen.experiments.play import join
from halfseen.experiments.result import Result
from halfseen.experiments.specs import AgentSpec, Experiment, experiment
from halfseen.worlds import World

SLICE = 64  # most streams of a batch: enough to make the Python between the kernels cheap, few enough for the cache


def run(
    agents: Sequence[str | AgentSpec] | str | None = None,
    *,
    world: str | World | Sequence[str | World],
    rounds: int | None = None,
    seeds: int | Iterable[int] | None = None,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Play every agent in every world, on common random numbers.

    `seeds` is a count or the seeds themselves; every seed is one replication with its own world and noise, the
    same for all agents; recorded data are the same for all seeds. Left out, `agents` are a usual choice, `seeds` 20 and
    `rounds` 10,000; in recorded worlds 10 and all there are. `jobs` processes share the work without changing a
    number (a script that asks for more than one needs the usual `if __name__ == "__main__":`). `progress(done, total)`
    is told of stream-rounds.
    """
    return run_experiment(experiment(agents, world, rounds, seeds), jobs=jobs, progress=progress)


def run_experiment(plan: Experiment, *, jobs: int = 1, progress: Callable[[int, int], None] | None = None) -> Result:
    """Play a ready-made experiment."""
    jobs = at_least("jobs", jobs, 1)
    size = max(1, min(SLICE, -(-len(plan.seeds) // jobs)))
    slices = plan.slices(size)
    total = plan.rounds * len(plan.seeds) * len(plan.worlds) * len(plan.agents)
    done = 0

    def tick(rounds: int) -> None:
        nonlocal done
        done += rounds
        if progress is not None:
            progress(done, total)

    began = time.perf_counter()
    played = play_all(slices, jobs, tick)
    tracks = {
        (world.name, spec.label): join(
            [tracks[spec.label] for piece, tracks in zip(slices, played, strict=True) if piece.world is world]
        )
        for world in plan.worlds
        for spec in plan.agents
    }
    return Result(plan, tracks, wall_seconds=time.perf_counter() - began, jobs=jobs)
