"""Off-policy evaluation: `hs.evaluate` and its result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.agents.arms import Arm
from halfseen.agents.catalogue import FAMILY_OPTION, AgentSpec, agent_spec
from halfseen.agents.guardrails import BRANCHES, CHOOSER, CONTROL, HOLDBACK
from halfseen.errors import invalid
from halfseen.evaluation import policies
from halfseen.evaluation.estimators import (
    ENOUGH,
    ESTIMATORS,
    INTERVALS,
    NEGLIGIBLE_PROPENSITY,
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
from halfseen.reports.frames import data_frame
from halfseen.reports.pages import render
from halfseen.reports.tables import Table, count, html_block, logged_arms_table, policy_table
from halfseen.statistics.lift import Lift, RewardMoments
from halfseen.validation import REWARD_RANGES, Words, positive, seed_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILES = ("evaluation.html", "evaluation.png", "evaluation.svg", "evaluation.json")
LOGGED, UNIFORM, ALWAYS = "logged", "uniform", "always"
_EACH_ARM_UP_TO = 12  # by default, the policies that always play one arm are evaluated up to this number of arms


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The result of `hs.evaluate`. `print` shows the table and the warnings.

    Parameters
    ----------
    log : Log
        The decisions that were evaluated.
    policies : dict of str to PolicyValue
        The estimates by label of the policy. The logged policy is the first.
    missing : float or None
        The reward that was assumed for rounds without a reward. None if these rounds were left out.
    intervals : str
        The method for confidence intervals, "hac" or "bootstrap".
    notes : tuple of str
        Remarks about the log. Each policy has its own notes.
    lifts : tuple of Lift
        The lift of the chooser's decisions over control and holdback, if the log has the marks of guardrails.

    Examples
    --------
    >>> import halfseen as hs
    >>> log = {"observation": [0.1, 0.7, -0.2, 0.4], "arm": [0, 1, 1, 0], "propensity": [0.5] * 4}
    >>> result = hs.evaluate(log | {"reward": [1.0, 0.0, 1.0, 1.0]}, "always:0")
    >>> list(result.policies)
    ['logged', 'always:0']
    >>> result.policies["always:0"].values["ips"].value
    1.0
    """

    log: Log
    policies: dict[str, PolicyValue]
    missing: float | None
    intervals: str
    notes: tuple[str, ...]
    lifts: tuple[Lift, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """All notes, one sentence each: about the log, then about each policy."""
        return [*self.notes, *(f"{one.label}: {note}" for one in self.policies.values() for note in one.notes)]

    def table(self) -> Table:
        """Return a table with one row per policy: three estimates of its reward, and the gain over the logged one."""
        return policy_table(self.summary()["policies"])

    def to_frame(self, library: str | None = None) -> Any:
        """Return the estimates as a DataFrame with one row per policy.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            The library of the DataFrame. By default, the first of them that is installed.

        Returns
        -------
        DataFrame
            The columns are `policy`; for each estimator, such as "dr", the estimate `dr` with the ends of its interval
            `dr_low` and `dr_high`, and the difference to the logged policy `dr_minus_logged`, with `_low` and `_high`;
            `effective_sample_size`, `largest_weight`, `mean_weight` and `uncovered`.

        Raises
        ------
        HalfseenError
            If the library is not installed.

        Examples
        --------
        >>> import halfseen as hs
        >>> log = {"observation": [0.1, 0.7, -0.2, 0.4], "arm": [0, 1, 1, 0], "propensity": [0.5] * 4}
        >>> frame = hs.evaluate(log | {"reward": [1.0, 0.0, 1.0, 1.0]}, "always:0").to_frame()
        >>> frame["ips"].to_list()
        [0.75, 1.0]
        """
        columns: dict[str, list[Any]] = {"policy": list(self.policies)}
        for name in ESTIMATORS:
            for label, estimates in (
                (name, [one.values[name] for one in self.policies.values()]),
                (f"{name}_minus_logged", [one.differences[name] for one in self.policies.values()]),
            ):
                columns[label] = [float(one.value) for one in estimates]
                columns[f"{label}_low"] = [float(one.low) for one in estimates]
                columns[f"{label}_high"] = [float(one.high) for one in estimates]
        columns["effective_sample_size"] = [float(one.effective_size) for one in self.policies.values()]
        for name in ("largest_weight", "mean_weight", "uncovered"):
            columns[name] = [float(getattr(one, name)) for one in self.policies.values()]
        return data_frame(columns, library)

    def _repr_html_(self) -> str:
        lifts = [f"lift over {lift.baseline}: {lift.shown}, {lift.sentence}" for lift in self.lifts]
        return html_block(self.table(), [*lifts, *self.warnings])

    def summary(self) -> dict[str, Any]:
        """Return all results as plain data, the content of `evaluation.json`."""
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
            "lift": {lift.baseline: lift.as_dict() for lift in self.lifts},
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
        """Save a figure of the estimates, their intervals and the weights.

        Parameters
        ----------
        path : str or Path
            The file, whose name ends in .png or .svg.
        """
        save_figure(self._figure(), Path(path))

    def _figure(self, *, narrow: bool = False) -> Figure:
        weights = {label: one.weights for label, one in self.policies.items()}
        return evaluation_figure(self.summary()["policies"], weights, narrow=narrow)

    def save(self, folder: str | Path) -> list[Path]:
        """Write the report `evaluation.html`, the figure as PNG and SVG, and `evaluation.json` to a folder.

        Parameters
        ----------
        folder : str or Path
            The folder, which is created if it does not exist.

        Returns
        -------
        list of Path
            The files.
        """
        log, summary = self.log, self.summary()
        with staged(folder) as stage:
            page = render(
                "evaluation.html",
                summary=summary,
                warnings=self.warnings,
                lifts=self.lifts,
                arms=logged_arms_table(log.names, log.played, log.rewards, log.rewarded, log.propensities),
                enough=ENOUGH,
                negligible_propensity=NEGLIGIBLE_PROPENSITY,
                svg=write_figure(stage, "evaluation", self._figure()),
                tall_svg=render_figure(self._figure(narrow=True), "svg"),
            )
            write_atomically(stage / "evaluation.html", page.encode())
            write_json(stage / "evaluation.json", summary)
        return [Path(folder) / name for name in FILES]

    def __str__(self) -> str:
        lifts = [f"lift over {lift.baseline}: {lift.shown}, {lift.sentence}" for lift in self.lifts]
        return "\n".join([str(self.table()), *lifts, *(f"note: {line}" for line in self.warnings)])

    def __repr__(self) -> str:
        return str(self)


def evaluate(
    log: Any,
    policy: str | AgentSpec | Rule | Sequence[str | AgentSpec | Rule] | None = None,
    *,
    stream: str | None = None,
    observed: Sequence[str] | None = None,
    arms: int | Sequence[Arm] | None = None,
    missing: float | None = None,
    intervals: str = "hac",
    regularisation: float = 1.0,
    reward_family: str = "gaussian",
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Estimate what other policies would have earned on logged decisions (off-policy evaluation).

    Parameters
    ----------
    log : str, Path, DataFrame, pyarrow.Table or dict
        An exported journal (NDJSON or Parquet), or a table with one row per decision and the columns `arm`,
        `propensity`, `reward` and the observed columns. A table can be a CSV or Parquet file, a pandas or polars
        DataFrame, an Arrow table or a dictionary of columns.
    policy : str, AgentSpec, callable or a list of these, optional
        The policies to evaluate: "uniform", "always:ARM", "logged", an agent such as "adaptive:history=2000", or a
        function that maps an observation to the probabilities of all arms. An agent replays the log and learns from the
        logged rewards. The default is "uniform" and, if there are at most 12 arms, "always:ARM" for every arm.
    stream : str, optional
        The stream to evaluate, if the log contains several.
    observed : sequence of str, optional
        The observed columns of a table. The default is all columns whose names begin with "observation". A column of
        text becomes one column of zeros and ones per text, and a column of dates becomes a number of days.
    arms : int or sequence of str or int, optional
        The number of arms, or their names or integers in the order of the propensities, if the log does not contain
        them.
    missing : float, optional
        The reward that is assumed for decisions without a reward. By default these decisions are left out.
    intervals : {"hac", "bootstrap"}, optional
        The method for 95 % confidence intervals: HAC standard errors, or a block bootstrap.
    regularisation : float, optional
        The ridge penalty of the reward model of the doubly robust estimator.
    reward_family : {"gaussian", "binary", "count"}, optional
        The family of the rewards: any numbers, clicks (from 0 to 1) or counts (at least 0). Predictions of the reward
        model stay in the range of the family, and agents that have an option of this name are told the family.
    seed : int, optional
        The seed of agents and of the bootstrap.
    progress : callable, optional
        Called with the number of finished rounds and the number of all rounds.

    Returns
    -------
    Evaluation
        Estimates of the reward per round, differences to the logged policy, and notes about their reliability.

    Raises
    ------
    HalfseenError
        If the log cannot be read or is inconsistent, if a reward is outside of the range of its family, or if a policy
        is unknown.

    Notes
    -----
    With logged propensities p, probabilities π of the evaluated policy and weights w = π(a)/p, where a is the arm
    played:

    * ips = mean(w r),
    * snips = Σ w r / Σ w,
    * dr = mean(Σ_b π(b) r̂(b) + w (r − r̂(a))), where r̂ is a regression fitted on other blocks of time.

    References
    ----------
    Dudík, M., Langford, J. and Li, L. (2011). Doubly robust policy evaluation and learning. ICML.

    Swaminathan, A. and Joachims, T. (2015). The self-normalized estimator for counterfactual learning. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> import halfseen as hs
    >>> rng = np.random.default_rng(0)
    >>> y, arm = rng.normal(size=1000), rng.integers(2, size=1000)
    >>> reward = np.where(arm == 1, y, 0.0) + 0.1 * rng.normal(size=1000)
    >>> log = {"observation": y, "arm": arm, "propensity": np.full(1000, 0.5), "reward": reward}
    >>> def greedy(observation):
    ...     return [0.0, 1.0] if observation[0] > 0 else [1.0, 0.0]
    >>> result = hs.evaluate(log, greedy)
    >>> print(f"{result.policies['greedy'].values['dr']:.2f}")
    0.36 [0.33, 0.40]
    """
    if intervals not in INTERVALS:
        raise invalid("intervals", "'hac' or 'bootstrap'", repr(intervals))
    shrink = positive("regularisation", regularisation)
    Words(tuple(REWARD_RANGES)).check(FAMILY_OPTION, reward_family)
    allowed = REWARD_RANGES[reward_family]
    number = seed_number("seed", seed)
    value = None if missing is None else check_finite("missing", missing)
    decisions = read_log(log, stream=stream, observed=observed, arms=arms)
    policies_by_label = _policies_by_label(policy, decisions)
    rewards = decisions.rewards if value is None else np.where(decisions.rewarded, decisions.rewards, value)
    allowed.check("rewards", rewards)
    rows = ~np.isnan(rewards)
    predicted = predicted_rewards(
        decisions.observations[rows], decisions.played[rows], rewards[rows], len(decisions.arms), regularisation=shrink
    )
    if reward_family != "gaussian":
        predicted = np.clip(predicted, allowed.low, allowed.high)
        policies_by_label = {label: _told(one, reward_family) for label, one in policies_by_label.items()}
    rounds = rewarded_rounds(decisions, rewards, predicted)
    replayed = sum(not isinstance(one, str) for one in policies_by_label.values())
    progress = _progress_of_all(progress, decisions.rounds, replayed)
    values = {}
    for label, one in policies_by_label.items():
        probabilities = _probabilities(decisions, one, label, number, progress)[rows]
        is_logged = label == LOGGED
        values[label] = policy_value(
            label, rounds, probabilities, is_logged=is_logged, intervals=intervals, seed=number
        )
    return Evaluation(decisions, values, value, intervals, _notes(decisions, value), _lifts(decisions, rewards))


def _told(policy: str | AgentSpec | Rule, family: str) -> str | AgentSpec | Rule:
    """Return an agent that knows the family of the rewards, and any other policy unchanged."""
    if not isinstance(policy, AgentSpec) or FAMILY_OPTION not in policy.entry.options:
        return policy
    return AgentSpec(policy.entry, {FAMILY_OPTION: family} | dict(policy.options), policy.label)


def _lifts(log: Log, rewards: Floats) -> tuple[Lift, ...]:
    """Return the lift over control and over holdback, as far as the log has marked decisions with rewards."""
    if log.branches is None:
        return ()
    moments = [RewardMoments.of(rewards[(log.branches == branch) & ~np.isnan(rewards)]) for branch in range(4)]
    lifts = (Lift(BRANCHES[branch], moments[CHOOSER], moments[branch]) for branch in (CONTROL, HOLDBACK))
    return tuple(lift for lift in lifts if lift.chooser.count and lift.other.count)


def _policies_by_label(policy: Any, log: Log) -> dict[str, str | AgentSpec | Rule]:
    """Return the policies by label: a string for a fixed policy, an `AgentSpec`, or a function."""
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
            raise invalid("policy", "every policy once", f"'{label}' twice")
        found[label] = resolved
    if not found:
        raise invalid("policy", "at least one policy", "none")
    found.pop(LOGGED, None)
    return {LOGGED: LOGGED, **found}


def _probabilities(
    log: Log, policy: str | AgentSpec | Rule, label: str, seed: int, progress: Progress | None
) -> Floats:
    """Return the probability of every arm in every round, (n, K)."""
    if isinstance(policy, AgentSpec):
        return policies.by_agent(log, policy.name, policy.options, seed=seed, progress=progress)[0]
    if isinstance(policy, str):
        if policy == LOGGED:
            return log.logged_probabilities
        return policies.uniform(log) if policy == UNIFORM else policies.always(log, policy.partition(":")[2])
    return policies.by_rule(log, policy, label, progress)


def _progress_of_all(progress: Progress | None, rounds: int, count: int) -> Progress | None:
    """Return a progress function that counts the rounds of all `count` policies that replay the log."""
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
    """Return remarks about the log."""
    notes = list(log.notes)
    without = int((~log.rewarded).sum())
    have, are, counted = ("has", "is", "counts") if without == 1 else ("have", "are", "count")
    if without and missing is None:
        notes.append(
            f"{count(without, 'decision')} of {log.rounds:,} {have} no reward and {are} left out, which is correct if "
            "low and high rewards are equally likely to be missing"
        )
    elif without:
        notes.append(f"{count(without, 'decision')} of {log.rounds:,} {have} no reward and {counted} as {missing:g}")
    if log.defaults:
        are = "is" if log.defaults == 1 else "are"
        notes.append(f"{count(log.defaults, 'reward')} of {log.rounds - without:,} {are} the stream's default")
    if log.propensities is None:
        notes.append(
            "the log has no propensities of the arms that were not played, so every arm that was ever played counts as "
            "covered in every round"
        )
    return tuple(notes)
