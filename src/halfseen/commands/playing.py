"""An experiment with its progress shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfseen.commands.words import cores, size_of
from halfseen.terminal import progress

if TYPE_CHECKING:
    from halfseen.experiments.result import Result
    from halfseen.experiments.specs import Experiment


def play(plan: Experiment, jobs: int | None) -> Result:
    from halfseen.experiments.run import run_experiment

    with progress(size_of(plan)) as told:
        return run_experiment(plan, jobs=jobs or cores(), progress=told)
