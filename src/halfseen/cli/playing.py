"""An experiment with its progress shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from halfseen.cli import interruption
from halfseen.cli.terminal import progress
from halfseen.cli.words import cores, size_of
from halfseen.errors import HalfseenError, invalid

if TYPE_CHECKING:
    from halfseen.experiments.plan import Experiment
    from halfseen.experiments.result import Result
    from halfseen.experiments.run import SavedSlices


def processes(jobs: int | None, cluster: str | None) -> int:
    """How many this machine starts by itself: one if a cluster does the work."""
    if cluster is None:
        return jobs or cores()
    if jobs is not None:
        raise invalid("jobs", f"{jobs}, with --cluster", "only one of them")
    return 1


def play(plan: Experiment, jobs: int | None, cluster: str | None, out: Path | None, resume: bool) -> Result:
    """Play, and keep what is done in `out`; whatever ends it early, it is said how to go on."""
    from halfseen.experiments.run import run_experiment

    count = processes(jobs, cluster)
    if resume and out is None:
        raise invalid("resume", "no --out", "the folder of the run to go on with")
    with progress(size_of(plan)) as show:

        def on_saved(now: SavedSlices) -> None:
            if now.resumed and now.resumed == now.done:
                show.say(f"resuming: {now.done} of {now.total} slices done")
            if now.done:
                again = "the same command" + " with --resume" * (not resume)
                interruption.kept[0] = f"{now.done} of {now.total} slices are kept in {out}; {again} goes on from there"

        try:
            return run_experiment(
                plan, jobs=count, cluster=cluster, out=out, resume=resume, progress=show.told, on_saved=on_saved
            )
        except HalfseenError as error:
            if interruption.kept[0] == interruption.NOTHING_WRITTEN:
                raise
            raise HalfseenError(f"{error}; {interruption.kept[0]}") from None
