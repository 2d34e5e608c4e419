"""Findings about a log of decisions: what makes its estimates less reliable than they seem."""

from __future__ import annotations

import numpy as np

from halfseen.diagnostics.health import Finding, Verdict
from halfseen.evaluation.estimators import ENOUGH
from halfseen.evaluation.evaluate import LOGGED, Evaluation
from halfseen.evaluation.log import Log
from halfseen.experiments.logged_table import LoggedTable
from halfseen.kernels.random import Floats
from halfseen.reports.tables import count, percent
from halfseen.statistics.time_series import power_of_two

FEW_ROWS, LEAST_ROWS = 200, 50  # with fewer rows, estimates are rough, or say nothing
RARE = 0.01  # a smaller propensity makes large weights
LONG_GAP = 10.0  # times the median step between decisions
LIKE_THE_REWARD = 0.99  # correlation of a column that is probably not known before the reward
LEAST_STEPS = 20  # steps of which a median is taken
_LISTED = 5  # names in one sentence


def about_log(
    table: LoggedTable, evaluation: Evaluation, reward_family: str, estimated: str | None = None
) -> tuple[Finding, ...]:
    """Return the findings, the worst first. `estimated` is a sentence about estimated propensities."""
    log = table.log
    found = [
        _rows(log),
        _constant_rewards(log),
        _missing_rewards(evaluation),
        *_arms(log),
        *_propensities(log, estimated),
        _coverage(evaluation),
        *_order(table),
        *_columns(table),
        _like_the_reward(log),
        _family(log, reward_family),
    ]
    order = list(reversed(Verdict))
    return tuple(sorted((one for one in found if one is not None), key=lambda one: order.index(one.verdict)))


def answer(findings: tuple[Finding, ...]) -> str:
    """Return what is wrong with the log in one sentence or more."""
    wrong = [finding for finding in findings if finding.verdict is not Verdict.FINE]
    if not wrong:
        return "Nothing was found."
    return " ".join(f"{finding.sentence[:1].upper()}{finding.sentence[1:]}." for finding in wrong)


def _rows(log: Log) -> Finding:
    rows = log.rounds
    expected = f"{FEW_ROWS} or more"
    if rows >= FEW_ROWS:
        return Finding("decisions", rows, f"{rows:,}", expected, Verdict.FINE, f"the log has {count(rows, 'decision')}")
    verdict = Verdict.LOOK if rows >= LEAST_ROWS else Verdict.BAD
    sentence = f"the log has only {count(rows, 'decision')}, which is too few to learn much from"
    return Finding("decisions", rows, f"{rows:,}", expected, verdict, sentence)


def _constant_rewards(log: Log) -> Finding | None:
    rewards = log.rewards[log.rewarded]
    if np.ptp(rewards) > 0.0:
        return None
    value = float(rewards[0])
    sentence = f"every reward is {value:g}, so nothing can be learnt from the rewards"
    return Finding("constant rewards", value, f"{value:g}", "different rewards", Verdict.BAD, sentence)


def _missing_rewards(evaluation: Evaluation) -> Finding | None:
    log = evaluation.log
    share = log.without_reward / log.rounds
    if share == 0.0:
        return None
    what = (
        "they are left out; if they earned 0: --missing 0"
        if evaluation.missing is None
        else f"they count as {evaluation.missing:g}"
    )
    sentence = f"{percent(share, 1)} of the decisions have no reward; {what}"
    return Finding("missing rewards", share, percent(share, 1), "0 %", Verdict.LOOK, sentence)


def _arms(log: Log) -> list[Finding | None]:
    played = np.bincount(log.played, minlength=len(log.arms))
    never = [name for name, times in zip(log.names, played, strict=True) if times == 0]
    found: list[Finding | None] = []
    if never:
        sentence = f"these arms were never played, so the log cannot say what they earn: {_listed(never)}"
        found.append(Finding("arms never played", len(never), str(len(never)), "0", Verdict.LOOK, sentence))
    if (played > 0).sum() < 2:
        sentence = "only one arm was played, so nothing can be said about any other"
        found.append(Finding("arms played", 1, "1", "2 or more", Verdict.BAD, sentence))
    return found


def _propensities(log: Log, estimated: str | None) -> list[Finding]:
    found = []
    if estimated is not None:
        found.append(Finding("propensities", 0, "estimated", "logged", Verdict.LOOK, estimated))
    if log.unstable is not None:
        found.append(Finding("choice of arms", 0, "changed", "as estimated", Verdict.BAD, log.unstable))
    least = float(log.propensity.min())
    if least < RARE:
        share = float((log.propensity < RARE).mean())
        sentence = (
            f"{percent(share, 1)} of the decisions were made with a propensity below {RARE:g}, down to {least:.2g}, "
            "and get large weights"
        )
        found.append(Finding("least propensity", least, f"{least:.2g}", f"{RARE:g} or more", Verdict.LOOK, sentence))
        return found
    known = "all arms" if log.propensities is not None else "the arms played"
    sentence = f"the propensities of {known} were {'logged' if estimated is None else 'estimated'}"
    return [*found, Finding("least propensity", least, f"{least:.2g}", f"{RARE:g} or more", Verdict.FINE, sentence)]


def _coverage(evaluation: Evaluation) -> Finding:
    others = [one for label, one in evaluation.policies.items() if label != LOGGED]
    poor = [one.label for one in others if not one.sure]
    name, expected = "policies without a reliable estimate", "0"
    if not poor:
        sentence = f"every policy has an effective sample size of at least {ENOUGH}"
        return Finding(name, 0, "0", expected, Verdict.FINE, sentence)
    all_poor = len(poor) == len(others)
    sentence = f"these policies cannot be judged from the log (see the notes): {_listed(poor)}"
    verdict = Verdict.BAD if all_poor else Verdict.LOOK
    return Finding(name, len(poor), f"{len(poor)} of {len(others)}", expected, verdict, sentence)


def _order(table: LoggedTable) -> list[Finding | None]:
    log, times = table.log, table.log.times
    found: list[Finding | None] = []
    if times is None:
        if log.order_note is not None:
            found.append(Finding("times", 0, "none", "a column", Verdict.LOOK, log.order_note))
        return found
    for note in log.notes:
        if note.endswith("have been sorted"):
            sentence = f"the rows were not in order of '{table.time}' and have been sorted"
            found.append(Finding("order of rows", 0, "not in order", "in order", Verdict.LOOK, sentence))
    steps = np.diff(times)
    same = int((steps == 0).sum())
    if same:
        sentence = (
            f"{count(same, 'decision')} of {log.rounds:,} have the time of the one before, so their order is unsure"
        )
        found.append(Finding("duplicated times", same, f"{same:,}", "0", Verdict.LOOK, sentence))
    steps = steps[steps > 0]
    if len(steps) >= LEAST_STEPS:
        usual = float(np.median(steps))
        gaps = int((steps > LONG_GAP * usual).sum())
        if gaps:
            told = (
                "but the times are too irregular for a step, so agents count rounds and not time"
                if log.time_steps is None
                else f"and agents are told of them in steps of {log.time_steps.shown}"
            )
            sentence = (
                f"{count(gaps, 'gap')} between decisions {'is' if gaps == 1 else 'are'} more than {LONG_GAP:g} times "
                f"as long as usual, {told}"
            )
            found.append(Finding("gaps in time", gaps, f"{gaps:,}", "0", Verdict.LOOK, sentence))
    return found


def _columns(table: LoggedTable) -> list[Finding | None]:
    log = table.log
    found: list[Finding | None] = []
    encoded = [note for note in log.notes if note.startswith("column ")]
    if encoded:
        found.append(Finding("encoded columns", len(encoded), str(len(encoded)), "–", Verdict.FINE, "; ".join(encoded)))
    for name, reason in table.left_out.items():
        sentence = f"column '{name}' is not used: {reason}"
        found.append(Finding("columns left out", len(table.left_out), name, "–", Verdict.LOOK, sentence))
    names = _names(log)
    lowest, highest = np.fmin.reduce(log.observations), np.fmax.reduce(log.observations)
    still = [name for name, constant in zip(names, (lowest == highest).tolist(), strict=True) if constant]
    if still:
        sentence = f"these columns have the same value in all rows: {_listed(still)}"
        found.append(Finding("constant columns", len(still), str(len(still)), "0", Verdict.LOOK, sentence))
    return found


def _like_the_reward(log: Log) -> Finding | None:
    """Return a finding if a column is nearly the reward, which agents would not know when they decide."""
    rewards, observations = log.rewards[log.rewarded], log.observations[log.rewarded]
    correlations = {
        name: _correlation(column, rewards) for name, column in zip(_names(log), observations.T, strict=True)
    }
    like = [name for name, found in correlations.items() if abs(found) >= LIKE_THE_REWARD]
    if not like:
        return None
    sentence = (
        f"these columns are almost the same as the reward (correlation {correlations[like[0]]:.3f}): {_listed(like)}; "
        "if they are not known when the decision is made, name the others with --observed"
    )
    return Finding("columns like the reward", len(like), str(len(like)), "0", Verdict.LOOK, sentence)


def _correlation(column: Floats, rewards: Floats) -> float:
    """Return the correlation of a column with the rewards, 0 if there are too few rows or one of them is constant."""
    seen = ~np.isnan(column)
    column, rewards = column[seen], rewards[seen]
    if len(column) < LEAST_STEPS or np.ptp(column) == 0.0 or np.ptp(rewards) == 0.0:
        return 0.0
    column, rewards = column / power_of_two(column), rewards / power_of_two(rewards)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nan_to_num(np.corrcoef(column, rewards)[0, 1]))


def _names(log: Log) -> tuple[str, ...]:
    return log.features or tuple(f"feature {at}" for at in range(log.observations.shape[1]))


def _family(log: Log, reward_family: str) -> Finding | None:
    rewards = np.unique(log.rewards[log.rewarded])
    if reward_family != "gaussian" or not np.array_equal(rewards, [0.0, 1.0]):
        return None
    sentence = "every reward is 0 or 1: with --reward-family binary, agents know that these are clicks"
    return Finding("kind of rewards", 2, "0 and 1", "–", Verdict.LOOK, sentence)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
