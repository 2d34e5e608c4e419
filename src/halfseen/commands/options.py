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
