"""Plays an experiment and shows its progress in the terminal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from halfseen.cli import interruption
from halfseen.cli.terminal import progress, slice_progress
from halfseen.errors import HalfseenError, invalid
from halfseen.reports.tables import count

if TYPE_CHECKING:
    from halfseen.experiments.claim_map import ClaimMap, MapPlan
    from halfseen.experiments.plan import Experiment
    from halfseen.experiments.result import Result
    from halfseen.experiments.run import SavedSlices
    from halfseen.experiments.slice_schedule import Progress


def processes(jobs: int | None, cluster: str | None) -> int:
    """Return the number of processes to start: one if a cluster is used."""
    if cluster is None:
        return jobs or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if jobs is not None:
        raise invalid("jobs", "either --jobs or --cluster", f"--jobs {jobs} and --cluster")
    return 1


def describe_size(plan: Experiment) -> str:
    counts = {"agent": len(plan.agents), "world": len(plan.worlds), "seed": len(plan.seeds), "round": plan.rounds}
    return " × ".join(count(number, word) for word, number in counts.items())


def play_map(plan: MapPlan, jobs: int | None, cluster: str | None, out: Path) -> ClaimMap:
    """Play a map of the paper's claims and save its slices in `out`. A repeated run continues from these slices."""
    from halfseen.experiments import claim_map
    from halfseen.experiments.cache import SliceStore
    from halfseen.experiments.run import SLICES

    cells = len(set().union(*plan.cells))
    size = f"the map: {count(cells, 'cell')} × {count(plan.seeds, 'seed')} × {count(plan.rounds, 'round')}"
    with slice_progress(size) as show:

        def update(now: Progress) -> None:
            if now.done:
                command = "the same command with --resume"
                interruption.written[0] = (
                    f"{now.done} of {now.total} slices are saved in {out}. To continue, run {command}."
                )
            show(now._replace(others=0))  # not shown: the other slices in the folder are those of the figure

        return claim_map.play_map(
            plan, jobs=processes(jobs, cluster), cluster=cluster, store=SliceStore(out / SLICES), progress=update
        )


def play(plan: Experiment, jobs: int | None, cluster: str | None, out: Path | None, resume: bool) -> Result:
    """Play an experiment and save its slices in `out`. If the experiment ends early, a message says how to continue."""
    from halfseen.experiments.run import run_experiment

    workers = processes(jobs, cluster)
    if resume and out is None:
        raise invalid("resume", "the folder of the interrupted run as --out", "no --out")
    with progress(describe_size(plan)) as bar:

        def on_saved(now: SavedSlices) -> None:
            if now.resumed and now.resumed == now.done:
                bar.print_line(f"resuming: {now.done} of {now.total} slices done")
            if now.done:
                command = "the same command" + " with --resume" * (not resume)
                interruption.written[0] = (
                    f"{now.done} of {now.total} slices are saved in {out}. To continue, run {command}."
                )

        try:
            return run_experiment(
                plan, jobs=workers, cluster=cluster, out=out, resume=resume, progress=bar.update, on_saved=on_saved
            )
        except HalfseenError as error:
            if interruption.written[0] == interruption.NOTHING_WRITTEN:
                raise
            raise HalfseenError(f"{str(error).removesuffix('.')}. {interruption.written[0]}") from None
