"""`halfseen run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfseen.commands.options import AGENTS_HELP, FirstSeed, Jobs
from halfseen.commands.playing import play
from halfseen.commands.words import split_specs
from halfseen.terminal import print_results, print_written


def run(
    worlds: Annotated[list[str], typer.Argument(metavar="WORLD", help="Worlds, such as: orbit paper:noise=0.5")],
    agents: Annotated[list[str], typer.Option(help=AGENTS_HELP)],
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to play.")] = 10_000,
    seeds: Annotated[int, typer.Option(min=1, help="Replications.")] = 20,
    first_seed: FirstSeed = 0,
    jobs: Jobs = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the figure and data.", show_default="nothing is written")
    ] = None,
) -> None:
    """Play any agents in any worlds."""
    from halfseen.experiments.files import check_folder, staged
    from halfseen.experiments.specs import experiment, seed_range

    if out is not None:
        check_folder(out)
    result = play(experiment(split_specs(agents), worlds, rounds, seed_range(seeds, first_seed)), jobs)
    print_results(result)
    if out is not None:
        with staged(out) as stage:
            result.save(stage)
            names = sorted(path.name for path in stage.iterdir())
        print_written([out / name for name in names])
