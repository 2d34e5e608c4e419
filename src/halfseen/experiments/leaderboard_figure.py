"""Every agent's ratio to the yardstick with its interval, a panel a world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfseen.errors import missing_extra
from halfseen.experiments.figures import ACROSS, BLUE, COLUMN, GREY, PAGE, STYLE, VERMILION
from halfseen.experiments.leaderboard_summary import BASELINE
from halfseen.experiments.leaderboard_tables import differs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from halfseen.experiments.leaderboard import Leaderboard


def ratio_figure(board: Leaderboard) -> Figure:
    """Dots on a logarithmic axis, the same for all worlds; agents from the best overall downwards."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "experiments", "drawing the figure") from None
    across = min(len(board.worlds), ACROSS)
    down = -(-len(board.worlds) // across)
    with mpl.rc_context(STYLE):
        size = (COLUMN if across == 1 else PAGE, down * (0.55 + 0.13 * len(board.agents)))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[len(board.worlds) :]:
            axes.set_visible(False)
        for number, (axes, world) in enumerate(zip(grid.flat, board.worlds, strict=False)):
            axes.axvline(1.0, color=GREY, linewidth=0.6)
            for height, agent in enumerate(reversed(board.agents)):
                _dot(axes, height, board.entry(world, agent))
            axes.set_title(world, parse_math=False)
            _dress(axes)
            if number >= len(board.worlds) - across:
                axes.set_xlabel(f"R(T) as a multiple of {BASELINE}'s")
                axes.tick_params(labelbottom=True)
        grid[0, 0].set_yticks(range(len(board.agents)), list(reversed(board.agents)), parse_math=False)
        grid[0, 0].set_ylim(-0.7, len(board.agents) - 0.3)
    return figure


def _dot(axes: Axes, height: int, entry: dict[str, Any]) -> None:
    """The ratio and its interval; nothing where there is none."""
    if entry["ratio"] is None:
        return
    value, low, high = (entry["ratio"][name] for name in ("value", "low", "high"))
    colour = GREY if not differs(entry) else BLUE if value < 1 else VERMILION
    axes.plot([max(low, value / 100), high], [height, height], color=colour, linewidth=0.9)  # 0 has no logarithm
    axes.plot([value], [height], color=colour, marker="o", markersize=2.6)


def _dress(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", linewidth=0.3, color="#d9d9d9")
    axes.set_axisbelow(True)
    axes.tick_params(width=0.5, length=2.5)
