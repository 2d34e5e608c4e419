"""Sweeps: every agent of an experiment with every combination of some values of its options."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from halfseen.agents.catalogue import AgentSpec, Entry
from halfseen.errors import UnknownName, invalid
from halfseen.reports.tables import Table, mean_and_error, number
from halfseen.statistics.confidence_intervals import standard_error

if TYPE_CHECKING:
    from halfseen.experiments.result import Result


@dataclass(frozen=True)
class GridPoint:
    """One agent of a sweep: the label that it has without the swept options, and their values."""

    agent: str
    values: Mapping[str, Any]


def expand(specs: Sequence[AgentSpec], grid: Any) -> tuple[tuple[AgentSpec, ...], dict[str, GridPoint]]:
    """Return the agents with every combination of the swept options that they have, and their points by label.

    An agent that has none of the options is returned once, unchanged.
    """
    options = _checked_grid(grid)
    for name in options:
        if not any(_has_option(spec.entry, name) for spec in specs):
            raise invalid("grid", "options that at least one of the agents has", f"'{name}'")
    expanded, points = [], {}
    for spec in specs:
        swept = {name: values for name, values in options.items() if _has_option(spec.entry, name)}
        for name in swept:
            if name in spec.options:
                raise invalid("grid", f"options that '{spec.label}' does not set itself", f"'{name}'")
        for values in itertools.product(*swept.values()):
            own = dict(zip(swept, values, strict=True))
            texts = ",".join(f"{name}={_text(value, swept[name])}" for name, value in own.items())
            label = f"{spec.label}{',' if ':' in spec.label else ':'}{texts}" if own else spec.label
            expanded.append(AgentSpec(spec.entry, dict(spec.options) | own, label))
            points[label] = GridPoint(spec.label, own)
    return tuple(expanded), points


def _checked_grid(grid: Any) -> dict[str, list[Any]]:
    expected = "a dictionary from names of options to lists of values"
    if not isinstance(grid, Mapping) or not grid or not all(isinstance(name, str) for name in grid):
        raise invalid("grid", expected, repr(grid))
    checked = {}
    for name, values in grid.items():
        if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
            raise invalid("grid", expected, f"{name}={values!r}")
        checked[name] = list(values)
        if not checked[name]:
            raise invalid("grid", f"at least one value of '{name}'", "none")
    return checked


def _has_option(entry: Entry, option: str) -> bool:
    try:
        entry.check_options([option])
    except UnknownName:
        return False
    return True


def _text(value: Any, values: Sequence[Any]) -> str:
    """Return a short text for a value. Arrays and models are numbered in the order in which they are given."""
    if isinstance(value, bool | int | float | str) or value is None:
        return str(value)
    return f"#{1 + next(at for at, one in enumerate(values) if one is value)}"


def grid_options(result: Result) -> list[str]:
    """Return the names of the swept options."""
    return list(dict.fromkeys(name for point in result.plan.grid.values() for name in point.values))


def grid_rows(result: Result) -> list[dict[str, Any]]:
    """Return one row per world and agent: the values of the options, and the mean of R(T) or of the reward."""
    options = grid_options(result)
    given = {name: [point.values.get(name) for point in result.plan.grid.values()] for name in options}
    rows = []
    for world in result.worlds:
        for label, point in result.plan.grid.items():
            track = result.tracks[world, label]
            measured = track.reward.mean(axis=1) if result.recorded else track.regret.sum(axis=1)
            values = {
                name: point.values[name] if _is_plain(point.values[name]) else _text(point.values[name], given[name])
                for name in point.values
            }
            rows.append(
                {
                    "world": world,
                    "agent": point.agent,
                    "label": label,
                    "values": values,
                    "mean": float(measured.mean()),
                    "error": standard_error(measured),
                }
            )
    return rows


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


def grid_table(result: Result) -> Table:
    """Return one row per world and agent, with a column per swept option and a mark for the best of each agent."""
    rows = []
    for row in grid_rows(result):
        alike = [one for one in grid_rows(result) if (one["world"], one["agent"]) == (row["world"], row["agent"])]
        best = (max if result.recorded else min)(one["mean"] for one in alike)
        mean = f"{row['mean']:.4g} ± {number(row['error'], 4)}" if result.recorded else ""
        rows.append(
            {
                "world": row["world"],
                "agent": row["agent"],
                **{name: str(row["values"].get(name, "–")) for name in grid_options(result)},
                "mean reward ± s.e." if result.recorded else "R(T) mean ± s.e.": mean
                or mean_and_error(row["mean"], row["error"]),
                "best": "best" if len(alike) > 1 and row["mean"] == best else "",
            }
        )
    return Table(rows)


def grid_lines(result: Result, option: str) -> list[dict[str, Any]]:
    """Return the rows for the figure: `line` names the agent and the values of all options but `option`."""
    lines = []
    for row in grid_rows(result):
        others = ",".join(f"{name}={value}" for name, value in row["values"].items() if name != option)
        line = f"{row['agent']}{',' if ':' in row['agent'] else ':'}{others}" if others else row["agent"]
        lines.append(row | {"line": line, "value": row["values"].get(option)})
    return lines
