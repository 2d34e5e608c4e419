"""The picture of an examination: surprises, dimension, rewards explained, calibration, sensors.

Hidden features that were recorded are orange.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from halfseen.diagnostics.calibration import BINS
from halfseen.diagnostics.examination import Measurements
from halfseen.diagnostics.explained_rewards import DESCRIPTIONS
from halfseen.diagnostics.health import percent
from halfseen.errors import missing_extra
from halfseen.experiments.figures import BLUE, COLUMN, GREY, PAGE, STYLE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAND, _GREEN = "#e3e7ea", "#009E73"
_MOST_SENSORS = 16  # more bars than that cannot be read
_MOST_LETTERS = 24
_SHORT = {
    "seen": "what is seen",
    "filtered, nothing hidden": "filtered,\nnothing hidden",
    "filtered context": "filtered\ncontext",
}


def examination_figure(examined: Measurements, *, narrow: bool = False) -> Figure:
    """Six panels, a page wide or, `narrow`, below each other; what could not be measured says so."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "experiments", "drawing the figure") from None
    bars = min(len(examined.sensor_values or ()), _MOST_SENSORS)
    more = max(0, bars - 8)
    with mpl.rc_context(STYLE):
        if narrow:
            figure = Figure(figsize=(COLUMN, 9.6 + 0.1 * more), layout="constrained")
            grid = figure.subplots(6, 1, height_ratios=[1.0] * 5 + [1.0 + 0.06 * more])
        else:
            figure = Figure(figsize=(PAGE, 3.9 + 0.09 * more), layout="constrained")
            grid = figure.subplots(2, 3, height_ratios=[1.0, 1.0 + 0.06 * more])
        for axes, draw in zip(
            grid.flat, (_surprises, _memory, _dimensions, _explained, _calibration, _sensors), strict=True
        ):
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(width=0.5, length=2.5)
            axes.set_axisbelow(True)
            draw(axes, examined)
    return figure


def _nothing(axes: Axes, title: str, why: str) -> None:
    axes.set_title(title)
    axes.set_axis_off()
    axes.text(0.5, 0.5, why, ha="center", va="center", color=GREY, transform=axes.transAxes)


def _grid(axes: Axes, along: str) -> None:
    axes.grid(axis="x" if along == "x" else "y", linewidth=0.3, color="#d9d9d9")


def _surprises(axes: Axes, examined: Measurements) -> None:
    parts = examined.nis_by_block
    if parts is None:
        _nothing(axes, "Size of surprises", "too few observations")
        return
    ends = np.append(parts.starts[1:], examined.subject.data.rounds)
    middle = (parts.starts + ends) / 2 + 1
    axes.fill_between(middle, parts.low, parts.high, color=_BAND, linewidth=0, label="95 % of right models")
    axes.axhline(1.0, color=GREY, linewidth=0.6)
    axes.plot(middle, parts.ratios, color=BLUE, linewidth=1.0, marker="o", markersize=2.2)
    axes.set_ylim(0.0, max(1.6, 1.05 * float(parts.ratios.max()), 1.05 * float(parts.high.max())))
    axes.set_xlim(0, examined.subject.data.rounds)
    axes.locator_params(axis="x", nbins=4)
    _grid(axes, "y")
    axes.set_title("Size of surprises")
    axes.set_xlabel("round of the record")
    axes.set_ylabel("mean square, standardised")


def _memory(axes: Axes, examined: Measurements) -> None:
    test = examined.whiteness
    if test is None:
        _nothing(axes, "Memory of surprises", "too few observations")
        return
    at = np.arange(1, test.lags + 1)
    axes.fill_between(at, 0.0, test.upper, color=_BAND, linewidth=0)
    axes.vlines(at, 0.0, test.autocorrelations, color=BLUE, linewidth=1.2)
    axes.plot(at, test.autocorrelations, color=BLUE, marker="o", markersize=2.4, linestyle="none")
    axes.set_ylim(0.0, 1.15 * max(float(test.autocorrelations.max()), 2.0 * float(test.upper.max())))
    axes.set_xlim(0.3, test.lags + 0.7)
    axes.locator_params(axis="x", integer=True)
    _grid(axes, "y")
    axes.set_title("Memory of surprises")
    axes.set_xlabel("lag, rounds")
    axes.set_ylabel("correlation, mean size")


def _dimensions(axes: Axes, examined: Measurements) -> None:
    scores = {d: score for d, score in examined.scores.items() if np.isfinite(score)}
    if len(scores) < 2:
        _nothing(axes, "Dimension", "no alternatives to compare with")
        return
    best, own = max(scores.values()), examined.subject.model.latent
    dimensions = list(scores)
    behind = np.array([best - scores[d] for d in dimensions])
    axes.plot(dimensions, behind, color=GREY, linewidth=0.8, marker="o", markersize=2.4)
    if own in scores:
        axes.plot([own], [best - scores[own]], color=VERMILION, marker="o", markersize=4.5, linestyle="none")
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8}
        place = (own, best - scores[own])
        axes.annotate(f"d = {own}", place, (0, 7), textcoords="offset points", color=VERMILION, ha="center", bbox=box)
    axes.set_yscale("symlog", linthresh=10.0)
    axes.set_ylim(max(2.0 * float(behind.max()), 30.0), -7.0)  # the best on top
    axes.locator_params(axis="x", integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _grid(axes, "y")
    axes.set_title("Dimension")
    axes.set_xlabel("dimensions d")
    axes.set_ylabel("nats of AICc behind the best")


def _explained(axes: Axes, examined: Measurements) -> None:
    explained = examined.explained
    if explained is None:
        _nothing(axes, "Rewards explained", "too few rewards")
        return
    names = list(explained.shares)
    values = np.array([100 * max(0.0, explained.shares[name]) for name in names])  # below 0 it is none
    colours = {"filtered context": BLUE} | {name: _GREEN for name in names if name not in DESCRIPTIONS}
    heights = np.arange(len(names))[::-1]
    axes.barh(heights, values, color=[colours.get(name, "#9cc3dd") for name in names], height=0.62)
    for height, value in zip(heights, values, strict=True):
        outside = value < 75
        axes.text(
            value + 2 if outside else value - 2,
            height,
            percent(value / 100),
            va="center",
            ha="left" if outside else "right",
            color="white" if not outside and names[len(names) - 1 - height] in colours else "black",
        )
    axes.set_xlim(0, 100)
    axes.set_yticks(heights, [_SHORT.get(name, textwrap.fill(name, 14)) for name in names])
    axes.tick_params(axis="y", length=0)
    _grid(axes, "x")
    axes.set_title("Rewards explained, out of sample")
    axes.set_xlabel("% of the variance around arms' means")


def _calibration(axes: Axes, examined: Measurements) -> None:
    calibration = examined.calibration
    if calibration is None:
        _nothing(axes, "Calibration", "too few rewards")
        return
    shares = 100 * calibration.histogram
    edges = np.linspace(0, 100, BINS + 1)
    count = len(calibration.transform)
    error = 100 * 1.96 * np.sqrt(0.1 * 0.9 / count)
    axes.axhspan(100 / BINS - error, 100 / BINS + error, color=_BAND, linewidth=0)
    axes.axhline(100 / BINS, color=GREY, linewidth=0.6)
    axes.stairs(shares, edges, color=BLUE, linewidth=1.1)
    axes.set_ylim(0, max(20.0, 1.1 * float(shares.max())))
    axes.set_xlim(0, 100)
    axes.locator_params(axis="y", nbins=5)
    inside = "\n".join(
        f"in {100 * one.level:.0f} % intervals: {100 * one.share:.0f} %" for one in calibration.coverages
    )
    axes.text(0.5, 0.08, inside, ha="center", transform=axes.transAxes, color="#444444")
    axes.set_title("Rewards against predictions")
    axes.set_xlabel("percentile of the prediction")
    axes.set_ylabel("% of rewards")


def _sensors(axes: Axes, examined: Measurements) -> None:
    title = "What a sensor is worth"
    if not examined.sensor_values:
        _nothing(axes, title, "too few rewards" if examined.sensor_values is None else "no sensor")
        return
    ranked = sorted(examined.sensor_values, key=lambda one: one.share.value, reverse=True)[:_MOST_SENSORS]
    heights = np.arange(len(ranked))[::-1]
    for height, one in zip(heights, ranked, strict=True):
        colour = VERMILION if one.hidden else BLUE
        value, error = 100 * one.share.value, 100 * one.share.error
        axes.barh(height, value, color=colour, height=0.62)
        axes.plot([value - error, value + error], [height, height], color="black", linewidth=0.7)
    axes.axvline(0.0, color=GREY, linewidth=0.6)
    left = len(examined.sensor_values) - len(ranked)
    labels = [one.name if len(one.name) <= _MOST_LETTERS else one.name[: _MOST_LETTERS - 1] + "…" for one in ranked]
    axes.set_yticks(heights, labels, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.7, len(ranked) - 0.3)
    _grid(axes, "x")
    axes.set_title(f"The {len(ranked)} sensors worth most" if left else title)
    axes.set_xlabel("% of the reward variance")
    if any(one.hidden for one in ranked):
        for tick, one in zip(axes.get_yticklabels(), ranked, strict=True):
            tick.set_color(VERMILION if one.hidden else "black")
