"""Study a log of decisions: what is hidden, which policy would have earned most, and what should be done next."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from halfseen.agents.agent import Agent
from halfseen.agents.arms import Arm
from halfseen.agents.catalogue import FAMILY_OPTION, AgentSpec, agent_spec, component_entry, make
from halfseen.agents.decision import Decision
from halfseen.diagnostics.examination_data import history_decisions
from halfseen.diagnostics.findings import percentage_points
from halfseen.diagnostics.health import ENOUGH_ROUNDS, Finding, Verdict, findings_table, printed, terms
from halfseen.errors import HalfseenError, InvalidInput, invalid
from halfseen.estimators.adaptive.estimator import least_history
from halfseen.evaluation import policies
from halfseen.evaluation.estimators import ENOUGH, PolicyValue
from halfseen.evaluation.evaluate import Evaluation, ReplayedPolicy, evaluate
from halfseen.evaluation.log import Log, StepKind, check_finite
from halfseen.evaluation.policies import ALWAYS, LOGGED, UNIFORM
from halfseen.evaluation.propensity_model import with_estimated_propensities
from halfseen.evaluation.readers import is_journal, read_log
from halfseen.evaluation.scaled_log import ScaledLog
from halfseen.experiments import study_findings
from halfseen.experiments.examine import Examination, examine, plain
from halfseen.experiments.logged_table import LoggedTable, read_table
from halfseen.experiments.study_journal import Models, check_journal, stream_arms, stream_name, write_journal
from halfseen.kernels.random import Floats
from halfseen.reports.figures import health_figure, log_figure, render_figure
from halfseen.reports.files import save_figure, staged, write_atomically, write_json
from halfseen.reports.pages import render
from halfseen.reports.tables import Table, count, html_block, interval, logged_arms_table
from halfseen.statistics.confidence_intervals import CONFIDENCE, Estimate
from halfseen.statistics.distributions import student_quantile
from halfseen.validation import REWARD_RANGES, Words, seed_number
from halfseen.worlds.columns import file_ending

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE, TABLE, SUMMARY, JOURNAL = "study.html", "study.csv", "study.json", "study.ndjson"
ADAPTIVE = "adaptive"
AGENTS = (ADAPTIVE, "lag-ts", "ts-pco")
HISTORY = 3000  # number of past rounds to which `adaptive` fits its model, small enough for logs with many columns
QUESTIONS = (
    "Does what is hidden matter?",
    "What would have earned most?",
    "What to do next?",
    "What is wrong with the log?",
)
_EACH_ARM_UP_TO = 12
_MOST_SENSORS = 5  # the text shows the worth of at most this number of sensors
# The term, a text, and the explanation of the term. A term is explained if an answer or the table contains the text.
_TERMS = (
    ("filtering", "filter", "estimating the context from all observations so far, not from the current one alone"),
    (
        "explained share",
        "expla",
        "share of the variance of rewards around each arm's mean that is predicted in decisions left out of the fit",
    ),
    ("hidden coordinates", "hidden coordinates", "parts of the context that no column measures directly"),
    ("a [b, c]", " [", "an estimate a and its 95 % interval from b to c"),
    (
        "dr",
        "dr",
        "reward per decision by the doubly robust estimator, which predicts the rewards of all arms by a regression "
        "and corrects the prediction by the rewards of the arms that were played",
    ),
    (
        "ess",
        "ess",
        f"effective sample size: that many equally weighted decisions say as much; it should be {ENOUGH} or more",
    ),
    (
        "uncovered",
        "uncovered",
        "share of the choices of a policy of which the log says nothing, because it never makes them",
    ),
    (LOGGED, LOGGED, "what was played"),
    (UNIFORM, UNIFORM, "every arm with the same probability"),
    (f"{ALWAYS}:ARM", f"{ALWAYS}:", "this arm in every decision"),
)

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class NextDecision:
    """What a policy would do in the next round.

    Parameters
    ----------
    policy : str
        The policy that decides, after it has learnt from the whole log.
    arm : int or str
        The arm with the highest expected reward or, if there are no expected rewards, with the highest probability.
    probabilities : dict of str to float
        The probability of every arm.
    expected : dict of str to float
        The expected reward of every arm, empty if the policy has no expectations.
    is_open : bool
        Whether the log ends with a row without an arm, whose observation the policy uses. Otherwise the policy uses the
        observation of the last decision.
    """

    policy: str
    arm: Arm
    probabilities: dict[str, float]
    expected: dict[str, float]
    is_open: bool


class _Best(NamedTuple):
    """The policy with the highest reliable estimate."""

    policy: str | None  # None if no estimate is reliable
    sentence: str
    is_better: bool  # whether the policy is clearly better than the logged policy


class _Replay(NamedTuple):
    """An agent that has replayed the log."""

    agent: Agent
    probabilities: Floats
    scales_observations: bool


@dataclass(frozen=True, repr=False)
class Study:
    """The result of `hs.study`. `print` shows the four answers and the table of policies.

    Attributes
    ----------
    answers : dict of str to str
        The four questions with their answers.
    log : Log
        The decisions, in order of time.
    examination : Examination or None
        The examination of the model that `adaptive` has identified, None if it has not identified one.
    evaluation : Evaluation
        What every policy would have earned.
    best : str or None
        The policy with the highest doubly robust estimate, None if no estimate is reliable.
    next_decision : NextDecision
        What to do next.
    findings : tuple of Finding
        What was found about the log, each with a verdict.

    Examples
    --------
    >>> import numpy as np
    >>> import halfseen as hs
    >>> rng = np.random.default_rng(0)
    >>> load, arm = rng.normal(size=300), rng.choice(["buy", "wait"], size=300)
    >>> reward = np.where(arm == "buy", load, 0.2) + 0.1 * rng.normal(size=300)
    >>> study = hs.study({"load": load, "arm": arm, "reward": reward, "propensity": np.full(300, 0.5)})
    >>> list(study.answers)[0]
    'Does what is hidden matter?'
    >>> study.evaluation.policies["always:wait"].values["dr"].value > 0.1
    True
    """

    answers: dict[str, str]
    log: Log
    examination: Examination | None
    evaluation: Evaluation
    best: str | None
    next_decision: NextDecision
    findings: tuple[Finding, ...]
    name: str
    time: str | None
    scaled: ScaledLog
    agent: Agent
    models: Models
    options: dict[str, Any]

    @property
    def heading(self) -> str:
        """The numbers of decisions, arms and observed features, and the column of the time, as one sentence."""
        log = self.log
        features = count(log.observations.shape[1], "observed feature")
        order = f", in order of the column {self.time}" if self.time else ""
        arms = count(len(log.arms), "arm")
        return f"The log {log.source} has {count(log.rounds, 'decision')}, {arms} and {features}{order}."

    @property
    def facts(self) -> list[str]:
        """Facts that are neither good nor bad, one sentence each: the worth of sensors, and facts about the log."""
        measured = () if self.examination is None else self.examination.measured.sensor_values or ()
        sensors = sorted((one for one in measured if not one.hidden), key=lambda one: -one.share.value)
        worth = [f"{one.name} {percentage_points(one.share)}" for one in sensors[:_MOST_SENSORS]]
        more = f" and {len(sensors) - len(worth)} more on the page" if len(sensors) > len(worth) else ""
        found = [f"worth of sensors: {', '.join(worth)}{more}"] if worth else []
        return found + study_findings.facts(self.findings)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with the log."""
        return all(finding.verdict is Verdict.FINE for finding in self.findings)

    def finding(self, name: str) -> Finding | None:
        """Return the finding about the log with this name, or None if there is no such finding.

        Parameters
        ----------
        name : str
            Name of the finding, such as "constant rewards".

        Returns
        -------
        Finding or None
        """
        return next((finding for finding in self.findings if finding.name == name), None)

    @property
    def notes(self) -> list[str]:
        """Reasons not to trust an estimate, one sentence each."""
        return [f"{one.label}: {note}" for one in self.evaluation.policies.values() for note in one.notes]

    @property
    def terms(self) -> dict[str, str]:
        """Explanations of the terms that the answers and the table use, and of the agents in the table."""
        text = "\n".join([*self.answers.values(), str(self.table())])
        explained = {term: meaning for term, used, meaning in _TERMS if used in text}
        for label in self.evaluation.policies:
            if label not in (LOGGED, UNIFORM) and not label.startswith(f"{ALWAYS}:"):
                explained[label] = f"an agent: {agent_spec(label.partition(':')[0]).entry.summary}"
        if self.examination is not None and self.examination.measured.sensor_values:
            explained["worth"] = terms(self.examination.findings)["worth"]
        return explained

    def table(self) -> Table:
        """Return the doubly robust estimates, with one row per policy. `evaluation` has the other estimators."""
        return self.evaluation.table(["dr"])

    def to_frame(self, library: str | None = None) -> Any:
        """Return the estimates as a DataFrame with one row per policy, like `Evaluation.to_frame`.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            The library of the DataFrame. By default, the first of them that is installed.

        Returns
        -------
        DataFrame

        Raises
        ------
        HalfseenError
            If the library is not installed.
        """
        return self.evaluation.to_frame(library)

    def summary(self) -> dict[str, Any]:
        """Return all results as plain data, the content of `study.json`.

        Returns
        -------
        dict
            The answers, the examination, the evaluation, the next decision, the findings, and how columns were scaled.
        """
        following, scaling = self.next_decision, self.scaled.scaling
        return {
            "log": self.log.source,
            "decisions": self.log.rounds,
            "answers": self.answers,
            "best": self.best,
            "next": vars(following) | {},
            "findings": [vars(finding) | {"verdict": str(finding.verdict)} for finding in self.findings],
            "features": {
                feature: {"centre": float(centre), "scale": float(scale)}
                for feature, centre, scale in zip(self._features, scaling.centre, scaling.scale, strict=True)
            },
            "reward_unit": self.scaled.reward_unit,
            "stream": {"name": self.name, "agent": self.agent.name, "options": self.options},
            "examination": None if self.examination is None else self.examination.summary(),
            "evaluation": self.evaluation.summary(),
        }

    @property
    def _features(self) -> tuple[str, ...]:
        return self.log.features or tuple(f"feature {at}" for at in range(self.log.observations.shape[1]))

    def plot(self, path: str | Path) -> None:
        """Save a figure of the estimates of all policies.

        Parameters
        ----------
        path : str or Path
            The file, whose name ends in .png or .svg.
        """
        self.evaluation.plot(path)

    def save(self, folder: str | Path) -> list[Path]:
        """Write the page `study.html`, the table `study.csv`, the data `study.json` and the journal `study.ndjson`.

        Parameters
        ----------
        folder : str or Path
            The folder, which is created if it does not exist.

        Returns
        -------
        list of Path
            The files. No journal is written if the log is a journal already, if the service could not import the
            journal, or if the extra `service` is not installed.
        """
        refused = check_journal(self.log)
        with staged(folder) as stage:
            write_atomically(stage / PAGE, self._page(refused is None).encode())
            write_atomically(stage / TABLE, _csv(self.to_frame("pyarrow")))
            write_json(stage / SUMMARY, self.summary())
            if refused is None:
                write_journal(stage / JOURNAL, self.log, self.agent, self.models, name=self.name, options=self.options)
        return [Path(folder) / name for name in (PAGE, TABLE, SUMMARY, *[JOURNAL] * (refused is None))]

    def _page(self, has_journal: bool) -> str:
        log, evaluation = self.log, self.evaluation
        measured = None if self.examination is None else plain(self.examination.measured)
        model_terms = {} if self.examination is None else terms(self.examination.findings)

        def drawn(figure: Callable[..., Figure], *data: Any) -> dict[str, bytes]:
            return {
                "svg": render_figure(figure(*data, narrow=False), "svg"),
                "tall": render_figure(figure(*data, narrow=True), "svg"),
            }

        return render(
            "study.html",
            heading=self.heading,
            answers=self.answers,
            summary=evaluation.summary(),
            policies=evaluation.table(),
            following=self.next_decision,
            findings=self.findings,
            findings_table=findings_table(self.findings),
            examination=self.examination,
            notes=self.notes,
            terms={term: meaning for term, meaning in self.terms.items() if term not in model_terms},
            model_terms=model_terms,
            arms=logged_arms_table(log.names, log.played, log.rewards, log.rewarded, log.propensity, log.propensities),
            enough=ENOUGH,
            name=self.name,
            journal=JOURNAL if has_journal else None,
            log_figure=drawn(log_figure, log.rewards, log.played, log.names),
            policies_figure=drawn(evaluation.figure),
            health_figure=None if measured is None else drawn(health_figure, measured),
        )

    def save_figure(self, path: str | Path) -> None:
        """Save the figure of the log: its rewards and its arms over time.

        Parameters
        ----------
        path : str or Path
            The file, whose name ends in .png or .svg.
        """
        save_figure(log_figure(self.log.rewards, self.log.played, self.log.names), Path(path))

    def _repr_html_(self) -> str:
        return html_block(
            self.heading, *(f"{question} {answer}" for question, answer in self.answers.items()), self.table()
        )

    def __str__(self) -> str:
        lines = [printed("", self.heading), ""]
        lines += [line for question, answer in self.answers.items() for line in (question, printed("  ", answer), "")]
        lines += [str(self.table()), *(printed("! ", note) for note in self.notes)]
        lines += ["", "facts:"] * bool(self.facts) + [printed("- ", fact) for fact in self.facts]
        lines += ["", "terms:"]
        lines += [printed("  ", f"{term}: {meaning}", hang=2) for term, meaning in self.terms.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def study(
    log: Any,
    *,
    observed: Sequence[str] | None = None,
    arm: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    time: str | None = None,
    arms: int | Sequence[Arm] | None = None,
    stream: str | None = None,
    policy: Sequence[str | AgentSpec] | None = None,
    missing: float | None = None,
    reward_family: str = "gaussian",
    history: int | None = None,
    name: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Study:
    """Study a log of decisions. Does what is hidden matter, what would have earned most, and what to do next?

    The rows are sorted by time, texts and dates are encoded, and agents receive scaled columns with an intercept. Three
    agents then replay the log, and the doubly robust estimator says what every policy would have earned.

    Parameters
    ----------
    log : str, Path, DataFrame, pyarrow.Table or dict
        A table with one row per decision: columns of the context, the arm that was played and its reward. It can be a
        CSV file (.csv or .csv.gz) or Parquet file, a pandas or polars DataFrame, an Arrow table or a dictionary of
        columns. If the last row has no arm, it is the next decision. An exported journal can be studied, too.
    observed : sequence of str, optional
        The columns of the context. The default is every column without another meaning.
    arm, reward, propensity, time : str, optional
        The names of the columns with the arm that was played, its reward (empty if there was none), the probability
        with which it was chosen, and the time. The defaults are "arm", "reward", "propensity" and "time". Without a
        column "time", the only column of dates is the time. Without either, the order of the rows is the order in time.
    arms : int or sequence of str or int, optional
        All arms, if some of them were never played.
    stream : str, optional
        The stream to study, if the log contains several.
    policy : sequence of str or AgentSpec, optional
        The policies to compare, as for `evaluate`, besides "logged" and `adaptive`. The default is "uniform",
        "always:ARM" for each of at most 12 arms, "lag-ts" and "ts-pco".
    missing : float, optional
        The reward that is assumed for decisions without a reward. By default these decisions are left out.
    reward_family : {"gaussian", "binary", "count"}, optional
        The family of the rewards: any numbers, clicks (from 0 to 1) or counts (at least 0).
    history : int, optional
        The largest number of past rounds to which `adaptive` fits its model. The default is 3000, or more if there are
        more than 125 features.
    name : str, optional
        The name of the stream in the journal. The default is the name of the file.
    seed : int, optional
        The seed of the agents.
    progress : callable, optional
        Called with the number of finished rounds and the number of all rounds.

    Returns
    -------
    Study
        The four answers, the estimates, and a journal that the service can import.

    Raises
    ------
    HalfseenError
        If the log cannot be read, a column is missing, or a value is impossible, such as a propensity above 1.

    Examples
    --------
    >>> import numpy as np
    >>> import halfseen as hs
    >>> rng = np.random.default_rng(1)
    >>> arm = rng.integers(2, size=200)
    >>> log = {"y": rng.normal(size=200), "arm": arm, "reward": arm + 0.1 * rng.normal(size=200)}
    >>> study = hs.study(log | {"propensity": np.full(200, 0.5)}, policy=["always:0", "always:1"])
    >>> study.next_decision.arm
    1
    """
    Words(tuple(REWARD_RANGES)).check(FAMILY_OPTION, reward_family)
    number = seed_number("seed", seed)
    roles = {"arm": arm, "reward": reward, "propensity": propensity, "time": time}
    given_roles = {role: column for role, column in roles.items() if column is not None}
    table = _read(log, observed, given_roles, arms, stream)
    if missing is not None:
        table = table._replace(log=table.log.with_missing_rewards(check_finite("missing", missing)))
    note = None
    if not table.log.has_propensities:
        estimated, note = with_estimated_propensities(table.log)
        table = table._replace(log=estimated)
    decisions = table.log
    REWARD_RANGES[reward_family].check("rewards", decisions.rewards)
    scaled = ScaledLog.of(decisions, reward_family)
    given, specs = _policies(policy, decisions)
    family = {} if reward_family == "gaussian" else {FAMILY_OPTION: reward_family}
    if history is None:
        history = max(HISTORY, least_history(decisions.observations.shape[1]))
    options = {"history": history, **family}
    total = decisions.rounds * (1 + len(specs))
    done = 0

    def advanced(rounds: int, _: int) -> None:
        if progress is not None:
            progress(done + rounds, total)

    replays: dict[str, _Replay] = {}
    probabilities, agent, models = _replay_adaptive(decisions, options, number, advanced)
    replays[ADAPTIVE] = _Replay(agent, probabilities, True)
    for label, spec in specs.items():
        done += decisions.rounds
        told = (family if FAMILY_OPTION in spec.entry.options else {}) | dict(spec.options)
        probabilities, replayed = policies.by_agent(
            decisions, spec.name, told, seed=number, progress=advanced, scaled=scaled
        )
        replays[label] = _Replay(replayed, probabilities, component_entry(spec.name).scales_observations)
    compared: list[Any] = [*given, *(ReplayedPolicy(label, one.probabilities) for label, one in replays.items())]
    evaluation = evaluate(
        decisions,
        compared,
        missing=missing,
        reward_family=reward_family,
        seed=number,
    )
    examination, hidden = _examine(agent, decisions)
    best = _best(evaluation)
    following = _next_decision(table, scaled, replays, best.policy)
    found = study_findings.about_log(table, evaluation, reward_family, note)
    answers = (hidden, best.sentence, _next_sentence(following, decisions, best), study_findings.answer(found))
    return Study(
        answers=dict(zip(QUESTIONS, answers, strict=True)),
        log=decisions,
        examination=examination,
        evaluation=evaluation,
        best=best.policy,
        next_decision=following,
        findings=found,
        name=stream_name(_default_name(log) if name is None else name),
        time=table.time,
        scaled=scaled,
        agent=agent,
        models=models,
        options=options,
    )


def _read(
    log: Any,
    observed: Sequence[str] | None,
    roles: dict[str, str],
    arms: int | Sequence[Arm] | None,
    stream: str | None,
) -> LoggedTable:
    if isinstance(log, str | Path):
        if not Path(log).is_file():
            raise invalid("log", "an existing file", f"'{log}'")
        if is_journal(Path(log)):
            for role, column in roles.items():
                raise invalid(role, "nothing, because a journal has no columns", f"'{column}'")
            return LoggedTable(read_log(log, observed=observed, arms=arms, stream=stream), None, {}, None)
    return read_table(log, observed=observed, roles=roles, arms=arms, stream=stream)


def _default_name(log: Any) -> str:
    return Path(log).name.removesuffix(file_ending(Path(log))) if isinstance(log, str | Path) else "study"


def _policies(policy: Any, log: Log) -> tuple[list[Any], dict[str, AgentSpec]]:
    """Return the fixed policies, and the agents besides `adaptive` by label."""
    if policy is None:
        each = [f"{ALWAYS}:{arm}" for arm in log.names] if len(log.arms) <= _EACH_ARM_UP_TO else []
        policy = [UNIFORM, *each, *AGENTS]
    fixed, specs = [], {}
    for one in [policy] if isinstance(policy, str | AgentSpec) else policy:
        if isinstance(one, str) and (one in (UNIFORM, LOGGED) or one.startswith(f"{ALWAYS}:")):
            if one.startswith(f"{ALWAYS}:"):
                policies.check_arm(log, one.partition(":")[2])
            fixed.append(one)
        elif isinstance(one, str | AgentSpec):
            spec = policies.agent_to_replay(one)
            if spec.label != ADAPTIVE:
                specs[spec.label] = spec
        else:
            policies.check_no_class(one)
            raise invalid("policy", "'uniform', 'always:ARM', 'logged' or an agent", repr(one))
    return fixed, specs


def _replay_adaptive(
    log: Log, options: dict[str, Any], seed: int, progress: Progress
) -> tuple[Floats, Agent, list[tuple[int, dict[str, Any]]]]:
    """Replay the log with `adaptive`. Return its probabilities, the agent and the models that it has identified.

    Each model is paired with the number of decisions made before it was identified. As in the service, a model is
    identified before the decision for which it is due.
    """
    names = stream_arms(log)
    first = names if isinstance(names, int) else names[: log.first_arms]
    observed = log.observations.shape[1]
    agent = make(
        ADAPTIVE,
        observed=observed,
        arms=log.first_arms if isinstance(first, int) else first,
        seed=seed,
        refit="manual",
        max_pending=max(log.rounds + 1, 100_000),
        **options,
    )
    probabilities = np.zeros((log.rounds, len(log.arms)))
    models = []
    for step in log.steps:
        try:
            if step.kind is StepKind.DECIDED:
                if agent.refit_due:
                    models.append((step.at, _identified(agent)))
                probabilities[step.at, : len(agent.arms)] = policies.replay(agent, log, log.observations, step.at)
                if step.at % 50 == 49 or step.at + 1 == log.rounds:
                    progress(step.at + 1, log.rounds)
            elif step.kind is StepKind.REWARDED:
                agent.learn(step.at + 1, step.value, provisional=step.provisional)
            elif step.kind is StepKind.ARM_ADDED:
                agent.add_arm(None if isinstance(first, int) else log.names[step.at])
            else:
                agent.retire_arm(agent.arms[step.at])
        except HalfseenError as error:
            raise InvalidInput(f"'{ADAPTIVE}', decision {min(agent.rounds + 1, log.rounds)}: {error}") from None
    if agent.refit_due:
        models.append((log.rounds, _identified(agent)))
    return probabilities, agent, models


def _examine(agent: Agent, log: Log) -> tuple[Examination | None, str]:
    """Return the examination and its answer, or None and the reason why there is none."""
    if agent.subject() is None:
        return None, (
            f"It cannot be told yet: no model could be identified from {count(agent.rounds, 'decision')}. At least "
            f"{ENOUGH_ROUNDS} are needed, and more if there are many columns."
        )
    sensors = log.features if len(set(log.features)) == log.observations.shape[1] else None
    examination = examine(agent, sensors=sensors, title="Does what is hidden matter?")
    answer = examination.answer + _about_the_last(agent, log)
    return replace(examination, answer=answer), answer


def _about_the_last(agent: Agent, log: Log) -> str:
    """Return a sentence about how many rows were examined, or an empty text if all rows were examined."""
    examined = int((history_decisions(agent.policy.estimator, 0, agent.rounds) >= 0).sum())
    observed_only = sum(map(len, log.observed_before.values()))
    if examined >= log.rounds + observed_only:
        return ""
    what = "decisions and observations" if observed_only else "decisions"
    return f" This is about the last {examined:,} of {log.rounds + observed_only:,} {what} only."


def _best(evaluation: Evaluation) -> _Best:
    """Return the policy with the highest reliable estimate, and the answer to the second question."""
    logged = evaluation.policies[LOGGED].values["dr"]
    others = {label: one for label, one in evaluation.policies.items() if label != LOGGED}
    rewards = evaluation.log.rewards[evaluation.log.rewarded]
    if np.ptp(rewards) == 0.0:
        sentence = f"It cannot be told: every reward is {rewards[0]:g}, so no policy can earn more than another."
        return _Best(None, sentence, False)
    reliable = {
        label: one
        for label, one in others.items()
        if one.sure and np.isfinite(one.values["dr"].low) and np.isfinite(one.differences["dr"].low)
    }
    if not reliable:
        sentence = (
            f"It cannot be told: no estimate is reliable. What was logged earned {_shown(logged)} per decision. The "
            f"notes on the page say why, for example: {_first_note(others)}."
        )
        return _Best(None, sentence, False)
    best = max(reliable, key=lambda label: reliable[label].values["dr"].value)
    value, gain = reliable[best].values["dr"], _simultaneous(reliable[best], len(reliable))
    rest = len(others) - len(reliable)
    widened = f" (widened, because it is the best of {len(reliable)})" if len(reliable) > 1 else ""
    left_out = (
        f" {count(rest, 'policy').replace('policys', 'policies')} could not be judged: see the notes." if rest else ""
    )
    trust = (
        " Propensities were estimated, so this holds only if nothing but the observed columns influenced the choices."
        if evaluation.log.estimated
        else ""
    )
    if gain.low > 0.0:
        rivals = [label for label, one in reliable.items() if label != best and one.values["dr"].value > value.low]
        close = f" Not clearly worse: {', '.join(rivals)}." if rivals else ""
        sentence = (
            f"{best}: {_shown(value)} per decision, which is {_shown(gain)}{widened} more than what was logged "
            f"({_shown(logged)}).{close}{left_out}{trust}"
        )
        return _Best(best, sentence, True)
    sentence = (
        f"No policy is clearly better than what was logged, which earned {_shown(logged)} per decision. The highest "
        f"estimate is that of {best}: {_shown(value)}, a difference of {_shown(gain, sign='+')}{widened}."
        f"{left_out}{trust}"
    )
    return _Best(best, sentence, False)


def _first_note(values: dict[str, PolicyValue]) -> str:
    return next((f"{label}: {one.notes[0]}" for label, one in values.items() if one.notes), "there are too few rewards")


def _simultaneous(value: PolicyValue, comparisons: int) -> Estimate:
    """Return the gain over the logged policy with an interval that holds for the best of several policies.

    The interval of a single policy is widened as Bonferroni's inequality requires.
    """
    gain, degrees = value.differences["dr"], value.freedom
    tail = (1.0 - CONFIDENCE) / 2
    wider = float(student_quantile(1.0 - tail / comparisons, degrees) / student_quantile(1.0 - tail, degrees))
    return Estimate(
        gain.value, gain.value - wider * (gain.value - gain.low), gain.value + wider * (gain.high - gain.value)
    )


def _shown(estimate: Estimate, sign: str = "") -> str:
    """Format an estimate and its interval. Half the width of the interval gets two significant digits."""
    half = (estimate.high - estimate.low) / 2
    digits = min(max(1 - math.floor(math.log10(half)), 0), 9) if half > 0 else 2
    return interval(estimate.as_dict(), digits, sign)


def _next_decision(
    table: LoggedTable, scaled: ScaledLog, replays: dict[str, _Replay], best: str | None
) -> NextDecision:
    """Return what the best policy would do next.

    If there is no best policy, or if it is neither an agent nor a single arm, return what `adaptive` would do.
    """
    log, is_open = table.log, table.next_observation is not None
    observation = log.observations[-1] if table.next_observation is None else table.next_observation
    possible = log.possible[-1]
    if best is not None and best.startswith(f"{ALWAYS}:"):
        arm = log.names.index(best.partition(":")[2])
        sure = {name: float(at == arm) for at, name in enumerate(log.names)}
        return NextDecision(best, log.arms[arm], sure, {}, is_open)
    label = best if best in replays else ADAPTIVE
    assert label is not None
    replay, unit = replays[label], 1.0
    if not replay.scales_observations:
        observation, unit = scaled.apply(observation), policies.reward_unit(replay.agent, scaled)
    available = [arm for arm, able in zip(replay.agent.arms, possible, strict=True) if able]
    decision = _decide(replay.agent, observation, available, table.next_elapsed)
    expected = np.asarray(decision.expected) * unit
    scores = np.where(possible & np.isfinite(expected), expected, -np.inf)
    chosen = int(np.argmax(scores if np.isfinite(scores).any() else decision.propensities))
    return NextDecision(
        label,
        log.arms[chosen],
        dict(zip(log.names, map(float, decision.propensities), strict=True)),
        {name: float(value) for name, value in zip(log.names, expected, strict=True) if np.isfinite(value)},
        is_open,
    )


def _decide(agent: Agent, observation: Floats, available: list[Arm], elapsed: int) -> Decision:
    """Let a copy of the agent decide, so that the agent itself stays at the end of the log."""
    return _copy(agent).decide(observation, available=available, elapsed=elapsed)


def _identified(agent: Agent) -> dict[str, Any]:
    """Identify a model in a copy of the agent, let the agent accept the model, and return the model.

    The service identifies models in the same way. So if it imports the journal, it arrives at exactly the same state.
    """
    copy = _copy(agent)
    copy.refit()
    model = copy.model()
    agent.accept(model)
    return model


def _copy(agent: Agent) -> Agent:
    copy: Agent = make(**agent.recipe)
    copy.restore(agent.state())
    return copy


def _why_no_arm(following: NextDecision, log: Log, best: _Best) -> str | None:
    """Return why the log does not say which arm to play, or None if it does."""
    if len(np.unique(log.played)) < 2:
        return "only one arm was played, so the log does not say what another would earn"
    if np.ptp(log.rewards[log.rewarded]) == 0.0:
        return "every reward is the same, so nothing speaks for one arm rather than another"
    rewarded = int(log.rewarded.sum())
    if best.policy is None and rewarded < study_findings.LEAST_ROWS:
        return f"{count(rewarded, 'reward')} {'is' if rewarded == 1 else 'are'} too few, and no estimate is reliable"
    values = np.array(list((following.expected or following.probabilities).values()))
    if np.allclose(values, values[0], rtol=1e-9, atol=0.0):
        return f"{following.policy} expects the same of every arm"
    return None


def _next_sentence(following: NextDecision, log: Log, best: _Best) -> str:
    if (reason := _why_no_arm(following, log, best)) is not None:
        return f"It cannot be told yet: {reason}."
    when = (
        "In the last row, which has no arm yet,"
        if following.is_open
        else "If the next observation is that of the last row,"
    )
    ranked = sorted(following.expected.items(), key=lambda one: -one[1])[:3]
    values = ", ".join(f"{name} {value:.3g}" for name, value in ranked)
    reason = f" Expected rewards: {values}." if ranked else ""
    if best.policy is None:
        reason += " This is no more than a guess, because no estimate is reliable."
    elif not best.is_better:
        reason += " This is no more than a guess, because no policy is clearly better than what was logged."
    if following.policy.startswith(f"{ALWAYS}:"):
        return f"{when} play {following.arm}, the arm with the highest estimate.{reason}"
    return f"{when} play {following.arm}, says {following.policy}.{reason}"


def _csv(frame: Any) -> bytes:
    import io

    from pyarrow import csv

    buffer = io.BytesIO()
    csv.write_csv(frame, buffer)
    return buffer.getvalue()
