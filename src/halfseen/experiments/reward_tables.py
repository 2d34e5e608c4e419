"""What agents earned on recorded data, as tables; the same words in the terminal, in files and in the report."""

from __future__ import annotations

import math
from typing import Any

from halfseen.reports.table import Table


def significant(value: float, digits: int = 3) -> str:
    """A number to so many significant digits, never in powers of ten."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def places_for(values: list[float]) -> int:
    """Decimal places that show the largest of the values to four digits: a column has one number of them."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 0 if largest == 0 else max(0, 3 - math.floor(math.log10(largest)))


def agents_table(found: dict[str, Any], micros: dict[str, float]) -> Table:
    """One row an agent: mean reward, share, how the reference agent compares with it, speed."""
    entries, reference = found["agents"], found["reference"]
    places = places_for([entry["reward_mean"] for entry in entries.values()])
    rows = []
    for agent, entry in entries.items():
        share, less = entry["share_of_full_context"], entry["reference_less_this"]
        rows.append(
            {
                "agent": agent,
                "mean reward": f"{entry['reward_mean']:.{places}f}",
                "95 % interval": _range(entry["reward_interval"], places),
                "share of oracle-ts": "–" if share is None else f"{100 * share['value']:.1f} %",
                f"{reference} less this": "–" if less is None else f"{less['value']:.{places}f}",
                "HAC t": "–" if less is None else _t(less["t"]),
                "p (Holm)": "–" if less is None else _p(less["p_holm"]),
                "µs/round": f"{micros[agent]:,.0f}",
            }
        )
    return Table(rows)


def arms_table(found: dict[str, Any]) -> Table:
    """One row an arm: what it paid, and how often every agent played it."""
    places = places_for([arm["reward_mean"] for arm in found["arms"].values()])
    return Table(
        [
            {
                "arm": name,
                "mean reward if always played": f"{arm['reward_mean']:.{places}f}",
                "HAC t": _t(arm["reward_hac"]["t"]),
                **{agent: f"{100 * entry['share_of_arms'][at]:.0f} %" for agent, entry in found["agents"].items()},
            }
            for at, (name, arm) in enumerate(found["arms"].items())
        ]
    )


def verdicts(found: dict[str, Any]) -> list[str]:
    """One sentence a comparison: only what survives Holm's correction counts as a difference."""
    reference, lines = found["reference"], []
    fixed = found["reference_less_best_fixed_arm"]
    more = "more" if fixed["value"] > 0 else "less"
    chance = "" if abs(fixed["t"]) > 2 else ", within chance"
    lines.append(
        f"{reference} earned {significant(abs(fixed['value']))} a round {more} than '{found['best_fixed_arm']}' played "
        f"always, the arm that was best in hindsight (t = {_t(fixed['t'])}{chance})."
    )
    for agent, entry in found["agents"].items():
        less = entry["reference_less_this"]
        if less is None:
            continue
        told = f"{significant(abs(less['value']))} a round (t = {_t(less['t'])}, p {_p(less['p_holm'], '= ')})"
        if less["p_holm"] >= 0.05:
            lines.append(f"{reference} and {agent}: no difference beyond chance; {told}.")
        else:
            lines.append(f"{reference} earned {'more' if less['value'] > 0 else 'less'} than {agent}: {told}.")
    return lines


def _range(estimate: dict[str, float], places: int) -> str:
    return f"[{estimate['low']:.{places}f}, {estimate['high']:.{places}f}]"


def _t(t: float) -> str:
    return f"{round(t, 1) + 0.0:.1f}" if math.isfinite(t) else "–"  # + 0.0: never "-0.0"


def _p(p: float, equals: str = "") -> str:
    return "< 0.001" if p < 0.001 else f"{equals}{p:.3f}"
