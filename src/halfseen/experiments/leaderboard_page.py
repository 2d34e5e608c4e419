"""The leaderboard as one HTML page that carries all it shows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from halfseen.experiments.figures import render_figure
from halfseen.experiments.html import Markup, Shaded, escape, figure, page, section, table
from halfseen.experiments.leaderboard_figure import ratio_figure
from halfseen.experiments.leaderboard_summary import BASELINE
from halfseen.experiments.leaderboard_tables import (
    ALL_WORLDS,
    differs,
    failure_lines,
    made_with,
    matrix_note,
    matrix_table,
    notes,
    statement,
    world_table,
)
from halfseen.experiments.setting_tables import settings_tables

if TYPE_CHECKING:
    from halfseen.experiments.leaderboard import Leaderboard

_DEEPEST = 4.0  # the ratio, or its inverse, from which the colour grows no stronger
_CSS = """
tbody th, thead th:first-child { position: sticky; left: 0; background: var(--page); }
.matrix td { text-align: right; min-width: 4.2rem; }
.matrix thead th { white-space: normal; vertical-align: bottom; }
.failed { color: var(--fails); font-weight: 650; }
"""


def render_leaderboard(board: Leaderboard) -> str:
    """The whole page."""
    failures = failure_lines(board)
    caption = (
        f"Mean R(T) as a multiple of {BASELINE}'s, with 95 % interval. Blue: less regret; orange: more; grey: no "
        "difference beyond chance."
    )
    body = [
        f'<p class="lead">{escape(statement(board))}</p>',
        *([section("Failures", _list(failures))] if failures else []),
        section(
            "All worlds",
            f"<p>{escape(matrix_note())}</p>",
            _matrix(board),
            figure(render_figure(ratio_figure(board), "svg"), caption, narrow=len(board.worlds) == 1),
        ),
        section("How to read the tables", _meanings(notes(board))),
        *[section(world, _world(board, world)) for world in board.worlds],
        section("Settings", *settings_tables(board.plan)),
        section("Versions, and how to run it again", f"<p>{escape(made_with(board))}</p>", *_command(board)),
    ]
    return page("Leaderboard", body, css=_CSS)


def _matrix(board: Leaderboard) -> str:
    rows = []
    for row in matrix_table(board).rows:
        agent = row["agent"]
        cells = [agent]
        for world in board.worlds:
            entry = board.entry(world, agent)
            if entry["error"]:
                cells.append(Markup(f'<span class="failed">{escape(row[world])}</span>'))
            else:
                cells.append(_shaded(row[world], entry["ratio"] and entry["ratio"]["value"], differs(entry)))
        rows.append([*cells, _shaded(row[ALL_WORLDS], board.summary["agents"][agent]["overall_ratio"], False)])
    columns = ["agent", *board.worlds, ALL_WORLDS]
    return table(f"R(T) as a multiple of {BASELINE}'s", columns, rows, numeric=range(1, len(columns)), name="matrix")


def _shaded(text: str, ratio: float | None, bold: bool) -> str:
    return text if ratio is None else Shaded(text, math.log(ratio) / math.log(_DEEPEST), bold=bold)


def _world(board: Leaderboard, world: str) -> str:
    own = world_table(board, world)
    rows = [list(row.values()) for row in own.rows]
    caption = f"{board.summary['rounds']:,} rounds, {len(board.summary['seeds']):,} seeds; the least regret first."
    return table(caption, own.columns, rows, numeric=range(1, len(own.columns)))


def _command(board: Leaderboard) -> list[str]:
    command = board.summary["command"]
    return [f"<pre>{escape(command)}</pre>"] if command else []


def _meanings(told: dict[str, str]) -> str:
    items = [f"<li><b>{escape(name)}</b>: {escape(meaning)}</li>" for name, meaning in told.items()]
    return "<ul>" + "".join(items) + "</ul>"


def _list(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
