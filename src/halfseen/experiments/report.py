"""The report: one HTML page that carries all it shows. Every verdict in it is read from the claims."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from halfseen.experiments.claims import LINEAR, Claim, ClaimVerdict, is_papers_own
from halfseen.experiments.figures import regret_figure, render_figure, theory_figure
from halfseen.experiments.html import Markup, escape, figure, page, section, table
from halfseen.experiments.result import Result
from halfseen.experiments.setting_tables import settings_tables
from halfseen.experiments.theory import bound_shape
from halfseen.experiments.wording import count, interval, number

_PAPER = "Partially Observable Contextual Bandits with Linear Payoffs (Zeng, Bhatt, Koppel & Ganesh, 2024)"

_RESOLVED = (
    "In each round the filter runs before the model is estimated again: it uses the last round's estimate.",
    "The estimate of Q divides by the number of pairs in the window, L − 1; dividing by the round number, as "
    "printed, would shrink it without end.",
    "The first estimate of D is random and dense, from the seed's own draws: from a multiple of the identity "
    "the hidden coordinates would be estimated as 0 for ever. It is drawn from the family that the world draws its "
    "D from, the kindest reading. The first estimate of Q is the identity.",
    "The window is 200 rounds, and never less than 5d.",
    "The regression for D carries a ridge of 10⁻⁶ of the mean diagonal, and Q a floor of 10⁻⁹.",
    "Only the sums over the window start anew with each window; the belief and what the arms taught stay.",
    "The experiments do not state the observation noise Σ: it is 0 here. σ is a standard deviation; the "
    "noise level ε is a variance, Q = εI.",
    "The numbers of rounds and repetitions are not stated: see the settings. In one seed every agent meets "
    "the same D, arms, contexts and noises, so that differences between agents are paired.",
    "Where the theorem and its appendix differ, the shape of the bound follows the appendix.",
)


def render_report(result: Result, claims: Sequence[Claim]) -> str:
    """The whole page."""
    title = "The paper's experiment, claim by claim"
    caption = (
        f"Regret against the best arm for the true context, in {', '.join(result.worlds)}. Top: summed from "
        "the first round. Bottom: moving average of the regret of a round."
    )
    body = [
        _statement(result, claims),
        section("Regret", figure(render_figure(regret_figure(result), "svg"), caption, narrow=len(result.worlds) == 1)),
        section("The claims", _overview(claims), *_floors(result), *[_claim(claim) for claim in claims]),
        section("Results", _results(result)),
        section("The theory", *_theory(result)),
        section("Settings", *settings_tables(result.plan)),
        section(
            "Open points of the paper, and how they were resolved",
            "<ul>" + "".join(f"<li>{escape(point)}</li>" for point in _RESOLVED) + "</ul>",
        ),
        section(
            "Versions, and how to run it again",
            _versions(result),
            f"<pre>{escape(rerun_command(result))}</pre>",
        ),
    ]
    return page(title, body)


def rerun_command(result: Result) -> str:
    """What to type to get these numbers again."""
    plan = result.plan
    noise = [f"{w.settings()['process_var']:g}" for w in plan.worlds if is_papers_own(w.name)]
    words = ["halfseen", "reproduce", "--rounds", str(plan.rounds), "--seeds", str(len(plan.seeds))]
    words += ["--first-seed", str(plan.seeds[0])] if plan.seeds[0] else []
    words += ["--noise", ",".join(noise)] if noise else []
    return shlex.join([*words, "--agents", ",".join(result.agents)])


def _statement(result: Result, claims: Sequence[Claim]) -> str:
    plan = result.plan
    parts = [
        f"{count(plan.agents, 'agent')} played {count(plan.worlds, 'world')} for {plan.rounds:,} rounds, "
        f"with {count(plan.seeds, 'seed')}, to test what is claimed in {_PAPER}."
    ]
    for place, own in (("the paper's own setting", True), ("the worlds shown beside it", False)):
        verdicts = [overall for claim in claims if (overall := _overall(claim, own))]
        if verdicts:
            counts = [f"“{verdict}” {verdicts.count(verdict)}" for verdict in ClaimVerdict]
            parts.append(f"Verdicts on the {count(verdicts, 'claim')} tested in {place}: {', '.join(counts)}.")
    return f'<p class="lead">{escape(" ".join(parts))}</p>'


def _overview(claims: Sequence[Claim]) -> str:
    rows = [[c.title, _verdict(_overall(c, True)), _verdict(_overall(c, False))] for c in claims]
    return table("All verdicts of this run", ["claim", "in the paper's setting", "beside it"], rows)


def _floors(result: Result) -> list[str]:
    """Where even the agent that knows everything but the context pays linearly, no other can do better for long."""
    linear = [
        f"{world} (β = {interval(entry['growth_exponent'])})"
        for world, agent, entry in _entries(result)
        if agent == "bayes" and entry["growth_exponent"]["low"] >= LINEAR
    ]
    if not linear:
        return []
    text = (
        f"Even bayes, which knows the model and the arms and only does not see the context, pays regret that grows "
        f"linearly in {', '.join(linear)}. There an agent that does not see the context can be sub-linear only while "
        f"it is still learning."
    )
    return [f"<p>{escape(text)}</p>"]


def _claim(claim: Claim) -> str:
    rows = [[f.world, f.subject, f"{f.figure:{claim.form}}", _verdict(f.verdict)] for f in claim.findings]
    told = {
        "The paper": escape(claim.paper),
        "Test": escape(claim.test),
        "In the paper's setting": _verdict(_overall(claim, True)),
        "Beside it": _verdict(_overall(claim, False)),
    }
    return (
        f"<article><h3>{escape(claim.title)}</h3><dl>"
        + "".join(f"<dt>{escape(name)}</dt><dd>{content}</dd>" for name, content in told.items())
        + "</dl>"
        + table("What was found", ["world", "agent", f"{claim.measure} [95 % interval]", "verdict"], rows, numeric={2})
        + "</article>"
    )


def _overall(claim: Claim, own: bool) -> ClaimVerdict | None:
    """The claim's verdict in the paper's own setting or beside it; None where it was not tested."""
    if not any(is_papers_own(finding.world) is own for finding in claim.findings):
        return None
    return claim.verdict if own else claim.verdict_elsewhere


def _verdict(verdict: ClaimVerdict | None) -> Markup:
    if verdict is None:
        return Markup('<span class="soft">not tested in this run</span>')
    return Markup(f'<span class="verdict {verdict.name.lower()}">{escape(verdict)}</span>')


def _results(result: Result) -> str:
    rows = []
    for world, agent, entry in _entries(result):
        digits = 0 if abs(entry["regret_mean"]) >= 100 else 2
        mean = f"{entry['regret_mean']:,.{digits}f} ± {number(entry['regret_standard_error'], digits)}"
        growth, error = interval(entry["growth_exponent"]), entry["mean_estimation_error"]
        speed = f"{entry['rounds_per_second']:,.0f}"
        rows.append([world, agent, mean, number(entry["regret_median"]), growth, number(error), speed])
    return table(
        f"Regret after {result.plan.rounds:,} rounds: mean over seeds ± standard error, median, growth "
        "exponent β of R(t) ∝ t^β late in the run with 95 % interval, mean estimation error, and rounds per second of "
        "processor time. Agents that learn the model know the hidden coordinates only up to a change of basis, which "
        "their estimation error contains.",
        ["world", "agent", "R(T) mean ± s.e.", "median", "growth β", "mean ‖x − x̂‖", "rounds/s"],
        rows,
        numeric={2, 3, 4, 5, 6},
    )


def _theory(result: Result) -> list[str]:
    assumptions, quantities = {}, []
    for world, agent, entry in _entries(result):
        theory = entry["theory"]
        context, growth = theory["A2 largest context norm"], theory["A2 growth of the largest context norm"]
        assumptions[world] = [
            world,
            number(theory["A1 largest arm norm"]),
            number(context),
            interval(growth),
        ]
        quantities.append(
            [
                world,
                agent,
                number(theory["A3 t·|B⁻¹(t)|, mean over seeds"][-1]),
                interval(theory["A3 growth of t·|B⁻¹(t)|"]),
                interval(theory["summed estimation error"]),
                interval(theory["growth of the summed estimation error"]),
            ]
        )
    delta = inspect.signature(bound_shape).parameters["delta"].default
    caption = (
        "Top: measured mean regret and, thin, the shape of Theorem 1's bound. The constant of the bound is "
        "not known, so each is scaled to meet its agent's regret in the last round "
        f"(δ = {delta}). Bottom: the quantity that A3 asks to stay bounded."
    )
    return [
        "<p>Theorem 1 bounds the regret if the arms are bounded (A1), the contexts and their estimates are "
        "bounded (A2), and ‖B⁻¹(t)‖ ≤ b/t for every arm (A3). Its bound grows with Σ‖ε‖, the summed estimation "
        "error. A growth exponent of 0 or less means bounded, 1 linear. Observations determine the hidden "
        "coordinates only up to a change of basis, so the ‖ε‖ of an agent that learns its model also holds "
        "what such a change makes of it.</p>",
        figure(render_figure(theory_figure(result), "svg"), caption, narrow=len(result.worlds) == 1),
        table(
            "A1 and A2: the largest norms met over all seeds and rounds.",
            ["world", "A1: max ‖μ‖", "A2: max ‖x‖", "growth of max ‖x‖"],
            list(assumptions.values()),
            numeric={1, 2, 3},
        ),
        table(
            "A3 and the estimation error, mean over seeds with 95 % interval.",
            ["world", "agent", "A3: T·‖B⁻¹(T)‖", "its growth", "Σ‖ε‖", "its growth"],
            quantities,
            numeric={2, 3, 4, 5},
        ),
    ]


def _versions(result: Result) -> str:
    versions = [f"{name} {version}" for name, version in result.summary["versions"].items()]
    effort = f"{result.wall_seconds:.0f} s with {count(result.jobs, 'process')}"
    return f"<p>{escape(', '.join(versions))}; {effort}.</p>"


def _entries(result: Result) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for world, content in result.summary["worlds"].items():
        for agent, entry in content["agents"].items():
            yield world, agent, entry
