"""Tables of text and the format of their numbers, for the terminal, for files and for pages."""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line prints tables without loading NumPy
    from numpy.typing import NDArray

SIGNIFICANT = 0.05
DEEPEST_SHADE = 4.0  # all ratios above this number, or below its inverse, get the strongest colour
ALL_WORLDS, FAILED = "all worlds", "failed"
GROWTH_NOTE = (
    "growth t^β: from round T/16 on, the regret per round changes as t^(β−1). With β = 1 it stays the same, which is "
    "linear regret, and with β = 0.5 R(t) grows as √t. β can be negative: the regret per round then falls faster than "
    "1/t, and R(t) hardly grows any more."
)
Summary = Mapping[str, Any]
_NUMBER = re.compile(r"[-+−]?[\d,.]+( ?%)?( [±\[].*)?|–")


@dataclass(frozen=True)
class Table:
    """A table of text. All rows have the same columns.

    Attributes
    ----------
    rows : list of dict
        One dictionary per row, from the name of the column to the text of the cell.
    """

    rows: list[dict[str, str]]

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.rows[0]) if self.rows else []

    @property
    def cells(self) -> list[list[str]]:
        """The texts of the cells, as one list per row."""
        return [list(row.values()) for row in self.rows]

    def __str__(self) -> str:
        lines = [dict(zip(self.columns, self.columns, strict=True)), *self.rows]
        widths = {column: max(len(line[column]) for line in lines) for column in self.columns}
        return "\n".join("  ".join(line[c].ljust(w) for c, w in widths.items()).rstrip() for line in lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return the table in HTML, for notebooks. Columns of numbers are aligned to the right."""
        columns = zip(*self.cells, strict=True)
        sides = ["right" if all(map(_NUMBER.fullmatch, column)) else "left" for column in columns]

        def row(tag: str, cells: Sequence[str]) -> str:
            styles = (f"text-align: {side}; padding: 0.2em 0.6em; vertical-align: top" for side in sides)
            pairs = zip(cells, styles, strict=True)
            return "".join(f'<{tag} style="{style}">{html.escape(cell)}</{tag}>' for cell, style in pairs)

        body = "".join(f"<tr>{row('td', cells)}</tr>" for cells in self.cells)
        return f"<table><thead><tr>{row('th', self.columns)}</tr></thead><tbody>{body}</tbody></table>"

    def markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [self.columns, ["---"] * len(self.columns), *self.cells]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def html_block(*parts: str | Table | Sequence[str]) -> str:
    """Return HTML for notebooks: strings become paragraphs, lists of strings become bullets, tables become tables."""
    rendered = []
    for part in parts:
        if isinstance(part, Table):
            rendered.append(part._repr_html_() if part.rows else "")
        elif isinstance(part, str):
            rendered.append(f"<p>{html.escape(part)}</p>" if part else "")
        else:
            bullets = "".join(f"<li>{html.escape(line)}</li>" for line in part)
            rendered.append(f"<ul>{bullets}</ul>" if bullets else "")
    return f"<div>{''.join(rendered)}</div>"


# Numbers


def count(things: Sized | int, word: str) -> str:
    """Return a count with its noun, such as "1 seed", "3 seeds" or "2 processes"."""
    number = things if isinstance(things, int) else len(things)
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}{'es' if word.endswith('s') else 's'}"


def number(value: float | None, digits: int | None = None, sign: str = "") -> str:
    """Format a number. By default, numbers below 100 have two decimals and others none. None becomes "–"."""
    if value is None or not math.isfinite(value):
        return "–"
    digits = _default_decimals(value) if digits is None else digits
    return f"{round(value, digits) + 0.0:{sign},.{digits}f}"  # adding 0.0 turns "-0.00" into "0.00"


def _default_decimals(value: float) -> int:
    return 0 if abs(value) >= 100 else 2


def common_decimals(values: Iterable[float]) -> int:
    """Return the number of decimals of a column, chosen such that its largest value is shown with four digits."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 0 if largest == 0 else max(0, 3 - math.floor(math.log10(largest)))


def significant(value: float) -> str:
    """Format a number with three significant digits and without an exponent."""
    if value == 0 or not math.isfinite(value):
        return number(value, 0)
    return number(value, max(0, 2 - math.floor(math.log10(abs(value)))))


def mean_and_error(mean: float, error: float) -> str:
    """Format a mean with its standard error."""
    digits = _default_decimals(mean)
    return f"{number(mean, digits)} ± {number(error, digits)}"


def interval(estimate: Mapping[str, float] | None, digits: int | None = None, sign: str = "") -> str:
    """Format an estimate with its interval, if it has one."""
    if estimate is None:
        return "–"
    value, low, high = (number(estimate[name], digits, sign) for name in ("value", "low", "high"))
    return value if low == "–" else f"{value} [{low}, {high}]"


def ratio(value: float | None) -> str:
    """Format a ratio in about four characters."""
    return number(value, None if value is None else 2 if value < 9.995 else 1 if value < 99.95 else 0)


def percent(share: float, digits: int = 0) -> str:
    """Format a share in percent. A negative share, which is possible out of sample, becomes "0 %"."""
    return f"{number(100 * max(share, 0.0), digits)} %"


def p_value(p: float | None, equals: str = "") -> str:
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{equals}{p:.3f}"


# Regret, from the summary of a result


def regret_table(summary: Summary) -> Table:
    """Return R(T), its growth, the estimation error and the speed, with one row per world and agent."""
    return Table(
        [
            {
                "world": world,
                "agent": agent,
                "R(T) mean": number(entry["regret_mean"], 0),
                "± s.e.": number(entry["regret_standard_error"], 0),
                "median": number(entry["regret_median"], 0),
                "growth t^β": interval(entry["growth_exponent"]),
                "mean ‖x−x̂‖": number(entry["mean_estimation_error"], 2),
                "rounds/s": number(entry["rounds_per_second"], 0),
            }
            for world, agent, entry in agent_entries(summary)
        ]
    )


def results_table(summary: Summary) -> Table:
    """Return `regret_table` for the report, with the mean and its standard error in one column."""
    return Table(
        [
            {
                "world": world,
                "agent": agent,
                "R(T) mean ± s.e.": mean_and_error(entry["regret_mean"], entry["regret_standard_error"]),
                "median": number(entry["regret_median"]),
                "growth β": interval(entry["growth_exponent"]),
                "mean ‖x − x̂‖": number(entry["mean_estimation_error"]),
                "rounds/s": number(entry["rounds_per_second"], 0),
            }
            for world, agent, entry in agent_entries(summary)
        ]
    )


def norms_table(summary: Summary) -> Table:
    """Return the quantities of assumptions A1 and A2 of the paper's theorem, with one row per world."""
    rows = {}
    for world, _, entry in agent_entries(summary):
        theory = entry["theory"]
        rows[world] = {
            "world": world,
            "A1: max ‖μ‖": number(theory["A1 largest arm norm"]),
            "A2: max ‖x‖": number(theory["A2 largest context norm"]),
            "growth of max ‖x‖": interval(theory["A2 growth of the largest context norm"]),
        }
    return Table(list(rows.values()))


def theory_table(summary: Summary) -> dict[str, Any]:
    """Return the quantities of assumption A3 and the estimation error, with one row per world and agent.

    The result is not a `Table`, because two columns have the same name.
    """
    cells = [
        [
            world,
            agent,
            number(entry["theory"]["A3 t·|B⁻¹(t)|, mean over seeds"][-1]),
            interval(entry["theory"]["A3 growth of t·|B⁻¹(t)|"]),
            interval(entry["theory"]["summed estimation error"]),
            interval(entry["theory"]["growth of the summed estimation error"]),
        ]
        for world, agent, entry in agent_entries(summary)
    ]
    return {"columns": ["world", "agent", "A3: T·‖B⁻¹(T)‖", "its growth", "Σ‖ε‖", "its growth"], "cells": cells}


def is_ratio(panel: Summary) -> bool:
    """Return whether a panel of a claim map shows regret relative to another agent, instead of growth exponents."""
    return "relative to" in panel["measure"]


def map_cell_text(panel: Summary, cell: Summary) -> str:
    """Format the numbers of one cell of a claim map, one per agent. Relative differences of regret become ratios."""
    values = [figure["value"] for figure in cell["figures"].values()]
    if is_ratio(panel):
        return " / ".join(ratio(None if value is None else 1.0 + value) for value in values)
    return " / ".join(number(value, 2) for value in values)


def map_cells(summary: Summary, panel: Summary) -> dict[str, Any]:
    """Return a panel of a claim map as columns and cells with `text`, `verdict`, `style` and `cell`.

    The rows are the observation noises in descending order, and the columns the process noises. `cell` is the position
    of the cell in `summary["cells"]`.
    """
    by_place = {(cell["noise"], cell["sensor_noise"]): cell for cell in panel["cells"]}
    numbers = {(cell["noise"], cell["sensor_noise"]): index for index, cell in enumerate(summary["cells"])}
    rows: list[list[Any]] = []
    for sensor_noise in reversed(summary["sensor_noise"]):
        row: list[Any] = [f"Σ = {sensor_noise:g} I" if sensor_noise else "Σ = 0"]
        for noise in summary["noise"]:
            cell = by_place.get((noise, sensor_noise))
            if cell is None:
                row.append({"text": "", "verdict": None, "style": "", "cell": None})
            else:
                text, verdict = map_cell_text(panel, cell), cell["verdict"]
                row.append({"text": text, "verdict": verdict, "style": "", "cell": numbers[noise, sensor_noise]})
        rows.append(row)
    return {"columns": ["", *(f"ε = {noise:g}" for noise in summary["noise"])], "cells": rows}


def agent_entries(summary: Summary) -> list[tuple[str, str, dict[str, Any]]]:
    """Return a list of (world, agent, entry)."""
    return [
        (world, agent, entry)
        for world, content in summary["worlds"].items()
        for agent, entry in content["agents"].items()
    ]


# Rewards on recorded data, from the summary of one world


def rewards_table(world: Summary) -> Table:
    """Return one row per agent: mean reward, share of oracle-ts's reward, difference from the reference and speed."""
    rewards = world["rewards"]
    entries, reference = rewards["agents"], rewards["reference"]
    digits = common_decimals(entry["reward_mean"] for entry in entries.values())
    rows = []
    for agent, entry in entries.items():
        share, ends = entry["share_of_full_context"], entry["reward_interval"]
        difference = entry["reference_less_this"] or dict.fromkeys(("value", "t", "p_holm"))
        rows.append(
            {
                "agent": agent,
                "mean reward": number(entry["reward_mean"], digits),
                "95 % interval": f"[{number(ends['low'], digits)}, {number(ends['high'], digits)}]",
                "share of oracle-ts": "–" if share is None else f"{number(100 * share['value'], 1)} %",
                f"{reference} minus this": number(difference["value"], digits),
                "HAC t": number(difference["t"], 1),
                "p (Holm)": p_value(difference["p_holm"]),
                "µs/round": number(world["microseconds_per_round"][agent], 0),
            }
        )
    return Table(rows)


def arms_table(world: Summary) -> Table:
    """Return one row per arm: its mean reward, and the share of rounds in which each agent played it."""
    rewards = world["rewards"]
    digits = common_decimals(arm["reward_mean"] for arm in rewards["arms"].values())
    return Table(
        [
            {
                "arm": name,
                "mean reward if always played": number(arm["reward_mean"], digits),
                "HAC t": number(arm["reward_hac"]["t"], 1),
                **{agent: percent(entry["share_of_arms"][index]) for agent, entry in rewards["agents"].items()},
            }
            for index, (name, arm) in enumerate(rewards["arms"].items())
        ]
    )


def comparisons(world: Summary) -> list[str]:
    """Return one sentence per comparison. Agents are said to differ if p is below 0.05 after Holm's correction."""
    rewards = world["rewards"]
    reference, fixed = rewards["reference"], rewards["reference_less_best_fixed_arm"]
    more = "more" if fixed["value"] > 0 else "less"
    chance = "" if abs(fixed["t"]) > 2 else ", not significant"
    lines = [
        f"{reference} earned {significant(abs(fixed['value']))} per round {more} than always playing "
        f"'{rewards['best_fixed_arm']}', the best arm in hindsight (t = {number(fixed['t'], 1)}{chance})."
    ]
    for agent, entry in rewards["agents"].items():
        difference = entry["reference_less_this"]
        if difference is None:
            continue
        p = p_value(difference["p_holm"], "= ")
        size = f"{significant(abs(difference['value']))} per round"
        test = f"(t = {number(difference['t'], 1)}, p {p})"
        if difference["p_holm"] >= SIGNIFICANT:
            lines.append(f"{reference} and {agent} do not differ significantly: {size} {test}.")
        else:
            more = "more" if difference["value"] > 0 else "less"
            lines.append(f"{reference} earned {size} {more} than {agent} {test}.")
    return lines


def rewards_markdown(summary: Summary, command: str | None, caveats: Sequence[str]) -> str:
    """Return the tables of all recorded worlds in Markdown, with the command that reproduces them."""
    parts = [] if command is None else [f"```sh\n{command}\n```"]
    for name, world in summary["worlds"].items():
        parts += [f"## {name}", rewards_table(world).markdown()]
        parts += [_bullets(comparisons(world)), arms_table(world).markdown()]
    return "\n\n".join([*parts, *caveats]) + "\n"


# The leaderboard, from its summary


def ranked_agents(summary: Summary) -> list[str]:
    """Return the labels of the agents in ascending order of their overall ratio."""
    ratios = {agent: about["overall_ratio"] for agent, about in summary["agents"].items()}
    return sorted(ratios, key=lambda agent: math.inf if ratios[agent] is None else ratios[agent])


def differs(entry: Summary) -> bool:
    """Return whether an agent's regret differs significantly from the regret of the baseline."""
    return entry["p_holm"] is not None and entry["p_holm"] < SIGNIFICANT


def matrix_table(summary: Summary) -> Table:
    """Return mean R(T) divided by the mean R(T) of the baseline, with one row per agent and one column per world."""
    rows = []
    for agent in ranked_agents(summary):
        row = {"agent": agent}
        for world, content in summary["worlds"].items():
            entry = content["agents"][agent]
            row[world] = FAILED if entry["error"] else ratio(entry["ratio"] and entry["ratio"]["value"])
        rows.append(row | {ALL_WORLDS: ratio(summary["agents"][agent]["overall_ratio"])})
    return Table(rows)


def shaded_matrix(summary: Summary) -> dict[str, Any]:
    """Return the columns and cells of `matrix_table`. Cells have `text`, `style` and `failed`."""
    matrix = matrix_table(summary)
    cells: list[list[Any]] = []
    for agent, *texts in matrix.cells:
        entries = [content["agents"][agent] for content in summary["worlds"].values()]
        styles = [_shade(entry["ratio"] and entry["ratio"]["value"], differs(entry)) for entry in entries]
        styles.append(_shade(summary["agents"][agent]["overall_ratio"], bold=False))
        pairs = zip(texts, styles, strict=True)
        cells.append([agent, *({"text": text, "style": style, "failed": text == FAILED} for text, style in pairs)])
    return {"columns": matrix.columns, "cells": cells}


def _shade(ratio: float | None, bold: bool) -> str:
    """Return a background colour: blue below 1, orange above. Text is readable on it in both colour schemes."""
    if ratio is None:
        return ""
    depth = max(-1.0, min(1.0, math.log(ratio) / math.log(DEEPEST_SHADE)))
    colour = "0 114 178" if depth < 0 else "213 94 0"
    return f"background: rgb({colour} / {abs(depth) / 2:.2f})" + ("; font-weight: 700" if bold else "")


def world_table(summary: Summary, world: str) -> Table:
    """Return all results in one world, with one row per agent in ascending order of regret."""
    content = summary["worlds"][world]
    entries = content["agents"]
    ranked = sorted(
        ranked_agents(summary), key=lambda a: math.inf if entries[a]["error"] else entries[a]["regret_mean"]
    )
    changes = content["change"] is not None
    return Table([{"agent": a} | _leaderboard_row(entries[a], summary["baseline"], changes) for a in ranked])


def _leaderboard_row(entry: Summary, baseline: str, changes: bool) -> dict[str, str]:
    """Return the cells of one agent in one world. The entry of an agent that failed has only an error and a time."""
    failed = entry["error"] is not None
    columns = {
        "R(T) ± s.e.": FAILED if failed else mean_and_error(entry["regret_mean"], entry["regret_standard_error"]),
        "median": number(entry["regret_median"]),
        f"ratio to {baseline}": interval(entry["ratio"]),
        "of medians": ratio(entry["median_ratio"]),
        "p": p_value(entry["p_holm"]),
        "worst seed": ratio(entry["worst_seed"] and entry["worst_seed"]["ratio"]),
    }
    if changes:
        change = entry["change"] or dict.fromkeys(("before", "after", "ratio"))
        columns |= {
            "before": number(change["before"]),
            "after": number(change["after"]),
            "after / before": interval(change["ratio"]),
        }
    return columns | {
        "µs/round": number(entry["microseconds_per_round"], 1),
        "wall s": number(entry["wall_seconds"], 1),
    }


def leaderboard_statement(summary: Summary) -> str:
    """Return the numbers of agents, worlds, rounds and seeds of a leaderboard, as sentences."""
    seeds = summary["seeds"]
    return (
        f"{count(summary['agents'], 'agent')} in {count(summary['worlds'], 'world')}, {summary['rounds']:,} rounds, "
        f"{count(seeds, 'seed')} ({seeds[0]} to {seeds[-1]}). For each seed, all agents play with the same dynamics, "
        "arms, contexts and noise."
    )


def matrix_note(summary: Summary) -> str:
    baseline = summary["baseline"]
    return (
        f"Every cell is the mean R(T) of the agent divided by the mean R(T) of {baseline}, which knows the model. A "
        f"ratio below 1 means less regret. The column '{ALL_WORLDS}' is the geometric mean of the row, by which the "
        f"agents are ordered. Bold cells differ significantly from {baseline} (p < {SIGNIFICANT}, see below)."
    )


def column_notes(summary: Summary, batch: int) -> dict[str, str]:
    """Return explanations of the columns by name. `batch` is the number of streams that were timed together."""
    baseline = summary["baseline"]
    notes = {
        "R(T)": "regret relative to the best arm for the true context, summed over all rounds. The table shows the "
        "mean over seeds ± its standard error, and the median.",
        f"ratio to {baseline}": "ratio of the means, with a 95 % interval from the paired differences over seeds.",
        "of medians": "ratio of the medians.",
        "p": f"two-sided p-value of Wilcoxon's signed-rank test of the paired differences from {baseline}, with Holm's "
        "correction for the number of agents in the world. The test depends on the sign and rank of the differences, "
        "so it may disagree with the ratio of the means if a few seeds have most of the regret.",
        "worst seed": f"largest ratio to {baseline} on a single seed.",
        "µs/round": f"processor time to decide and learn, per stream and round, in batches of up to {batch} streams.",
        "wall s": "elapsed seconds, summed over all seeds and including the simulation of the world.",
    }
    for world, content in summary["worlds"].items():
        if change := content["change"]:
            before, after = (f"{a:,} to {b:,}" for a, b in (change["rounds_before"], change["rounds_after"]))
            notes[f"before, after in {world}"] = (
                f"mean regret per round in rounds {before} and in rounds {after}. The dynamics change after round "
                f"{change['after_round']:,}. Agents that are given a model are given the model before the change, and "
                "no agent is informed of the change."
            )
    return notes


def failure_lines(summary: Summary) -> list[str]:
    """Return one line per agent and error, with the worlds and the number of failures."""
    by_error: dict[tuple[str, str], list[dict[str, str]]] = {}
    for failure in summary["failures"]:
        by_error.setdefault((failure["agent"], failure["error"]), []).append(failure)
    lines = []
    for (agent, error), failures in by_error.items():
        worlds = ", ".join(dict.fromkeys(failure["world"] for failure in failures))
        extent = count(failures, "slice") if len(failures) > 1 else f"seeds {failures[0]['seeds']}"
        lines.append(f"{agent} in {worlds} ({extent}): {error}")
    return lines


def versions(summary: Summary) -> str:
    return ", ".join(f"{name} {version}" for name, version in summary["versions"].items())


def versions_and_time(summary: Summary) -> str:
    """Return the versions used for a leaderboard, and a sentence about the time of all slices."""
    seconds = sum(entry["wall_seconds"] for _, _, entry in agent_entries(summary))
    return f"{versions(summary)}. The times of all slices add up to {number(seconds / 60, 1)} minutes."


def leaderboard_markdown(summary: Summary, command: str | None, batch: int) -> str:
    """Return the leaderboard as a Markdown page, with the command that reproduces it."""
    matrix = matrix_table(summary)
    for row in matrix.rows:
        for world, content in summary["worlds"].items():
            if differs(content["agents"][row["agent"]]):
                row[world] = f"**{row[world]}**"
    facts = [
        {"agent": agent, "description": about["context"], "is given": ", ".join(about["told"]) or "nothing"}
        for agent, about in summary["agents"].items()
    ]
    failures = failure_lines(summary)
    parts = [
        "# Leaderboard",
        wrap_prose(leaderboard_statement(summary)),
        *(["This page was generated by", f"    {command}"] if command else []),
        wrap_prose(f"Versions: {versions_and_time(summary)}"),
        "## All worlds",
        wrap_prose(matrix_note(summary)),
        _agents_markdown(matrix),
        *(["## Failures", _bullets(failures)] if failures else []),
        "## What each agent is given",
        _agents_markdown(Table(facts)),
        "## How to read the tables",
        wrap_prose(_bullets(f"**{name}**: {meaning}" for name, meaning in column_notes(summary, batch).items())),
    ]
    for world in summary["worlds"]:
        parts += [f"## {world}", _agents_markdown(world_table(summary, world))]
    return "\n\n".join(parts) + "\n"


def _agents_markdown(table: Table) -> str:
    """Return a table in Markdown, with the agents as code and every "|" escaped."""
    rows = [{name: cell.replace("|", "\\|") for name, cell in row.items()} for row in table.rows]
    return Table([row | {"agent": f"`{row['agent']}`"} for row in rows]).markdown()


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def wrap_prose(text: str) -> str:
    """Return Markdown in which every line, a paragraph or a bullet, is wrapped at 100 columns."""
    wrapped = (
        textwrap.fill(
            line,
            100,
            subsequent_indent="  " if line.startswith("* ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.splitlines()
    )
    return "\n".join(wrapped)


# Off-policy evaluation


def policy_table(policies: Mapping[str, Summary], estimators: Sequence[str]) -> Table:
    """Return the estimated values of policies, with one row per policy. The logged policy comes first."""
    rows: list[dict[str, str]] = []
    first = estimators[0]
    digits = _policy_decimals([policy[first] for policy in policies.values()])
    for label, policy in policies.items():
        size = policy["effective_sample_size"]
        rows.append(
            {
                "policy": label,
                **{name: interval(policy[name], digits) for name in estimators},
                f"{first} − logged": interval(policy["more than logged"][first], digits, "+") if rows else "–",
                "ess": number(size, 0 if size >= 100 else 1),
                "largest weight": f"{policy['largest_weight']:.3g}",
                "uncovered": percent(policy["uncovered"], 1),
                "see notes": "yes" if policy["notes"] else "",
            }
        )
    return Table(rows)


def _policy_decimals(estimates: Sequence[Mapping[str, float]]) -> int:
    """Return the number of decimals for estimates.

    With these decimals, at least two digits of the median half-width of the intervals are shown, and at least one digit
    of the smallest half-width. Without intervals, at least two digits of the largest value are shown.
    """
    halves = [half for e in estimates if (half := (e["high"] - e["low"]) / 2) > 1e-9 * abs(e["value"])]
    sizes = halves or [max((abs(e["value"]) for e in estimates if e["value"]), default=1.0)]
    middle, least = median_low(sizes), min(sizes)
    if not math.isfinite(middle) or least == 0:
        return 2
    return min(max(1 - math.floor(math.log10(middle)), -math.floor(math.log10(least)), 0), 9)


def logged_arms_table(
    names: Sequence[str],
    played: NDArray[Any],  # (n,), positions in `names`
    rewards: NDArray[Any],  # (n,)
    rewarded: NDArray[Any],  # (n,), whether there was a reward
    propensity: NDArray[Any],  # (n,) of the arm played
    propensities: NDArray[Any] | None,  # (n, K), None if only those of the arms played are known
) -> Table:
    """Return how often each arm of a log was played, its mean propensity and its mean reward, with one row per arm."""
    heading = "mean propensity" if propensities is not None else "mean propensity when played"
    rows = []
    for arm, name in enumerate(names):
        arm_rewards = rewards[(played == arm) & rewarded]
        of_arm = propensity[played == arm] if propensities is None else propensities[:, arm]
        rows.append(
            {
                "arm": name,
                "played": f"{int((played == arm).sum()):,}",
                heading: f"{of_arm.mean():.4g}" if len(of_arm) else "–",
                "mean reward when played": f"{arm_rewards.mean():.4g}" if len(arm_rewards) else "–",
            }
        )
    return Table(rows)


# Model health


def next_table(following: Any) -> Table:
    """Return the probability and the expected reward of every arm in the next decision, most probable arms first."""
    ranked = sorted(following.probabilities, key=lambda arm: -following.probabilities[arm])
    return Table(
        [
            {
                "arm": arm,
                "probability": percent(following.probabilities[arm], 1),
                "expected reward": number(following.expected.get(arm), 3) if following.expected else "–",
            }
            for arm in ranked
        ]
    )


def dimensions_table(scores: Mapping[int, float], latent: int) -> Table:
    """Return the AICc of models of several dimensions on the same observations.

    `latent` is the dimension of the examined model.
    """
    best = max(scores.values())
    return Table(
        [
            {
                "dimensions": f"{d}{' (examined)' if d == latent else ''}",
                "log-likelihood minus AICc penalty (nats)": f"{score:,.1f}",
                "difference from the best": f"{score - best:,.1f}",
            }
            for d, score in scores.items()
        ]
    )


def arms_ahead_table(forecast: Summary) -> Table:
    """Return every arm's expected reward, and its probability of being the best arm, in some of the rounds ahead."""
    shown = _rounds_ahead(forecast["expected"])
    return Table(
        [
            {"arm": arm}
            | {_ahead(j): _band(forecast, "expected", "lower", "upper", j, i) for j in shown}
            | {f"best in {j}": percent(forecast["best_arm_probability"][j - 1][i], 0) for j in shown}
            for i, arm in enumerate(forecast["arms"])
        ]
    )


def context_ahead_table(forecast: Summary) -> Table:
    """Return every coordinate of the context in some of the rounds ahead."""
    shown = _rounds_ahead(forecast["context"])
    return Table(
        [
            {"coordinate": name}
            | {_ahead(j): _band(forecast, "context", "context_lower", "context_upper", j, i) for j in shown}
            for i, name in enumerate(forecast["context_names"])
        ]
    )


def _rounds_ahead(values: Sequence[Any]) -> list[int]:
    return [j for j in (1, 5, len(values)) if j <= len(values)]


def _ahead(rounds: int) -> str:
    return f"{rounds} ahead"


def _band(forecast: Summary, value: str, low: str, high: str, ahead: int, column: int) -> str:
    mean, least, most = (forecast[name][ahead - 1][column] for name in (value, low, high))
    return f"{mean:.3g} [{least:.3g}, {most:.3g}]"


def sensors_table(sensors: Iterable[Summary]) -> Table:
    """Return the share of the reward variance that each feature adds, with one row per feature."""
    return Table(
        [
            {
                "feature": sensor["name"],
                "meaning": "hidden: gain if it were observed" if sensor["hidden"] else "observed: loss without it",
                "share of reward variance ± s.e.": f"{round(100 * sensor['share'], 2) + 0.0:+.2f} ± "
                f"{100 * sensor['error']:.2f} %",
                "reward per round": "–" if sensor["greedy_reward"] is None else f"{sensor['greedy_reward']:+.4g}",
            }
            for sensor in sensors
        ]
    )
