"""Options that several commands have, and how arguments are taken apart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from halfseen.errors import invalid

if TYPE_CHECKING:
    from halfseen.worlds.world import World

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
ObservedColumns = Annotated[
    list[str] | None, typer.Option(help="Of a table: the columns that are seen, separated by commas.")
]
HiddenColumns = Annotated[
    list[str] | None, typer.Option(help="Of a table: columns that belong to the context and are not seen.")
]
RewardColumns = Annotated[
    list[str] | None, typer.Option(help="Of a table: a column an arm, what it would have paid in that row.")
]
RewardEvery = Annotated[
    int | None, typer.Option(min=1, help="Of a table: rewards of so many rows come together.", show_default="1")
]


class Command(TyperCommand):
    """A command on whose help page a flag has no type: it takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """The same for a group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            print(f"halfseen {installed_version('halfseen')}")
        except PackageNotFoundError:
            print("halfseen (not installed)")
        raise typer.Exit


def global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """What comes before the command."""


def split_list(given: Sequence[str]) -> list[str]:
    """The parts of comma lists, empty ones left out."""
    return [part.strip() for text in given for part in text.split(",") if part.strip()]


def split_specs(given: Sequence[str]) -> list[str]:
    """Agents out of comma lists. A part that starts with `key=` is a further option of the agent before it."""
    specs: list[str] = []
    for part in split_list(given):
        if specs and "=" in part.partition(":")[0]:
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return specs


def split_numbers(argument: str, given: Sequence[str]) -> list[float]:
    """Numbers out of comma lists."""
    numbers = []
    for part in (part.strip() for text in given for part in text.split(",")):
        try:
            numbers.append(float(part))
        except ValueError:
            raise invalid(argument, "numbers separated by commas", f"'{part}'") from None
    return numbers


def resolve_worlds(
    worlds: Sequence[str],
    *,
    observed: list[str] | None,
    hidden: list[str] | None,
    rewards: list[str] | None,
    reward_every: int | None,
) -> list[World]:
    """Named worlds with their options, or the world of a table with its columns."""
    from halfseen.experiments.plan import world_spec
    from halfseen.worlds import recorded
    from halfseen.worlds.columns import FILE_ENDINGS, read_columns
    from halfseen.worlds.named import NAMED, RECORDED

    tables = [world for world in worlds if world.lower().endswith(FILE_ENDINGS)]
    if not tables:
        for world in worlds:
            if world.partition(":")[0] not in {*NAMED, *RECORDED} and Path(world).is_file():
                read_columns(world)  # says which endings there are
        of_tables = {"observed": observed, "hidden": hidden, "rewards": rewards, "reward-every": reward_every}
        for option, given in of_tables.items():
            if given is not None:
                raise invalid(option, "a table such as data.csv with it", f"a value, with '{worlds[0]}'")
        return [world_spec(world) for world in worlds]
    table = tables[0]
    if len(worlds) > 1:
        raise invalid("world", "a table alone", f"'{table}' beside others")
    for role, columns in (("observed", observed), ("rewards", rewards)):
        if columns is None:
            raise invalid(role, "columns of the table, separated by commas", f"nothing, with '{table}'")
    source = recorded(
        table,
        observed=split_list(observed or []),
        hidden=split_list(hidden or []),
        rewards=split_list(rewards or []),
        reward_every=reward_every or 1,
        name=Path(table).stem,
    )
    for name in source.constant_in_scaling:
        means = "tells nothing" if name in source.constant_names else "keeps its own units, as it moves later"
        print(f"note: column '{name}' is constant in the rows used for scaling and {means}", file=sys.stderr)
    return [source]
