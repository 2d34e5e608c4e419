"""`halfseen health`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfseen.commands.places import places
from halfseen.terminal import print_findings, print_written, progress


def health(
    world: Annotated[
        str, typer.Argument(metavar="DATA", help="A table, such as data.csv; or a world, such as voltrade or orbit")
    ],
    observed: Annotated[
        list[str] | None, typer.Option(help="Of a table: the columns that are seen, separated by commas.")
    ] = None,
    hidden: Annotated[
        list[str] | None, typer.Option(help="Of a table: columns that belong to the context and are not seen.")
    ] = None,
    rewards: Annotated[
        list[str] | None, typer.Option(help="Of a table: a column an arm, what it would have paid in that row.")
    ] = None,
    reward_every: Annotated[
        int | None, typer.Option(min=1, help="Of a table: rewards of so many rows come together.", show_default="1")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds to play.", show_default="3000, recorded: all")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the agent, and of a simulated world.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page and the picture.", show_default="nothing is written")
    ] = None,
) -> None:
    """Let adaptive live through a record and examine its model: a finding a line."""
    from halfseen.experiments.files import check_folder
    from halfseen.experiments.health_run import examine_world

    if out is not None:
        check_folder(out)
    columns = {"observed": observed, "hidden": hidden, "rewards": rewards}
    (place,) = places([world], {role: given for role, given in columns.items() if given is not None}, reward_every)
    with progress(f"adaptive in {place.name}") as told:
        _, found = examine_world(place, rounds=rounds, seed=seed, progress=told)
    print_findings(found)
    if out is not None:
        print_written(found.save(out))
