"""Examine the model of an agent, a model of a recorded table, or the model that `adaptive` identifies in a world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen.agents.agent import Agent
from halfseen.agents.catalogue import make
from halfseen.agents.forecast import Forecast
from halfseen.diagnostics.examination_data import (
    ExaminationData,
    ExaminationSubject,
    first_examined_round,
    history_decisions,
    observed_without_deciding,
)
from halfseen.diagnostics.findings import answer, findings
from halfseen.diagnostics.health import (
    ENOUGH_ROUNDS,
    Finding,
    Verdict,
    findings_frame,
    findings_table,
    printed,
    printed_terms,
    terms,
)
from halfseen.diagnostics.measurements import Measurements, measure
from halfseen.errors import HalfseenError, invalid
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.reports.figures import health_figure, render_figure
from halfseen.reports.files import save_figure, staged, write_atomically, write_figure, write_json
from halfseen.reports.pages import render
from halfseen.reports.tables import Table, html_block
from halfseen.validation import real_numbers
from halfseen.worlds.recorded import RecordedWorld
from halfseen.worlds.world import World

FILES = ("health.html", "health.png", "health.svg", "health.json")
ROUNDS = 3000  # default for worlds of unlimited length
AHEAD = 20  # rounds of the forecast
WHOLE_RECORD = "whole record"  # name of a recorded world's context, which may not be the complete true context


@dataclass(frozen=True, repr=False)
class Examination:
    """The result of `hs.examine`. It prints as the answer, one text per finding and an explanation of terms.

    Attributes
    ----------
    answer : str
        Whether what is hidden matters for decisions, and whether it can be recovered from the observations. The answer
        begins with "Yes", "No" or "It cannot be told".
    findings : tuple of Finding
        The findings, each with a name, a verdict and a sentence.
    measured : Measurements
        The numbers on which the findings are based.
    title : str
        Title of the page.
    forecast : Forecast or None
        The contexts and arm values of the next 20 rounds, if an agent was examined.

    Examples
    --------
    >>> import halfseen as hs
    >>> import numpy as np
    >>> model = hs.LinearGaussianModel(transition=[[0.9]], process_cov=[[1.0]], observation_cov=[0.5])
    >>> examination = hs.examine(model=model, observations=np.random.default_rng(0).normal(size=(200, 1)))
    >>> examination.ok
    False
    >>> examination.answer
    'It cannot be told yet whether what is hidden matters for your decisions: there are no rewards.'
    >>> examination.hidden_pays is None
    True
    """

    answer: str
    findings: tuple[Finding, ...]
    measured: Measurements
    title: str = "Model health"
    forecast: Forecast | None = None

    @property
    def ok(self) -> bool:
        """Whether no finding has the verdict "bad"."""
        return all(finding.verdict is not Verdict.BAD for finding in self.findings)

    @property
    def hidden_pays(self) -> str | None:
        """How much the hidden features help to predict rewards: "much", "some", "little", or None without rewards."""
        return None if self.measured.explained is None else self.measured.explained.hidden_pays

    @property
    def filtering_pays(self) -> str | None:
        """How much filtering the observed features helps: "much", "some", "little", or None without rewards."""
        return None if self.measured.explained is None else self.measured.explained.filtering_pays

    def finding(self, name: str) -> Finding | None:
        """Return the finding with this name, or None if there is no such finding.

        Parameters
        ----------
        name : str
            Name of the finding.

        Returns
        -------
        Finding or None
        """
        return next((finding for finding in self.findings if finding.name == name), None)

    def table(self) -> Table:
        """Return the findings as a table with one row per finding."""
        return findings_table(self.findings)

    def to_frame(self, library: str | None = None) -> Any:
        """Return the findings as a DataFrame with one row per finding, like `Health.to_frame`.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            The library of the DataFrame. By default, the first of them that is installed.

        Returns
        -------
        DataFrame
            The columns are `finding`, `value` (a number), `expected`, `verdict` and `sentence`.

        Raises
        ------
        HalfseenError
            If the library is not installed.
        """
        return findings_frame(self.findings, library)

    def _repr_html_(self) -> str:
        return html_block(self.answer, self.table(), [finding.sentence for finding in self.findings])

    def plot(self, path: str | Path) -> None:
        """Save the figure.

        Parameters
        ----------
        path : str or Path
            File, whose suffix determines the format: PNG or SVG.
        """
        save_figure(health_figure(plain(self.measured)), Path(path))

    def summary(self) -> dict[str, Any]:
        """Return the findings and the explained shares of the reward variance as plain data.

        Returns
        -------
        dict
        """
        explained = self.measured.explained
        return {
            "title": self.title,
            "answer": self.answer,
            "rounds": self.measured.subject.data.rounds,
            "hidden_pays": self.hidden_pays,
            "filtering_pays": self.filtering_pays,
            "shares": None if explained is None else explained.shares,
            "scores": {str(d): score for d, score in self.measured.scores.items()},
            "findings": [vars(finding) | {"verdict": str(finding.verdict)} for finding in self.findings],
            "forecast": None if self.forecast is None else forecast_data(self.forecast, self.measured),
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write `health.html`, `health.png`, `health.svg` and `health.json`.

        Parameters
        ----------
        folder : str or Path
            Folder for the files. It is created if it does not exist.

        Returns
        -------
        list of Path
            The files.
        """
        measured, summary, sensors = plain(self.measured), self.summary(), self.measured.subject.data.sensors
        with staged(folder) as stage:
            page = render(
                "health.html",
                title=self.title,
                answer=self.answer,
                terms=terms(self.findings),
                findings=summary["findings"],
                findings_table=self.table(),
                measured=measured,
                svg=write_figure(stage, "health", health_figure(measured)),
                tall_svg=render_figure(health_figure(measured, narrow=True), "svg"),
                forecast=summary["forecast"],
                forecast_figure=None
                if self.forecast is None
                else {
                    "svg": render_figure(self.forecast.figure(sensors), "svg"),
                    "tall": render_figure(self.forecast.figure(sensors, narrow=True), "svg"),
                },
            )
            write_atomically(stage / "health.html", page.encode())
            write_json(stage / "health.json", summary)
        return [Path(folder) / name for name in FILES]

    def __str__(self) -> str:
        texts = [printed("", self.answer), *(printed("- ", str(finding)) for finding in self.findings)]
        return "\n".join([*texts, *printed_terms(self.findings)])

    def __repr__(self) -> str:
        return str(self)


def forecast_data(ahead: Forecast, measured: Measurements) -> dict[str, Any]:
    """Return a forecast as plain data, with one entry per round ahead."""
    lower, upper = ahead.interval()
    context, context_lower, context_upper = ahead.context_in_units()
    return {
        "arms": list(measured.subject.data.arm_names),
        "expected": ahead.expected.tolist(),
        "lower": lower.tolist(),
        "upper": upper.tolist(),
        "best_arm_probability": ahead.best_arm_probability.tolist(),
        "context_names": ahead.context_named(measured.subject.data.sensors),
        "context": context.tolist(),
        "context_lower": context_lower.tolist(),
        "context_upper": context_upper.tolist(),
    }


def plain(measured: Measurements) -> dict[str, Any]:
    """Return the measurements for the figure and the page as plain data. Missing measurements are None."""
    data, model = measured.subject.data, measured.subject.model
    blocks, whiteness, calibration = measured.nis_by_block, measured.whiteness, measured.calibration
    return {
        "latent": model.latent,
        "observed": model.observed,
        "arms": len(data.arm_names),
        "rounds": data.rounds,
        "rewards": len(data.observed_rewards().rewards),
        "scores": measured.scores,
        "nis_by_block": blocks and blocks._asdict(),
        "whiteness": whiteness and whiteness._asdict(),
        "shares": measured.explained and measured.explained.shares,
        "calibration": calibration
        and {
            "histogram": calibration.histogram,
            "count": len(calibration.transform),
            "coverages": [(coverage.level, coverage.share) for coverage in calibration.coverages],
        },
        "sensors": measured.sensor_values
        and [one._asdict() | {"share": one.share.value, "error": one.share.error} for one in measured.sensor_values],
    }


def examine(
    agent: Agent | None = None,
    *,
    model: LinearGaussianModel | None = None,
    observations: ArrayLike | None = None,
    arms: ArrayLike | None = None,
    rewards: ArrayLike | None = None,
    contexts: ArrayLike | None = None,
    contexts_name: str = "true context",
    hidden: ArrayLike | None = None,
    sensors: Sequence[str] | None = None,
    hidden_names: Sequence[str] | None = None,
    arm_names: Sequence[str] | None = None,
    fitted: bool = True,
    alternatives: Sequence[LinearGaussianModel] = (),
    title: str = "Model health",
) -> Examination:
    """Examine how well a model describes the data, and how much the hidden features matter.

    Either `agent` or `model` must be given. An agent is examined with its own history, and a model with the given
    observations. Tables may be arrays or data frames of pandas or polars. Their columns are taken in order.

    Parameters
    ----------
    agent : Agent, optional
        An `adaptive` agent that has identified a model.
    model : LinearGaussianModel, optional
        The model to examine.
    observations : array_like of shape (n, k), optional
        Observations for `model`, NaN where missing.
    arms : array_like of shape (n,), optional
        The arms played, for `model`.
    rewards : array_like of shape (n,) or (n, K), optional
        Rewards of the arms played, NaN where missing, or rewards of all K arms. If the rewards of all arms are
        given, the worth of each sensor is also measured in units of reward.
    contexts : array_like of shape (n, d), optional
        True contexts, which are known in simulations.
    contexts_name : str, default "true context"
        Name of `contexts` in the findings.
    hidden : array_like of shape (n, h), optional
        Features that were recorded but that the model did not observe.
    sensors, hidden_names, arm_names : sequence of str, optional
        Names of the observed features, the hidden features and the arms.
    fitted : bool, default True
        Whether the model was fitted to these observations.
    alternatives : sequence of LinearGaussianModel, optional
        Models of other dimensions with which the model is compared.
    title : str, default "Model health"
        Title of the page.

    Returns
    -------
    Examination

    Raises
    ------
    HalfseenError
        If an argument is invalid, or if the agent has not identified a model.

    Notes
    -----
    With an agent, `rewards`, `contexts` and `hidden` need one row per round of the agent. Rows of rounds that are no
    longer in the agent's history are ignored.

    Examples
    --------
    >>> import halfseen as hs
    >>> import numpy as np
    >>> model = hs.LinearGaussianModel(transition=[[0.9]], process_cov=[[1.0]], observation_cov=[0.5])
    >>> noise = np.random.default_rng(0).normal(size=(200, 1))
    >>> examination = hs.examine(model=model, observations=noise, fitted=False)
    >>> print(examination.finding("memory of surprises").verdict)
    bad
    """
    if (agent is None) == (model is None):
        raise invalid("agent", "an agent or a model", "both" if model else "neither")
    more: dict[str, Any] = {"contexts": contexts, "hidden": hidden}
    names: dict[str, Any] = {"contexts_name": contexts_name, "sensors": sensors, "hidden_names": hidden_names}
    if agent is not None:
        if observations is not None or arms is not None or len(alternatives):
            raise invalid("observations", "none, because an agent is examined with its own history", "some")
        return _examine_agent(agent, {"rewards": rewards, **more}, names, title)
    if not isinstance(model, LinearGaussianModel):
        raise invalid("model", "a LinearGaussianModel", type(model).__name__)
    if observations is None:
        raise invalid("observations", f"a table of {model.observed} columns, one row per round", "nothing")
    if rewards is None:  # a model can be examined without rewards
        rounds = len(np.atleast_1d(observations))
        arms, rewards = np.zeros(rounds, dtype=np.int64), np.full(rounds, np.nan)
    data = ExaminationData.from_arrays(
        observations, arms, rewards, features=model.observed, arm_names=arm_names, **more, **names
    )
    for other in alternatives:
        if not isinstance(other, LinearGaussianModel) or other.observed != model.observed:
            raise invalid("alternatives", f"models of {model.observed} observed features", repr(other))
    subject = ExaminationSubject(model, data, fitted=fitted, alternatives=tuple(alternatives))
    measured = measure(subject)
    made = findings(measured)
    return Examination(answer(measured, made), made, measured, title)


def _examine_agent(
    agent: Agent, tables: dict[str, Any], names: dict[str, Any], title: str, *, always_decided: bool = False
) -> Examination:
    measured = measure(_subject_with_tables(agent, tables, names, always_decided=always_decided))
    made = findings(measured)
    return Examination(answer(measured, made), made, measured, title, agent.forecast(AHEAD))


def _subject_with_tables(
    agent: Agent, tables: dict[str, Any], names: dict[str, Any], *, always_decided: bool
) -> ExaminationSubject:
    """Return the agent's model and history, extended by `tables` with one row per decision of the agent.

    With `always_decided`, the caller guarantees that the agent has never observed without deciding. Otherwise this is
    checked if necessary.
    """
    if not isinstance(agent, Agent):
        raise invalid("agent", "an agent, from hs.make or hs.load", type(agent).__name__)
    subject = agent.subject()
    if subject is None:
        first = first_examined_round(agent.policy.estimator, 0)
        if first is not None:
            raise invalid(
                "agent", f"an agent with at least {first} rounds", f"'{agent.name}' after {agent.rounds} rounds"
            )
        raise HalfseenError(
            f"agent: expected an 'adaptive' agent that has identified a model, or model= and observations, got "
            f"'{agent.name}' after {agent.rounds} rounds"
        )
    estimator, extra = agent.policy.estimator, int(agent.policy.extra_rounds[0])
    given_tables = any(value is not None for value in tables.values())
    if given_tables and extra and not always_decided and observed_without_deciding(estimator, 0, extra):
        raise HalfseenError(
            "agent: expected an agent that has decided in every round that it has observed, because the rows of tables "
            f"cannot be assigned to the others, got {extra} rounds without a decision"
        )
    data, rows = subject.data, history_decisions(estimator, 0, agent.rounds)
    passed = rows < 0
    first = min(agent.rounds - int((~passed).sum()), agent.rounds - 1)
    nearest = np.maximum(np.maximum.accumulate(rows), first)
    given: dict[str, Any] = {"rewards": data.rewards}
    for name, value in tables.items():
        if value is not None:
            table = real_numbers(name, value)
            if table.ndim != 2 or len(table) != agent.rounds:
                raise invalid(
                    name, f"a table of {agent.rounds} rows, one per round of the agent", f"shape {table.shape}"
                )
            # The context in a gap is unknown. No reward depends on it, so the context before the gap is used.
            given[name] = table[nearest] if name == "contexts" else np.where(passed[:, None], np.nan, table[nearest])
    rewards = given.pop("rewards")
    if rewards.ndim == 2 and rewards.shape[1] != len(data.arm_names):
        raise invalid("rewards", f"{len(data.arm_names)} columns, one per arm", rewards.shape[1])
    full = ExaminationData.from_arrays(
        data.observations,
        data.arms,
        rewards,
        features=subject.model.observed,
        arm_names=data.arm_names,
        **given,
        **names,
    )
    if full.full_information:  # the history contains the played arm only for rounds with a reward
        full = replace(full, arms=np.where(np.isnan(data.rewards), -1, data.arms))
    return replace(subject, data=replace(full, breaks=data.breaks))


def examine_world(
    world: World, *, rounds: int | None = None, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> tuple[Agent, Examination]:
    """Play `adaptive` in a world and return the agent and its examination.

    The examination uses the rewards of all arms and, for a recorded world, the hidden columns. `progress` is called
    with the number of rounds played and the total number of rounds. `adaptive` adds an intercept itself, so a constant
    1 in the world's observations is removed.
    """
    names: dict[str, Any] = {}
    if isinstance(world, RecordedWorld):
        world = world.without_intercept()
        names = {"contexts_name": WHOLE_RECORD, "sensors": world.observed_names}
        if world.hidden_names:
            names["hidden_names"] = world.hidden_names
    total = (world.length or ROUNDS) if rounds is None else rounds
    if world.length is not None and total > world.length:
        raise invalid("rounds", f"at most {world.length}, the length of '{world.name}'", str(total))
    if total < ENOUGH_ROUNDS:
        raise invalid("rounds", f"at least {ENOUGH_ROUNDS} to examine a model", f"{total} in '{world.name}'")
    played = world.begin([seed]).advance(total)
    arms = list(world.arm_names) if isinstance(world, RecordedWorld) else world.arms
    agent = make("adaptive", observed=world.observed, arms=arms, seed=seed)
    rewards = played.expected[:, 0] + played.reward_noise if played.rewards is None else played.rewards[:, 0]
    batch: list[float] = []
    for t in range(total):
        elapsed = 1 if played.elapsed is None else int(played.elapsed[t])
        decision = agent.decide(played.observations[t, 0], elapsed=elapsed)
        batch.append(float(rewards[t, decision.index]))
        if len(batch) == world.reward_every:
            agent.learn_many(list(agent.pending)[-len(batch) :], batch)
            batch = []
        if progress is not None and (t % 50 == 49 or t + 1 == total):
            progress(t + 1, total)
    contexts = played.contexts[:, 0]
    tables = {"rewards": rewards, "contexts": contexts}
    if "hidden_names" in names:
        tables["hidden"] = contexts[:, world.observed :]
    names = {"contexts_name": "true context", "sensors": None, "hidden_names": None} | names
    return agent, _examine_agent(agent, tables, names, f"Model health: {world.name}", always_decided=True)
