"""`halfseen health`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfseen.cli.options import Hidden, Observed, RewardEvery, Rewards
from halfseen.cli.places import places
from halfseen.cli.terminal import print_findings, print_written, progress


def health(
    world: Annotated[
        str, typer.Argument(metavar="DATA", help="A table, such as data.csv; or a world, such as voltrade or orbit")
    ],
    observed: Observed = None,
    hidden: Hidden = None,
    rewards: Rewards = None,
    reward_every: RewardEvery = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds to play.", show_default="3000, recorded: all")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the agent, and of a simulated world.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page and the picture.", show_default="nothing is written")
    ] = None,
) -> None:
    """Let adaptive live through a record and examine its model: a finding a line."""
    from halfseen.experiments.health_run import examine_world
    from halfseen.reports.files import check_folder

    if out is not None:
        check_folder(out)
    columns = {"observed": observed, "hidden": hidden, "rewards": rewards}
    (place,) = places([world], {role: given for role, given in columns.items() if given is not None}, reward_every)
    with progress(f"adaptive in {place.name}") as shown:
        _, found = examine_world(place, rounds=rounds, seed=seed, progress=shown.told)
    print_findings(found)
    if out is not None:
        print_written(found.save(out))
