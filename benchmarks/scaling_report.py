"""The scaling curves as tables and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.tables import amount
from halfseen.reports.tables import Table

HELD = {
    "d": "k = d/2, K = 15, one stream",
    "K": "d = 20, k = 10, one stream",
    "B": "d = 20, k = 10, K = 15, streams of a fleet",
    "t": "d = 20, k = 10, K = 15, one stream; the rounds since the mark before",
}
NAMES = {"d": "context", "K": "arms", "B": "streams", "t": "rounds"}
COLOURS = {"ts-pco": "#64748b", "kf-ts": "#0f766e", "emkf-ts": "#7c3aed", "adaptive": "#c2410c"}
Curves = Mapping[str, Mapping[str, Mapping[str, Any]]]


def size(count: float) -> str:
    for factor, unit in ((1e9, "GB"), (1e6, "MB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{max(count, 0) / 1e3:.0f} kB"


def exponent(found: Mapping[str, Any], what: str, digits: int) -> str:
    return f"{round(found['exponents'][what], digits) + 0.0:.{digits}f}"  # + 0.0: no minus before a zero


def table(curves: Curves, axis: str, what: str) -> Table:
    """A row an agent, a column a size, and the exponent of the upper end."""
    shown = amount if what == "microseconds" else size
    values = [point["at"] for point in curves[axis]["kf-ts"]["points"]]
    rows = []
    for agent, found in curves[axis].items():
        cells = {point["at"]: shown(point[what]) for point in found["points"]}
        row = {"agent": agent} | {f"{axis} = {value:,}": cells.get(value, "not run") for value in values}
        rows.append(row | {"exponent": exponent(found, what, 2)})
    return Table(rows)


def document(curves: Curves) -> str:
    parts = []
    for axis, held in HELD.items():
        each = "a round and stream" if axis == "B" else "a round"
        parts += [
            f"**{NAMES[axis].capitalize()}**: time {each} ({held})",
            table(curves, axis, "microseconds").markdown(),
        ]
        parts += ["Memory", table(curves, axis, "bytes").markdown()]
    return "\n\n".join(parts)


def draw(curves: Curves, path: Path) -> None:
    """Time above, memory below; a column an axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(2, len(curves), figsize=(3.6 * len(curves), 6.4), squeeze=False, layout="constrained")
    for column, axis in zip(grid.T, [axis for axis in HELD if axis in curves], strict=True):
        agents = curves[axis]
        for axes, what in zip(column, ("microseconds", "bytes"), strict=True):
            for agent, found in agents.items():
                points = found["points"]
                label = f"{agent} ({exponent(found, what, 1)})"
                axes.plot(
                    [p["at"] for p in points],
                    [p[what] for p in points],
                    "o-",
                    ms=3.5,
                    lw=1.4,
                    color=COLOURS[agent],
                    label=label,
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.grid(True, which="major", alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=7)
            axes.legend(fontsize=7, frameon=False, title="agent (exponent)", title_fontsize=7)
        column[0].set_title(f"{NAMES[axis]}, {axis}", fontsize=10)
        column[1].set_xlabel(axis)
    grid[0, 0].set_ylabel("µs a round and stream")
    grid[1, 0].set_ylabel("bytes")
    figure.savefig(path, dpi=120)
    plt.close(figure)
