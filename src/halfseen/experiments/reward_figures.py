"""Figures of recorded data: what was earned over time, and which arms were played."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.errors import missing_extra
from halfseen.experiments.figures import (
    BLUE,
    GREY,
    PAGE,
    STYLE,
    VERMILION,
    draw_mean,
    even_grid,
    legend_columns,
    looks_of,
    panelled,
    thousands,
)
from halfseen.experiments.result import Result
from halfseen.experiments.rewards import arm_shares

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASE = "random"
_ARM_COLOURS = (BLUE, "#56B4E9", VERMILION, "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#000000")
_STRETCHES = 60  # of which the shares of arms are shown
_HATCHES = ("", "////", "....", "xxxx")  # beyond eight arms the colours come again, hatched


def reward_figure(result: Result) -> Figure:
    """Reward summed from the first round, less that of `random` if it played; below, a moving average."""
    count, rounds = len(result.plan.seeds), result.plan.rounds
    window = max(1, rounds // 10)
    above = BASE in result.agents

    def cumulative(axes: Axes, world: str) -> None:
        at = even_grid(1, rounds)
        base = np.cumsum(result.tracks[world, BASE].reward.mean(axis=0)) if above else np.zeros(rounds)
        for agent, look in looks_of(result.agents).items():
            draw_mean(axes, at, (np.cumsum(result.tracks[world, agent].reward, axis=1) - base)[:, at - 1], look)

    def recent(axes: Axes, world: str) -> None:
        at = even_grid(window, rounds)
        for agent, look in looks_of(result.agents).items():
            summed = np.pad(np.cumsum(result.tracks[world, agent].reward, axis=1), ((0, 0), (1, 0)))
            draw_mean(axes, at, (summed[:, at] - summed[:, at - window]) / window, look)

    panels = [
        (f"summed reward\nabove {BASE}" if above else "summed reward", cumulative),
        (f"reward per round,\nmean of last {window:,} rounds", recent),
    ]
    band = f"band ± 1 standard error over the agents' own draws, {count} seeds" if count > 1 else "one seed"
    return panelled(result, panels, "signed", f"the same recorded rounds for all; {band}")


def arms_figure(result: Result, world: str) -> Figure:
    """How often every agent played each arm, over the rounds; a panel an agent."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError:
        raise missing_extra("matplotlib", "experiments", "drawing the figure") from None
    place: Any = next(one for one in result.plan.worlds if one.name == world)
    rounds, names = result.plan.rounds, place.arm_names
    edges = np.unique(np.round(np.linspace(0, rounds, min(_STRETCHES, rounds) + 1)).astype(np.int64))
    across = min(3, len(result.agents))
    down = -(-len(result.agents) // across)
    columns = legend_columns(names, PAGE)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE, 1.45 * down + 0.16 * -(-len(names) // columns) + 0.25), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for number, axes in enumerate(grid.flat):
            if number >= len(result.agents):
                axes.set_visible(False)
                continue
            agent = result.agents[number]
            shares = 100 * arm_shares(result.tracks[world, agent].arm, len(names), edges)
            foot = np.zeros(len(shares))
            for at in range(len(names)):
                axes.stairs(foot + shares[:, at], edges, baseline=foot, fill=True, **_paint(at))
                foot = foot + shares[:, at]
            axes.set_title(textwrap.shorten(agent, 40, placeholder="…"), parse_math=False)
            axes.set_xlim(0, rounds)
            axes.set_ylim(0, 100)
            axes.tick_params(width=0.5, length=2.5, labelbottom=number + across >= len(result.agents))
            axes.locator_params(axis="x", nbins=4)
            axes.xaxis.set_major_formatter(thousands)
            if number % across == 0:
                axes.set_ylabel("% of decisions")
            if number + across >= len(result.agents):
                axes.set_xlabel("round t")
        figure.legend(
            handles=[Patch(label=name, **_paint(at)) for at, name in enumerate(names)],
            loc="outside lower center",
            ncols=columns,
            frameon=False,
        )
    return figure


def _paint(arm: int) -> dict[str, Any]:
    hatch = _HATCHES[arm // len(_ARM_COLOURS) % len(_HATCHES)]
    return {"facecolor": _ARM_COLOURS[arm % len(_ARM_COLOURS)], "hatch": hatch, "linewidth": 0, "edgecolor": GREY}
