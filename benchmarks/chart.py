"""Bars: how long each contender takes, job by job, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.tables import amount, beside_others, times

OURS, THEIRS, BASELINE = "#c2410c", "#64748b", "#cbd5e1"
_COLUMNS = 2


def draw(results: Mapping[str, Any], path: Path) -> None:
    """A panel a job that has us beside others; the marks are aims: how far the bar of a peer is to reach, at least."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    jobs = beside_others(results)
    if not jobs:
        return
    columns = min(_COLUMNS, len(jobs))
    rows = [jobs[at : at + columns] for at in range(0, len(jobs), columns)]
    heights = [max(len(entry["contenders"]) for entry in row) + 1.6 for row in rows]
    figure, grid = plt.subplots(
        len(rows),
        columns,
        figsize=(7.2 * columns, 0.34 * sum(heights) + 0.5),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for axes in grid.flat[len(jobs) :]:
        axes.set_visible(False)
    for entry, axes in zip(jobs, grid.flat, strict=False):
        _panel(axes, entry)
    sizes = results["sizes"]
    figure.suptitle(
        f"Time of one unit, log scale; d = {sizes['latent']}, k = {sizes['observed']}, K = {sizes['arms']}, 1 thread. "
        "Marks: aims. *: computes something else.",
        fontsize=10,
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _panel(axes: Any, entry: Mapping[str, Any]) -> None:
    rows = entry["contenders"]
    ours = rows[0]["microseconds"]
    names = [row["contender"] + (" *" if row["differs"] else "") for row in rows]
    values = [row["microseconds"] for row in rows]
    low = min(values) / 4
    kinds = {"NumPy": BASELINE, "halfseen": OURS}
    colours = [next((kinds[kind] for kind in kinds if name.startswith(kind)), THEIRS) for name in names]
    places = range(len(rows))
    axes.barh(places, [value - low for value in values], left=low, color=colours, height=0.7)
    for place, row in zip(places, rows, strict=True):
        label = amount(row["microseconds"]) if place == 0 else times(row["times_ours"])
        end = row["microseconds"]
        if row["at_least"] is not None:
            mark = row["at_least"] * ours
            axes.plot([mark] * 2, [place - 0.45, place + 0.45], color="black", linewidth=1.4)
            end = mark if end < mark < 2 * end else end  # the label keeps clear of the mark
        axes.text(end * 1.08, place, label, va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(low, max([*values, *(row["at_least"] * ours for row in rows if row["at_least"])]) * 4)
    axes.xaxis.set_minor_formatter("")
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    axes.set_title(f"{entry['title']}, µs a {entry['unit']}", fontsize=9, loc="left")
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
