"""An evaluation as a table and as one HTML page that carries all it shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any

from halfseen.evaluation.estimators import ENOUGH, ESTIMATORS, NO_CHANCE, PolicyValue
from halfseen.evaluation.log import Log
from halfseen.experiments.html import Markup, escape, figure, page, section, table
from halfseen.experiments.wording import count
from halfseen.reports.table import Table
from halfseen.statistics.confidence_intervals import Estimate

_CSS = """
@media (min-width: 40.01rem) {
  .values :is(th, td) { white-space: normal; padding: .28rem .4rem; }
  .values thead th { vertical-align: bottom; }
  .values tbody th { overflow-wrap: anywhere; min-width: 8rem; }
  .values td.t:last-child { min-width: 0; }
  .values td.n:nth-child(n + 6) { width: 1%; white-space: nowrap; }
  .ends { display: block; }
}
"""
_CAPTION = (
    "Reward a round by the three estimators, with 95 % intervals, the line being the logged policy; and the weights of "
    "the rounds, largest first. A curve that starts high and falls at once stands on few rounds."
)
_HOW = (
    "ips weighs each reward with the policy's chance of the arm played over the logged one; snips divides by the "
    "weights' sum instead of the number of rounds; dr (doubly robust) adds up what a ridge regression an arm predicts "
    "for all arms and weighs only what it missed, each block of time being predicted from the others. ess is the "
    "effective sample size (Σw)²/Σw². Uncovered is the share of the policy's choices whose logged chance was below "
    f"{NO_CHANCE:g}. An agent is given the log's arms and rewards to learn from, not those its own choices would have "
    "brought: figures are of its choices, not of its whole life."
)
_INTERVALS = {
    "hac": "Intervals are Student's, with Newey and West's standard error, which knows that rounds depend on each "
    "other, and as many degrees of freedom as the effective sample size allows.",
    "bootstrap": "Intervals are the middle 95 % of a bootstrap in blocks of time.",
}


def policy_table(policies: Mapping[str, PolicyValue]) -> Table:
    """One row a policy, the logged one first."""
    rows, logged = [], next(iter(policies.values()))
    digits = _digits([one.values["dr"] for one in policies.values()])
    for one in policies.values():
        rows.append(
            {
                "policy": one.label,
                **{name: f"{_rounded(one.values[name], digits):.{digits}f}" for name in ESTIMATORS},
                "dr − logged": "–" if one is logged else f"{_rounded(one.differences['dr'], digits):+.{digits}f}",
                "ess": f"{one.effective_size:,.0f}" if one.effective_size >= 100 else f"{one.effective_size:.1f}",
                "largest weight": f"{one.largest_weight:.3g}",
                "uncovered": f"{100 * one.uncovered:.1f} %",
                "look": "yes" if one.notes else "",
            }
        )
    return Table(rows)


def _rounded(found: Estimate, digits: int) -> Estimate:
    return Estimate(*(round(end, digits) + 0.0 for end in (found.value, found.low, found.high)))  # never "-0.00"


def _digits(estimates: Sequence[Estimate]) -> int:
    """Decimals that show two figures of the middle interval and one of the narrowest; without intervals, two of the
    largest value."""
    halves = [half for one in estimates if (half := (one.high - one.low) / 2) > 1e-9 * abs(one.value)]
    sizes = halves or [max((abs(one.value) for one in estimates if one.value), default=1.0)]
    middle, least = median_low(sizes), min(sizes)
    if not math.isfinite(middle) or least == 0:
        return 2
    return min(max(1 - math.floor(math.log10(middle)), -math.floor(math.log10(least)), 0), 9)


def log_facts(log: Log, missing: float | None) -> dict[str, Any]:
    """What was evaluated on, as plain data."""
    return {
        "log": log.source,
        "decisions": log.rounds,
        "without_reward": int((~log.rewarded).sum()),
        "without_reward_counted_as": missing,
        "default_rewards": log.defaults,
        "arms": log.names,
        "observed": log.observations.shape[1],
        "propensities_of_all_arms": log.propensities is not None,
    }


def render_evaluation(
    log: Log,
    policies: Mapping[str, PolicyValue],
    missing: float | None,
    intervals: str,
    warnings: Sequence[str],
    svg: bytes,
    tall_svg: bytes,
) -> str:
    """The whole page."""
    shown = policy_table(policies)
    rows = [[name, *map(_estimate, cells)] for name, *cells in (row.values() for row in shown.rows)]
    numeric = set(range(1, len(shown.columns) - 1))
    caption = "Reward a round, with 95 % intervals"
    values = table(caption, shown.columns, rows, numeric=numeric, name="values", stacked=True)
    notes = "<ul>" + "".join(f"<li>{escape(line)}.</li>" for line in warnings) + "</ul>"
    body = [
        f'<p class="lead">{escape(_lead(log, missing))}</p>',
        section("What each policy would have earned", values),
        *([section("What to know before believing it", notes)] if warnings else []),
        section("In pictures", figure(svg, _CAPTION, tall=tall_svg)),
        section("How it is computed", f"<p>{escape(_HOW)} {escape(_INTERVALS[intervals])}</p>"),
        section("The arms", _arms(log)),
    ]
    return page("What other policies would have earned", body, css=_CSS)


def _estimate(cell: str) -> str:
    """An estimate whose interval is below it where the table is wide, and beside it where it is stacked."""
    value, _, ends = cell.partition(" [")
    return Markup(f'{escape(value)} <span class="ends">[{escape(ends)}</span>') if ends else cell


def _lead(log: Log, missing: float | None) -> str:
    without = int((~log.rewarded).sum())
    told = "all of them with a reward"
    if without:
        treated = "left out" if missing is None else f"counted as {missing:g}"
        told = f"{without:,} of them without a reward, {treated}"
    return (
        f"{log.source}: {count(log.rounds, 'decision')} between {count(log.arms, 'arm')}, {told}. An interval is to be "
        f"believed where the effective sample size is at least {ENOUGH} and nothing is uncovered."
    )


def _arms(log: Log) -> str:
    rows = []
    for place, name in enumerate(log.names):
        own = log.played == place
        paid = log.rewards[own & log.rewarded]
        mean = f"{paid.mean():.4g}" if len(paid) else "–"
        chance = "–" if log.propensities is None else f"{log.propensities[:, place].mean():.4g}"
        rows.append([name, f"{int(own.sum()):,}", chance, mean])
    columns = ["arm", "played", "mean logged propensity", "mean reward when played"]
    return table("What was logged", columns, rows, numeric={1, 2, 3})
