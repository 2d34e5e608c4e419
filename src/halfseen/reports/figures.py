"""Figures for reports and papers. They use Matplotlib's object interface, so they change no global state."""

from __future__ import annotations

import io
import itertools
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from halfseen.errors import missing_extra
from halfseen.kernels.random import Floats, Ints
from halfseen.reports.tables import Summary, differs, is_ratio, map_cell_text, percent, ranked_agents

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LineStyle = tuple[str, Any]  # colour, dash pattern
Panel = tuple[str, Callable[["Axes", str], None]]  # the label, and a function that draws the panel of a world
Series = Mapping[str, Mapping[str, Floats]]  # arrays (S, T) of seeds and rounds, by world and agent

# The palette of Okabe and Ito, which is suitable for colour-blind readers. Its yellow is too faint for lines on white.
_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_BLUE, _VERMILION, _PURPLE, _GREY = "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F"
_YELLOW, _BAND, _GRID = "#F0E442", "#e3e7ea", "#d9d9d9"
_SOLID, _DASHED, _DOTTED, _DASHDOT = "solid", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2))

# These agents have the same style in every figure. Other agents get the remaining styles.
_FIXED_STYLES: dict[str, LineStyle] = {
    "adaptive": (_BLACK, _SOLID),
    "oracle-ts": (_GREEN, _DASHED),
    "kf-ts": (_BLUE, _SOLID),
    "emkf-ts": (_VERMILION, _SOLID),
    "emkf-ucb": (_ORANGE, _DASHED),
    "em-rts-ts": (_PURPLE, _DASHDOT),
    "ts-pco": (_SKY, _DASHDOT),
    "bayes": (_BLACK, _DOTTED),
}
_OTHER_STYLES: list[LineStyle] = [
    (colour, dashes)
    for dashes in (_DASHED, _SOLID, _DOTTED, _DASHDOT)
    for colour in (_GREY, _PURPLE, _BLUE, _VERMILION, _GREEN, _BLACK, _ORANGE, _SKY)
    if (colour, dashes) not in _FIXED_STYLES.values()
]

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.facecolor": "white",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "halfseen",  # so that the same data give the same file
    "svg.fonttype": "path",
}
_MOST_FORECAST = 6  # the figure of a forecast shows at most this many arms and this many coordinates of the context
_FORECAST_STYLES: list[LineStyle] = [
    (_BLUE, _SOLID), (_VERMILION, _SOLID), (_GREEN, _SOLID), (_PURPLE, _DASHED), (_ORANGE, _DASHED), (_SKY, _DASHED),
]  # fmt: skip
_CONTEXT_STYLES: list[LineStyle] = [
    (_BLACK, _SOLID), (_GREY, _DASHED), (_BLACK, _DOTTED), (_GREY, _SOLID), (_BLACK, _DASHDOT), (_GREY, _DOTTED),
]  # fmt: skip
_POINTS = 300  # points per curve, few enough for a small SVG
_MOST_PER_ROW = 5  # panels side by side
_COLUMN, _PAGE = 3.5, 7.2  # width in inches of one column and of the text on a two-column page
_DOTS_PER_INCH = 200


def render_figure(figure: Figure, kind: str) -> bytes:
    """Return the content of a "png" or "svg" file. The same figure gives the same bytes."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    without_date = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context(_STYLE):
        figure.savefig(buffer, format=kind, dpi=_DOTS_PER_INCH, metadata=without_date)
    return buffer.getvalue()


@contextmanager
def _new_figure(width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure, with the style of this module active."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "experiments", "drawing the figure") from None
    with mpl.rc_context(_STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def _line_styles(agents: Iterable[str]) -> dict[str, LineStyle]:
    """Return a style for each agent. Agents without a fixed style get the colours that this figure uses least."""
    names = list(agents)
    uses = Counter(_FIXED_STYLES[name][0] for name in names if name in _FIXED_STYLES)
    styles, remaining = {}, list(_OTHER_STYLES)
    for name in names:
        style = _FIXED_STYLES.get(name)
        if style is None:
            remaining = remaining or list(_OTHER_STYLES)
            style = min(remaining, key=lambda one: uses[one[0]])
            remaining.remove(style)
            uses[style[0]] += 1
        styles[name] = style
    return styles


def _legend_columns(labels: Iterable[str], width: float) -> int:
    """Return how many entries fit side by side, with 0.06 inches per letter and 0.5 inches for the line and gaps."""
    widths = [0.5 + 0.06 * len(label) for label in labels]
    for rows in range(1, len(widths)):
        columns = [widths[start : start + rows] for start in range(0, len(widths), rows)]  # filled column by column
        if sum(max(column) for column in columns) <= width:
            return len(columns)
    return 1


def _row_count(items: int, columns: int) -> int:
    return -(-items // columns)


def _thousands(value: float, _: Any = None) -> str:
    return f"{value / 1000:,g}k" if abs(value) >= 1000 else f"{value:g}"


def _clean_axes(axes: Axes, grid: Literal["x", "y", "both"] | None = "both") -> None:
    """Set thin ticks, remove the top and right frame, and draw a faint grid unless `grid` is None."""
    axes.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        axes.grid(axis=grid, linewidth=0.3, color=_GRID)
    axes.set_axisbelow(True)
    axes.tick_params(width=0.5, length=2.5)


def _line(axes: Axes, at: Ints, values: Floats, style: LineStyle, *, width: float = 1.1, alpha: float = 1.0) -> None:
    if np.isfinite(values).any():
        axes.plot(at, values, color=style[0], linestyle=style[1], linewidth=width, alpha=alpha)


# Curves over rounds, with one column of panels per world


REGRET_LABEL = "cumulative regret R(t)"


def regret_figure(regret: Series, scale: str = "linear") -> Figure:
    """Plot cumulative regret and, in a panel below, a moving average of the regret per round.

    `scale` is "linear" or "log", for both axes.
    """
    seeds, rounds = _shape(regret)
    window = max(1, rounds // 20)
    labels = (REGRET_LABEL, f"regret per round,\nmean of last {window:,} rounds")
    note = f"mean over {seeds} seeds, band ± 1 standard error" if seeds > 1 else "one seed"
    return _sums_and_averages(regret, window, labels, scale, note)


def reward_label(has_baseline: bool, baseline: str) -> str:
    """Return the label of an axis for cumulative rewards."""
    return f"cumulative reward\nminus {baseline}" if has_baseline else "cumulative reward"


def draw_cumulative(
    axes: Axes, by_agent: Mapping[str, Floats], label: str, scale: str, baseline: str | None = None
) -> None:
    """Draw the cumulative sums of `by_agent` into the caller's axes, with a legend and labels of the axes."""
    rounds = next(iter(by_agent.values())).shape[1]
    styles = _line_styles(by_agent)
    _draw_sums(axes, by_agent, styles, rounds, baseline)
    for line, agent in zip(axes.lines[-len(styles) :], styles, strict=True):
        line.set_label(agent)
    if scale == "log":
        _log_axes(axes, rounds)
    axes.set_xlabel("round t")
    axes.set_ylabel(label)
    axes.legend()


def reward_figure(reward: Series, baseline: str) -> Figure:
    """Plot cumulative reward and, in a panel below, a moving average of the reward per round.

    If the `baseline` agent is present, its cumulative reward is subtracted.
    """
    seeds, rounds = _shape(reward)
    window = max(1, rounds // 10)
    has_baseline = all(baseline in agents for agents in reward.values())
    labels = (
        reward_label(has_baseline, baseline),
        f"reward per round,\nmean of last {window:,} rounds",
    )
    band = f"band ± 1 standard error over {seeds} seeds of the agents" if seeds > 1 else "one seed"
    note = f"all agents play the same recorded rounds; {band}"
    return _sums_and_averages(reward, window, labels, "signed", note, baseline if has_baseline else None)


def theory_figure(summary: Summary) -> Figure:
    """Plot measured regret with the shape of Theorem 1's bound and, in a panel below, the quantity of assumption A3."""
    worlds = summary["worlds"]
    styles = _line_styles(summary["agents"])

    def regret(axes: Axes, world: str) -> None:
        for agent, style in styles.items():
            entry = worlds[world]["agents"][agent]
            at, mean = np.array(entry["curve"]["rounds"]), np.array(entry["curve"]["mean"])
            _line(axes, at, mean, style)
            bound_at = np.array(entry["theory"]["bound rounds"])
            bound = np.array(entry["theory"]["bound shape"])
            _line(axes, bound_at, bound * (mean[-1] / bound[-1]), (style[0], _SOLID), width=0.6, alpha=0.55)

    def gram(axes: Axes, world: str) -> None:
        for agent, style in styles.items():
            theory = worlds[world]["agents"][agent]["theory"]
            _line(axes, np.array(theory["A3 rounds"]), np.array(theory["A3 t·|B⁻¹(t)|, mean over seeds"]), style)

    panels = [("mean regret R(t)", regret), ("A3: max over arms\nof t·‖B⁻¹(t)‖", gram)]
    note = "thin lines: the shape of Theorem 1's bound, scaled to equal the measured regret in the last round"
    return _panels_by_world(list(worlds), styles, summary["rounds"], panels, "log", note)


def _shape(series: Series) -> tuple[int, int]:
    """Return the number of seeds and rounds."""
    seeds, rounds = next(iter(next(iter(series.values())).values())).shape
    return seeds, rounds


def _sums_and_averages(
    series: Series, window: int, labels: tuple[str, str], scale: str, note: str, baseline: str | None = None
) -> Figure:
    """Plot cumulative sums, minus the mean sum of the `baseline` agent, and moving averages in a panel below."""
    _, rounds = _shape(series)
    styles = _line_styles(next(iter(series.values())))

    def cumulative(axes: Axes, world: str) -> None:
        _draw_sums(axes, series[world], styles, rounds, baseline)

    def recent(axes: Axes, world: str) -> None:
        at = _even_grid(window, rounds)
        for agent, style in styles.items():
            summed = np.pad(np.cumsum(series[world][agent], axis=1), ((0, 0), (1, 0)))
            _mean_and_band(axes, at, (summed[:, at] - summed[:, at - window]) / window, style)

    panels = [(labels[0], cumulative), (labels[1], recent)]
    return _panels_by_world(list(series), styles, rounds, panels, scale, note)


def _draw_sums(
    axes: Axes, by_agent: Mapping[str, Floats], styles: Mapping[str, LineStyle], rounds: int, baseline: str | None
) -> None:
    """Draw cumulative sums with bands, minus the mean sum of the `baseline` agent."""
    at = _even_grid(1, rounds)
    base = 0.0 if baseline is None else np.cumsum(by_agent[baseline].mean(axis=0))
    for agent, style in styles.items():
        _mean_and_band(axes, at, (np.cumsum(by_agent[agent], axis=1) - base)[:, at - 1], style)


def _even_grid(first: int, last: int) -> Ints:
    return np.unique(np.round(np.linspace(first, last, _POINTS)).astype(np.int64))


def _mean_and_band(axes: Axes, at: Ints, curves: Floats, style: LineStyle) -> None:
    """Draw the mean over seeds of `curves` (S, G) with a band of one standard error."""
    mean = curves.mean(axis=0)
    if len(curves) > 1:
        error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
        axes.fill_between(at, mean - error, mean + error, color=style[0], alpha=0.16, linewidth=0)
    _line(axes, at, mean, style)


def _panels_by_world(
    worlds: Sequence[str],
    styles: Mapping[str, LineStyle],
    rounds: int,
    panels: Sequence[Panel],
    scale: str,
    note: str,
) -> Figure:
    """Return a figure with one column of panels per world, and with at most five worlds side by side."""
    blocks = _row_count(len(worlds), _MOST_PER_ROW)
    per_row = _row_count(len(worlds), blocks)  # all blocks but the last have the same width
    panel_rows = blocks * len(panels)
    width = _COLUMN if per_row == 1 else _PAGE
    columns = _legend_columns(styles, width)
    note = textwrap.fill(note, int(width / 0.053))
    height = 1.65 * panel_rows + 0.16 * _row_count(len(styles), columns) + 0.15 * (1 + note.count("\n"))
    with _new_figure(width, height) as figure:
        grid = figure.subplots(panel_rows, per_row, squeeze=False)
        for axes in grid.flat:
            axes.set_visible(False)
        for position, world in enumerate(worlds):
            block, column = divmod(position, per_row)
            for row, (label, draw) in enumerate(panels):
                axes = grid[block * len(panels) + row, column]
                axes.set_visible(True)
                draw(axes, world)
                _scale_axes(axes, scale, rounds)
                if row == 0:
                    axes.set_title(world, parse_math=False)
                if row == len(panels) - 1:
                    axes.set_xlabel("round t")
                if column == 0:
                    axes.set_ylabel(label)
        _legend_below(figure, styles, columns, note)
    return figure


def _legend_below(figure: Figure, styles: Mapping[str, LineStyle], columns: int, note: str) -> None:
    """Add a legend below the panels, with a note above it."""
    from matplotlib.lines import Line2D

    legend = figure.legend(
        handles=[
            Line2D([], [], color=colour, linestyle=dashes, linewidth=1.2, label=label)
            for label, (colour, dashes) in styles.items()
        ],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        title=note,
        title_fontsize=6.5,
        handlelength=2.6,
        columnspacing=1.2,
    )
    legend.get_title().set_multialignment("center")


def _scale_axes(axes: Axes, scale: str, rounds: int) -> None:
    """Set scales, ticks and limits. Call this after the data have been drawn."""
    _clean_axes(axes)
    if scale in ("linear", "signed"):
        axes.set_xlim(0, rounds)
        if scale == "linear":
            axes.set_ylim(bottom=0)
        axes.locator_params(axis="x", nbins=4)
        axes.locator_params(axis="y", nbins=5)
    else:
        _log_axes(axes, rounds)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_thousands)


def _log_axes(axes: Axes, rounds: int) -> None:
    """Set logarithmic axes: the horizontal axis from round 10 on, the vertical axis over whole decades."""
    first = min(10, max(1, rounds // 10))
    heights = [np.asarray(line.get_ydata())[np.asarray(line.get_xdata()) >= first] for line in axes.lines]
    drawn = np.concatenate([[], *heights])
    drawn = drawn[np.isfinite(drawn) & (drawn > 0)]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(first, max(rounds, first + 1))
    if len(drawn):
        low, high = np.floor(np.log10(drawn.min())), np.ceil(np.log10(drawn.max()))
        axes.set_ylim(10.0**low, 10.0 ** max(high, low + 1))
    axes.minorticks_off()


# A sweep over the options of agents


def grid_figure(rows: Sequence[Summary], option: str, label: str) -> Figure:
    """Plot a measure of agents against the values of one option, with one panel per world.

    Every row has `world`, `line` (the agent, with its values of other options), `value` (its value of the option),
    `mean` and `error` (one standard error). An agent without the option has the `value` None and becomes a horizontal
    line.
    """
    worlds = list(dict.fromkeys(row["world"] for row in rows))
    swept = {row["line"]: row["value"] is not None for row in rows}
    colours = {line: colour for line, (colour, _) in _line_styles(swept).items()}
    styles: dict[str, LineStyle] = {line: (colours[line], _SOLID if swept[line] else _DASHED) for line in swept}
    values = list(dict.fromkeys(row["value"] for row in rows if row["value"] is not None))
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    values = sorted(values) if numeric else values
    positions = dict(zip(values, values if numeric else range(len(values)), strict=True))

    def draw(axes: Axes, world: str) -> None:
        for line, (colour, dashes) in styles.items():
            own = [row for row in rows if row["world"] == world and row["line"] == line]
            if own[0]["value"] is None:
                axes.axhline(own[0]["mean"], color=colour, linestyle=dashes, linewidth=1.1)
                continue
            own.sort(key=lambda row: positions[row["value"]])
            at = [positions[row["value"]] for row in own]
            errors = [row["error"] if np.isfinite(row["error"]) else 0.0 for row in own]
            means = [row["mean"] for row in own]
            axes.errorbar(
                at,
                means,
                yerr=errors,
                color=colour,
                linestyle=dashes,
                linewidth=1.1,
                marker="o",
                markersize=2.5,
                capsize=2,
            )

    per_row = min(len(worlds), _MOST_PER_ROW)
    panel_rows = _row_count(len(worlds), per_row)
    width = _COLUMN if per_row == 1 else _PAGE
    columns = _legend_columns(styles, width)
    with _new_figure(width, 2.0 * panel_rows + 0.16 * _row_count(len(styles), columns) + 0.2) as figure:
        grid = figure.subplots(panel_rows, per_row, squeeze=False)
        for axes in grid.flat[len(worlds) :]:
            axes.set_visible(False)
        for position, (axes, world) in enumerate(zip(grid.flat, worlds, strict=False)):
            draw(axes, world)
            _clean_axes(axes)
            axes.set_title(world, parse_math=False)
            axes.set_xlabel(option)
            axes.set_xticks(list(positions.values()), [f"{value:g}" if numeric else str(value) for value in values])
            axes.locator_params(axis="y", nbins=5)
            axes.yaxis.set_major_formatter(_thousands)
            if position % per_row == 0:
                axes.set_ylabel(label)
        _legend_below(figure, styles, columns, "bars: ± 1 standard error over seeds")
    return figure


# The map of the paper's claims

_CELL_COLOURS = "YlGnBu"  # suitable for colour-blind readers, and monotone in brightness
_LARGEST_RATIO, _EXPONENTS = 6.0, (0.2, 1.2)  # the ends of the colour scale


def map_figure(summary: Summary) -> Figure:
    """Plot every panel of a claim map as a grid of noise levels, with numbers and verdicts in the cells."""
    panels = [*summary["panels"], _known_model_panel(summary)]
    rows: list[list[Summary]] = [[]]
    for panel in panels:  # the panels for the two starts of a claim are side by side
        if len(rows[-1]) == 2:
            rows.append([])
        rows[-1].append(panel)
    seeds = f"{len(summary['seeds'])} seeds, T = {summary['rounds']:,}"
    note = (
        f"{seeds}. Two numbers in a cell belong to EMKF-TS and EMKF-UCB. The claim holds in a cell, which then has a "
        "frame, if it holds for both. Colours show the larger number: darker means more regret."
    )
    if summary["rounds_before"] is not None:
        note += f" Empty cells: the claim did not hold at T = {summary['rounds_before']:,}, so it was not repeated."
    note = textwrap.fill(note, int(_PAGE / 0.053))
    with _new_figure(_PAGE, 1.55 * len(rows) + 0.15 * (2 + note.count("\n"))) as figure:
        grid = figure.subplots(len(rows), 2, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_map(axes, panel, summary)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        figure.supxlabel(note, fontsize=6.5)
    return figure


def _known_model_panel(summary: Summary) -> Summary:
    return {
        "title": "For comparison, no claim: kf-ts, which is given the true model",
        "measure": "R(T) relative to oracle-ts",
        "start": None,
        "cells": summary["known_model"],
    }


def _draw_map(axes: Axes, panel: Summary, summary: Summary) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    noise, sensor_noise = summary["noise"], summary["sensor_noise"]
    for cell in panel["cells"]:
        x, y, verdict = noise.index(cell["noise"]), sensor_noise.index(cell["sensor_noise"]), cell["verdict"]
        red, green, blue, _ = colour = colormaps[_CELL_COLOURS](_depth(panel, cell))
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.8))
        if verdict == "holds":
            axes.add_patch(Rectangle((x - 0.47, y - 0.44), 0.94, 0.88, fill=False, edgecolor="black", linewidth=1.1))
        ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
        font: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 5.6, "color": ink}
        axes.text(x, y + (0.16 if verdict else 0.0), map_cell_text(panel, cell), **font)
        if verdict:
            axes.text(x, y - 0.2, verdict, **font, weight="bold" if verdict == "holds" else "normal")
    axes.set_xlim(-0.5, len(noise) - 0.5)
    axes.set_ylim(-0.5, len(sensor_noise) - 0.5)
    axes.set_xticks(range(len(noise)), [f"{value:g}" for value in noise])
    axes.set_yticks(range(len(sensor_noise)), [f"{value:g}" for value in sensor_noise])
    axes.tick_params(width=0.5, length=2)
    axes.set_xlabel("ε, where Q = εI", labelpad=1)
    axes.set_ylabel("s, where Σ = sI", labelpad=1)
    start = f", {panel['start']}" if panel["start"] else ""
    axes.set_title(f"{panel['title']}\n{panel['measure']}{start}", fontsize=6.5, parse_math=False)


def _depth(panel: Summary, cell: Summary) -> float:
    """Return the position of a cell on the colour scale, from 0 to 1."""
    largest = max(figure["value"] for figure in cell["figures"].values())
    if not np.isfinite(largest):
        return 0.0
    low, high = _EXPONENTS
    if is_ratio(panel):  # a ratio and its inverse are equally far from the middle of the scale
        largest, high = np.log(max(1.0 + largest, 1e-9)), np.log(_LARGEST_RATIO)
        low = -high
    return float(np.clip((largest - low) / (high - low), 0.0, 1.0))


def cell_figure(cell: Summary) -> Figure:
    """Plot the cumulative regret of all agents in one cell of a claim map."""
    agents = list(cell["agents"])
    styles = {}
    for agent in agents:  # agents that differ only in their start have the same colour
        name, _, start = agent.partition(", ")
        colour, dashes = _FIXED_STYLES[name]
        first = next(other for other in agents if other.partition(", ")[0] == name)
        styles[agent] = (colour, dashes if not start or agent == first else _DOTTED)
    rounds = cell["agents"][agents[0]]["curve"]["rounds"][-1]

    def draw(axes: Axes, _: str) -> None:
        for agent, style in styles.items():
            curve = cell["agents"][agent]["curve"]
            at, mean, error = (np.array(curve[name]) for name in ("rounds", "mean", "standard_error"))
            if np.isfinite(error).all():
                axes.fill_between(at, mean - error, mean + error, color=style[0], alpha=0.16, linewidth=0)
            _line(axes, at, mean, style)

    panels = [("cumulative regret R(t)", draw)]
    return _panels_by_world(
        [cell["world"]], styles, rounds, panels, "linear", "mean over seeds, band ± 1 standard error"
    )


# Shares of the arms

_ARM_COLOURS = (_BLUE, _SKY, _VERMILION, _ORANGE, _GREEN, _PURPLE, _YELLOW, _BLACK)
_ARM_HATCHES = ("", "////", "....", "xxxx")  # with more than eight arms, the colours are repeated with hatches
_INTERVALS = 60  # the shares of the arms are computed for this many intervals of rounds


def arms_figure(arms: Mapping[str, Ints], names: Sequence[str]) -> Figure:
    """Plot how often every agent played each arm over time, with one panel per agent.

    `arms` maps every agent to the arms (S, T) that it played.
    """
    rounds = next(iter(arms.values())).shape[1]
    edges = np.unique(np.round(np.linspace(0, rounds, min(_INTERVALS, rounds) + 1)).astype(np.int64))
    per_row = min(3, len(arms))
    panel_rows = _row_count(len(arms), per_row)
    columns = _legend_columns(names, _PAGE)
    with _new_figure(_PAGE, 1.45 * panel_rows + 0.16 * _row_count(len(names), columns) + 0.25) as figure:
        from matplotlib.patches import Patch

        grid = figure.subplots(panel_rows, per_row, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[len(arms) :]:
            axes.set_visible(False)
        for position, (axes, agent) in enumerate(zip(grid.flat, arms, strict=False)):
            shares = 100 * arm_shares(arms[agent], len(names), edges)
            bottom = np.zeros(len(shares))
            for arm in range(len(names)):
                axes.stairs(bottom + shares[:, arm], edges, baseline=bottom, fill=True, **_arm_fill(arm))
                bottom = bottom + shares[:, arm]
            is_lowest = position + per_row >= len(arms)
            axes.set_title(textwrap.shorten(agent, 40, placeholder="…"), parse_math=False)
            axes.set_xlim(0, rounds)
            axes.set_ylim(0, 100)
            axes.tick_params(width=0.5, length=2.5, labelbottom=is_lowest)
            axes.locator_params(axis="x", nbins=4)
            axes.xaxis.set_major_formatter(_thousands)
            if position % per_row == 0:
                axes.set_ylabel("% of decisions")
            if is_lowest:
                axes.set_xlabel("round t")
        figure.legend(
            handles=[Patch(label=name, **_arm_fill(arm)) for arm, name in enumerate(names)],
            loc="outside lower center",
            ncols=columns,
            frameon=False,
        )
    return figure


Bands = tuple[Sequence[str], Floats, Floats, Floats]  # names (m,), and means, lower and upper bounds (h, m)


def forecast_figure(context: Bands, values: Bands, best: Floats, *, narrow: bool = False) -> Figure:
    """Plot forecasts of contexts and expected rewards with intervals, and the probability that each arm is the best.

    `values` and `best` (h, K) have one column per arm. If there are many arms, those that are most likely the best are
    shown. If `narrow`, the panels are stacked.
    """
    width = _COLUMN if narrow else _PAGE
    order = np.sort(np.argsort(-best.max(axis=0), kind="stable")[:_MOST_FORECAST])
    names, means, lower, upper = values
    shown = ([names[a] for a in order], means[:, order], lower[:, order], upper[:, order])
    coordinates, centres, *ends = context
    most = slice(_MOST_FORECAST)
    few = (coordinates[most], centres[:, most], ends[0][:, most], ends[1][:, most])
    arm_styles = dict(zip(shown[0], _FORECAST_STYLES, strict=False))
    context_styles = dict(zip(few[0], _CONTEXT_STYLES, strict=False))
    columns = min(_legend_columns([*shown[0], *few[0]], width), len(shown[0]) + len(few[0]))
    legend_rows = _row_count(len(shown[0]) + len(few[0]), columns)
    with _new_figure(width, (5.4 if narrow else 2.0) + 0.16 * legend_rows) as figure:
        panels = figure.subplots(3, 1, sharex=True) if narrow else figure.subplots(1, 3, sharex=True)
        _draw_bands(panels[0], few, context_styles)
        _draw_bands(panels[1], shown, arm_styles)
        ahead = np.arange(1, len(best) + 1)
        for name, a in zip(shown[0], order, strict=True):
            colour, dashes = arm_styles[name]
            panels[2].plot(ahead, best[:, a], **_forecast_line(colour, dashes, len(ahead)))
        panels[2].set_ylim(-0.02, 1.02)
        titles = ("Context, 90 % interval", "Expected reward, 90 % interval", "Probability of being the best arm")
        for axes, title in zip(panels, titles, strict=True):
            axes.set_title(title)
            _clean_axes(axes)
            if not narrow or axes is panels[2]:
                axes.set_xlabel("rounds ahead")
            axes.xaxis.get_major_locator().set_params(integer=True)
        handles, labels = (list(itertools.chain(*parts)) for parts in zip(
            *(axes.get_legend_handles_labels() for axes in panels[:2]), strict=True
        ))  # fmt: skip
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


def _forecast_line(colour: str, dashes: Any, rounds: int) -> dict[str, Any]:
    marker = "o" if rounds == 1 else None
    return {"color": colour, "linestyle": dashes, "linewidth": 1.1, "marker": marker, "markersize": 3}


def _draw_bands(axes: Axes, bands: Bands, styles: Mapping[str, LineStyle]) -> None:
    names, means, lower, upper = bands
    ahead = np.arange(1, len(means) + 1)
    for i, name in enumerate(names):
        colour, dashes = styles[name]
        axes.fill_between(ahead, lower[:, i], upper[:, i], color=colour, alpha=0.12, linewidth=0)
        axes.plot(ahead, means[:, i], label=name, **_forecast_line(colour, dashes, len(ahead)))


def arm_shares(arms: Ints, count: int, edges: Ints) -> Floats:
    """Return the share (intervals, K) of each arm in the rounds between consecutive `edges`. `arms` are (S, T)."""
    played = arms[:, :, None] == np.arange(count)
    summed = np.concatenate([np.zeros((1, count)), np.cumsum(played.mean(axis=0), axis=0)])
    return np.asarray(np.diff(summed[edges], axis=0) / np.diff(edges)[:, None])


def _arm_fill(arm: int) -> dict[str, Any]:
    hatch = _ARM_HATCHES[arm // len(_ARM_COLOURS) % len(_ARM_HATCHES)]
    return {"facecolor": _ARM_COLOURS[arm % len(_ARM_COLOURS)], "hatch": hatch, "linewidth": 0, "edgecolor": _GREY}


# The leaderboard


def ratio_figure(summary: Summary) -> Figure:
    """Plot the ratio of every agent to the baseline on a logarithmic axis, with one panel per world.

    The agents are in the order of their overall ratio, with the lowest ratio at the top.
    """
    worlds, agents = list(summary["worlds"]), ranked_agents(summary)
    per_row = min(len(worlds), _MOST_PER_ROW)
    panel_rows = _row_count(len(worlds), per_row)
    with _new_figure(_COLUMN if per_row == 1 else _PAGE, panel_rows * (0.55 + 0.13 * len(agents))) as figure:
        from matplotlib.ticker import LogLocator, NullLocator

        grid = figure.subplots(panel_rows, per_row, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[len(worlds) :]:
            axes.set_visible(False)
        for position, (axes, world) in enumerate(zip(grid.flat, worlds, strict=False)):
            axes.axvline(1.0, color=_GREY, linewidth=0.6)
            for height, agent in enumerate(reversed(agents)):
                _ratio_dot(axes, height, summary["worlds"][world]["agents"][agent])
            axes.set_title(world, parse_math=False)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            _clean_axes(axes, "x")
            if position >= len(worlds) - per_row:
                axes.set_xlabel(f"R(T) / R(T) of {summary['baseline']}")
                axes.tick_params(labelbottom=True)
        grid[0, 0].set_yticks(range(len(agents)), list(reversed(agents)), parse_math=False)
        grid[0, 0].set_ylim(-0.7, len(agents) - 0.3)
    return figure


def _ratio_dot(axes: Axes, height: int, entry: Summary) -> None:
    """Draw a ratio and its interval, or nothing if there is no ratio."""
    if entry["ratio"] is None:
        return
    value, low, high = (entry["ratio"][name] for name in ("value", "low", "high"))
    colour = _GREY if not differs(entry) else _BLUE if value < 1 else _VERMILION
    lowest = max(low, value / 100)  # the lower end may be 0, which has no logarithm
    axes.plot([lowest, high], [height, height], color=colour, linewidth=0.9)
    axes.plot([value], [height], color=colour, marker="o", markersize=2.6)


# Off-policy evaluation

_MARKERS = {
    "dr": (_BLUE, "o"),
    "snips": (_VERMILION, "s"),
    "ips": (_BLACK, "^"),
    "dm": (_GREEN, "D"),
    "switch_dr": (_ORANGE, "v"),
    "clipped_dr": (_SKY, "P"),
    "mrdr": (_PURPLE, "X"),
}
_LEAST_WEIGHT = 3e-4  # the lower end of the axis of weights


def evaluation_figure(
    policies: Mapping[str, Summary], weights: Mapping[str, Floats], estimators: Sequence[str], *, narrow: bool
) -> Figure:
    """Plot estimates with intervals on the left, and weights in descending order on the right.

    The logged policy comes first. If `narrow`, the weights are drawn below the estimates.
    """
    labels = {label: textwrap.shorten(label.replace(",", ", "), 34, placeholder="…") for label in policies}
    width = _COLUMN if narrow else _PAGE
    columns = _legend_columns(labels.values(), width)
    panel = max(2.2, 0.6 + 0.114 * max(3, len(estimators)) * len(policies))
    with _new_figure(width, panel + 2.0 * narrow + 0.16 * _row_count(len(policies), columns)) as figure:
        if narrow:
            left, right = figure.subplots(2, 1, height_ratios=[panel, 2.0])
        else:
            left, right = figure.subplots(1, 2, width_ratios=[1.35, 1])
        _draw_estimates(left, policies, estimators, labels)
        _draw_weights(right, weights, labels)
        for axes in (left, right):
            _clean_axes(axes)
        handles = right.get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=2.6)
    return figure


def _draw_estimates(
    axes: Axes, policies: Mapping[str, Summary], estimators: Sequence[str], labels: Mapping[str, str]
) -> None:
    reach = 0.33 * (1.0 - 1.0 / len(estimators))
    shifts = np.linspace(-reach, reach, len(estimators))
    logged = next(iter(policies.values()))
    axes.axvline(logged["ips"]["value"], color=_GREY, linewidth=0.8, linestyle=_DASHED)
    for row, policy in enumerate(policies.values()):
        for shift, name in zip(shifts, estimators, strict=True):
            colour, marker = _MARKERS[name]
            value, low, high = (policy[name][part] for part in ("value", "low", "high"))
            if not np.isfinite(value):
                continue
            if np.isfinite(low):
                axes.plot([low, high], [row + shift] * 2, color=colour, linewidth=1.0)
            label = name if row == 0 else "_"
            face = "white" if policy["notes"] else colour  # a hollow marker means that there are notes
            axes.plot(value, row + shift, marker, color=colour, markerfacecolor=face, markersize=3.2, label=label)
    axes.set_yticks(range(len(policies)), [labels[label] for label in policies], parse_math=False)
    axes.set_ylim(len(policies) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("reward per round (hollow: see the notes)")
    axes.legend(loc="best", frameon=True, framealpha=0.85, edgecolor="none", handlelength=1.0)


def _draw_weights(axes: Axes, weights: Mapping[str, Floats], labels: Mapping[str, str]) -> None:
    for label, (colour, dashes) in _line_styles(weights).items():
        ordered = np.sort(weights[label])[::-1]
        ordered = ordered[ordered > 0]
        ranks = np.unique(np.geomspace(1, max(len(ordered), 1), _POINTS).astype(np.int64))
        heights = ordered[ranks - 1] if len(ordered) else np.full(len(ranks), np.nan)
        axes.plot(ranks, heights, color=colour, linestyle=dashes, linewidth=1.1, label=labels[label])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(axes.get_ylim()[0], _LEAST_WEIGHT))
    axes.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_thousands)
    axes.set(xlabel="rounds in descending order of weight", ylabel="weight")


# A log of decisions

_BLOCKS = 40  # number of points of a curve over the rounds of a log
_MOST_ARMS = 8  # the curves of more arms could not be told apart


def log_figure(rewards: Floats, played: Ints, arms: Sequence[str], *, narrow: bool = False) -> Figure:
    """Plot the mean reward (n,) and the share of every arm in blocks of rounds.

    `played` (n,) are positions in `arms`. The reward is NaN in rounds without one. If `narrow`, the panels are stacked.
    """
    rounds = len(rewards)
    edges = np.unique(np.round(np.linspace(0, rounds, min(_BLOCKS, max(rounds // 5, 1)) + 1)).astype(np.int64))
    counts = np.bincount(played, minlength=len(arms))
    shown = np.argsort(-counts, kind="stable")[:_MOST_ARMS]
    labels = [textwrap.shorten(arms[arm], 24, placeholder="…") for arm in shown]
    blocks = list(itertools.pairwise(edges.tolist()))
    middles = np.array([(first + end) / 2 for first, end in blocks])
    width = _COLUMN if narrow else _PAGE
    columns = _legend_columns(labels, width)
    with _new_figure(width, (4.2 if narrow else 2.3) + 0.16 * _row_count(len(labels), columns)) as figure:
        left, right = figure.subplots(2, 1) if narrow else figure.subplots(1, 2)
        means, errors = np.full(len(blocks), np.nan), np.full(len(blocks), np.nan)
        for at, (first, end) in enumerate(blocks):
            known = rewards[first:end][~np.isnan(rewards[first:end])]
            if len(known):
                means[at] = known.mean()
            if len(known) > 1:
                errors[at] = 2.0 * known.std(ddof=1) / np.sqrt(len(known))
        left.fill_between(middles, means - errors, means + errors, color=_GREY, alpha=0.25, linewidth=0)
        left.plot(middles, means, color=_GREY, linewidth=1.1)
        left.set(xlabel="decision", ylabel="mean reward")
        styles = _line_styles([f"arm {arm}" for arm in shown])
        for arm, label, (colour, dashes) in zip(shown, labels, styles.values(), strict=True):
            share = [np.mean(played[first:end] == arm) for first, end in blocks]
            right.plot(middles, share, color=colour, linestyle=dashes, linewidth=1.1, label=label)
        right.set(xlabel="decision", ylabel="share of decisions", ylim=(0.0, 1.02))
        for axes in (left, right):
            _clean_axes(axes)
            axes.set_xlim(0, rounds)
            axes.xaxis.set_major_formatter(_thousands)
        handles, names = right.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, handlelength=2.6)
    return figure


# Model health

_MOST_SENSORS = 16  # more bars could not be read
_LONGEST_NAME = 24
_CONTEXT_LABELS = {  # labels of predictors; the true context is not listed and keeps its own name
    "seen": "observation",
    "filtered, nothing hidden": "filtered\nobservation",
    "filtered context": "filtered\ncontext",
}


def health_figure(measured: Summary, *, narrow: bool = False) -> Figure:
    """Plot an examination in six panels, in two rows or, if `narrow`, in one column.

    `measured` contains rounds, latent (the dimension of the model) and scores (AICc by dimension). The other entries
    are None if there were too few data: nis_by_block (starts, ratios, low, high), whiteness (lags, autocorrelations,
    upper), shares (of the reward variance), calibration (histogram, count, coverages) and sensors (name, hidden, share,
    error). The bars of hidden features are orange.
    """
    extra_bars = max(0, min(len(measured["sensors"] or ()), _MOST_SENSORS) - 8)
    last_height = 1.0 + 0.06 * extra_bars
    with _new_figure(*((_COLUMN, 9.6 + 0.1 * extra_bars) if narrow else (_PAGE, 3.9 + 0.09 * extra_bars))) as figure:
        if narrow:
            grid = figure.subplots(6, 1, height_ratios=[*[1.0] * 5, last_height])
        else:
            grid = figure.subplots(2, 3, height_ratios=[1.0, last_height])
        panels = (_draw_sizes, _draw_memory, _draw_dimensions, _draw_explained, _draw_calibration, _draw_sensors)
        for axes, draw in zip(grid.flat, panels, strict=True):
            draw(axes, measured)
    return figure


def _draw_nothing(axes: Axes, title: str, reason: str) -> None:
    axes.set_title(title)
    axes.set_axis_off()
    axes.text(0.5, 0.5, reason, ha="center", va="center", color=_GREY, transform=axes.transAxes)


def _draw_sizes(axes: Axes, measured: Summary) -> None:
    title, parts = "Size of surprises", measured["nis_by_block"]
    if parts is None:
        _draw_nothing(axes, title, "too few observations")
        return
    ends = np.append(parts["starts"][1:], measured["rounds"])
    middle = (parts["starts"] + ends) / 2 + 1
    axes.fill_between(middle, parts["low"], parts["high"], color=_BAND, linewidth=0, label="95 % interval")
    axes.axhline(1.0, color=_GREY, linewidth=0.6)
    axes.plot(middle, parts["ratios"], color=_BLUE, linewidth=1.0, marker="o", markersize=2.2)
    axes.set_ylim(0.0, max(1.6, 1.05 * float(parts["ratios"].max()), 1.05 * float(parts["high"].max())))
    axes.set_xlim(0, measured["rounds"])
    axes.locator_params(axis="x", nbins=4)
    _clean_axes(axes, "y")
    axes.set(title=title, xlabel="round", ylabel="mean square, standardised")


def _draw_memory(axes: Axes, measured: Summary) -> None:
    title, test = "Memory of surprises", measured["whiteness"]
    if test is None:
        _draw_nothing(axes, title, "too few observations")
        return
    lags, sizes, upper = test["lags"], test["autocorrelations"], test["upper"]
    at = np.arange(1, lags + 1)
    axes.fill_between(at, 0.0, upper, color=_BAND, linewidth=0)
    axes.vlines(at, 0.0, sizes, color=_BLUE, linewidth=1.2)
    axes.plot(at, sizes, color=_BLUE, marker="o", markersize=2.4, linestyle="none")
    axes.set_ylim(0.0, 1.15 * max(float(sizes.max()), 2.0 * float(upper.max())))
    axes.set_xlim(0.3, lags + 0.7)
    axes.locator_params(axis="x", integer=True)
    _clean_axes(axes, "y")
    axes.set(title=title, xlabel="lag (rounds)", ylabel="mean absolute correlation")


def _draw_dimensions(axes: Axes, measured: Summary) -> None:
    scores = {d: score for d, score in measured["scores"].items() if np.isfinite(score)}
    if len(scores) < 2:
        _draw_nothing(axes, "Dimension", "no alternatives to compare with")
        return
    best, own = max(scores.values()), measured["latent"]
    behind = {d: best - score for d, score in scores.items()}
    axes.plot(list(behind), list(behind.values()), color=_GREY, linewidth=0.8, marker="o", markersize=2.4)
    if own in behind:
        dot = (own, behind[own])
        axes.plot([dot[0]], [dot[1]], color=_VERMILION, marker="o", markersize=4.5, linestyle="none")
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8}
        axes.annotate(f"d = {own}", dot, (0, 7), textcoords="offset points", color=_VERMILION, ha="center", bbox=box)
    axes.set_yscale("symlog", linthresh=10.0)
    axes.set_ylim(max(2.0 * max(behind.values()), 30.0), -7.0)  # inverted, so that the best is at the top
    axes.locator_params(axis="x", integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _clean_axes(axes, "y")
    axes.set(title="Dimension", xlabel="dimension d", ylabel="AICc behind the best (nats)")


def _draw_explained(axes: Axes, measured: Summary) -> None:
    shares = measured["shares"]
    if shares is None:
        _draw_nothing(axes, "Rewards explained", "too few rewards")
        return
    dark = {"filtered context": _BLUE} | {name: _GREEN for name in shares if name not in _CONTEXT_LABELS}
    heights = np.arange(len(shares))[::-1]
    for height, (name, share) in zip(heights, shares.items(), strict=True):
        value = 100 * max(0.0, share)  # a share may be negative out of sample
        axes.barh(height, value, color=dark.get(name, "#9cc3dd"), height=0.62)
        inside = value >= 75
        axes.text(
            value - 2 if inside else value + 2,
            height,
            percent(share),
            va="center",
            ha="right" if inside else "left",
            color="white" if inside and name in dark else "black",
        )
    axes.set_xlim(0, 100)
    axes.set_yticks(heights, [_CONTEXT_LABELS.get(name, textwrap.fill(name, 14)) for name in shares])
    _clean_axes(axes, "x")
    axes.tick_params(axis="y", length=0)
    axes.set(title="Rewards explained, out of sample", xlabel="% of the variance around the arms' means")


def _draw_calibration(axes: Axes, measured: Summary) -> None:
    calibration = measured["calibration"]
    if calibration is None:
        _draw_nothing(axes, "Calibration of predictions", "too few rewards")
        return
    shares = 100 * calibration["histogram"]
    expected = 1 / len(shares)
    error = 100 * 1.96 * np.sqrt(expected * (1 - expected) / calibration["count"])
    axes.axhspan(100 * expected - error, 100 * expected + error, color=_BAND, linewidth=0)
    axes.axhline(100 * expected, color=_GREY, linewidth=0.6)
    axes.stairs(shares, np.linspace(0, 100, len(shares) + 1), color=_BLUE, linewidth=1.1)
    axes.set_ylim(0, max(20.0, 1.1 * float(shares.max())))
    axes.set_xlim(0, 100)
    axes.locator_params(axis="y", nbins=5)
    _clean_axes(axes, None)
    covered = calibration["coverages"]
    inside = "\n".join(f"in {100 * level:.0f} % intervals: {100 * share:.0f} %" for level, share in covered)
    axes.text(0.5, 0.08, inside, ha="center", transform=axes.transAxes, color="#444444")
    axes.set(title="Calibration of predictions", xlabel="percentile of the prediction", ylabel="% of rewards")


def _draw_sensors(axes: Axes, measured: Summary) -> None:
    title, sensors = "Value of each sensor", measured["sensors"]
    if not sensors:
        _draw_nothing(axes, title, "too few rewards" if sensors is None else "no sensor")
        return
    ranked = sorted(sensors, key=lambda sensor: sensor["share"], reverse=True)[:_MOST_SENSORS]
    heights = np.arange(len(ranked))[::-1]
    for height, sensor in zip(heights, ranked, strict=True):
        value, error = 100 * sensor["share"], 100 * sensor["error"]
        axes.barh(height, value, color=_VERMILION if sensor["hidden"] else _BLUE, height=0.62)
        axes.plot([value - error, value + error], [height, height], color=_BLACK, linewidth=0.7)
    axes.axvline(0.0, color=_GREY, linewidth=0.6)
    names = [sensor["name"] for sensor in ranked]
    labels = [name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…" for name in names]
    axes.set_yticks(heights, labels, parse_math=False)
    for tick, sensor in zip(axes.get_yticklabels(), ranked, strict=True):
        if sensor["hidden"]:
            tick.set_color(_VERMILION)
    axes.set_ylim(-0.7, len(ranked) - 0.3)
    _clean_axes(axes, "x")
    axes.tick_params(axis="y", length=0)
    title = title if len(ranked) == len(sensors) else f"The {len(ranked)} most valuable sensors"
    axes.set(title=title, xlabel="% of the reward variance")
