"""The command `halfseen health`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfseen.cli.arguments import (
    HiddenColumns,
    ObservedColumns,
    RewardColumns,
    RewardEvery,
    RewardFamily,
    TimeColumn,
    resolve_worlds,
)
from halfseen.cli.terminal import print_findings, print_written, progress


def health(
    world: Annotated[
        str, typer.Argument(metavar="DATA", help="A table, such as data.csv, or a world, such as voltrade or orbit.")
    ],
    observed: ObservedColumns = None,
    hidden: HiddenColumns = None,
    rewards: RewardColumns = None,
    reward_every: RewardEvery = None,
    reward_family: RewardFamily = None,
    time: TimeColumn = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of rounds.", show_default="3000, or all rounds of a recorded world"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the agent and of a simulated world.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page and the figure.", show_default="nothing is written")
    ] = None,
) -> None:
    """Play the agent 'adaptive' on a table or in a world, and examine the model that it identifies."""
    from halfseen.experiments.examine import examine_world
    from halfseen.reports.files import check_folder

    if out is not None:
        check_folder(out)
    (resolved,) = resolve_worlds(
        [world],
        observed=observed,
        hidden=hidden,
        rewards=rewards,
        reward_every=reward_every,
        reward_family=reward_family,
        time=time,
    )
    with progress(f"adaptive in {resolved.name}") as bar:
        _, examination = examine_world(resolved, rounds=rounds, seed=seed, progress=bar.update)
    print_findings(examination)
    if out is not None:
        print_written(examination.save(out))
