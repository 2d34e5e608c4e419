"""Pages of HTML, each from a template in `templates/` and plain data. A page needs nothing from outside."""

from __future__ import annotations

import base64
import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from halfseen.errors import missing_extra
from halfseen.reports import tables
from halfseen.reports.tables import Summary, Table
from halfseen.statistics.estimates import BOUND_DELTA, Estimate

if TYPE_CHECKING:
    from jinja2 import Environment

_DEEPEST = 4.0  # the ratio, or its inverse, from which the colour of a cell grows no stronger


def render(template: str, **data: Any) -> str:
    """The text of a template of this package, with everything in `data` escaped."""
    return _environment().get_template(template).render(**data)


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise missing_extra("jinja2", "experiments", "writing the page") from None
    environment = Environment(
        loader=PackageLoader("halfseen.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        counted=tables.count, groups=_groups, interval=tables.interval, number=tables.number, svg_uri=_svg_uri
    )
    return environment


def _groups(rows: list[list[Any]]) -> list[list[list[Any]]]:
    """Rows with the same first cell together; all of them in one group if no two belong together."""
    groups = [list(group) for _, group in itertools.groupby(rows, key=itemgetter(0))]
    return [rows] if len(groups) == len(rows) else groups


def _svg_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def reproduction_page(
    summary: Summary,
    claims: Sequence[Summary],
    *,
    papers_worlds: Collection[str],
    linear: float,
    worlds: Table,
    agents: Table,
    command: str | None,
    regret_svg: bytes,
    theory_svg: bytes,
) -> str:
    """The paper's experiment, claim by claim.

    `papers_worlds` are the worlds of the paper's own setting, `linear` is the growth exponent from which regret counts
    as linear, and `worlds` and `agents` are tables of their settings.
    """
    judged = [_judged(claim, papers_worlds) for claim in claims]
    overview = [
        {
            "claim": claim["title"],
            "in the paper's setting": claim["verdict"],
            "beside it": claim["verdict_elsewhere"],
        }
        for claim in judged
    ]
    return render(
        "reproduction.html",
        summary=summary,
        claims=judged,
        overview=Table(overview),
        floors={
            world: entry["growth_exponent"]
            for world, agent, entry in tables.agent_entries(summary)
            if agent == "bayes" and entry["growth_exponent"]["low"] >= linear
        },
        results=tables.results_table(summary),
        norms=tables.norms_table(summary),
        theory={
            "columns": ["world", "agent", "A3: T·‖B⁻¹(T)‖", "its growth", "Σ‖ε‖", "its growth"],
            "cells": tables.theory_rows(summary),
        },
        delta=BOUND_DELTA,
        worlds=worlds,
        agents=agents,
        command=command,
        regret_svg=regret_svg,
        theory_svg=theory_svg,
    )


def _judged(claim: Summary, papers_worlds: Collection[str]) -> dict[str, Any]:
    """The claim with its findings as a table; its verdict is None in a setting in which it was not tested."""
    is_own = [finding["world"] in papers_worlds for finding in claim["findings"]]
    findings = [
        {
            "world": finding["world"],
            "agent": finding["subject"],
            f"{claim['measure']} [95 % interval]": format(Estimate(**finding["figure"]), claim["form"]),
            "verdict": finding["verdict"],
        }
        for finding in claim["findings"]
    ]
    return {
        **claim,
        "findings": Table(findings),
        "verdict": claim["verdict"] if any(is_own) else None,
        "verdict_elsewhere": None if all(is_own) else claim["verdict_elsewhere"],
    }


def recorded_page(
    summary: Summary,
    details: Mapping[str, Summary],
    *,
    baseline: str,
    caveats: Sequence[str],
    agents: Table,
    command: str | None,
    reward_svg: bytes,
) -> str:
    """Agents on recorded data. `details` holds about, settings (a table) and arms_svg of every world."""
    worlds = [
        {
            "name": name,
            **details[name],
            "comparisons": tables.comparisons(world),
            "rewards": tables.rewards_table(world),
            "arms": tables.arms_table(world),
        }
        for name, world in summary["worlds"].items()
    ]
    return render(
        "recorded.html",
        summary=summary,
        worlds=worlds,
        baseline=baseline,
        caveats=caveats,
        agents=agents,
        command=command,
        reward_svg=reward_svg,
    )


def leaderboard_page(summary: Summary, *, batch: int, worlds: Table, agents: Table, ratio_svg: bytes) -> str:
    """The leaderboard. `batch` streams were timed together; `worlds` and `agents` are tables of their settings."""
    return render(
        "leaderboard.html",
        summary=summary,
        statement=tables.leaderboard_statement(summary),
        failures=tables.failure_lines(summary),
        matrix_note=tables.matrix_note(summary),
        matrix=_matrix(summary),
        notes=tables.column_notes(summary, batch),
        standings={world: tables.world_table(summary, world) for world in summary["worlds"]},
        worlds=worlds,
        agents=agents,
        versions=tables.versions_and_time(summary),
        ratio_svg=ratio_svg,
    )


def _matrix(summary: Summary) -> dict[str, Any]:
    """The matrix of ratios, each cell with its text, its background and whether the agent failed."""
    matrix = tables.matrix_table(summary)
    rows: list[list[Any]] = []
    for agent, *texts in matrix.cells:
        entries = [content["agents"][agent] for content in summary["worlds"].values()]
        ratios = [entry["ratio"] and entry["ratio"]["value"] for entry in entries]
        styles = [_background(ratio, tables.differs(entry)) for ratio, entry in zip(ratios, entries, strict=True)]
        styles.append(_background(summary["agents"][agent]["overall_ratio"], bold=False))
        cells = [
            {"text": text, "style": style, "failed": text == tables.FAILED}
            for text, style in zip(texts, styles, strict=True)
        ]
        rows.append([agent, *cells])
    return {"columns": matrix.columns, "cells": rows}


def _background(ratio: float | None, bold: bool) -> str:
    """Blue below 1 and orange above, half transparent at most, so that text stays readable on light and dark pages."""
    if ratio is None:
        return ""
    depth = max(-1.0, min(1.0, math.log(ratio) / math.log(_DEEPEST)))
    colour = "0 114 178" if depth < 0 else "213 94 0"
    return f"background: rgb({colour} / {abs(depth) / 2:.2f})" + ("; font-weight: 700" if bold else "")


def evaluation_page(
    summary: Summary,
    warnings: Sequence[str],
    arms: Table,
    *,
    enough: int,
    no_chance: float,
    svg: bytes,
    tall_svg: bytes,
) -> str:
    """An off-policy evaluation.

    `enough` is the effective sample size from which an interval means something, `no_chance` the propensity below which
    an arm counts as not covered by the log; `tall_svg` is the picture for a narrow screen.
    """
    return render(
        "evaluation.html",
        summary=summary,
        policies=tables.policy_table(summary["policies"]),
        warnings=warnings,
        arms=arms,
        enough=enough,
        no_chance=no_chance,
        svg=svg,
        tall_svg=tall_svg,
    )


def health_page(
    title: str, findings: Sequence[Summary], findings_table: Table, measured: Summary, *, svg: bytes, tall_svg: bytes
) -> str:
    """An examination of a model. `measured` is that of `health_figure`, and the counts observed, arms and rewards."""
    verdicts = Counter(finding["verdict"] for finding in findings)
    scores, sensors = measured["scores"], measured["sensors"]
    return render(
        "health.html",
        title=title,
        findings=findings,
        findings_table=findings_table,
        verdict_counts=", ".join(f"{verdicts[grade]} {grade}" for grade in ("fine", "look", "bad") if verdicts[grade]),
        measured=measured,
        dimensions=tables.dimensions_table(scores, measured["latent"]) if len(scores) > 1 else None,
        sensors=tables.sensors_table(sensors) if sensors else None,
        svg=svg,
        tall_svg=tall_svg,
    )
