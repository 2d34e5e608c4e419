"""Findings about a log of decisions: what makes its estimates less reliable than they seem."""

from __future__ import annotations

import numpy as np

from halfseen.diagnostics.findings import ANY
from halfseen.diagnostics.health import Finding, Verdict
from halfseen.evaluation.estimators import ENOUGH, FEW_PLAYS
from halfseen.evaluation.evaluate import ONLY_OF_PLAYED, Evaluation
from halfseen.evaluation.log import Log
from halfseen.evaluation.policies import LOGGED
from halfseen.experiments.logged_table import LoggedTable
from halfseen.kernels.random import Floats
from halfseen.reports.tables import count, percent
from halfseen.statistics.time_series import power_of_two

FEW_ROWS, LEAST_ROWS = 200, 50  # below FEW_ROWS estimates are rough, and below LEAST_ROWS they say nothing
RARE = 0.01  # a smaller propensity leads to large weights
LONG_GAP = 10.0  # a gap is long if it is more than this many times the median step between decisions
LIKE_THE_REWARD = 0.99  # a column with this correlation or more is probably not known before the reward
LEAST_STEPS = 20  # least number of steps for a median, and of rows for a correlation
_LISTED = 5  # most names in one sentence


def about_log(
    table: LoggedTable, evaluation: Evaluation, reward_family: str, estimated: str | None = None
) -> tuple[Finding, ...]:
    """Return the findings, the worst first. `estimated` is a sentence about estimated propensities."""
    log = table.log
    found = [
        _rows(log),
        _rewards(log),
        _constant_rewards(log),
        _default_rewards(log),
        _missing_rewards(evaluation),
        *_arms(log),
        _rare_arms(log),
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


def facts(findings: tuple[Finding, ...]) -> list[str]:
    """Return the sentences of those findings for which every value is acceptable."""
    return [one.sentence for one in findings if one.verdict is Verdict.FINE and one.expected == ANY]


def _rows(log: Log) -> Finding:
    rows = log.rounds
    expected = f"{FEW_ROWS} or more"
    if rows >= FEW_ROWS:
        return Finding("decisions", rows, f"{rows:,}", expected, Verdict.FINE, f"the log has {count(rows, 'decision')}")
    verdict = Verdict.LOOK if rows >= LEAST_ROWS else Verdict.BAD
    sentence = f"the log has only {count(rows, 'decision')}, which is too few to learn much from"
    return Finding("decisions", rows, f"{rows:,}", expected, verdict, sentence)


def _rewards(log: Log) -> Finding | None:
    rewards = int(log.rewarded.sum())
    if rewards >= ENOUGH or log.rounds < ENOUGH:  # too few decisions are reported by `_rows`
        return None
    sentence = f"the log has only {count(rewards, 'reward')}, too few for any reliable interval"
    return Finding("rewards", rewards, f"{rewards:,}", f"{ENOUGH} or more", Verdict.BAD, sentence)


def _default_rewards(log: Log) -> Finding | None:
    if not log.defaults:
        return None
    are = "is" if log.defaults == 1 else "are"
    sentence = f"{count(log.defaults, 'reward')} {are} the default of the stream"
    return Finding("default rewards", log.defaults, f"{log.defaults:,}", ANY, Verdict.FINE, sentence)


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


def _rare_arms(log: Log) -> Finding | None:
    """Return a finding about arms that were played too rarely for an estimate, and when each was played first."""
    played = np.bincount(log.played, minlength=len(log.arms)).tolist()
    rare = [arm for arm, times in enumerate(played) if 0 < times < FEW_PLAYS]
    if not rare:
        return None
    rows, word = (np.arange(log.rounds), "decision") if log.rows is None else (log.rows, "row")

    def times(arm: int) -> str:
        first = f"{word} {int(rows[log.played == arm].min()) + 1:,}"
        return f"once ({first})" if played[arm] == 1 else f"{played[arm]} times (first in {first})"

    if len(rare) == 1:
        those = f"this {word}" if played[rare[0]] == 1 else f"these {word}s"
        sentence = (
            f"arm '{log.names[rare[0]]}' was played {times(rare[0])}: policies that may play it cannot be judged "
            f"reliably. If it is no longer in use, leave {those} out"
        )
    else:
        listed = _listed([f"'{log.names[arm]}' {times(arm)}" for arm in rare])
        sentence = (
            f"these arms were played fewer than {FEW_PLAYS} times: {listed}. Policies that may play them cannot be "
            f"judged reliably. If they are no longer in use, leave these {word}s out"
        )
    return Finding("rarely played arms", len(rare), str(len(rare)), "0", Verdict.LOOK, sentence)


def _propensities(log: Log, estimated: str | None) -> list[Finding]:
    found = []
    if estimated is not None:
        found.append(Finding("propensities", 0, "estimated", "logged", Verdict.LOOK, estimated))
    if log.propensities is None:
        found.append(Finding("propensities of all arms", 0, "not logged", ANY, Verdict.FINE, ONLY_OF_PLAYED))
    elif estimated is None:
        sentence = "the propensities of all arms were logged"
        found.append(Finding("propensities of all arms", 1, "logged", ANY, Verdict.FINE, sentence))
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
    sentence = f"no arm was played with a propensity below {RARE:g}"
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
    return [*found, _time_step(table), _gaps(log, steps[steps > 0])]


def _time_step(table: LoggedTable) -> Finding | None:
    steps = table.log.time_steps
    if steps is not None:
        sentence = f"the step of '{table.time}' is {steps.shown}"
        return Finding("time step", steps.step, steps.shown, ANY, Verdict.FINE, sentence)
    irregular = [note for note in table.log.notes if note.startswith("the times in ")]
    return Finding("time step", 0, "none", ANY, Verdict.FINE, irregular[0]) if irregular else None


def _gaps(log: Log, steps: Floats) -> Finding | None:
    """Return a finding about gaps. `steps` are the differences above 0 between the times of neighbouring decisions."""
    if len(steps) >= LEAST_STEPS and (gaps := int((steps > LONG_GAP * float(np.median(steps))).sum())):
        told = "" if log.time_steps is None else f", and agents are told of them in steps of {log.time_steps.shown}"
        sentence = (
            f"{count(gaps, 'gap')} between decisions {'is' if gaps == 1 else 'are'} more than {LONG_GAP:g} times as "
            f"long as usual{told}"
        )
        return Finding("gaps in time", gaps, f"{gaps:,}", "0", Verdict.LOOK, sentence)
    if log.elapsed is None or log.time_steps is None:
        return None
    gaps, longest = int((log.elapsed > 1).sum()), int(log.elapsed.max())
    there = "there is" if gaps == 1 else "there are"
    sentence = f"{there} {count(gaps, 'gap')} of up to {longest:,} steps between decisions, of which agents are told"
    return Finding("gaps in time", gaps, f"{gaps:,}", ANY, Verdict.FINE, sentence)


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
    return [*found, _empty_cells(log)]


def _empty_cells(log: Log) -> Finding | None:
    shares = {
        _column(name, log): share
        for name, share in zip(_names(log), np.isnan(log.observations).mean(axis=0).tolist(), strict=True)
    }
    empty = {name: share for name, share in shares.items() if share > 0.0}
    if not empty:
        return None
    most = sorted(empty, key=lambda name: -empty[name])
    sentence = f"these columns have empty cells: {_listed([f'{name} ({percent(empty[name], 1)})' for name in most])}"
    return Finding("empty cells", len(empty), str(len(empty)), ANY, Verdict.FINE, sentence)


def _column(feature: str, log: Log) -> str:
    """Return the column of a feature. If the column contains texts, the name of the feature is column=text."""
    column = feature.partition("=")[0]
    return column if any(note.startswith(f"column '{column}' contains text") for note in log.notes) else feature


def _like_the_reward(log: Log) -> Finding | None:
    """Return a finding about columns nearly equal to the reward, which agents probably do not know in advance."""
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
    """Return the correlation of a column with the rewards, or 0 if there are too few rows or no variation."""
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
