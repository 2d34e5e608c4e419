"""Examine the model of an agent, a model by a record, or `adaptive` in a world: findings, a picture and a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen.agents.agent import Agent
from halfseen.agents.catalogue import make
from halfseen.diagnostics.examination_data import (
    ExaminationData,
    ExaminationSubject,
    first_examined_round,
    history_rounds,
)
from halfseen.diagnostics.findings import findings
from halfseen.diagnostics.health import ENOUGH_ROUNDS, Finding, Verdict, findings_table
from halfseen.diagnostics.measurements import Measurements, measure
from halfseen.errors import HalfseenError, invalid
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.reports.figures import health_figure, render_figure
from halfseen.reports.files import save_figure, staged, write_atomically, write_figure, write_json
from halfseen.reports.pages import render
from halfseen.reports.tables import Table
from halfseen.validation import real_numbers
from halfseen.worlds.recorded import RecordedWorld
from halfseen.worlds.world import World

FILES = ("health.html", "health.png", "health.svg", "health.json")
ROUNDS = 3000  # of a world without an end
WHOLE_RECORD = "whole record"  # the context of a recorded world: there may be more to it than the record


@dataclass(frozen=True, repr=False)
class Examination:
    """The result of `hs.examine`. Printed, it is one line per finding."""

    findings: tuple[Finding, ...]
    measured: Measurements  # the numbers behind them
    title: str = "Model health"

    @property
    def ok(self) -> bool:
        """Whether no finding is bad."""
        return all(finding.verdict is not Verdict.BAD for finding in self.findings)

    @property
    def hidden_pays(self) -> str | None:
        """Whether the hidden block pays: "much", "some" or "little"; None without rewards to judge by."""
        return None if self.measured.explained is None else self.measured.explained.hidden_pays

    @property
    def filtering_pays(self) -> str | None:
        """Whether filtering pays, nothing hidden: "much", "some" or "little"; None without rewards to judge by."""
        return None if self.measured.explained is None else self.measured.explained.filtering_pays

    def finding(self, name: str) -> Finding | None:
        """A finding by its name; None if there is none of that name."""
        return next((finding for finding in self.findings if finding.name == name), None)

    def table(self) -> Table:
        """One row per finding."""
        return findings_table(self.findings)

    def plot(self, path: str | Path) -> None:
        """The picture, as PNG, SVG or PDF by the ending of `path`."""
        save_figure(health_figure(_plain(self.measured)), Path(path))

    def summary(self) -> dict[str, Any]:
        """The findings, and the shares of the reward variance, as plain data."""
        explained = self.measured.explained
        return {
            "title": self.title,
            "rounds": self.measured.subject.data.rounds,
            "hidden_pays": self.hidden_pays,
            "filtering_pays": self.filtering_pays,
            "shares": None if explained is None else explained.shares,
            "scores": {str(d): score for d, score in self.measured.scores.items()},
            "findings": [vars(finding) | {"verdict": str(finding.verdict)} for finding in self.findings],
        }

    def save(self, folder: str | Path) -> list[Path]:
        """`health.html`, the picture as PNG and SVG, and `health.json`, into a folder."""
        measured, summary = _plain(self.measured), self.summary()
        with staged(folder) as stage:
            page = render(
                "health.html",
                title=self.title,
                findings=summary["findings"],
                findings_table=self.table(),
                measured=measured,
                svg=write_figure(stage, "health", health_figure(measured)),
                tall_svg=render_figure(health_figure(measured, narrow=True), "svg"),
            )
            write_atomically(stage / "health.html", page.encode())
            write_json(stage / "health.json", summary)
        return [Path(folder) / name for name in FILES]

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))

    def __repr__(self) -> str:
        return str(self)


def _plain(measured: Measurements) -> dict[str, Any]:
    """The measurements that the figure and the page show, as plain data; None where there is none."""
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
    """Examine an agent that keeps a history (`adaptive`) by that history, or any `model` by a record.

    A record is observations (n, k), NaN where not seen; `rewards` (n,) of the `arms` (n,) played, NaN where none came,
    or (n, K) of every arm, played or not, and then the value of a sensor is given in reward too. `contexts` (n, d) is
    the truth, in simulation, and goes by `contexts_name`; `hidden` (n, h) are features that were recorded and not
    shown to the model. `fitted` means that the model was fitted to these very observations; `alternatives` are models
    of other dimensions to score it against. Tables may be DataFrames and vectors Series, of pandas or polars; columns
    are taken in order.

    For an agent, `rewards`, `contexts` and `hidden` have a row for every one of its rounds; what is no longer in its
    history is left out.
    """
    if (agent is None) == (model is None):
        raise invalid("agent", "one of the two", "both a model and an agent" if model else "neither agent nor model")
    more: dict[str, Any] = {"contexts": contexts, "hidden": hidden}
    names: dict[str, Any] = {"contexts_name": contexts_name, "sensors": sensors, "hidden_names": hidden_names}
    if agent is not None:
        if observations is not None or arms is not None or len(alternatives):
            raise invalid("observations", "none: an agent is examined by its own history", "a record beside an agent")
        subject = _subject_with_tables(agent, {"rewards": rewards, **more}, names)
    else:
        if not isinstance(model, LinearGaussianModel):
            raise invalid("model", "a LinearGaussianModel", type(model).__name__)
        if observations is None:
            raise invalid("observations", f"a table of {model.observed} columns, one row per round", "nothing")
        if rewards is None:  # a model can be examined before there are any
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
    return Examination(findings(measured), measured, title)


def _subject_with_tables(
    agent: Agent, tables: dict[str, ArrayLike | None], names: dict[str, Any]
) -> ExaminationSubject:
    """The agent's model and history, with the `tables` that are given beside it, one row per round of the agent."""
    if not isinstance(agent, Agent):
        raise invalid("agent", "an agent, from hs.make or hs.load", type(agent).__name__)
    subject = agent.subject()
    if subject is None:
        first = first_examined_round(agent.policy.estimator, 0)
        if first is not None:
            raise invalid("agent", f"at least {first}", f"'{agent.name}' after {agent.rounds} rounds")
        raise HalfseenError(
            f"agent: expected an 'adaptive' agent that has identified a model, or model= and observations, got "
            f"'{agent.name}' after {agent.rounds} rounds"
        )
    data, rounds = subject.data, history_rounds(agent.policy.estimator, 0)
    given: dict[str, Any] = {"rewards": data.rewards}
    for name, value in tables.items():
        if value is not None:
            table = real_numbers(name, value)
            if table.ndim != 2 or len(table) != agent.rounds:
                raise invalid(
                    name, f"a table of {agent.rounds} rows, one per round of the agent", f"shape {table.shape}"
                )
            given[name] = table[rounds]
    rewards = given.pop("rewards")
    if rewards.ndim == 2 and rewards.shape[1] != len(data.arm_names):
        raise invalid("rewards", f"{len(data.arm_names)}, one per arm", f"{rewards.shape[1]} columns")
    full = ExaminationData.from_arrays(
        data.observations,
        data.arms,
        rewards,
        features=subject.model.observed,
        arm_names=data.arm_names,
        **given,
        **names,
    )
    if full.full_information:  # which arm was played is known only where its reward came
        full = replace(full, arms=np.where(np.isnan(data.rewards), -1, data.arms))
    return replace(subject, data=full)


def examine_world(
    world: World, *, rounds: int | None = None, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> tuple[Agent, Examination]:
    """Play `adaptive` through a world and examine it; the agent as it is then, and its examination.

    The examination knows what every arm would have paid and, of a recorded world, the hidden columns.
    `progress` is called with the rounds done and the rounds in all.
    `adaptive` has an intercept of its own, so a constant 1 in the world's observations is left out.
    """
    names: dict[str, Any] = {}
    if isinstance(world, RecordedWorld):
        world = world.without_intercept()
        names = {"contexts_name": WHOLE_RECORD, "sensors": world.observed_names}
        if world.hidden_names:
            names["hidden_names"] = world.hidden_names
    total = (world.length or ROUNDS) if rounds is None else rounds
    if world.length is not None and total > world.length:
        raise invalid("rounds", f"at most {world.length}: '{world.name}' has no more", str(total))
    if total < ENOUGH_ROUNDS:
        raise invalid("rounds", f"at least {ENOUGH_ROUNDS} to examine a model by", f"{total} in '{world.name}'")
    played = world.begin([seed]).advance(total)
    arms = list(world.arm_names) if isinstance(world, RecordedWorld) else world.arms
    agent = make("adaptive", observed=world.observed, arms=arms, seed=seed)
    rewards = played.expected[:, 0] + played.reward_noise
    batch: list[float] = []
    for t in range(total):
        decision = agent.decide(played.observations[t, 0])
        batch.append(float(rewards[t, decision.index]))
        if len(batch) == world.reward_every:
            agent.learn_many(list(agent.pending)[-len(batch) :], batch)
            batch = []
        if progress is not None and (t % 50 == 49 or t + 1 == total):
            progress(t + 1, total)
    contexts = played.contexts[:, 0]
    examination = examine(
        agent,
        rewards=rewards,
        contexts=contexts,
        hidden=contexts[:, world.observed :] if "hidden_names" in names else None,
        title=f"Model health: {world.name}",
        **names,
    )
    return agent, examination
