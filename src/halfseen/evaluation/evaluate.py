"""What other policies would have earned on logged decisions: table, picture, page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.agents.catalogue import AgentSpec, agent_spec
from halfseen.errors import invalid
from halfseen.evaluation import policies
from halfseen.evaluation.estimators import (
    ENOUGH,
    ESTIMATORS,
    INTERVALS,
    LEAST_PROPENSITY,
    PolicyValue,
    policy_value,
    rewarded_rounds,
)
from halfseen.evaluation.log import Log, check_finite
from halfseen.evaluation.policies import Progress, Rule
from halfseen.evaluation.readers import read_log
from halfseen.evaluation.reward_model import predicted_rewards
from halfseen.kernels.random import Floats
from halfseen.reports.figures import evaluation_figure, render_figure
from halfseen.reports.files import save_figure, staged, write_atomically, write_figure, write_json
from halfseen.reports.pages import render
from halfseen.reports.tables import Table, count, logged_arms_table, policy_table
from halfseen.validation import positive, seed_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILES = ("evaluation.html", "evaluation.png", "evaluation.svg", "evaluation.json")
LOGGED, UNIFORM, ALWAYS = "logged", "uniform", "always"
_EACH_ARM_UP_TO = 12  # arms: with more, each of them alone is not asked about unasked


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
        """One row per policy: its reward per round by three estimators, and the difference to the logged policy."""
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
                least_propensity=LEAST_PROPENSITY,
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
        raise invalid("intervals", "'hac' or 'bootstrap'", repr(intervals))
    shrink = positive("regularisation", regularisation)
    number = seed_number("seed", seed)
    value = None if missing is None else check_finite("missing", "the value", missing)
    record = read_log(log, stream=stream, observed=observed, arms=arms)
    asked = _policies_by_label(policy, record)
    rewards = record.rewards if value is None else np.where(record.rewarded, record.rewards, value)
    rows = ~np.isnan(rewards)
    predicted = predicted_rewards(
        record.observations[rows], record.played[rows], rewards[rows], len(record.arms), regularisation=shrink
    )
    rounds = rewarded_rounds(record, rewards, predicted)
    progress = _progress_in_turn(progress, record.rounds, sum(not isinstance(one, str) for one in asked.values()))
    values = {}
    for label, one in asked.items():
        probabilities = _probabilities(record, one, label, number, progress)[rows]
        is_logged = label == LOGGED
        values[label] = policy_value(
            label, rounds, probabilities, is_logged=is_logged, intervals=intervals, seed=number
        )
    return Evaluation(record, values, value, intervals, _notes(record, value))


def _policies_by_label(policy: Any, log: Log) -> dict[str, str | AgentSpec | Rule]:
    """Policies by label: a fixed one as its text, an agent as its spec, a rule as the function."""
    if policy is None:
        each = [f"{ALWAYS}:{arm}" for arm in log.names] if len(log.arms) <= _EACH_ARM_UP_TO else []
        policy = [UNIFORM, *each]
    alone = isinstance(policy, str | AgentSpec) or callable(policy)
    given = [policy] if alone or not isinstance(policy, Iterable) else list(policy)
    found: dict[str, str | AgentSpec | Rule] = {}
    for one in given:
        resolved: str | AgentSpec | Rule = one
        if isinstance(one, str) and (one in (UNIFORM, LOGGED) or one.startswith(f"{ALWAYS}:")):
            label = one
        elif isinstance(one, str | AgentSpec):
            resolved = agent_spec(one)
            label = resolved.label
        elif callable(one):
            label = str(getattr(one, "__name__", type(one).__name__))
        else:
            raise invalid("policy", "'uniform', 'always:ARM', 'logged', an agent or a function", repr(one))
        if label in found:
            raise invalid("policy", "each only once", f"'{label}' twice")
        found[label] = resolved
    if not found:
        raise invalid("policy", "at least one", "none")
    found.pop(LOGGED, None)
    return {LOGGED: LOGGED, **found}


def _probabilities(
    log: Log, policy: str | AgentSpec | Rule, label: str, seed: int, progress: Progress | None
) -> Floats:
    """(n, K), the probability of every arm in every round."""
    if isinstance(policy, AgentSpec):
        return policies.by_agent(log, policy.name, policy.options, seed=seed, progress=progress)[0]
    if isinstance(policy, str):
        if policy == LOGGED:
            return log.logged_probabilities
        return policies.uniform(log) if policy == UNIFORM else policies.always(log, policy.partition(":")[2])
    return policies.by_rule(log, policy, label, progress)


def _progress_in_turn(progress: Progress | None, rounds: int, count: int) -> Progress | None:
    """Progress over all policies that are asked round by round, `count` of them."""
    if progress is None:
        return None
    report, before = progress, 0

    def report_all(done: int, _: int) -> None:
        nonlocal before
        report(before + done, rounds * count)
        if done == rounds:
            before += rounds

    return report_all


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
