"""Makes the table of a sweep, and the rows from which its figure is drawn.

This code is not part of `experiments.grid`, because every edit of that module makes all saved slices unusable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfseen.experiments.grid import value_text
from halfseen.reports.tables import Table, mean_and_error, number
from halfseen.statistics.confidence_intervals import standard_error

if TYPE_CHECKING:
    from halfseen.experiments.result import Result


def grid_options(result: Result) -> list[str]:
    """Return the names of the swept options."""
    return list(dict.fromkeys(name for point in result.plan.grid.values() for name in point.values))


def grid_rows(result: Result) -> list[dict[str, Any]]:
    """Return one row per world and agent: the values of the swept options, and the mean of R(T) or of the reward."""
    options = grid_options(result)
    given = {name: [point.values.get(name) for point in result.plan.grid.values()] for name in options}
    rows = []
    for world in result.worlds:
        for label, point in result.plan.grid.items():
            track = result.tracks[world, label]
            measured = track.reward.mean(axis=1) if result.recorded else track.regret.sum(axis=1)
            values = {
                name: point.values[name]
                if _is_plain(point.values[name])
                else value_text(point.values[name], given[name])
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
    """Return one row per world and agent, with a column per swept option and a mark at each agent's best values."""
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
                "mean reward ± s.e. over seeds" if result.recorded else "R(T) mean ± s.e.": mean
                or mean_and_error(row["mean"], row["error"]),
                "best": "best" if len(alike) > 1 and row["mean"] == best else "",
            }
        )
    return Table(rows)


def grid_lines(result: Result, option: str) -> list[dict[str, Any]]:
    """Return the rows for the figure. `line` names the agent, with its values of all options except `option`."""
    lines = []
    for row in grid_rows(result):
        others = ",".join(f"{name}={value}" for name, value in row["values"].items() if name != option)
        line = f"{row['agent']}{',' if ':' in row['agent'] else ':'}{others}" if others else row["agent"]
        lines.append(row | {"line": line, "value": row["values"].get(option)})
    return lines
