"""What other policies would have earned on logged decisions: table, picture, page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.agents.saving import write_atomically
from halfseen.errors import invalid
from halfseen.evaluation import journal_file, parquet_file, policies
from halfseen.evaluation.estimators import ENOUGH, ESTIMATORS, INTERVALS, NO_CHANCE, PolicyValue, sample_of, value_of
from halfseen.evaluation.log import Log, finite
from halfseen.evaluation.reward_model import predicted_rewards
from halfseen.evaluation.table_file import read_table
from halfseen.experiments.files import save_figure, staged, write_figure, write_json
from halfseen.experiments.plan import AgentSpec, agent_spec
from halfseen.kernels.random import Floats
from halfseen.reports.figures import evaluation_figure, render_figure
from halfseen.reports.pages import render
from halfseen.reports.tables import Table, count, logged_arms_table, policy_table
from halfseen.validation import positive, seed_number
from halfseen.worlds import columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILES = ("evaluation.html", "evaluation.png", "evaluation.svg", "evaluation.json")
LOG_ENDINGS = (*journal_file.FILE_ENDINGS, *columns.FILE_ENDINGS)
LOGGED, UNIFORM, ALWAYS = "logged", "uniform", "always"
_EACH_ARM_UP_TO = 12  # arms: with more, each of them alone is not asked about unasked
Rule = Callable[[Floats], Any]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What `hs.evaluate` returns. Printed, it is a table and what speaks against it."""

    log: Log
    policies: dict[str, PolicyValue]  # by label, the logged one first
    missing: float | None  # what rounds without a reward counted as; None: they were left out
    intervals: str
    notes: tuple[str, ...]  # of the log; each policy has its own

    @property
    def warnings(self) -> list[str]:
        """All that speaks against the figures, a sentence each."""
        return [*self.notes, *(f"{one.label}: {note}" for one in self.policies.values() for note in one.notes)]

    def table(self) -> Table:
        """One row a policy: reward a round by three estimators, difference to the logged policy, how sure that is."""
        return policy_table(self.summary()["policies"])

    def summary(self) -> dict[str, Any]:
        """Everything, as plain data: what `evaluation.json` holds."""
        return {
            "log": self.log.source,
            "decisions": self.log.rounds,
            "without_reward": int((~self.log.rewarded).sum()),
            "without_reward_counted_as": self.missing,
            "default_rewards": self.log.defaults,
            "arms": self.log.names,
            "observed": self.log.observations.shape[1],
            "propensities_of_all_arms": self.log.propensities is not None,
            "intervals": self.intervals,
            "notes": list(self.notes),
            "policies": {
                label: {
                    **{name: one.values[name].as_dict() for name in ESTIMATORS},
                    "more than logged": {name: one.differences[name].as_dict() for name in ESTIMATORS},
                    "effective_sample_size": one.effective_size,
                    "largest_weight": one.largest_weight,
                    "mean_weight": one.mean_weight,
                    "uncovered": one.uncovered,
                    "notes": list(one.notes),
                }
                for label, one in self.policies.items()
            },
        }

    def plot(self, path: str | Path) -> None:
        """Estimates with their intervals, and the weights, as PNG or SVG by the ending of `path`."""
        save_figure(self._figure(), Path(path))

    def _figure(self, *, narrow: bool = False) -> Figure:
        weights = {label: one.weights for label, one in self.policies.items()}
        return evaluation_figure(self.summary()["policies"], weights, narrow=narrow)

    def save(self, folder: str | Path) -> list[Path]:
        """`evaluation.html`, the picture as PNG and SVG, and `evaluation.json`, into a folder."""
        log, summary = self.log, self.summary()
        with staged(folder) as stage:
            page = render(
                "evaluation.html",
                summary=summary,
                warnings=self.warnings,
                arms=logged_arms_table(log.names, log.played, log.rewards, log.rewarded, log.propensities),
                enough=ENOUGH,
                no_chance=NO_CHANCE,
                svg=write_figure(stage, "evaluation", self._figure()),
                tall_svg=render_figure(self._figure(narrow=True), "svg"),
            )
            write_atomically(stage / "evaluation.html", page.encode())
            write_json(stage / "evaluation.json", summary)
        return [Path(folder) / name for name in FILES]

    def __str__(self) -> str:
        return "\n".join([str(self.table()), *(f"note: {line}" for line in self.warnings)])

    def __repr__(self) -> str:
        return str(self)


def evaluate(
    log: Any,
    policy: str | AgentSpec | Rule | Sequence[str | AgentSpec | Rule] | None = None,
    *,
    stream: str | None = None,
    observed: Sequence[str] | None = None,
    arms: int | Sequence[str] | None = None,
    missing: float | None = None,
    intervals: str = "hac",
    regularisation: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """What a policy, or each of several, would have earned in the rounds of a log (docs/how-to/evaluate.md).

    `log` is an exported journal (NDJSON or Parquet), or a table with the columns `arm`, `propensity`, `reward` and
    those `observed`. A policy is "uniform", "always:ARM", "logged", a catalogued agent ("adaptive:history=2000", or an
    `AgentSpec`), which lives through the log, or a function of the observation that gives the probability of every
    arm. `stream` chooses one of several; `arms` is for logs that do not name them all. Rounds without a reward are left
    out, or count as `missing`. `progress` hears of rounds done and rounds in all.
    """
    if intervals not in INTERVALS:
        raise invalid("intervals", repr(intervals), "'hac' or 'bootstrap'")
    shrink = positive("regularisation", regularisation)
    number = seed_number("seed", seed)
    value = None if missing is None else finite("missing", "the value", missing)
    record = read_log(log, stream=stream, observed=observed, arms=arms)
    asked = _asked(policy, record)
    rewards = record.rewards if value is None else np.where(record.rewarded, record.rewards, value)
    rows = ~np.isnan(rewards)
    predicted = predicted_rewards(
        record.observations[rows], record.played[rows], rewards[rows], len(record.arms), regularisation=shrink
    )
    base = policies.logged(record)
    sample = sample_of(record, rewards, predicted, base)
    found = {LOGGED: value_of(LOGGED, sample, base[rows], is_logged=True, intervals=intervals, seed=number)}
    told = _in_turn(progress, record.rounds, sum(not isinstance(one, str) for one in asked.values()))
    for label, one in asked.items():
        chances = _chances(record, one, label, number, told)[rows]
        found[label] = value_of(label, sample, chances, is_logged=False, intervals=intervals, seed=number)
    return Evaluation(record, found, value, intervals, _notes(record, value))


def read_log(
    log: Any,
    *,
    stream: str | None = None,
    observed: Sequence[str] | None = None,
    arms: int | Sequence[str] | None = None,
) -> Log:
    """The log in a file, by its ending, or in a table."""
    named = list(arms) if isinstance(arms, Sequence) and not isinstance(arms, str) else arms
    if isinstance(log, str | Path):
        path = Path(log)
        if path.suffix.lower() not in LOG_ENDINGS:
            raise invalid("log", f"'{path}'", f"a file whose name ends in {', '.join(LOG_ENDINGS)}")
        if not path.is_file():
            raise invalid("log", f"'{path}'", "a file that is there")
        if path.suffix.lower() in journal_file.FILE_ENDINGS:
            if observed is not None:
                raise invalid("observed", f"columns, with '{path}'", "nothing: a journal says what was seen")
            return journal_file.read_journal(path, stream=stream, arms=named)
        if path.stat().st_size == 0:
            raise invalid(str(path), "an empty file", "a table with columns arm, propensity, reward, …")
        if observed is None and path.suffix.lower() in parquet_file.FILE_ENDINGS and parquet_file.is_export(path):
            return parquet_file.read_export(path, stream=stream, arms=named)
    return read_table(log, observed=observed, stream=stream, arms=named)


def _asked(policy: Any, log: Log) -> dict[str, str | AgentSpec | Rule]:
    """Policies by label: a fixed one as its text, an agent as its spec, a rule as the function."""
    if policy is None:
        each = [f"{ALWAYS}:{arm}" for arm in log.names] if len(log.arms) <= _EACH_ARM_UP_TO else []
        policy = [UNIFORM, *each]
    alone = isinstance(policy, str | AgentSpec) or callable(policy)
    given = [policy] if alone or not isinstance(policy, Iterable) else list(policy)
    found: dict[str, str | AgentSpec | Rule] = {}
    for one in given:
        kept: str | AgentSpec | Rule = one
        if isinstance(one, str) and (one in (UNIFORM, LOGGED) or one.startswith(f"{ALWAYS}:")):
            label = one
        elif isinstance(one, str | AgentSpec):
            kept = agent_spec(one)
            label = kept.label
        elif callable(one):
            label = str(getattr(one, "__name__", type(one).__name__))
        else:
            raise invalid("policy", repr(one), "'uniform', 'always:ARM', 'logged', an agent or a function")
        if label in found:
            raise invalid("policy", f"'{label}' twice", "each only once")
        found[label] = kept
    if not found:
        raise invalid("policy", "none", "at least one")
    found.pop(LOGGED, None)  # it is always there
    return found


def _chances(log: Log, policy: str | AgentSpec | Rule, label: str, seed: int, progress: Progress | None) -> Floats:
    if isinstance(policy, AgentSpec):
        return policies.by_agent(log, policy.name, policy.options, seed=seed, progress=progress)[0]
    if isinstance(policy, str):
        return policies.uniform(log) if policy == UNIFORM else policies.always(log, policy.partition(":")[2])
    return policies.by_rule(log, policy, label, progress)


def _in_turn(progress: Progress | None, rounds: int, slow: int) -> Progress | None:
    """Progress over all policies that are asked round by round."""
    if progress is None:
        return None
    tell, before = progress, [0]

    def told(done: int, _: int) -> None:
        tell(before[0] + done, rounds * slow)
        if done == rounds:
            before[0] += rounds

    return told


def _notes(log: Log, missing: float | None) -> tuple[str, ...]:
    """What is to be known of the log."""
    notes = []
    without = int((~log.rewarded).sum())
    have, are, counted = ("has", "is", "counts") if without == 1 else ("have", "are", "count")
    if without and missing is None:
        notes.append(
            f"{count(without, 'decision')} of {log.rounds:,} {have} no reward and {are} left out: right if whether a "
            "reward comes does not depend on how high it is"
        )
    elif without:
        notes.append(f"{count(without, 'decision')} of {log.rounds:,} {have} no reward and {counted} as {missing:g}")
    if log.defaults:
        are = "is" if log.defaults == 1 else "are"
        notes.append(f"{count(log.defaults, 'reward')} of {log.rounds - without:,} {are} the stream's default")
    if log.propensities is None:
        notes.append(
            "the log has no propensities of arms that were not played: an arm played at all counts as covered in every "
            "round"
        )
    return tuple(notes)
