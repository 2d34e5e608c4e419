"""An examination of a model by a record: findings as a table, a picture and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen.agents.agent import Agent
from halfseen.agents.saving import write_atomically
from halfseen.diagnostics.examined import Examined, Subject, measure
from halfseen.diagnostics.findings import findings
from halfseen.diagnostics.health import Finding, Verdict, findings_table
from halfseen.diagnostics.kept_history import enough_from, kept_rounds
from halfseen.diagnostics.record import make_record
from halfseen.errors import HalfseenError, invalid
from halfseen.experiments.files import save_figure, staged, write_figure, write_json
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.reports.figures import health_figure, render_figure
from halfseen.reports.pages import render
from halfseen.reports.tables import Table

FILES = ("health.html", "health.png", "health.svg", "health.json")


@dataclass(frozen=True, repr=False)
class Examination:
    """What `hs.examine` returns. Printed, it is one line a finding."""

    findings: tuple[Finding, ...]
    measured: Examined  # the numbers behind them
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
        """A finding by its name, if it was made."""
        return next((finding for finding in self.findings if finding.name == name), None)

    def table(self) -> Table:
        """One row a finding."""
        return findings_table(self.findings)

    def plot(self, path: str | Path) -> None:
        """The picture, as PNG, SVG or PDF by the ending of `path`."""
        save_figure(health_figure(_plain(self.measured)), Path(path))

    def summary(self) -> dict[str, Any]:
        """The findings, and the shares of the reward variance, as plain data."""
        explained = self.measured.explained
        return {
            "title": self.title,
            "rounds": self.measured.subject.record.rounds,
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


def _plain(measured: Examined) -> dict[str, Any]:
    """The measurements that the figure and the page show, as plain data; None where there is none."""
    record, model = measured.subject.record, measured.subject.model
    stretches, whiteness, calibration = measured.stretches, measured.whiteness, measured.calibration
    return {
        "latent": model.latent,
        "observed": model.observed,
        "arms": len(record.arm_names),
        "rounds": record.rounds,
        "rewards": len(record.payments().rewards),
        "scores": measured.scores,
        "stretches": stretches and stretches._asdict(),
        "whiteness": whiteness and whiteness._asdict(),
        "shares": measured.explained and measured.explained.shares,
        "calibration": calibration
        and {
            "histogram": calibration.histogram,
            "count": len(calibration.transform),
            "coverages": [(coverage.level, coverage.share) for coverage in calibration.coverages],
        },
        "sensors": measured.worths
        and [one._asdict() | {"share": one.share.value, "error": one.share.error} for one in measured.worths],
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
    or (n, K) of every arm, played or not, and then what a sensor is worth is also told in money. `contexts` (n, d) is
    the truth, in simulation, and goes by `contexts_name`; `hidden` (n, h) are features that were recorded and not
    shown to the model. `fitted` says that the model was found from these very observations; `alternatives` are models
    of other dimensions to score it against.

    For an agent, `rewards`, `contexts` and `hidden` have a row for every one of its rounds; what is no longer in its
    history is left out.
    """
    if (agent is None) == (model is None):
        raise invalid("agent", "both a model and an agent" if model else "neither agent nor model", "one of the two")
    if agent is not None:
        if observations is not None or arms is not None or len(alternatives):
            raise invalid("observations", "a record beside an agent", "none: an agent is examined by its own history")
        subject = _of_agent(agent, rewards, contexts, hidden, sensors, hidden_names)
    else:
        assert model is not None
        subject = _of_record(model, observations, arms, rewards, contexts, hidden, sensors, hidden_names, arm_names)
        for other in alternatives:
            if not isinstance(other, LinearGaussianModel) or other.observed != model.observed:
                raise invalid("alternatives", repr(other), f"models of {model.observed} observed features")
        subject = replace(subject, fitted=fitted, alternatives=tuple(alternatives))
    subject = replace(subject, record=replace(subject.record, contexts_name=contexts_name))
    measured = measure(subject, thoroughly=True)
    return Examination(findings(measured), measured, title)


def _of_record(
    model: LinearGaussianModel,
    observations: ArrayLike | None,
    arms: ArrayLike | None,
    rewards: ArrayLike | None,
    contexts: ArrayLike | None,
    hidden: ArrayLike | None,
    sensors: Sequence[str] | None,
    hidden_names: Sequence[str] | None,
    arm_names: Sequence[str] | None,
) -> Subject:
    if not isinstance(model, LinearGaussianModel):
        raise invalid("model", type(model).__name__, "a LinearGaussianModel")
    if observations is None:
        raise invalid("observations", "nothing", f"a table of {model.observed} columns, one row a round")
    if rewards is None:  # a model can be examined before anything is paid
        rounds = len(np.atleast_1d(observations))
        arms, rewards = np.zeros(rounds, dtype=np.int64), np.full(rounds, np.nan)
    record = make_record(
        observations,
        arms,
        rewards,
        features=model.observed,
        contexts=contexts,
        hidden=hidden,
        sensors=sensors,
        hidden_names=hidden_names,
        arm_names=arm_names,
    )
    return Subject(model, record)


def _of_agent(
    agent: Agent,
    rewards: ArrayLike | None,
    contexts: ArrayLike | None,
    hidden: ArrayLike | None,
    sensors: Sequence[str] | None,
    hidden_names: Sequence[str] | None,
) -> Subject:
    if not isinstance(agent, Agent):
        raise invalid("agent", type(agent).__name__, "an agent, from hs.make or hs.load")
    subject = agent.subject()
    later = enough_from(agent.policy.estimator, 0)
    if subject is None and later is not None:
        raise invalid("agent", f"'{agent.name}' after {agent.rounds} rounds", f"at least {later}")
    if subject is None:
        raise HalfseenError(
            f"agent: got '{agent.name}' after {agent.rounds} rounds, which has no kept history with a model; want an "
            "'adaptive' agent that has identified one, or model= and a record"
        )
    record = subject.record
    kept = kept_rounds(agent.policy.estimator, 0)
    extra = {}
    for name, value in (("rewards", rewards), ("contexts", contexts), ("hidden", hidden)):
        if value is not None:
            table = np.asarray(value)
            if table.ndim != 2 or len(table) != agent.rounds:
                raise invalid(name, f"shape {table.shape}", f"a table of {agent.rounds} rows, one a round of the agent")
            extra[name] = table[kept]
    paid = extra.get("rewards", record.rewards)
    if paid.ndim == 2 and paid.shape[1] != len(record.arm_names):
        raise invalid("rewards", f"{paid.shape[1]} columns", f"{len(record.arm_names)}, one an arm")
    full = make_record(
        record.observations,
        record.arms,
        paid,
        features=subject.model.observed,
        contexts=extra.get("contexts"),
        hidden=extra.get("hidden"),
        sensors=sensors,
        hidden_names=hidden_names,
        arm_names=record.arm_names,
    )
    if full.knows_every_arm:  # which arm was played is known only where its reward came
        full = replace(full, arms=np.where(np.isnan(record.rewards), -1, record.arms))
    return replace(subject, record=full)
