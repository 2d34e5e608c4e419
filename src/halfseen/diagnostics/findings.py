"""Derives findings from the measurements of an examination."""

from __future__ import annotations

import numpy as np

from halfseen.diagnostics.calibration import ArmUncertainty, Coverage
from halfseen.diagnostics.examination_data import ExaminationSubject
from halfseen.diagnostics.explained_rewards import DESCRIPTIONS, SOME, ExplainedRewards, Improvement, SensorValue, grade
from halfseen.diagnostics.health import Finding, Verdict
from halfseen.diagnostics.innovations import SIGNIFICANCE
from halfseen.diagnostics.measurements import Measurements, measure
from halfseen.models.identification.order import LEAST_GAIN
from halfseen.models.identification.selection import AICC_MARGIN
from halfseen.reports.tables import percent

# With many rounds, even small deviations are significant. So a deviation is reported only if it is also large enough.
SIZE_LOOK, SIZE_BAD = 0.08, 0.50  # relative deviation of the mean square of innovations from 1
BIAS_LOOK, BIAS_BAD = 0.15, 0.50  # mean of an innovation, divided by its standard deviation
MEMORY_LOOK, MEMORY_BAD = 0.02, 0.10  # share of the variance of innovations that earlier innovations explain
BLOCK_LOOK, BLOCK_BAD = 1.5, 3.0  # mean square of innovations in the worst block, relative to the median
RADIUS_ROOM, RADIUS_BAD = 3.0, 0.02  # excess of the spectral radius over 1; "look" above RADIUS_ROOM / rounds
OBSERVABLE = 0.10  # mean share of the hidden variance that the history should explain
COVERAGE_ROOM, COVERAGE_BAD = 0.03, 0.10  # deviation of the coverage of an interval from its level
USELESS = 0.01  # a sensor that explains less than this share of the explained variance does not matter
ANY = "–"  # the expected range of a number for which every value is acceptable


def brief_findings(subject: ExaminationSubject | None) -> tuple[Finding, ...]:
    """Return the findings of a brief examination. The list is empty without a subject or if the arithmetic fails."""
    try:
        return () if subject is None else findings(measure(subject, brief=True))
    except np.linalg.LinAlgError:
        return ()


def findings(measured: Measurements) -> tuple[Finding, ...]:
    """Return all findings that the data allow, first those about the model, then those about rewards."""
    made = [_nis(measured), _nis_by_block(measured), _bias(measured), _whiteness(measured), _radius(measured)]
    made += [_observability(measured), _dimension(measured), *reward_findings(measured)]
    return tuple(finding for finding in made if finding is not None)


def _verdict(significant: bool, amount: float, look: float, bad: float) -> Verdict:
    if not significant or amount < look:
        return Verdict.FINE
    return Verdict.BAD if amount >= bad else Verdict.LOOK


def _nis(measured: Measurements) -> Finding | None:
    test = measured.nis
    if test is None:
        return None
    off = max(test.ratio - 1.0, 1.0 / max(test.ratio, 1e-300) - 1.0)
    verdict = _verdict(test.p_value < SIGNIFICANCE, off, SIZE_LOOK, SIZE_BAD)
    if verdict is Verdict.FINE:
        sentence = "observations differ from their predictions by as much as the model expects"
    elif test.ratio > 1.0:
        sentence = (
            f"observations differ from their predictions by {np.sqrt(test.ratio):.2f} times what the model expects: "
            "the model is overconfident"
        )
    else:
        sentence = (
            f"observations differ from their predictions by only {np.sqrt(test.ratio):.2f} times what the model "
            "expects: its noise variances are too large, and the filter adapts too slowly or too quickly"
        )
    return Finding(
        "size of surprises", test.ratio, f"{test.ratio:.3f}", f"{test.low:.3f} to {test.high:.3f}", verdict, sentence
    )


def _nis_by_block(measured: Measurements) -> Finding | None:
    parts = measured.nis_by_block
    if parts is None or len(parts.ratios) < 3:
        return None
    relative = parts.ratios / np.median(parts.ratios)
    worst = int(np.argmax(relative))
    amount, limit = float(relative[worst]), float(parts.high[worst])
    verdict = _verdict(amount > limit, amount, BLOCK_LOOK, BLOCK_BAD)
    start = int(parts.starts[worst]) + 1
    sentence = "the size of prediction errors does not change over time"
    if verdict is not Verdict.FINE:
        sentence = (
            f"in a block that begins in round {start} of the data, the mean square of prediction errors was "
            f"{amount:.1f} times its median: the dynamics changed there, or sensors failed"
        )
    return Finding("worst stretch of surprises", amount, f"{amount:.2f}", f"below {limit:.2f}", verdict, sentence)


def _bias(measured: Measurements) -> Finding | None:
    test = measured.bias
    if test is None:
        return None
    verdict = _verdict(test.p_value < SIGNIFICANCE, test.largest, BIAS_LOOK, BIAS_BAD)
    name = measured.subject.data.sensors[test.sensor]
    sentence = "no sensor is biased"
    if verdict is not Verdict.FINE:
        sentence = f"{name} differs from its prediction on average: it has an offset that the model does not include"
    return Finding(
        "bias of surprises", test.largest, f"{test.largest:.2f} sd", f"below {BIAS_LOOK:g} sd", verdict, sentence
    )


def _whiteness(measured: Measurements) -> Finding | None:
    test = measured.whiteness
    if test is None:
        return None
    verdict = _verdict(test.p_value < SIGNIFICANCE, test.predictable, MEMORY_LOOK, MEMORY_BAD)
    sentence = "prediction errors are hardly autocorrelated: the model uses the information in past observations"
    if verdict is not Verdict.FINE:
        sentence = (
            f"{percent(test.predictable)} of the variance of prediction errors could have been predicted from earlier "
            "ones: the dynamics of the model are wrong, or it has too few dimensions"
        )
    p_value = "< 0.001" if test.p_value < 0.001 else f"= {test.p_value:.3f}"
    shown = f"{percent(test.predictable, 1)} (p {p_value})"
    return Finding("memory of surprises", test.predictable, shown, f"below {percent(MEMORY_LOOK)}", verdict, sentence)


def _radius(measured: Measurements) -> Finding:
    radius, rounds = measured.spectral_radius, measured.subject.data.rounds
    above = radius - 1.0
    verdict = Verdict.FINE
    sentence = "the context stays bounded" if above < 0 else "the context moves like a random walk"
    if above > RADIUS_ROOM / rounds:
        verdict = Verdict.BAD if above > RADIUS_BAD else Verdict.LOOK
        growth = min(rounds * np.log(radius), 700.0)
        sentence = f"with this model the context grows by a factor of {np.exp(growth):.2g} in {rounds:,} rounds"
    limit = 1.0 + RADIUS_ROOM / rounds
    return Finding("spectral radius", radius, f"{radius:.4f}", f"at most {limit:.4f}", verdict, sentence)


def _observability(measured: Measurements) -> Finding:
    shares = measured.hidden_variance_explained
    count = len(shares)
    if count == 0:
        return Finding(
            "observability of the hidden block",
            0.0,
            "none hidden",
            ANY,
            Verdict.FINE,
            "the model has no hidden coordinates",
        )
    mean = float(shares.mean())
    well = int((shares >= 0.5).sum())
    if mean < OBSERVABLE:
        verdict = Verdict.LOOK
        sentence = (
            f"past observations tell almost nothing about the hidden coordinates: they explain {percent(mean)} of the "
            "variance"
        )
    else:
        verdict = Verdict.FINE
        sentence = (
            f"past observations explain {percent(mean)} of the variance of {count} hidden "
            f"direction{'s' * (count != 1)} on average, {percent(float(shares.max()))} for the best known and "
            f"{percent(float(shares.min()))} for the least known; in {well} of them they explain at least half"
        )
    return Finding(
        "observability of the hidden block", mean, percent(mean), f"above {percent(OBSERVABLE)}", verdict, sentence
    )


def _dimension(measured: Measurements) -> Finding | None:
    if len(measured.scores) < 2:
        return None
    own = measured.subject.model.latent
    best = max(measured.scores, key=lambda d: measured.scores[d])
    behind = measured.scores[best] - measured.scores[own]
    others = {d: score for d, score in measured.scores.items() if d != own}
    second = max(others, key=lambda d: others[d])
    verdict = Verdict.LOOK if behind > AICC_MARGIN else Verdict.FINE
    if best == own:
        ahead = measured.scores[own] - others[second]
        word = "clearly" if ahead > LEAST_GAIN else "slightly"
        sentence = (
            f"{own} dimensions fit the observations {word} better than all alternatives: {second}, the best of them, "
            f"fit worse by {ahead:.0f} nats"
        )
    else:
        sentence = f"{best} dimensions fit the observations better than {own}, by {behind:.0f} nats" + (
            "" if verdict is Verdict.LOOK else ", a difference small enough to let the rewards decide"
        )
    shown = f"{own}, the best" if best == own else f"{own}, {behind:.0f} nats behind {best}"
    return Finding("dimension", own, shown, f"at most {AICC_MARGIN:g} nats behind", verdict, sentence)


def reward_findings(measured: Measurements) -> list[Finding]:
    """Return the findings about rewards: how much contexts explain, calibration, starved arms and sensors."""
    explained, made = measured.explained, []
    if explained is not None:
        made = [_explained(explained), _filtering(explained), _hidden(explained, measured.subject)]
    if measured.calibration is not None:
        made += [_coverage(one) for one in measured.calibration.coverages]
    if measured.arms is not None:
        made.append(_starved(measured.arms, measured.subject))
    if explained is not None:
        made += [_sensor(one, explained) for one in measured.sensor_values or ()]
    return made


def _explained(explained: ExplainedRewards) -> Finding:
    shares = explained.shares
    best = max(shares["filtered context"], shares["filtered, nothing hidden"], shares["seen"])
    sentence = (
        f"the observation explains {percent(shares['seen'])} of the variance of rewards around each arm's mean, the "
        f"filtered context {percent(shares['filtered context'])}"
    )
    sentence += "".join(f", the {name} {percent(shares[name])}" for name in shares if name not in DESCRIPTIONS)
    sentence += _zero_note(*(share for name, share in shares.items() if name != DESCRIPTIONS[1]))
    verdict = Verdict.FINE
    if not explained.context_matters:
        verdict = Verdict.LOOK
        sentence = "no description of the context predicts rewards: choose by the mean rewards of the arms"
    return Finding("rewards explained", best, percent(best, 1), "above 0 %", verdict, sentence)


def _filtering(explained: ExplainedRewards) -> Finding:
    shares, pays = explained.shares, explained.filtering_pays
    detail = (
        f"the filtered observation, without hidden coordinates, explains "
        f"{percent(shares['filtered, nothing hidden'])} of the reward variance, the raw observation "
        f"{percent(shares['seen'])}"
        f"{_zero_note(shares['filtered, nothing hidden'], shares['seen'])}"
    )
    start = {
        "much": "filtering helps, even without hidden coordinates: ",
        "some": "filtering helps a little, even without hidden coordinates: ",
        "little": "filtering alone does not help: ",
    }[pays]
    if pays == "little" and explained.filtering.value >= SOME * max(shares["filtered, nothing hidden"], 0.0) > 0.0:
        start = "the data do not show yet whether filtering alone helps: "
    return _gain("use of filtering", explained.filtering, pays, start + detail, Verdict.FINE)


def _hidden(explained: ExplainedRewards, subject: ExaminationSubject) -> Finding:
    shares, pays = explained.shares, explained.hidden_pays
    whole, without = shares["filtered context"], shares["filtered, nothing hidden"]
    in_use = not subject.plain and subject.model.latent > subject.model.observed
    detail = (
        f"the filtered context explains {percent(whole)} of the reward variance, the best description without hidden "
        f"coordinates {percent(without)}{_zero_note(whole, without)}"
    )
    verdict = Verdict.FINE
    if pays == "little":
        sentence = f"the hidden block does not help here: {detail}"
        if explained.hidden.value >= SOME * max(whole, 0.0) > 0.0:
            sentence = f"the data do not show yet whether the hidden block helps: {detail}"
        if subject.model.latent == subject.model.observed:
            sentence = f"the model has no hidden coordinates: {detail}"
        beyond_chance = explained.context_matters and explained.hidden.value < -2.0 * explained.hidden.error
        if in_use and beyond_chance and without - whole >= SOME * without > 0.0:
            verdict, sentence = Verdict.LOOK, f"the hidden block makes predictions worse: {detail}"
    else:
        sentence = f"the hidden block helps{' a little' if pays == 'some' else ''}: {detail}"
        if subject.plain:
            verdict = Verdict.LOOK
            sentence += "; but the agent uses the raw observation"
    return _gain("use of the hidden block", explained.hidden, pays, sentence, verdict)


def _gain(name: str, added: Improvement, pays: str, sentence: str, verdict: Verdict) -> Finding:
    shown = f"{pays}: {_points(added)}"
    return Finding(name, added.value, shown, ANY, verdict, sentence)


def _coverage(one: Coverage) -> Finding:
    off = one.share - one.level
    room = max(COVERAGE_ROOM, 2.6 * one.error)
    verdict = Verdict.FINE
    sentence = f"{percent(one.share)} of rewards were inside their {percent(one.level)} prediction intervals"
    if abs(off) > room:
        verdict = Verdict.BAD if abs(off) > max(COVERAGE_BAD, room) else Verdict.LOOK
        sentence += (
            ": predictions are overconfident, and arms are abandoned too early"
            if off < 0
            else ": predictions are underconfident, and exploration costs more than necessary"
        )
    low, high = max(0.0, one.level - room), min(1.0, one.level + room)
    expected = f"{percent(low)} to {percent(high)}"
    name = f"rewards in {percent(one.level)} intervals"
    return Finding(name, one.share, percent(one.share), expected, verdict, sentence)


def _starved(arms: ArmUncertainty, subject: ExaminationSubject) -> Finding:
    names = subject.data.arm_names
    starved = [a for a in arms.starved if a not in subject.retired]
    if not len(starved):
        least = int(arms.rewards.argmin())
        sentence = "every arm is known well enough or is unlikely to be the best; "
        sentence += f"{names[least]} has the fewest rewards, {arms.rewards[least]}"
        return Finding("starved arms", 0, "0", "0", Verdict.FINE, sentence)
    listed = ", ".join(f"{names[a]} ({arms.rewards[a]})" for a in starved[:5])
    more = f" and {len(starved) - 5} more" if len(starved) > 5 else ""
    sentence = f"arms that may be the best but have too few rewards (number of rewards in brackets): {listed}{more}"
    return Finding("starved arms", len(starved), str(len(starved)), "0", Verdict.LOOK, sentence)


def _sensor(one: SensorValue, explained: ExplainedRewards) -> Finding:
    whole = max(explained.shares["filtered context"], 0.0)
    total = whole + one.share.value if one.hidden else whole
    size = grade(one.share, total)
    part = one.share.value / total if total > 0.0 and (one.hidden or explained.context_matters) else 0.0
    clear, matters = one.share.significant, one.share.significant and part >= USELESS
    gain = (
        ""
        if one.greedy_reward is None
        else f", and {one.greedy_reward:+.3g} per round to the reward of the greedy choice"
    )
    if one.hidden:
        sentence = f"{one.name}, if it were observed, would add nothing that can be distinguished from chance"
        if clear:
            sentence = (
                f"{one.name}, if it were observed, would add {percent(one.share.value, 1)} of the reward variance{gain}"
            )
    elif clear:
        sentence = "" if matters else "it matters little: "
        sentence += (
            f"without {one.name}, {percent(one.share.value, 1)} of the reward variance would no longer be explained"
        )
        if one.greedy_reward is not None:
            sentence += f", and the greedy choice would lose {one.greedy_reward:.3g} per round"
    elif part >= SOME:
        sentence = f"the data do not show yet how much {one.name} matters"
    else:
        sentence = f"{one.name} could be removed: it does not predict rewards, or other sensors tell as much"
    word = size if matters else "little" if clear else "unclear" if part >= SOME else "none"
    shown = f"{word}: {_points(one.share)}"
    kind = "worth of seeing" if one.hidden else "worth of"
    return Finding(f"{kind} {one.name}", one.share.value, shown, ANY, Verdict.FINE, sentence)


def _points(added: Improvement) -> str:
    return f"{round(100 * added.value, 1) + 0.0:+.1f} ± {100 * added.error:.1f} %"  # + 0.0: never "-0.0"


def _zero_note(*shares: float) -> str:
    """Return an explanation for a negative share, which is displayed as 0 %."""
    return "; 0 % means no better than each arm's mean" if min(shares) < -0.005 else ""
