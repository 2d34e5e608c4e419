"""Findings about what the model is for: do its contexts tell what arms pay, and which sensors does that rest on?"""

from __future__ import annotations

from halfseen.diagnostics.calibration import Coverage
from halfseen.diagnostics.examined import Examined
from halfseen.diagnostics.explained import DESCRIPTIONS, MUCH, SOME, Explained, grade
from halfseen.diagnostics.health import Finding, Verdict
from halfseen.diagnostics.held_out import Gain
from halfseen.diagnostics.sensors import Worth
from halfseen.reports.tables import percent

HIDDEN, FILTERING = "use of the hidden block", "use of filtering"  # names of the findings they are looked up by
COVERAGE_ROOM, COVERAGE_BAD = 0.03, 0.10  # that a share inside an interval may be off by
ANY = "–"  # no value is wrong
USELESS = 0.01  # of what is explained: a sensor worth less is not missed


def reward_findings(examined: Examined) -> list[Finding]:
    found: list[Finding] = []
    if examined.explained is not None:
        found += [
            _explained(examined.explained),
            _filtering(examined.explained),
            _hidden(examined.explained, examined),
        ]
    if examined.calibration is not None:
        found += [_coverage(one) for one in examined.calibration.coverages]
    if examined.arms is not None:
        found.append(_starved(examined))
    return found + [_sensor(one, examined) for one in examined.worths or ()]


def _explained(explained: Explained) -> Finding:
    shares = explained.shares
    best = max(shares["filtered context"], shares["filtered, nothing hidden"], shares["seen"])
    sentence = (
        f"what is seen explains {percent(shares['seen'])} of what rewards vary around each arm's mean, the filtered "
        f"context {percent(shares['filtered context'])}"
    )
    sentence += "".join(f", the {name} {percent(shares[name])}" for name in shares if name not in DESCRIPTIONS)
    sentence += _worse(*(share for name, share in shares.items() if name != DESCRIPTIONS[1]))
    verdict = Verdict.FINE
    if not explained.tells_anything:
        verdict = Verdict.LOOK
        sentence = "no description of the context tells what arms pay, beyond chance: choose by their means"
    return Finding("rewards explained", best, percent(best, 1), "above 0 %", verdict, sentence)


def _filtering(explained: Explained) -> Finding:
    shares, pays = explained.shares, explained.filtering_pays
    told = (
        f"filtering what is seen, with nothing hidden, explains {percent(shares['filtered, nothing hidden'])} of the "
        f"reward variance, the observation as it comes {percent(shares['seen'])}"
        f"{_worse(shares['filtered, nothing hidden'], shares['seen'])}"
    )
    start = {
        "much": "filtering pays, whether or not anything is hidden: ",
        "some": "filtering pays a little, whether or not anything is hidden: ",
        "little": "filtering alone adds nothing you can use: ",
    }[pays]
    if pays == "little" and explained.filtering.value >= SOME * max(shares["filtered, nothing hidden"], 0.0) > 0.0:
        start = "whether filtering alone pays cannot be told from chance yet: "
    return _gain(FILTERING, explained.filtering, pays, start + told, Verdict.FINE)


def _hidden(explained: Explained, examined: Examined) -> Finding:
    shares, pays = explained.shares, explained.hidden_pays
    subject = examined.subject
    whole, without = shares["filtered context"], shares["filtered, nothing hidden"]
    in_use = not subject.plain and subject.model.latent > subject.model.observed
    told = (
        f"the filtered context explains {percent(whole)} of the reward variance, the best without hidden coordinates "
        f"{percent(without)}{_worse(whole, without)}"
    )
    verdict = Verdict.FINE
    if pays == "little":
        sentence = f"the hidden block carries nothing you can use here: {told}"
        if explained.hidden.value >= SOME * max(whole, 0.0) > 0.0:
            sentence = f"whether the hidden block pays cannot be told from chance yet: {told}"
        if subject.model.latent == subject.model.observed:
            sentence = f"no hidden coordinates were found, and what is seen has to do: {told}"
        beyond_chance = explained.tells_anything and explained.hidden.value < -2.0 * explained.hidden.error
        if in_use and beyond_chance and without - whole >= SOME * without > 0.0:
            verdict, sentence = Verdict.LOOK, f"the hidden block does harm: {told}"
    else:
        sentence = f"the hidden block pays{' a little' if pays == 'some' else ''}: {told}"
        if subject.plain:
            verdict = Verdict.LOOK
            sentence += "; but decisions are made on the observation itself"
    return _gain(HIDDEN, explained.hidden, pays, sentence, verdict)


def _gain(name: str, added: Gain, pays: str, sentence: str, verdict: Verdict) -> Finding:
    shown = f"{pays}: {_points(added)}"
    return Finding(name, added.value, shown, ANY, verdict, sentence)


def _coverage(one: Coverage) -> Finding:
    off = one.share - one.level
    room = max(COVERAGE_ROOM, 2.6 * one.error)
    verdict = Verdict.FINE
    sentence = f"{percent(one.share)} of rewards fell where {percent(one.level)} were predicted to"
    if abs(off) > room:
        verdict = Verdict.BAD if abs(off) > max(COVERAGE_BAD, room) else Verdict.LOOK
        sentence += (
            ": predictions are too sure, and arms are left too early"
            if off < 0
            else ": predictions are not sure enough, and exploration costs more than it must"
        )
    low, high = max(0.0, one.level - room), min(1.0, one.level + room)
    expected = f"{percent(low)} to {percent(high)}"
    name = f"rewards in {percent(one.level)} intervals"
    return Finding(name, one.share, percent(one.share), expected, verdict, sentence)


def _starved(examined: Examined) -> Finding:
    arms, names = examined.arms, examined.subject.record.arm_names
    assert arms is not None
    starved = [a for a in arms.starved if a not in examined.subject.retired]
    if not len(starved):
        least = int(arms.rewards.argmin())
        sentence = f"every arm is known well enough or not worth knowing; the fewest rewards, {arms.rewards[least]}, "
        sentence += f"are of {names[least]}"
        return Finding("starved arms", 0, "0", "0", Verdict.FINE, sentence)
    told = ", ".join(f"{names[a]} ({arms.rewards[a]})" for a in starved[:5])
    more = f" and {len(starved) - 5} more" if len(starved) > 5 else ""
    sentence = f"too little is known of these arms to leave them alone (rewards in brackets): {told}{more}"
    return Finding("starved arms", len(starved), str(len(starved)), "0", Verdict.LOOK, sentence)


def _sensor(one: Worth, examined: Examined) -> Finding:
    assert examined.explained is not None
    whole = max(examined.explained.shares["filtered context"], 0.0)
    total = whole + one.share.value if one.hidden else whole
    size = grade(one.share, total)
    part = one.share.value / total if total > 0.0 and (one.hidden or examined.explained.tells_anything) else 0.0
    clear, missed = one.share.clear, one.share.clear and part >= USELESS
    money = "" if one.money is None else f", and {one.money:+.3g} a round to the reward of the greedy choice"
    if one.hidden:
        sentence = f"{one.name}, if it were seen, would add nothing that can be told from chance"
        if clear:
            sentence = (
                f"{one.name}, if it were seen, would add {percent(one.share.value, 1)} of the reward variance{money}"
            )
    elif clear:
        sentence = "" if missed else "little rests on it: "
        sentence += (
            f"without {one.name} {percent(one.share.value, 1)} of the reward variance would no longer be explained"
        )
        if one.money is not None:
            sentence += f", and the greedy choice would lose {one.money:.3g} a round"
    elif part >= SOME:
        sentence = f"how much rests on {one.name} cannot be told from chance yet"
    else:
        sentence = f"{one.name} would not be missed: the other sensors tell the same, or it tells nothing of rewards"
    word = size if missed else "little" if clear else "unclear" if part >= SOME else "none"
    shown = f"{word}: {_points(one.share)}"
    kind = "worth of seeing" if one.hidden else "worth of"
    return Finding(f"{kind} {one.name}", one.share.value, shown, ANY, Verdict.FINE, sentence)


def _points(added: Gain) -> str:
    return f"{round(100 * added.value, 1) + 0.0:+.1f} ± {100 * added.error:.1f} %"  # + 0.0: never "-0.0"


def _worse(*shares: float) -> str:
    """Why a share is told as 0 %, if one is below."""
    return "; 0 %: no better than each arm's mean" if min(shares) < -0.005 else ""


__all__ = ["FILTERING", "HIDDEN", "MUCH", "SOME", "reward_findings"]
