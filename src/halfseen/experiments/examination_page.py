"""An examination as one HTML page that carries all it shows."""

from __future__ import annotations

from collections.abc import Sequence

from halfseen.diagnostics.examination import Measurements
from halfseen.diagnostics.health import Finding, Verdict
from halfseen.experiments.html import Markup, escape, figure, page, section, table

_CLASSES = {Verdict.FINE: "holds", Verdict.LOOK: "undecided", Verdict.BAD: "fails"}
_CAPTION = (
    "Mean square of the standardised surprises by stretches of rounds, with the range in which a right model stays; "
    "correlation of surprises with earlier ones, with the level that chance reaches once in twenty; how far each "
    "dimension is behind the best by AICc; share of the reward variance that is predicted in rounds left out; where "
    "rewards fell in what was predicted for them; what is lost without each sensor, or won by seeing a hidden one "
    "(orange), with a standard error to either side."
)


def render_examination(title: str, findings: Sequence[Finding], examined: Measurements, svg: bytes, tall: bytes) -> str:
    """The whole page."""
    body = [
        f'<p class="lead">{escape(statement(findings, examined))}</p>',
        section("What was found", _findings(findings), _sentences(findings)),
        section("In pictures", figure(svg, _CAPTION, tall=tall)),
        *([section("Dimensions", _scores(examined))] if len(examined.scores) > 1 else []),
        *([section("What a sensor is worth", _worths(examined))] if examined.sensor_values else []),
    ]
    return page(title, body)


def statement(findings: Sequence[Finding], examined: Measurements) -> str:
    """The page in two sentences."""
    data, model = examined.subject.data, examined.subject.model
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Verdict}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return (
        f"A model of {model.latent} dimensions, {model.observed} of them seen, and {len(data.arm_names)} arms, "
        f"examined by {data.rounds:,} rounds with {len(data.observed_rewards().rewards):,} rewards. Findings: {told}."
    )


def _findings(findings: Sequence[Finding]) -> str:
    rows = [
        [
            finding.name,
            finding.shown,
            finding.expected,
            Markup(f'<span class="verdict {_CLASSES[finding.verdict]}">{finding.verdict}</span>'),
        ]
        for finding in findings
    ]
    columns = ["finding", "value", "expected", "verdict"]
    return table("Each finding with the range it should be in", columns, rows, stacked=True)


def _sentences(findings: Sequence[Finding]) -> str:
    order = sorted(findings, key=lambda finding: -list(Verdict).index(finding.verdict))
    items = [f"<li><b>{escape(finding.name)}</b>: {escape(finding.sentence)}.</li>" for finding in order]
    return "<ul>" + "".join(items) + "</ul>"


def _scores(examined: Measurements) -> str:
    best = max(examined.scores.values())
    own = examined.subject.model.latent
    rows = [
        [f"{d}{' (examined)' if d == own else ''}", f"{score:,.1f}", f"{score - best:,.1f}"]
        for d, score in examined.scores.items()
    ]
    columns = ["dimensions", "AICc (nats, more is better)", "to the best"]
    return table("Models of other dimensions on the same observations", columns, rows, numeric={1, 2})


def _worths(examined: Measurements) -> str:
    rows = []
    for one in examined.sensor_values or ():
        money = "–" if one.greedy_reward is None else f"{one.greedy_reward:+.4g}"
        share = f"{round(100 * one.share.value, 2) + 0.0:+.2f} ± {100 * one.share.error:.2f} %"
        rows.append([one.name, "hidden: won by seeing it" if one.hidden else "seen: lost without it", share, money])
    columns = ["feature", "what is told", "share of reward variance ± s.e.", "reward a round"]
    caption = "Features one by one; the last column is of the greedy choice, where all arms' rewards were recorded"
    return table(caption, columns, rows, numeric={2, 3})
