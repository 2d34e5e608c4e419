"""The leaderboard as tables of text, for the terminal, for a page and for Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from halfseen.experiments.leaderboard_summary import BASELINE, SEEDS_PER_SLICE
from halfseen.experiments.wording import count, interval, number, spread
from halfseen.reports.table import Table

if TYPE_CHECKING:
    from halfseen.experiments.leaderboard import Leaderboard

SIGNIFICANT = 0.05
ALL_WORLDS = "all worlds"
FAILED = "failed"


def ratio_text(value: float | None) -> str:
    """A ratio in four letters or so."""
    if value is None:
        return "–"
    return number(value, 2 if value < 9.995 else 1 if value < 99.95 else 0)


def differs(entry: dict[str, Any]) -> bool:
    """Whether an agent's regret differs from the yardstick's beyond chance."""
    return entry["p_holm"] is not None and entry["p_holm"] < SIGNIFICANT


def matrix_table(board: Leaderboard) -> Table:
    """One row an agent, best first, one column a world: mean R(T) as a multiple of the yardstick's."""
    rows = []
    for agent in board.agents:
        row = {"agent": agent}
        for world in board.worlds:
            entry = board.entry(world, agent)
            row[world] = FAILED if entry["error"] else ratio_text(entry["ratio"] and entry["ratio"]["value"])
        rows.append(row | {ALL_WORLDS: ratio_text(board.summary["agents"][agent]["overall_ratio"])})
    return Table(rows)


def world_table(board: Leaderboard, world: str) -> Table:
    """All figures of one world, the agent with the least regret first."""
    entries = board.summary["worlds"][world]["agents"]
    ranked = sorted(board.agents, key=lambda a: math.inf if entries[a]["error"] else entries[a]["regret_mean"])
    changes = board.summary["worlds"][world]["change"] is not None
    return Table([{"agent": agent} | _figures(entries[agent], changes) for agent in ranked])


def _figures(entry: dict[str, Any], changes: bool) -> dict[str, str]:
    failed = entry["error"] is not None
    change = entry["change"] or {}
    columns = {
        "R(T) ± s.e.": FAILED if failed else spread(entry["regret_mean"], entry["regret_standard_error"]),
        "median": "–" if failed else number(entry["regret_median"]),
        f"ratio to {BASELINE}": "–" if entry["ratio"] is None else interval(entry["ratio"]),
        "of medians": ratio_text(entry["median_ratio"]),
        "p": _p_text(entry["p_holm"]),
        "worst seed": ratio_text(entry["worst_seed"] and entry["worst_seed"]["ratio"]),
    }
    if changes:
        columns |= {
            "before": "–" if failed else number(change["before"]),
            "after": "–" if failed else number(change["after"]),
            "after / before": "–" if failed else interval(change["ratio"]),
        }
    return columns | {
        "µs/round": "–" if failed else number(entry["microseconds_per_round"], 1),
        "wall s": number(entry["wall_seconds"], 1),
    }


def _p_text(p: float | None) -> str:
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def told_table(board: Leaderboard) -> Table:
    """What each agent decides on and what it is told: agents are not on equal terms."""
    return Table(
        [
            {"agent": agent, "decides on": about["context"], "is told": ", ".join(about["told"]) or "nothing"}
            for agent, about in board.summary["agents"].items()
        ]
    )


def statement(board: Leaderboard) -> str:
    """What was played, in a sentence."""
    seeds = board.summary["seeds"]
    return (
        f"{count(board.agents, 'agent')} in {count(board.worlds, 'world')}, {board.summary['rounds']:,} rounds, "
        f"{count(seeds, 'seed')} ({seeds[0]} to {seeds[-1]}). In one seed every agent meets the same dynamics, arms, "
        "contexts and noises."
    )


def matrix_note() -> str:
    return (
        f"Mean R(T) as a multiple of that of {BASELINE}, which knows the model: below 1 is less regret. "
        f"{ALL_WORLDS.capitalize()}: the geometric mean, by which the agents are ordered. Bold: differs from "
        f"{BASELINE}, p < {SIGNIFICANT} (see below)."
    )


def notes(board: Leaderboard) -> dict[str, str]:
    """How to read the columns, by their names."""
    told = {
        "R(T)": "regret against the best arm for the true context, summed over all rounds; mean over seeds ± standard "
        "error, and median.",
        f"ratio to {BASELINE}": "of the means, with a 95 % interval from the paired differences over seeds.",
        "of medians": "the ratio of the medians.",
        "p": f"Wilcoxon's signed-rank test of the paired differences to {BASELINE}, two-sided, adjusted by Holm for "
        "the number of agents in the world. It asks whether most seeds lean to one side; where a few seeds carry most "
        "of the regret it may disagree with the ratio of the means.",
        "worst seed": f"the largest ratio to {BASELINE} on a single seed.",
        "µs/round": "processor time to decide and learn, for one stream and round in batches of up to "
        f"{SEEDS_PER_SLICE} streams.",
        "wall s": "seconds on the clock for all its seeds, added up; simulating the world is part of it.",
    }
    for world, content in board.summary["worlds"].items():
        if change := content["change"]:
            told[f"before, after in {world}"] = (
                f"mean regret of a round in rounds {_span(change['rounds_before'])} and in rounds "
                f"{_span(change['rounds_after'])}. The dynamics change after round {change['after_round']:,}; agents "
                "that are told a model are told the one before the change, and nobody is told of the change."
            )
    return told


def _span(rounds: list[int]) -> str:
    return f"{rounds[0]:,} to {rounds[1]:,}"


def failure_lines(board: Leaderboard) -> list[str]:
    """A line for every agent and error: where, how often, what."""
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for failure in board.summary["failures"]:
        found.setdefault((failure["agent"], failure["error"]), []).append(failure)
    lines = []
    for (agent, error), failures in found.items():
        worlds = ", ".join(dict.fromkeys(failure["world"] for failure in failures))
        extent = count(failures, "cell") if len(failures) > 1 else f"seeds {failures[0]['seeds']}"
        lines.append(f"{agent} in {worlds} ({extent}): {error}")
    return lines


def made_with(board: Leaderboard) -> str:
    """Versions and effort, in a sentence."""
    versions = ", ".join(f"{name} {version}" for name, version in board.summary["versions"].items())
    spent = sum(e["wall_seconds"] for w in board.summary["worlds"].values() for e in w["agents"].values())
    return f"{versions}. All cells together took {number(spent / 60, 1)} minutes of one process."


def markdown(board: Leaderboard, command: str | None) -> str:
    """The whole leaderboard as a Markdown page, with the command that makes it again."""
    matrix = matrix_table(board)
    for row in matrix.rows:
        for world in board.worlds:
            if differs(board.entry(world, row["agent"])):
                row[world] = f"**{row[world]}**"
    by = ["Made by", f"    {command}"] if command else []
    failures = failure_lines(board)
    parts = [
        "# Leaderboard",
        statement(board),
        *by,
        f"Versions: {made_with(board)}",
        "## All worlds",
        matrix_note(),
        _safe(matrix),
        *(["## Failures", _listed(failures)] if failures else []),
        "## What each agent is told",
        _safe(told_table(board)),
        "## How to read the figures",
        _listed(f"**{name}**: {meaning}" for name, meaning in notes(board).items()),
        *[part for world in board.worlds for part in (f"## {world}", _safe(world_table(board, world)))],
    ]
    return "\n\n".join(parts) + "\n"


def _safe(table: Table) -> str:
    """Markdown with the agents as code, in which no cell ends a column before its time."""
    rows = [{name: cell.replace("|", "\\|") for name, cell in row.items()} for row in table.rows]
    return Table([row | {"agent": f"`{row['agent']}`"} for row in rows]).markdown()


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)
