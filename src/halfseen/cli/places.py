"""Worlds as the command line names them: by name with options, or a table with its columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from halfseen.cli.words import split_list
from halfseen.errors import invalid

if TYPE_CHECKING:
    from halfseen.worlds.world import World


def places(worlds: Sequence[str], columns: dict[str, list[str]], reward_every: int | None) -> list[World]:
    """Named worlds, or the world of a table with its columns."""
    from halfseen.experiments.plan import world_spec
    from halfseen.worlds import RECORDED, recorded
    from halfseen.worlds.columns import FILE_ENDINGS, read_columns
    from halfseen.worlds.named import NAMED

    tables = [world for world in worlds if world.lower().endswith(FILE_ENDINGS)]
    if not tables:
        for world in worlds:
            if world.partition(":")[0] not in {*NAMED, *RECORDED} and Path(world).is_file():
                read_columns(world)  # says which endings there are
        given = [*columns, *(["reward_every"] if reward_every is not None else [])]
        if given:
            option = given[0].replace("_", "-")
            raise invalid(option, f"a value, with '{worlds[0]}'", "a table such as data.csv with it")
        return [world_spec(world) for world in worlds]
    if len(worlds) > 1:
        raise invalid("world", f"'{tables[0]}' beside others", "a table alone")
    for role in ("observed", "rewards"):
        if role not in columns:
            raise invalid(role, f"nothing, with '{tables[0]}'", "columns of the table, separated by commas")
    split = {role: split_list(given) for role, given in columns.items()}
    place = recorded(
        tables[0],
        observed=split["observed"],
        hidden=split.get("hidden", []),
        rewards=split["rewards"],
        reward_every=reward_every or 1,
        name=Path(tables[0]).stem,
    )
    for name in place.still_names:
        means = "tells nothing" if name in place.constant_names else "keeps its own units, as it moves later"
        print(f"note: column '{name}' is constant in the rows used for scaling and {means}", file=sys.stderr)
    return [place]
