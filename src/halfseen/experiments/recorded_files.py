"""What a run on recorded data leaves on disk: figures, report and table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from halfseen.experiments.figures import save_figure
from halfseen.experiments.reward_figures import arms_figure, reward_figure
from halfseen.experiments.reward_report import caveats, render_reward_report, rerun_command
from halfseen.experiments.reward_tables import arms_table, verdicts
from halfseen.reports.files import write_atomically

if TYPE_CHECKING:
    from halfseen.experiments.result import Result


def write_recorded(result: Result, folder: Path) -> None:
    """`reward` and `arms` as PNG and SVG (arms once a world), `report.html`, `table.md`."""
    figures = {"reward": reward_figure(result)}
    for number, world in enumerate(result.worlds):
        label = re.sub(r"[^A-Za-z0-9]+", "-", world).strip("-") or str(number)
        figures["arms" if len(result.worlds) == 1 else f"arms-{label}"] = arms_figure(result, world)
    for name, drawn in figures.items():
        for kind in ("png", "svg"):
            save_figure(drawn, folder / f"{name}.{kind}")
    write_atomically(folder / "report.html", render_reward_report(result).encode())
    write_atomically(folder / "table.md", markdown(result).encode())


def markdown(result: Result) -> str:
    """The tables of all worlds, with the command that makes them."""
    command = rerun_command(result.plan)
    parts = [] if command is None else [f"```sh\n{command}\n```"]
    for world in result.worlds:
        found = result.summary["worlds"][world]["rewards"]
        parts += [f"## {world}", result.agents_table(world).markdown()]
        parts += ["\n".join(f"* {line}" for line in verdicts(found)), arms_table(found).markdown()]
    return "\n\n".join([*parts, *caveats(result.plan)]) + "\n"
