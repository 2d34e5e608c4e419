"""The picture of an evaluation: what policies would have earned, and on how few rounds that rests."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from halfseen.errors import missing_extra
from halfseen.evaluation.estimators import PolicyValue
from halfseen.experiments.figures import BLUE, COLUMN, GREY, PAGE, STYLE, VERMILION, legend_columns, looks_of, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = {"dr": (BLUE, "o"), "snips": (VERMILION, "s"), "ips": ("#000000", "^")}
_POINTS = 300  # on a curve
_LEAST = 3e-4  # weight that is still drawn


def evaluation_figure(policies: Mapping[str, PolicyValue], *, narrow: bool = False) -> Figure:
    """Estimates with intervals on the left, weights by rank on the right; `policies` has the logged one first.

    `narrow`, one is below the other.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "experiments", "drawing the figure") from None
    labels = {label: textwrap.shorten(label.replace(",", ", "), 34, placeholder="…") for label in policies}
    width = COLUMN if narrow else PAGE
    columns = legend_columns(labels.values(), width)
    panel = max(2.2, 0.6 + 0.34 * len(policies))
    height = panel + 2.0 * narrow + 0.16 * -(-len(policies) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        if narrow:
            left, right = figure.subplots(2, 1, height_ratios=[panel, 2.0])
        else:
            left, right = figure.subplots(1, 2, width_ratios=[1.35, 1])
        _estimates(left, policies, labels)
        _weights(right, policies, labels)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(linewidth=0.3, color="#d9d9d9")
            axes.set_axisbelow(True)
            axes.tick_params(width=0.5, length=2.5)
        handles = right.get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=2.6)
    return figure


def _estimates(axes: Axes, policies: Mapping[str, PolicyValue], labels: Mapping[str, str]) -> None:
    logged = next(iter(policies.values()))
    axes.axvline(logged.values["ips"].value, color=GREY, linewidth=0.8, linestyle=(0, (4, 1.5)))
    for row, one in enumerate(policies.values()):
        for shift, (name, (colour, mark)) in zip((-0.22, 0.0, 0.22), _MARKS.items(), strict=True):
            found = one.values[name]
            if not np.isfinite(found.value):
                continue
            if np.isfinite(found.low):
                axes.plot([found.low, found.high], [row + shift] * 2, color=colour, linewidth=1.0)
            shown = name if row == 0 else "_"
            face = "white" if one.notes else colour  # hollow: not to be believed as it stands
            axes.plot(found.value, row + shift, mark, color=colour, markerfacecolor=face, markersize=3.2, label=shown)
    axes.set_yticks(range(len(policies)), [labels[label] for label in policies], parse_math=False)
    axes.set_ylim(len(policies) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("reward a round; hollow: see the notes")
    axes.legend(loc="best", frameon=True, framealpha=0.85, edgecolor="none", handlelength=1.0)


def _weights(axes: Axes, policies: Mapping[str, PolicyValue], labels: Mapping[str, str]) -> None:
    for label, look in looks_of(policies).items():
        ordered = np.sort(policies[label].weights)[::-1]
        ordered = ordered[ordered > 0]
        ranks = np.unique(np.geomspace(1, max(len(ordered), 1), _POINTS).astype(np.int64))
        heights = ordered[ranks - 1] if len(ordered) else np.full(len(ranks), np.nan)
        axes.plot(ranks, heights, color=look[0], linestyle=look[1], linewidth=1.1, label=labels[label])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(axes.get_ylim()[0], _LEAST))
    axes.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(thousands)
    axes.set_xlabel("rounds, largest weight first")
    axes.set_ylabel("weight")
