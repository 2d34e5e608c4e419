"""Off-policy evaluation: `hs.evaluate` and its result."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from halfseen.agents.arms import Arm
from halfseen.agents.catalogue import FAMILY_OPTION, AgentSpec, is_triple
from halfseen.agents.guardrails import BRANCHES, CHOOSER, CONTROL, HOLDBACK
from halfseen.errors import invalid, unknown
from halfseen.evaluation import policies
from halfseen.evaluation.estimators import (
    ENOUGH,
    ESTIMATORS,
    INTERVALS,
    NEGLIGIBLE_PROPENSITY,
    SHOWN,
    PolicyValue,
    policy_value,
    rewarded_rounds,
)
from halfseen.evaluation.log import Log, check_finite
from halfseen.evaluation.policies import ALWAYS, LOGGED, UNIFORM, Progress, Rule
from halfseen.evaluation.propensity_model import with_estimated_propensities
from halfseen.evaluation.readers import read_log
from halfseen.evaluation.reward_model import RewardModel
from halfseen.evaluation.scaled_log import ScaledLog
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
PROPENSITIES = ("logged", "estimated")
ONLY_OF_PLAYED = (
    "the log has no propensities of the arms that were not played, so every arm that was ever played counts as covered "
    "in every round"
)
_EACH_ARM_UP_TO = 12  # with more arms, no policy "always:ARM" is evaluated by default


class ReplayedPolicy(NamedTuple):
    """A policy that the caller has replayed: its probabilities (n, K) in the rounds of a log."""

    label: str
    probabilities: Floats


Resolved = str | AgentSpec | Rule | Floats


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The result of `hs.evaluate`. `print` shows the table and the warnings.

    Parameters
    ----------
    log : Log
        The decisions that were evaluated.
    policies : dict of str to PolicyValue
        The estimates, by the label of the policy. The logged policy is the first.
    missing : float or None
        The reward that was assumed for rounds without a reward. None if these rounds were left out.
    intervals : str
        The method for confidence intervals, "hac" or "bootstrap".
    notes : tuple of str
        Remarks about the log. Each policy has its own notes.
    lifts : tuple of Lift
        The lift of the chooser's decisions over control and holdback, if the log says which branch of the guardrails
        made each decision.
    estimators : tuple of str
        The estimators of the table and the figure. Each policy has the values of all estimators.

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
    estimators: tuple[str, ...] = SHOWN

    @property
    def propensities(self) -> str:
        """Where the propensities come from, "logged" or "estimated"."""
        return "estimated" if self.log.estimated else "logged"

    @property
    def warnings(self) -> list[str]:
        """All notes, one sentence each: about the log, then about each policy."""
        return [*self.notes, *(f"{one.label}: {note}" for one in self.policies.values() for note in one.notes)]

    def table(self, estimators: Iterable[str] | None = None) -> Table:
        """Return a table with one row per policy: estimates of its reward, and its gain over the logged policy.

        Parameters
        ----------
        estimators : iterable of str, optional
            The names of the estimators. The default is `self.estimators`. The first one estimates the gain.

        Returns
        -------
        Table
            The table.

        Raises
        ------
        HalfseenError
            If there is no such estimator.

        Examples
        --------
        >>> import halfseen as hs
        >>> log = {"observation": [0.1, 0.7, -0.2, 0.4], "arm": [0, 1, 1, 0], "propensity": [0.5] * 4}
        >>> result = hs.evaluate(log | {"reward": [1.0, 0.0, 1.0, 1.0]}, "always:0")
        >>> list(result.table(["dm"]).columns)[:3]
        ['policy', 'dm', 'dm − logged']
        """
        names = self.estimators if estimators is None else _estimator_names(estimators)
        return policy_table(self.summary()["policies"], names)

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
            "without_reward": self.log.without_reward,
            "without_reward_counted_as": self.missing,
            "default_rewards": self.log.defaults,
            "arms": self.log.names,
            "observed": self.log.observations.shape[1],
            "step": self.log.step,
            "propensities": self.propensities,
            "propensities_of_all_arms": self.log.propensities is not None,
            "intervals": self.intervals,
            "notes": list(self.notes),
            "lift": {lift.baseline: lift.as_dict() for lift in self.lifts},
            "policies": {
                label: {
                    **{name: one.values[name].as_dict() for name in ESTIMATORS},
                    "more than logged": {name: one.differences[name].as_dict() for name in ESTIMATORS},
                    "thresholds": {name: None if np.isinf(at) else at for name, at in one.thresholds.items()},
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
        save_figure(self.figure(), Path(path))

    def figure(self, *, narrow: bool = False) -> Figure:
        """Return the figure of the estimates. A `narrow` figure has stacked panels."""
        weights = {label: one.weights for label, one in self.policies.items()}
        return evaluation_figure(self.summary()["policies"], weights, self.estimators, narrow=narrow)

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
                estimators=self.estimators,
                warnings=self.warnings,
                lifts=self.lifts,
                arms=logged_arms_table(
                    log.names, log.played, log.rewards, log.rewarded, log.propensity, log.propensities
                ),
                enough=ENOUGH,
                negligible_propensity=NEGLIGIBLE_PROPENSITY,
                svg=write_figure(stage, "evaluation", self.figure()),
                tall_svg=render_figure(self.figure(narrow=True), "svg"),
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
    estimators: Iterable[str] = SHOWN,
    propensities: str | None = None,
    regularisation: float = 1.0,
    reward_family: str = "gaussian",
    time: str | None = None,
    scale: bool | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Estimate what other policies would have earned on logged decisions (off-policy evaluation).

    Parameters
    ----------
    log : str, Path, DataFrame, pyarrow.Table or dict
        An exported journal (NDJSON or Parquet), or a table with one row per decision and the columns `arm`, `reward`,
        `propensity` (if it was logged) and the observed columns. A table can be a CSV or Parquet file, a pandas or
        polars DataFrame, an Arrow table or a dictionary of columns.
    policy : str, AgentSpec, callable or a list of these, optional
        The policies to evaluate: "uniform", "always:ARM", "logged", an agent such as "adaptive:history=2000", or a
        function that maps an observation to the probabilities of all arms. An agent replays the log and learns from the
        logged rewards. The default is "uniform" and, if there are at most 12 arms, "always:ARM" for every arm.
    stream : str, optional
        The stream to evaluate, if the log contains several.
    observed : sequence of str, optional
        The observed columns of a table. The default is all columns whose names begin with "observation". A column of
        text becomes columns of zeros and ones, one for every text except the most frequent one, and a column of dates
        becomes a number of days.
    arms : int or sequence of str or int, optional
        The number of arms, or their names or integers in the order of the propensities, if the log does not contain
        them.
    missing : float, optional
        The reward that is assumed for decisions without a reward. By default these decisions are left out, and agents
        that replay the log learn nothing from them.
    intervals : {"hac", "bootstrap"}, optional
        The method for 95 % confidence intervals: HAC standard errors, or a block bootstrap.
    estimators : sequence of str, optional
        The estimators in the table and the figure: "dr", "snips", "ips", "dm", "switch_dr", "clipped_dr" or "mrdr".
        The first one estimates the gain over the logged policy. All estimators are computed in any case.
    propensities : {"logged", "estimated"}, optional
        Where propensities come from. With "estimated", a multinomial logistic regression on the observed columns
        estimates them, by cross-fitting on blocks of time, and estimates below 0.01 count as 0.01. By default,
        propensities are estimated only for decisions without a logged propensity. A note says so, and another one if
        the estimates are wrong in some period.
    regularisation : float, optional
        The ridge penalty of the reward model of the direct method and of the doubly robust estimators.
    reward_family : {"gaussian", "binary", "count"}, optional
        The family of the rewards: any numbers, clicks (from 0 to 1) or counts (at least 0). Predictions of the reward
        model stay in the range of the family, and agents with an option `reward_family` are told the family.
    time : str, optional
        The column of a table with the time of each row, as dates or numbers. The default is the column "time" or, if
        there is none, the only column of dates, which a note names. Rows that are not in order of time are sorted, and
        a note says so. The usual difference between neighbouring times is a step, and agents are told how many steps
        have passed. Without such a column, the order of the rows is the order in time, and a note says so.
    scale : bool, optional
        Whether agents receive scaled columns, an intercept and scaled rewards, as in an experiment on a table
        (`halfseen.worlds.recorded`). `adaptive` scales columns itself. The default is True for a table, and False for
        an exported journal, because the service passes observations and rewards to agents unscaled.
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
    * dm = mean(Σ_b π(b) r̂(b)), where r̂ is a regression fitted on other blocks of time,
    * dr = mean(Σ_b π(b) r̂(b) + w (r − r̂(a))),
    * switch_dr and clipped_dr: dr with weights above a threshold λ replaced by 0 (switch_dr) or by λ (clipped_dr). λ
      minimises an estimate of the mean squared error. The intervals do not account for the bias,
    * mrdr: dr with a regression whose squared errors have the weights π(a) (1 − p)/p².

    References
    ----------
    Dudík, M., Langford, J. and Li, L. (2011). Doubly robust policy evaluation and learning. ICML.

    Farajtabar, M., Chow, Y. and Ghavamzadeh, M. (2018). More robust doubly robust off-policy evaluation. ICML.

    Su, Y., Dimakopoulou, M., Krishnamurthy, A. and Dudík, M. (2020). Doubly robust off-policy evaluation with
    shrinkage. ICML.

    Swaminathan, A. and Joachims, T. (2015). The self-normalized estimator for counterfactual learning. NeurIPS.

    Wang, Y.-X., Agarwal, A. and Dudík, M. (2017). Optimal and adaptive off-policy evaluation in contextual bandits.
    ICML.

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
    if propensities not in (None, *PROPENSITIES):
        raise invalid("propensities", "'logged' or 'estimated'", repr(propensities))
    shown = _estimator_names(estimators)
    shrink = positive("regularisation", regularisation)
    Words(tuple(REWARD_RANGES)).check(FAMILY_OPTION, reward_family)
    allowed = REWARD_RANGES[reward_family]
    number = seed_number("seed", seed)
    value = None if missing is None else check_finite("missing", missing)
    if scale is not None and not isinstance(scale, bool):
        raise invalid("scale", "True or False", repr(scale))
    decisions = log if isinstance(log, Log) else read_log(log, stream=stream, observed=observed, arms=arms, time=time)
    if value is not None:
        decisions = decisions.with_missing_rewards(value)
    scaled = ScaledLog.of(decisions, reward_family) if (decisions.is_table if scale is None else scale) else None
    notes: list[str] = []
    if propensities == "logged" and (decisions.estimated or not decisions.has_propensities):
        expected = "a column 'propensity'" if decisions.is_table else "the propensity of every decision"
        got = "none, or an empty one" if decisions.is_table else "decisions whose propensities were estimated"
        raise invalid(decisions.source, expected, got)
    if propensities == "estimated":
        decisions = decisions.without_propensities()
    if not decisions.has_propensities:
        decisions, note = with_estimated_propensities(decisions)
        notes.append(note)
    policies_by_label = _policies_by_label(policy, decisions)
    rewards = decisions.rewards
    allowed.check("rewards", rewards)
    rows = ~np.isnan(rewards)
    model = RewardModel(
        decisions.observations[rows],
        decisions.played[rows],
        rewards[rows],
        len(decisions.arms),
        regularisation=shrink,
        limits=(allowed.low, allowed.high),
    )
    if reward_family != "gaussian":
        policies_by_label = {label: _told(one, reward_family) for label, one in policies_by_label.items()}
    rounds = rewarded_rounds(decisions, rewards, model.predict(), model)
    replayed = sum(not isinstance(one, str | np.ndarray) for one in policies_by_label.values())
    progress = _progress_of_all(progress, decisions.rounds, replayed)
    values = {}
    for label, one in policies_by_label.items():
        probabilities = _probabilities(decisions, one, label, number, progress, scaled)[rows]
        is_logged = label == LOGGED
        values[label] = policy_value(
            label, rounds, probabilities, is_logged=is_logged, intervals=intervals, seed=number
        )
    return Evaluation(
        decisions,
        values,
        value,
        intervals,
        notes=(*notes, *_notes(decisions, value), *_findings(decisions, rounds.rewards)),
        lifts=_lifts(decisions),
        estimators=shown,
    )


def _estimator_names(given: Any) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for name in names:
        if name not in ESTIMATORS:
            raise unknown("estimator", name, ESTIMATORS)
    if not names or len(set(names)) < len(names):
        raise invalid("estimators", "at least one estimator, and every estimator once", repr(given))
    return names


def _told(policy: Resolved, family: str) -> Resolved:
    """Return `policy`, with `reward_family=family` if it is an agent that has this option and does not set it."""
    if not isinstance(policy, AgentSpec) or FAMILY_OPTION not in policy.entry.options:
        return policy
    return AgentSpec(policy.entry, {FAMILY_OPTION: family} | dict(policy.options), policy.label)


def _lifts(log: Log) -> tuple[Lift, ...]:
    """Return the lift of the chooser over control and over holdback, each only if both branches have rewards."""
    if log.branches is None:
        return ()
    moments = [RewardMoments.of(log.rewards[(log.branches == branch) & log.rewarded]) for branch in range(4)]
    lifts = (Lift(BRANCHES[branch], moments[CHOOSER], moments[branch]) for branch in (CONTROL, HOLDBACK))
    return tuple(lift for lift in lifts if lift.chooser.count and lift.other.count)


def _policies_by_label(policy: Any, log: Log) -> dict[str, Resolved]:
    """Return the policies by label: a string for a fixed policy, an `AgentSpec`, a function or known probabilities."""
    if policy is None:
        each = [f"{ALWAYS}:{arm}" for arm in log.names] if len(log.arms) <= _EACH_ARM_UP_TO else []
        policy = [UNIFORM, *each]
    alone = isinstance(policy, str | AgentSpec) or callable(policy) or is_triple(policy)
    given = [policy] if alone or not isinstance(policy, Iterable) else list(policy)
    found: dict[str, Resolved] = {}
    for one in given:
        resolved: Resolved = one
        if isinstance(one, ReplayedPolicy):
            label, resolved = one
        elif isinstance(one, str) and (one in (UNIFORM, LOGGED) or one.startswith(f"{ALWAYS}:")):
            label = one
            if one.startswith(f"{ALWAYS}:"):
                policies.check_arm(log, one.partition(":")[2])
        elif isinstance(one, str | AgentSpec):
            resolved = policies.agent_to_replay(one)
            label = resolved.label
        elif callable(one) and not inspect.isclass(one):
            label = str(getattr(one, "__name__", type(one).__name__))
        else:
            policies.check_no_class(one)
            raise invalid("policy", "'uniform', 'always:ARM', 'logged', an agent or a function", repr(one))
        if label in found:
            raise invalid("policy", "every policy once", f"'{label}' twice")
        found[label] = resolved
    if not found:
        raise invalid("policy", "at least one policy", "none")
    found.pop(LOGGED, None)
    return {LOGGED: LOGGED, **found}


def _probabilities(
    log: Log,
    policy: Resolved,
    label: str,
    seed: int,
    progress: Progress | None,
    scaled: ScaledLog | None,
) -> Floats:
    """Return the probability of every arm in every round, (n, K)."""
    if isinstance(policy, np.ndarray):
        return policy
    if isinstance(policy, AgentSpec):
        return policies.by_agent(log, policy.name, policy.options, seed=seed, progress=progress, scaled=scaled)[0]
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
    without = log.without_reward
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
        notes.append(ONLY_OF_PLAYED)
    notes += [note for note in (log.unstable, log.order_note) if note is not None]
    return tuple(notes)


def _findings(log: Log, rewards: Floats) -> list[str]:
    """Return what is wrong with the rewards and the arms of a log."""
    findings = []
    if len(rewards) < ENOUGH:
        findings.append(f"the log has {count(len(rewards), 'reward')}, which are too few for any reliable interval")
    if len(rewards) > 1 and np.ptp(rewards) == 0.0:
        findings.append(f"every reward is {rewards[0]:g}, so the log cannot tell one policy from another")
    never = [name for arm, name in enumerate(log.names) if not (log.played == arm).any()]
    if never:
        shown = ", ".join(f"'{name}'" for name in never[:5]) + ", …" * (len(never) > 5)
        were = "arm was" if len(never) == 1 else "arms were"
        findings.append(f"{len(never)} {were} never played in the log, so nothing is known of the rewards: {shown}")
    return findings
