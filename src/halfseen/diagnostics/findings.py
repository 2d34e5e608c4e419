"""From measurements to findings: where the ranges end, and the sentence that says what it means."""

from __future__ import annotations

import numpy as np

from halfseen.diagnostics.examined import Examined
from halfseen.diagnostics.health import Finding, Verdict
from halfseen.diagnostics.innovations import RARE
from halfseen.diagnostics.reward_findings import ANY, reward_findings
from halfseen.models.identification.order import WORTH_A_RUNG
from halfseen.reports.tables import percent

# Long records make every small fault significant. A fault is worth a look if it is beyond chance and of some size.
SIZE_LOOK, SIZE_BAD = 0.08, 0.50  # |mean square of innovations − 1|; bad also at a factor of it below 1
BIAS_LOOK, BIAS_BAD = 0.15, 0.50  # mean of an innovation, in its standard deviations
MEMORY_LOOK, MEMORY_BAD = 0.02, 0.10  # share of the innovations that their past tells
STRETCH_LOOK, STRETCH_BAD = 1.5, 3.0  # mean square of innovations in the worst stretch, relative to that of all
RADIUS_ROOM, RADIUS_BAD = 3.0, 0.02  # above 1, in rounds⁻¹; and at all
TRACE = 0.10  # mean share of the hidden variance below which the hidden block leaves next to no trace
CLOSE = 30.0  # nats of AICc within which rewards may have chosen another dimension


def findings(examined: Examined) -> tuple[Finding, ...]:
    """All that the record allows, in the order in which they are read: can the model be believed, does it pay."""
    made = [_size(examined), _steadiness(examined), _bias(examined), _whiteness(examined), _radius(examined)]
    made += [_observability(examined), _dimension(examined), *reward_findings(examined)]
    return tuple(finding for finding in made if finding is not None)


def judged(rare: bool, amount: float, look: float, bad: float) -> Verdict:
    if not rare or amount < look:
        return Verdict.FINE
    return Verdict.BAD if amount >= bad else Verdict.LOOK


def _size(examined: Examined) -> Finding | None:
    test = examined.size
    if test is None:
        return None
    off = max(test.ratio - 1.0, 1.0 / max(test.ratio, 1e-300) - 1.0)
    verdict = judged(test.p_value < RARE, off, SIZE_LOOK, SIZE_BAD)
    if verdict is Verdict.FINE:
        sentence = "observations miss their predictions by as much as the model says they will"
    elif test.ratio > 1.0:
        sentence = (
            f"observations miss their predictions by {np.sqrt(test.ratio):.2f} times what the model says: "
            "it is surer of itself than it should be"
        )
    else:
        sentence = (
            f"observations miss their predictions by only {np.sqrt(test.ratio):.2f} times what the model says: "
            "its noise is too large, and it follows too slowly or too fast"
        )
    return Finding(
        "size of surprises", test.ratio, f"{test.ratio:.3f}", f"{test.low:.3f} to {test.high:.3f}", verdict, sentence
    )


def _steadiness(examined: Examined) -> Finding | None:
    parts = examined.stretches
    if parts is None or len(parts.ratios) < 3:
        return None
    relative = parts.ratios / np.median(parts.ratios)
    worst = int(np.argmax(relative))
    amount, limit = float(relative[worst]), float(parts.high[worst])
    verdict = judged(amount > limit, amount, STRETCH_LOOK, STRETCH_BAD)
    start = int(parts.starts[worst]) + 1
    sentence = "surprises are of one size throughout"
    if verdict is not Verdict.FINE:
        sentence = (
            f"from round {start} of the record on, for a while, the mean square of surprises was {amount:.1f} times "
            "the usual: something changed there, or sensors failed"
        )
    return Finding("worst stretch of surprises", amount, f"{amount:.2f}", f"below {limit:.2f}", verdict, sentence)


def _bias(examined: Examined) -> Finding | None:
    test = examined.bias
    if test is None:
        return None
    verdict = judged(test.p_value < RARE, test.largest, BIAS_LOOK, BIAS_BAD)
    name = examined.subject.record.sensors[test.sensor]
    sentence = "surprises have no direction"
    if verdict is not Verdict.FINE:
        sentence = f"{name} comes out on one side of its prediction: it has an offset that the model does not know"
    return Finding(
        "bias of surprises", test.largest, f"{test.largest:.2f} sd", f"below {BIAS_LOOK:g} sd", verdict, sentence
    )


def _whiteness(examined: Examined) -> Finding | None:
    test = examined.whiteness
    if test is None:
        return None
    verdict = judged(test.p_value < RARE, test.predictable, MEMORY_LOOK, MEMORY_BAD)
    sentence = "surprises have no memory to speak of: the model has taken from the past what there is"
    if verdict is not Verdict.FINE:
        sentence = (
            f"{percent(test.predictable)} of the surprises could have been told from earlier ones: "
            "the dynamics are not those of the model, or it has too few dimensions"
        )
    shown = f"{percent(test.predictable, 1)} (p {_p(test.p_value)})"
    return Finding("memory of surprises", test.predictable, shown, f"below {percent(MEMORY_LOOK)}", verdict, sentence)


def _radius(examined: Examined) -> Finding:
    radius, rounds = examined.spectral_radius, examined.subject.record.rounds
    above = radius - 1.0
    verdict = Verdict.FINE
    sentence = "the context stays bounded" if above < 0 else "the context wanders like a random walk"
    if above > RADIUS_ROOM / rounds:
        verdict = Verdict.BAD if above > RADIUS_BAD else Verdict.LOOK
        growth = min(rounds * np.log(radius), 700.0)
        sentence = f"by this model the context grows by a factor of {np.exp(growth):.2g} in as long as the record"
    limit = 1.0 + RADIUS_ROOM / rounds
    return Finding("spectral radius", radius, f"{radius:.4f}", f"at most {limit:.4f}", verdict, sentence)


def _observability(examined: Examined) -> Finding:
    shares = examined.shares_told
    count = len(shares)
    if count == 0:
        return Finding(
            "trace of the hidden block", 0.0, "none hidden", ANY, Verdict.FINE, "the model has no hidden coordinates"
        )
    mean = float(shares.mean())
    well = int((shares >= 0.5).sum())
    if mean < TRACE:
        verdict = Verdict.LOOK
        sentence = (
            f"what is hidden leaves next to no trace: the past of what is seen removes {percent(mean)} of its variance"
        )
    else:
        verdict = Verdict.FINE
        sentence = (
            f"of {_times(count, 'hidden direction')} the past of what is seen removes {percent(mean)} of the variance "
            f"in the mean, {percent(float(shares.max()))} of the best known and {percent(float(shares.min()))} "
            f"of the least; {well} {'is' if well == 1 else 'are'} known by half or more"
        )
    return Finding("trace of the hidden block", mean, percent(mean), f"above {percent(TRACE)}", verdict, sentence)


def _dimension(examined: Examined) -> Finding | None:
    if len(examined.scores) < 2:
        return None
    own = examined.subject.model.latent
    best = max(examined.scores, key=lambda d: examined.scores[d])
    behind = examined.scores[best] - examined.scores[own]
    others = {d: score for d, score in examined.scores.items() if d != own}
    second = max(others, key=lambda d: others[d])
    verdict = Verdict.LOOK if behind > CLOSE else Verdict.FINE
    if best == own:
        ahead = examined.scores[own] - others[second]
        word = "clearly the best" if ahead > WORTH_A_RUNG else "the best by little"
        sentence = f"of {len(examined.scores)} dimensions tried {own} is {word}: {ahead:.0f} nats ahead of {second}"
    else:
        sentence = f"{best} dimensions fit the observations better than {own}, by {behind:.0f} nats" + (
            "" if verdict is Verdict.LOOK else ", which is within what the rewards may decide"
        )
    shown = f"{own}, the best" if best == own else f"{own}, {behind:.0f} nats behind {best}"
    return Finding("dimension", own, shown, f"at most {CLOSE:g} nats behind", verdict, sentence)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def _times(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
