"""Figures fit for a paper. Matplotlib's object interface only: nothing global, no display needed."""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.errors import invalid, missing_extra
from halfseen.experiments.result import Result
from halfseen.kernels.random import Floats, Ints
from halfseen.reports.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Look = tuple[str, Any]  # colour, dash pattern
Panel = tuple[str, Callable[["Axes", str], None]]  # label, and what draws a world's

# Okabe & Ito's palette, told apart with every common colour blindness; its yellow is too faint on white.
_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, _PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F"
_SOLID, _DASHED, _DOTTED, _DASHDOT = "solid", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2))

# The agents of the paper's experiment, and our own, look the same in every figure; others take what is left.
_OWN_LOOK: dict[str, Look] = {
    "adaptive": (_BLACK, _SOLID),
    "oracle-ts": (_GREEN, _DASHED),
    "kf-ts": (BLUE, _SOLID),
    "emkf-ts": (VERMILION, _SOLID),
    "emkf-ucb": (_ORANGE, _DASHED),
    "em-rts-ts": (_PURPLE, _DASHDOT),
    "ts-pco": (_SKY, _DASHDOT),
    "bayes": (_BLACK, _DOTTED),
}
_OTHER_LOOKS: list[Look] = [
    (colour, dashes)
    for dashes in (_DASHED, _SOLID, _DOTTED, _DASHDOT)
    for colour in (GREY, _PURPLE, BLUE, VERMILION, _GREEN, _BLACK, _ORANGE, _SKY)
    if (colour, dashes) not in _OWN_LOOK.values()
]

STYLE: dict[Any, Any] = {
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
    "svg.hashsalt": "halfseen",  # the same data give the same file
    "svg.fonttype": "path",
}
_POINTS = 300  # on a curve; more cannot be seen, and an SVG holds every one
ACROSS = 4  # most panels side by side
COLUMN, PAGE = 3.5, 7.2  # inches: a column and the text width of a two-column page
_DOTS_PER_INCH = 200


def regret_figure(result: Result) -> Figure:
    """Cumulative regret, and below it a moving average of the regret of a round; a column a world."""
    count, rounds = len(result.plan.seeds), result.plan.rounds
    window = max(1, rounds // 20)

    def cumulative(axes: Axes, world: str) -> None:
        at = even_grid(1, rounds)
        for agent, look in looks_of(result.agents).items():
            draw_mean(axes, at, np.cumsum(result.tracks[world, agent].regret, axis=1)[:, at - 1], look)

    def recent(axes: Axes, world: str) -> None:
        at = even_grid(window, rounds)
        for agent, look in looks_of(result.agents).items():
            summed = np.pad(np.cumsum(result.tracks[world, agent].regret, axis=1), ((0, 0), (1, 0)))
            draw_mean(axes, at, (summed[:, at] - summed[:, at - window]) / window, look)

    panels = [
        ("cumulative regret R(t)", cumulative),
        (f"regret per round,\nmean of last {window:,} rounds", recent),
    ]
    note = f"mean over {count} seeds, band ± 1 standard error" if count > 1 else "one seed"
    return panelled(result, panels, "linear", note)


def theory_figure(result: Result) -> Figure:
    """Measured regret beside the shape of Theorem 1's bound, and below them the quantity of assumption A3."""

    def regret(axes: Axes, world: str) -> None:
        for agent, look in looks_of(result.agents).items():
            entry = result.summary["worlds"][world]["agents"][agent]
            at, mean = np.array(entry["curve"]["rounds"]), np.array(entry["curve"]["mean"])
            _line(axes, at, mean, look)
            bound_at = np.array(entry["theory"]["bound rounds"])
            bound = np.array(entry["theory"]["bound shape"])
            _line(axes, bound_at, bound * (mean[-1] / bound[-1]), (look[0], _SOLID), width=0.6, alpha=0.55)

    def gram(axes: Axes, world: str) -> None:
        for agent, look in looks_of(result.agents).items():
            theory = result.summary["worlds"][world]["agents"][agent]["theory"]
            _line(axes, np.array(theory["A3 rounds"]), np.array(theory["A3 t·|B⁻¹(t)|, mean over seeds"]), look)

    panels = [("mean regret R(t)", regret), ("A3: max over arms\nof t·‖B⁻¹(t)‖", gram)]
    note = "thin lines: the shape of Theorem 1's bound, scaled to meet the measured regret in the last round"
    return panelled(result, panels, "log", note)


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure as PNG (200 dots an inch) or SVG, by the ending of the name."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg"):
        raise invalid("path", f"'{path}'", "a name ending in .png or .svg")
    write_atomically(path, render_figure(figure, kind))


def render_figure(figure: Figure, kind: str) -> bytes:
    """The figure as the content of a "png" or "svg" file; the same figure gives the same bytes."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    unstamped = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=kind, dpi=_DOTS_PER_INCH, metadata=unstamped)
    return buffer.getvalue()


def panelled(result: Result, panels: Sequence[Panel], scale: str, note: str) -> Figure:
    """A grid of panels, the given ones below each other for every world; worlds wrap after four."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "experiments", "drawing the figure") from None
    across = min(len(result.worlds), ACROSS)
    blocks = -(-len(result.worlds) // across)
    down = blocks * len(panels)
    width = COLUMN if across == 1 else PAGE
    looks = looks_of(result.agents)
    columns = legend_columns(looks, width)
    note = textwrap.fill(note, int(width / 0.053))
    height = 1.65 * down + 0.16 * -(-len(looks) // columns) + 0.15 * (1 + note.count("\n"))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False)
        for axes in grid.flat:
            axes.set_visible(False)
        for number, world in enumerate(result.worlds):
            block, column = divmod(number, across)
            for row, (label, draw) in enumerate(panels):
                axes = grid[block * len(panels) + row, column]
                axes.set_visible(True)
                draw(axes, world)
                _dress(axes, scale, result.plan.rounds)
                if row == 0:
                    axes.set_title(world, parse_math=False)
                if row == len(panels) - 1:
                    axes.set_xlabel("round t")
                if column == 0:
                    axes.set_ylabel(label)
        handles = [_handle(label, look) for label, look in looks.items()]
        legend = figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            title=note,
            title_fontsize=6.5,
            handlelength=2.6,
            columnspacing=1.2,
        )
        legend.get_title().set_multialignment("center")
    return figure


def looks_of(agents: Iterable[str]) -> dict[str, Look]:
    others = itertools.cycle(_OTHER_LOOKS)
    return {agent: _OWN_LOOK.get(agent) or next(others) for agent in agents}


def legend_columns(labels: Iterable[str], width: float) -> int:
    """How many entries fit side by side: 0.06 inches a letter, half an inch for line and gaps."""
    widths = [0.5 + 0.06 * len(label) for label in labels]
    for rows in range(1, len(widths)):
        columns = [widths[at : at + rows] for at in range(0, len(widths), rows)]  # filled downwards
        if sum(max(column) for column in columns) <= width:
            return len(columns)
    return 1


def _handle(label: str, look: Look) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=look[0], linestyle=look[1], linewidth=1.2, label=label)


def _dress(axes: Axes, scale: str, rounds: int) -> None:
    """Axes, ticks and limits; called when the data is drawn."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(linewidth=0.3, color="#d9d9d9")
    axes.set_axisbelow(True)
    axes.tick_params(width=0.5, length=2.5)
    if scale in ("linear", "signed"):
        axes.set_xlim(0, rounds)
        if scale == "linear":
            axes.set_ylim(bottom=0)
        axes.locator_params(axis="x", nbins=4)
        axes.locator_params(axis="y", nbins=5)
    else:
        _log_axes(axes, rounds)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(thousands)


def _log_axes(axes: Axes, rounds: int) -> None:
    """Logarithmic from round 10 on, the vertical axis over whole decades: few ticks, all labelled."""
    first = min(10, max(1, rounds // 10))
    heights = [np.asarray(line.get_ydata())[np.asarray(line.get_xdata()) >= first] for line in axes.lines]
    seen = np.concatenate([[], *heights])
    seen = seen[np.isfinite(seen) & (seen > 0)]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(first, max(rounds, first + 1))
    if len(seen):
        low, high = np.floor(np.log10(seen.min())), np.ceil(np.log10(seen.max()))
        axes.set_ylim(10.0**low, 10.0 ** max(high, low + 1))
    axes.minorticks_off()


def thousands(value: float, _: Any = None) -> str:
    return f"{value / 1000:,g}k" if abs(value) >= 1000 else f"{value:g}"


def even_grid(first: int, last: int) -> Ints:
    return np.unique(np.round(np.linspace(first, last, _POINTS)).astype(np.int64))


def draw_mean(axes: Axes, at: Ints, curves: Floats, look: Look) -> None:
    """The mean over seeds (S, G) with a band of one standard error."""
    mean = curves.mean(axis=0)
    if len(curves) > 1:
        error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
        axes.fill_between(at, mean - error, mean + error, color=look[0], alpha=0.16, linewidth=0)
    _line(axes, at, mean, look)


def _line(axes: Axes, at: Ints, values: Floats, look: Look, *, width: float = 1.1, alpha: float = 1.0) -> None:
    if np.isfinite(values).any():
        axes.plot(at, values, color=look[0], linestyle=look[1], linewidth=width, alpha=alpha)
