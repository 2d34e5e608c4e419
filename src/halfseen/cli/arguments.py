"""Options shared by several commands, and functions that parse their values."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from halfseen.errors import HalfseenError, HalfseenWarning, InvalidInput, UnknownName, invalid

if TYPE_CHECKING:
    from halfseen.worlds.world import World

AGENTS_HELP = (
    "Agents, separated by commas. The options of an agent follow a colon: "
    "kf-ts,ts-pco:width=0.5,delta=0.2 are two agents. Can be given several times."
)
Import = Annotated[
    list[str] | None,
    typer.Option(
        "--import", help="A module or a file, such as my_agents.py, that registers agents or worlds. Can be repeated."
    ),
]
Grid = Annotated[
    list[str] | None,
    typer.Option(help="Values of an option to try, such as window=100,200,500. Can be given several times."),
]
FirstSeed = Annotated[int, typer.Option(min=0, help="The first seed. The following integers are the other seeds.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Number of processes.", show_default="all cores")]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Use Dask instead of --jobs: local:N for N workers on this machine, or the address of a scheduler.",
        show_default="none",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run from the slices saved in --out.")]
ObservedColumns = Annotated[
    list[str] | None, typer.Option(help="For a table: the observed columns, separated by commas.")
]
HiddenColumns = Annotated[
    list[str] | None, typer.Option(help="For a table: columns of the context that agents do not observe.")
]
RewardColumns = Annotated[
    list[str] | None, typer.Option(help="For a table: one column per arm, with the reward of that arm in each row.")
]
RewardEvery = Annotated[
    int | None,
    typer.Option(min=1, help="For a table: the rewards of this many rows arrive together.", show_default="1"),
]
TimeColumn = Annotated[
    str | None, typer.Option(help="For a table: the column with the time of each row, by which the rows are sorted.")
]
RewardFamily = Annotated[
    str | None,
    typer.Option(
        help="For a table: the family of the rewards: gaussian (numbers), binary (0 to 1) or count.",
        show_default="gaussian",
    ),
]


class Command(TyperCommand):
    """A command whose help page shows no type for flags, because flags take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the command. If an agent or a world is unknown, the error mentions --import, unless it was given."""
        try:
            return super().invoke(ctx)
        except UnknownName as error:
            text = str(error)
            if ctx.params.get("modules", True) or not text.startswith(("There is no agent", "There is no world")):
                raise
            raise UnknownName(f"{text}. Agents and worlds of your own need --import FILE") from None


class CommandGroup(TyperGroup):
    """A group of commands whose help page shows no type for flags."""

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
    """Define the options that precede the command."""


def import_modules(given: Sequence[str] | None) -> None:
    """Import modules, each given by its name or as a file. The folder of a file is added to `sys.path`."""
    for one in given or ():
        path = Path(one)
        is_file = path.suffix == ".py"
        if is_file and not path.is_file():
            raise invalid("import", "an existing file", f"'{one}'")
        folder = str(path.parent.resolve()) if is_file else str(Path.cwd())
        if folder not in sys.path:
            sys.path.insert(0, folder)  # child processes inherit the path
        try:
            importlib.import_module(path.stem if is_file else one)
        except (ImportError, SyntaxError) as error:
            raise invalid("import", "a module or a file that can be imported", f"'{one}' ({error})") from None
        except Exception as error:
            error.add_note(f"when '{one}' was imported")
            raise


def split_list(given: Sequence[str]) -> list[str]:
    """Split comma-separated lists and omit empty parts."""
    return [part.strip() for text in given for part in text.split(",") if part.strip()]


def split_specs(given: Sequence[str]) -> list[str]:
    """Split comma-separated agents.

    A part that starts with `key=` is another option of the preceding agent. A comma in brackets belongs to a value.
    """
    specs: list[str] = []
    for part in split_list(given):
        if specs and ("=" in part.partition(":")[0] or specs[-1].count("[") > specs[-1].count("]")):
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return specs


def split_grid(given: Sequence[str] | None) -> dict[str, list[Any]] | None:
    """Return the values of each option of a sweep, given as 'option=value,value'. None means no sweep."""
    if not given:
        return None
    grid: dict[str, list[Any]] = {}
    for text in given:
        option, equals, values = text.partition("=")
        if not equals or not option.strip() or not values.strip():
            raise invalid("grid", "an option and its values, such as window=100,200,500", f"'{text}'")
        grid[option.strip()] = []
        for value in values.split(","):
            try:
                grid[option.strip()].append(json.loads(value))
            except json.JSONDecodeError:
                grid[option.strip()].append(value.strip())
    return grid


def split_numbers(argument: str, given: Sequence[str]) -> list[float]:
    """Split comma-separated numbers."""
    numbers = []
    for part in (part.strip() for text in given for part in text.split(",")):
        try:
            numbers.append(float(part))
        except ValueError:
            raise invalid(argument, "numbers separated by commas", f"'{part}'") from None
    return numbers


def _is_log(log: str, got: str) -> HalfseenError:
    """Return the error for a log of decisions that was given in place of a table with the rewards of all arms."""
    return InvalidInput(
        f"world: expected a world, or a table with the reward of every arm in every row, got '{log}', {got}, which is "
        f"a log of decisions. To study a log: halfseen study {log}"
    )


def resolve_worlds(
    worlds: Sequence[str],
    *,
    observed: list[str] | None,
    hidden: list[str] | None,
    rewards: list[str] | None,
    reward_every: int | None,
    reward_family: str | None,
    time: str | None = None,
) -> list[World]:
    """Return the worlds named in `worlds`, or the recorded world made from the table named there."""
    from halfseen.evaluation.readers import JOURNAL_ENDINGS
    from halfseen.experiments.plan import world_spec
    from halfseen.worlds import recorded
    from halfseen.worlds.columns import FILE_ENDINGS, file_ending, read_columns
    from halfseen.worlds.named import NAMED, RECORDED

    for world in worlds:
        if world.lower().endswith(JOURNAL_ENDINGS):
            raise _is_log(world, "an exported journal")
    tables = [world for world in worlds if world.lower().endswith(FILE_ENDINGS)]
    if not tables:
        for world in worlds:
            if world.partition(":")[0] not in {*NAMED, *RECORDED} and Path(world).is_file():
                read_columns(world)  # raises an error that lists the supported file formats
        table_options = {
            "observed": observed,
            "hidden": hidden,
            "rewards": rewards,
            "reward-every": reward_every,
            "reward-family": reward_family,
            "time": time,
        }
        for option, given in table_options.items():
            if given is not None:
                raise invalid(option, "no value unless the world is a table such as data.csv", f"'{worlds[0]}'")
        return [world_spec(world) for world in worlds]
    table = tables[0]
    if len(worlds) > 1:
        raise invalid("world", "one table and no other world", f"'{table}' with others")
    advice = f"; for a log with one reward per row: halfseen study {table}" if Path(table).is_file() else ""
    for role, columns in (("observed", observed), ("rewards", rewards)):
        if columns is None and Path(table).is_file() and {"arm", "reward"} <= set(read_columns(table).names):
            raise _is_log(table, "a table with the columns 'arm' and 'reward'")
        if columns is None:
            raise InvalidInput(f"{role}: expected columns of '{table}', separated by commas, got none{advice}")
    if len(names := split_list(rewards or [])) == 1:
        raise InvalidInput(f"rewards: expected at least 2 columns, got {names[0]}{advice}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HalfseenWarning)  # printed below
        source = recorded(
            table,
            observed=split_list(observed or []),
            hidden=split_list(hidden or []),
            rewards=split_list(rewards or []),
            reward_every=reward_every or 1,
            reward_family=reward_family or "gaussian",
            time=time,
            name=Path(table).name.removesuffix(file_ending(Path(table))),
        )
    for note in source.notes:
        print(f"note: {note}", file=sys.stderr)
    for name in source.constant_in_scaling:
        consequence = "carries no information" if name in source.constant_names else "is not scaled, as it varies later"
        print(f"note: column '{name}' is constant in the rows used for scaling and {consequence}", file=sys.stderr)
    return [source]
