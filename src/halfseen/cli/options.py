"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

AGENTS_HELP = (
    "Agents, separated by commas; an agent's options follow a colon: "
    "kf-ts,ts-pco:width=0.5,delta=0.2 are two. May be given several times."
)
FirstSeed = Annotated[int, typer.Option(min=0, help="The first seed; the others follow it.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="all cores")]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Dask instead of --jobs: local:N for N workers on this machine, or a scheduler's address.",
        show_default="none",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run into --out that was cut short.")]
Observed = Annotated[list[str] | None, typer.Option(help="Of a table: the columns that are seen, separated by commas.")]
Hidden = Annotated[
    list[str] | None, typer.Option(help="Of a table: columns that belong to the context and are not seen.")
]
Rewards = Annotated[
    list[str] | None, typer.Option(help="Of a table: a column an arm, what it would have paid in that row.")
]
RewardEvery = Annotated[
    int | None, typer.Option(min=1, help="Of a table: rewards of so many rows come together.", show_default="1")
]
