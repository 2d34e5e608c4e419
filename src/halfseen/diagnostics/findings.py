"""Derives findings, and the answer to the main question, from the measurements of an examination."""

from __future__ import annotations

import numpy as np

from halfseen.diagnostics.calibration import ArmUncertainty, Coverage
from halfseen.diagnostics.data_quality import LEAST_OUTLIERS, RewardKind, TailTest, UnchangingRun
from halfseen.diagnostics.examination_data import ExaminationSubject
from halfseen.diagnostics.explained_rewards import (
    DESCRIPTIONS,
    LEAST_REWARDS,
    MUCH,
    SOME,
    WORTHWHILE,
    ExplainedRewards,
    Improvement,
    SensorValue,
    grade,
)
from halfseen.diagnostics.health import Finding, Verdict
from halfseen.diagnostics.innovations import SIGNIFICANCE
from halfseen.diagnostics.measurements import Measurements, measure
from halfseen.models.identification.order import LEAST_GAIN
from halfseen.models.identification.selection import AICC_MARGIN
from halfseen.reports.tables import count, percent

# With many rounds, even small deviations are significant. So a deviation must also be large enough: it gets the verdict
# "look" only if it reaches its limit …_LOOK, and "bad" only if it reaches its limit …_BAD.
SIZE_LOOK, SIZE_BAD = 0.08, 0.50  # relative deviation of the mean square of innovations from 1
BIAS_LOOK, BIAS_BAD = 0.15, 0.50  # mean of an innovation, divided by its standard deviation
MEMORY_LOOK, MEMORY_BAD = 0.02, 0.10  # share of the variance of innovations that earlier innovations explain
BLOCK_LOOK, BLOCK_BAD = 1.5, 3.0  # mean square of innovations in the worst block, relative to the median
TREND_LOOK = 2.0  # change over all rounds, divided by the standard deviation around the trend
TAILS_LOOK = 0.002  # share of outliers, which is 0.00006 for normal values
# If the spectral radius minus 1 is above RADIUS_ROOM / rounds, the verdict is "look", or "bad" if it is also above
# RADIUS_BAD.
RADIUS_ROOM, RADIUS_BAD = 3.0, 0.02
OBSERVABLE = 0.10  # the history should explain at least this share of the hidden variance, on average
COVERAGE_ROOM, COVERAGE_BAD = 0.03, 0.10  # deviation of the coverage of an interval from its level
USELESS = 0.01  # a sensor that explains less than this share of the explained variance does not matter
ANY = "–"  # the expected range of a number for which every value is acceptable


def brief_findings(subject: ExaminationSubject | None) -> tuple[str, tuple[Finding, ...]]:
    """Return the answer and the findings of a brief examination.

    Both are empty if there is no subject, or if a matrix decomposition fails.
    """
    if subject is None:
        return "", ()
    try:
        measured = measure(subject, brief=True)
    except np.linalg.LinAlgError:
        return "", ()
    made = findings(measured)
    return answer(measured, made), made


def findings(measured: Measurements) -> tuple[Finding, ...]:
    """Return all findings that the data allow: about the model, about the sensors, about rewards."""
    made = [_nis(measured), _nis_by_block(measured), _bias(measured), _whiteness(measured), _radius(measured)]
    made += [_observability(measured), _dimension(measured), *_sensor_findings(measured), *reward_findings(measured)]
    return tuple(finding for finding in made if finding is not None)


# ---------------------------------------------------------------------- the answer


def answer(measured: Measurements, made: tuple[Finding, ...]) -> str:
    """Return a text that says whether what is hidden matters for decisions, and whether it can be recovered."""
    explained = measured.explained
    if explained is None:
        return f"It cannot be told yet whether what is hidden matters for your decisions: {_too_few(measured)}."
    shares, seeing = explained.shares, _worth_of_seeing(measured)
    seen, whole, without = (percent(shares[name]) for name in ("seen", "filtered context", "filtered, nothing hidden"))
    if explained.hidden_pays != "little":
        unused = " The agent does not use this yet." if measured.subject.plain else ""
        return f"Yes: filtering raises the explained share of rewards from {seen} to {whole}.{unused}{seeing}"
    if explained.filtering_pays != "little":
        return (
            f"Yes: filtering raises the explained share of rewards from {seen} to {without}. A model without hidden "
            f"coordinates is enough for this.{seeing}"
        )
    matters, doubt = _hidden_matters(measured), _doubt_about_model(measured, made)
    if matters and doubt:
        return (
            "It cannot be told with this model whether what is hidden can be recovered from what you see: "
            f"{doubt}. {matters}{seeing}"
        )
    if matters:
        return f"No: what is hidden matters, but it cannot be recovered from what you see. {matters}{seeing}"
    excluded = explained.beyond_at_most is not None and explained.beyond_at_most < WORTHWHILE
    if doubt and not excluded:
        return f"It cannot be told with this model whether what is hidden matters for your decisions: {doubt}.{seeing}"
    if explained.context_is_irrelevant:
        return (
            "No: neither what you see nor what can be recovered from it predicts rewards. It explains at most "
            f"{percent(explained.context_at_most, 1)} of them.{seeing}"
        )
    if not explained.context_matters:
        return (
            "It cannot be told yet whether the context predicts rewards: "
            f"{measured.reward_count:,} rewards do not exclude that it explains {percent(explained.context_at_most)}. "
            f"{_rewards_needed(measured.reward_count, explained.context_at_most)}{seeing}"
        )
    at_most = explained.recovered_at_most
    if at_most >= WORTHWHILE:
        return (
            f"It cannot be told yet whether recovering what is hidden helps: what you see explains {seen} of the "
            f"rewards, and filtering may add up to {percent(at_most)}. "
            f"{_rewards_needed(measured.reward_count, at_most)}{seeing}"
        )
    return (
        f"No: recovering what is hidden does not help to predict rewards. What you see explains {seen} of them, the "
        f"filtered context {whole}.{seeing}"
    )


def _too_few(measured: Measurements) -> str:
    if measured.reward_count == 0:
        return "there are no rewards"
    if measured.reward_count >= LEAST_REWARDS:
        return "all rewards are equal"
    are = "is" if measured.reward_count == 1 else "are"
    return f"there {are} {count(measured.reward_count, 'reward')}, and at least {LEAST_REWARDS} are needed"


def _worth_of_seeing(measured: Measurements) -> str:
    """Return a sentence about the recorded hidden feature that would add most, or "" if there is no such feature."""
    hidden = [one for one in measured.sensor_values or () if one.hidden]
    if not hidden:
        return ""
    best = max(hidden, key=lambda one: one.share.value)
    if best.share.significant:
        return f" Seeing {best.name} directly would add {percent(best.share.value, 1)}."
    names = best.name if len(hidden) == 1 else "a hidden feature"
    return f" Seeing {names} directly would add nothing that can be distinguished from chance."


def _hidden_matters(measured: Measurements) -> str:
    """Return a sentence if the true context or a recorded hidden feature clearly adds to the observations, or ""."""
    explained = measured.explained
    assert explained is not None
    shares, name = explained.shares, measured.subject.data.contexts_name
    gains = [one.share for one in measured.sensor_values or () if one.hidden]
    known = explained.beyond is not None and explained.beyond.significant
    if explained.beyond is not None:
        gains.append(explained.beyond)
    if not any(gain.significant and gain.value >= WORTHWHILE for gain in gains):
        return ""
    best = percent(max(shares[one] for one in DESCRIPTIONS))
    truth = f", the {name} {percent(shares[name])}" if known else ""
    return f"What you see and its past explain {best} of the rewards{truth}."


def _doubt_about_model(measured: Measurements, made: tuple[Finding, ...]) -> str:
    """Return why a better model might recover more, or "" if there is no reason."""
    verdicts = {finding.name: finding.verdict for finding in made}
    if verdicts.get("dimension", Verdict.FINE) is not Verdict.FINE:
        best = max(measured.scores, key=lambda d: measured.scores[d])
        return f"{best} dimensions fit the observations better than its {measured.subject.model.latent}"
    if verdicts.get("memory of surprises", Verdict.FINE) is not Verdict.FINE:
        return "its prediction errors are autocorrelated, so a better model may recover more"
    return ""


def _rewards_needed(count: int, at_most: float) -> str:
    """Return a sentence that says how many rewards are needed to exclude that the share is WORTHWHILE or more.

    The true share is assumed to be 0. Then its upper bound shrinks as 1/n.
    """
    needed = count * at_most / WORTHWHILE
    digits = 10 ** int(np.log10(needed))
    return f"About {int(np.ceil(needed / digits) * digits):,} rewards would be needed to exclude {percent(WORTHWHILE)}."


# ---------------------------------------------------------------------- the model


def _verdict(significant: bool, amount: float, look: float, bad: float) -> Verdict:
    if not significant or amount < look:
        return Verdict.FINE
    return Verdict.BAD if amount >= bad else Verdict.LOOK


def _nis(measured: Measurements) -> Finding | None:
    test = measured.nis
    if test is None:
        return None
    off = max(test.ratio - 1.0, 1.0 / max(test.ratio, 1e-300) - 1.0)
    look = SIZE_BAD if _heavy_sensors(measured) else SIZE_LOOK  # outliers make the mean square uncertain
    verdict = _verdict(test.p_value < SIGNIFICANCE, off, look, SIZE_BAD)
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
    median = float(np.median(parts.ratios))
    if not median > 0.0:  # in most blocks, all prediction errors are 0
        return None
    relative = parts.ratios / median
    worst = int(np.argmax(relative))
    amount, limit = float(relative[worst]), float(parts.limit[worst])
    # Blocks of autocorrelated or heavy-tailed errors differ even if the dynamics are the same at all times.
    autocorrelated = measured.whiteness is not None and measured.whiteness.predictable >= MEMORY_LOOK
    look = BLOCK_BAD if autocorrelated or _heavy_sensors(measured) else BLOCK_LOOK
    verdict = _verdict(amount > limit, amount, look, BLOCK_BAD)
    start = int(parts.starts[worst]) + measured.subject.first_round
    sentence = "the size of prediction errors does not change over time by more than chance"
    if verdict is not Verdict.FINE:
        sentence = (
            f"in a block that begins in round {start}, the mean square of prediction errors was {amount:.1f} times "
            "its median: the dynamics changed there, or sensors failed"
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


# ---------------------------------------------------------------------- the sensors


def _sensor_findings(measured: Measurements) -> list[Finding | None]:
    return [_unchanging(measured), _trending(measured), _heavy_tailed_sensors(measured)]


def _unchanging(measured: Measurements) -> Finding:
    runs, subject = measured.unchanging, measured.subject
    if not runs:
        return Finding("unchanging sensors", 0, "0", "0", Verdict.FINE, "every sensor changes")
    sensors = {run.sensor for run in runs}
    sentence = _listed([_run_text(run, subject) for run in runs]) + ": these entries are left out of the other checks"
    return Finding("unchanging sensors", len(sensors), str(len(sensors)), "0", Verdict.LOOK, sentence)


def _run_text(run: UnchangingRun, subject: ExaminationSubject) -> str:
    name = subject.data.sensors[run.sensor]
    first, last = subject.first_round + run.start, subject.first_round + run.stop - 1
    if run.always:
        return f"{name} never changes"
    if np.isnan(subject.data.observations[run.stop :, run.sensor]).all():
        return f"{name} is stuck since round {first}"
    return f"{name} was stuck from round {first} to round {last}"


def _trending(measured: Measurements) -> Finding | None:
    if not measured.trends:
        return None
    level = SIGNIFICANCE / len(measured.trends)
    trending = [one for one in measured.trends if one.p_value < level and abs(one.change) >= TREND_LOOK]
    largest = max(abs(one.change) for one in measured.trends)
    if not trending:
        sentence, verdict = "no sensor has a trend that is large and cannot be due to chance", Verdict.FINE
    else:
        names, verdict = measured.subject.data.sensors, Verdict.LOOK
        texts = [f"{names[one.sensor]} {'rises' if one.change > 0 else 'falls'}" for one in trending]
        sentence = f"{_listed(texts)} from the first to the last round: remove the trend, or use differences"
    return Finding("trending sensors", largest, f"{largest:.1f} sd", f"below {TREND_LOOK:g} sd", verdict, sentence)


def _heavy_tailed_sensors(measured: Measurements) -> Finding | None:
    tails = measured.sensor_tails
    if not tails:
        return None
    heavy = _heavy_sensors(measured)
    largest = max(one.share for one in tails.values())
    sentence, verdict = "prediction errors of sensors have few outliers, as normal errors do", Verdict.FINE
    if heavy:
        names, verdict = measured.subject.data.sensors, Verdict.LOOK
        texts = [f"{names[i]} has heavy tails ({tails[i].outliers} outliers in {tails[i].size:,})" for i in heavy]
        sentence = f"{_listed(texts)}: single values mislead the filter; limit them before you pass them on"
    return Finding(
        "heavy-tailed sensors", largest, percent(largest, 1), f"below {percent(TAILS_LOOK, 1)}", verdict, sentence
    )


def _heavy_sensors(measured: Measurements) -> list[int]:
    tails = measured.sensor_tails
    return [sensor for sensor, test in tails.items() if heavy_tailed(test, SIGNIFICANCE / len(tails))]


def heavy_tailed(test: TailTest | None, level: float = SIGNIFICANCE) -> bool:
    """Return whether there are more outliers than chance explains, and enough of them to matter."""
    return test is not None and test.p_value < level and test.outliers >= max(LEAST_OUTLIERS, TAILS_LOOK * test.size)


def _listed(texts: list[str]) -> str:
    return "; ".join(texts[:5]) + (f"; and {len(texts) - 5} more" if len(texts) > 5 else "")


# ---------------------------------------------------------------------- the rewards


def reward_findings(measured: Measurements) -> list[Finding]:
    """Return the findings about rewards: how much contexts explain, calibration, starved arms and sensors."""
    explained, kind, made = measured.explained, measured.reward_kind, []
    heavy = heavy_tailed(measured.reward_tails)
    if explained is not None:
        made = [_explained(explained, measured.reward_count), _filtering(explained)]
        made.append(_hidden(explained, measured.subject))
    if explained is not None and kind is not None:
        made.append(_kind(kind))
    if measured.reward_tails is not None:
        made.append(_heavy_tailed_rewards(measured.reward_tails, heavy))
    if measured.calibration is not None and kind is not None and kind.name == "continuous":
        made += [_coverage(one, heavy) for one in measured.calibration.coverages]
    if measured.arms is not None:
        made.append(_starved(measured.arms, measured.subject))
    if explained is not None:
        made += [_sensor(one, explained) for one in measured.sensor_values or ()]
    return made


def _explained(explained: ExplainedRewards, count: int) -> Finding:
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
        sentence = (
            f"it cannot be told yet whether the context predicts rewards ({count:,} rewards; it explains at most "
            f"{percent(explained.context_at_most)})"
        )
        if explained.context_is_irrelevant:
            verdict = Verdict.LOOK
            sentence = (
                "no description of the context predicts rewards (it explains at most "
                f"{percent(explained.context_at_most, 1)}): choose by the mean rewards of the arms"
            )
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
        if explained.filtering_pays != "little":
            sentence = f"the hidden block adds nothing to filtering: {detail}"
        if explained.hidden.value >= SOME * max(whole, 0.0) > 0.0 or explained.hidden_at_most >= WORTHWHILE:
            sentence = f"the data do not show yet whether the hidden block helps: {detail}"
        if subject.model.latent == subject.model.observed:
            sentence = f"the model has no hidden coordinates: {detail}"
        # Three standard errors, because the other description is the best of several, so chance favours it.
        beyond_chance = explained.context_matters and explained.hidden.value < -3.0 * explained.hidden.error
        if in_use and beyond_chance and without - whole >= MUCH * without > 0.0:
            verdict, sentence = Verdict.LOOK, f"the hidden block makes predictions worse: {detail}"
    else:
        sentence = f"the hidden block helps{' a little' if pays == 'some' else ''}: {detail}"
        if subject.plain:
            verdict = Verdict.LOOK
            sentence += "; but the agent uses the raw observation"
    return _gain("use of the hidden block", explained.hidden, pays, sentence, verdict)


def _gain(name: str, added: Improvement, pays: str, sentence: str, verdict: Verdict) -> Finding:
    shown = f"{pays}: {percentage_points(added)}"
    return Finding(name, added.value, shown, ANY, verdict, sentence)


def _kind(kind: RewardKind) -> Finding:
    shown, sentence = kind.name, "the rewards are numbers on a continuous scale"
    if kind.name == "binary":
        shown = f"binary, {percent(kind.share_of_highest)} are {kind.highest:g}"
        sentence = (
            f"the rewards are binary ({kind.lowest:g} or {kind.highest:g}): much of their variance is chance, so that "
            "even the true context explains only part of it; normal prediction intervals are not tested"
        )
    elif kind.name == "discrete":
        shown = f"discrete, {percent(kind.share)} are {kind.most_frequent:g}"
        sentence = (
            f"the rewards are discrete ({kind.distinct:,} distinct values): normal prediction intervals are not tested"
        )
    return Finding("kind of rewards", kind.distinct, shown, ANY, Verdict.FINE, sentence)


def _heavy_tailed_rewards(test: TailTest, heavy: bool) -> Finding:
    verdict = Verdict.LOOK if heavy else Verdict.FINE
    sentence = "prediction errors of rewards have few outliers, as normal errors do"
    if heavy:
        sentence = (
            f"the rewards have heavy tails ({test.outliers} outliers in {test.size:,}): single rewards have much "
            "influence on the means of arms; limit them, or collect more rewards"
        )
    expected = f"below {percent(TAILS_LOOK, 1)}"
    return Finding("heavy-tailed rewards", test.share, percent(test.share, 1), expected, verdict, sentence)


def _coverage(one: Coverage, heavy: bool) -> Finding:
    off = one.share - one.level
    room = max(COVERAGE_ROOM, 2.6 * one.error)
    verdict = Verdict.FINE
    sentence = f"{percent(one.share)} of rewards were inside their {percent(one.level)} prediction intervals"
    if off > room and heavy:  # the outliers widen the intervals of all rewards
        sentence += ", more than expected because the rewards have heavy tails"
    elif abs(off) > room:
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
    undecided = not explained.context_matters and not explained.context_is_irrelevant
    unclear = part >= SOME or undecided or one.share.value + 2.0 * one.share.error >= WORTHWHILE
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
    elif unclear:
        sentence = f"the data do not show yet how much {one.name} matters"
    else:
        sentence = f"{one.name} could be removed: it does not predict rewards, or other sensors tell as much"
    word = size if matters else "little" if clear else "unclear" if unclear else "none"
    shown = f"{word}: {percentage_points(one.share)}"
    kind = "worth of seeing" if one.hidden else "worth of"
    return Finding(f"{kind} {one.name}", one.share.value, shown, ANY, Verdict.FINE, sentence)


def percentage_points(added: Improvement) -> str:
    """Return an improvement and its standard error as text."""
    return f"{round(100 * added.value, 1) + 0.0:+.1f} ± {100 * added.error:.1f} %"  # + 0.0: never "-0.0"


def _zero_note(*shares: float) -> str:
    """Return an explanation for a negative share, which is displayed as 0 %."""
    return "; 0 % means no better than each arm's mean" if min(shares) < -0.005 else ""
