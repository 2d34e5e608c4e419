"""Counts on how many seeds the findings of `hs.examine` and `health()` are right, in eleven constructed cases.

    python -m benchmarks.findings --seeds 20 --first-seed 2000

In every case the truth is known. Four features describe a context: features 0 and 3 rotate into each other, 1 and 2 are
autoregressive. Features 0 to 2 are observed, feature 3 is hidden. Each case changes one thing. The data of a case are
examined with the true model (`hs.examine`), and by an `adaptive` agent that is given no model (`health()`).

A seed counts as right if four conditions hold in all examinations of the case: the answer begins as expected; every
required finding has the expected verdict and phrase; all other findings are "fine", unless the case permits another
verdict; no sentence contains a forbidden phrase. A seed counts as "nothing false" if the last two conditions hold and
the answer is not a wrong yes or no.

The seeds from 0 on were used while the findings were written. The seeds from 2000 on were used for the published
results only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

import halfseen as hs
from halfseen.diagnostics.health import Finding
from halfseen.kernels.random import Floats, Ints
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.reports.tables import Table

ROUNDS = 1500
SHORT = 100  # rounds of a short record
ARMS = 3
STUCK_FROM = 900  # in the case of a stuck sensor, its value no longer changes from this round on (counted from 1)
YES, NO, UNKNOWN = "Yes", "No", "It cannot be told"


@dataclass(frozen=True, eq=False)
class Data:
    """Rounds of one seed, and the model from which they were drawn."""

    model: LinearGaussianModel
    contexts: Floats  # (n, d)
    observations: Floats  # (n, 3)
    rewards: Floats  # (n, ARMS)
    arms: Ints  # (n,) arms played in the record, uniformly at random


def draw(seed: int, *, hidden_slope: float = 1.0, coupled: bool = True, second_rotation: bool = False) -> Data:
    """Draw a world and its rounds. `hidden_slope` scales the effect of the hidden features on the rewards."""
    rng = np.random.default_rng([seed, 20])
    latent = 5 if second_rotation else 4
    D = np.diag([rng.uniform(0.85, 0.95), rng.uniform(0.8, 0.9), rng.uniform(0.6, 0.8), 0.9, 0.9])[:latent, :latent]
    for i, j in [(0, 3)] * coupled + [(1, 4)] * second_rotation:
        angle, radius = rng.uniform(0.25, 0.5), rng.uniform(0.94, 0.98)
        rotation = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        D[np.ix_([i, j], [i, j])] = radius * rotation
    noise_var = np.array([0.005, 0.005, 0.005])
    model = hs.LinearGaussianModel(transition=D, process_cov=0.05, observation_cov=noise_var)
    x, contexts = np.zeros(latent), np.empty((ROUNDS, latent))
    for t in range(-200, ROUNDS):
        x = D @ x + np.sqrt(0.05) * rng.normal(size=latent)
        if t >= 0:
            contexts[t] = x
    observations = contexts[:, :3] + np.sqrt(noise_var) * rng.normal(size=(ROUNDS, 3))
    slopes = np.zeros((ARMS, latent))
    slopes[:, 0] = rng.choice([-1, 1], size=ARMS) * rng.uniform(0.6, 1.2, size=ARMS)
    slopes[:, 1] = 0.2 * rng.normal(size=ARMS)
    slopes[:, 3:] = hidden_slope * np.array([[1.0], [-0.9], [0.8]]) * rng.uniform(0.8, 1.2, size=(ARMS, latent - 3))
    rewards = contexts @ slopes.T + 0.3 * rng.normal(size=(ROUNDS, ARMS))
    return Data(model, contexts, observations, rewards, rng.integers(ARMS, size=ROUNDS))


def useful(seed: int) -> Data:
    return draw(seed)


def useless(seed: int) -> Data:
    return draw(seed, hidden_slope=0.0)


def decoupled(seed: int) -> Data:
    return draw(seed, coupled=False)


def wrong_dimension(seed: int) -> Data:
    return draw(seed, second_rotation=True)


def _with_observations(data: Data, sensor: int, values: Floats) -> Data:
    observations = data.observations.copy()
    observations[:, sensor] = values
    return replace(data, observations=observations)


def constant_sensor(seed: int) -> Data:
    return _with_observations(draw(seed), 2, np.full(ROUNDS, 3.0))


def stuck_sensor(seed: int) -> Data:
    data = draw(seed)
    values = data.observations[:, 1].copy()
    values[STUCK_FROM - 1 :] = values[STUCK_FROM - 1]
    return _with_observations(data, 1, values)


def trending_sensor(seed: int) -> Data:
    data = draw(seed)
    values = data.observations[:, 2]
    return _with_observations(data, 2, values + 6.0 * values.std() * np.arange(ROUNDS) / ROUNDS)


def heavy_tailed_sensor(seed: int) -> Data:
    """The noise of sensor 1 is t-distributed with 3 degrees of freedom, scaled to the variance in the model."""
    data, rng = draw(seed), np.random.default_rng([seed, 21])
    noise_var = np.array([0.005, 0.3, 0.005])
    noise = np.sqrt(0.3 / 3.0) * rng.standard_t(3, size=ROUNDS)
    changed = _with_observations(data, 1, data.contexts[:, 1] + noise)
    return replace(changed, model=replace(data.model, observation_cov=noise_var))


def heavy_tailed_rewards(seed: int) -> Data:
    """The noise of the rewards has Student's t distribution with 2.5 degrees of freedom."""
    data, rng = draw(seed), np.random.default_rng([seed, 21])
    return replace(data, rewards=data.rewards + 0.3 * rng.standard_t(2.5, size=(ROUNDS, ARMS)))


def binary_rewards(seed: int) -> Data:
    data, rng = draw(seed), np.random.default_rng([seed, 21])
    probabilities = 1.0 / (1.0 + np.exp(1.0 - 2.0 * data.rewards))
    return replace(data, rewards=(rng.random((ROUNDS, ARMS)) < probabilities).astype(np.float64))


def starved_arm(seed: int) -> Data:
    """Arm 2 can be played in only two of the rounds."""
    data = draw(seed)
    arms = np.where(data.arms == 2, 1, data.arms)
    arms[[300, 900]] = 2
    return replace(data, arms=arms)


class Report(NamedTuple):
    answer: str
    findings: dict[str, Finding]


def _report(health: Any) -> Report:
    return Report(getattr(health, "answer", None) or "", {finding.name: finding for finding in health.findings})


def _record(data: Data, rounds: int = ROUNDS) -> dict[str, Any]:
    part = slice(0, rounds)
    rewards = data.rewards[np.arange(ROUNDS), data.arms]
    return {"observations": data.observations[part], "arms": data.arms[part], "rewards": rewards[part]}


def true_model(data: Data) -> Report:
    return _report(hs.examine(model=data.model, fitted=False, **_record(data)))


def true_model_short(data: Data) -> Report:
    return _report(hs.examine(model=data.model, fitted=False, **_record(data, SHORT)))


def true_model_and_contexts(data: Data) -> Report:
    hidden = {"hidden": data.contexts[:, 3:], "hidden_names": ["load"], "contexts": data.contexts}
    return _report(hs.examine(model=data.model, fitted=False, **hidden, **_record(data)))


def _small(data: Data) -> LinearGaussianModel:
    return hs.fit(data.observations, latent=3, max_iterations=40).model


def too_small_model(data: Data) -> Report:
    return _report(hs.examine(model=_small(data), alternatives=[data.model], **_record(data)))


def true_model_and_too_small(data: Data) -> Report:
    return _report(hs.examine(model=data.model, fitted=False, alternatives=[_small(data)], **_record(data)))


def _play(data: Data, available: Callable[[int], list[int] | None]) -> Report:
    agent = hs.make("adaptive", observed=3, arms=ARMS, seed=7)
    for t in range(ROUNDS):
        decision = agent.decide(data.observations[t], available=available(t))
        agent.learn(decision, float(data.rewards[t, decision.index]))
    return _report(agent.health())


def agent(data: Data) -> Report:
    return _play(data, lambda t: None)


def agent_with_starved_arm(data: Data) -> Report:
    return _play(data, lambda t: [2] if data.arms[t] == 2 else [0, 1])


@dataclass(frozen=True)
class Expected:
    """What an examination must say. A finding is (verdict, a phrase of its sentence)."""

    examine: Callable[[Data], Report]
    answers: tuple[str, ...]  # permitted beginnings of the answer
    phrases: tuple[str, ...] = ()  # phrases that the answer must contain
    findings: dict[str, tuple[str, str]] = field(default_factory=dict)
    may_differ: frozenset[str] = frozenset()  # further findings that may have another verdict than "fine"
    forbidden: tuple[str, ...] = ()  # phrases that no sentence may contain


@dataclass(frozen=True)
class Case:
    name: str
    draw: Callable[[int], Data]
    expected: tuple[Expected, ...]


SENSORS = "unchanging sensors"
MUCH = {"use of the hidden block": ("fine", "the hidden block helps")}
# Findings that a trend outside the model may affect, because it changes the size, mean and autocorrelation of
# prediction errors.
OF_A_TREND = frozenset(
    ["size of surprises", "worst stretch of surprises", "bias of surprises", "memory of surprises", "spectral radius"]
)

CASES = (
    Case(
        "useful hidden block",
        useful,
        (
            Expected(true_model, (YES,), findings=MUCH),
            Expected(true_model_short, (YES, UNKNOWN), forbidden=("choose by the mean", "hidden block does not help")),
            Expected(agent, (YES,), findings=MUCH),
        ),
    ),
    Case(
        "useless hidden block",
        useless,
        (
            Expected(true_model, (NO,), findings={"use of the hidden block": ("fine", "does not help")}),
            Expected(agent, (NO,), forbidden=("the hidden block helps",)),
        ),
    ),
    Case(
        "decoupled hidden block",
        decoupled,
        (
            Expected(
                true_model_and_contexts,
                (NO,),
                phrases=("cannot be recovered", "load"),
                findings={
                    "observability of the hidden block": ("look", "almost nothing"),
                    "worth of seeing load": ("fine", "would add"),
                },
            ),
            Expected(
                agent,
                (NO, UNKNOWN),
                may_differ=frozenset(["observability of the hidden block"]),
                forbidden=("the hidden block helps",),
            ),
        ),
    ),
    Case(
        "wrong dimension",
        wrong_dimension,
        (
            Expected(
                too_small_model,
                (YES, UNKNOWN),
                findings={"dimension": ("look", "5 dimensions fit the observations better than 3")},
                may_differ=frozenset(["memory of surprises"]),
            ),
            Expected(true_model_and_too_small, (YES,), findings=MUCH | {"dimension": ("fine", "5 dimensions")}),
            Expected(agent, (YES,), findings=MUCH),
        ),
    ),
    Case(
        "constant sensor",
        constant_sensor,
        (
            Expected(true_model, (YES,), findings=MUCH | {SENSORS: ("look", "entry 2 never changes")}),
            Expected(agent, (YES,), findings=MUCH | {SENSORS: ("look", "entry 2 never changes")}),
        ),
    ),
    Case(
        "stuck sensor",
        stuck_sensor,
        (
            Expected(true_model, (YES,), findings=MUCH | {SENSORS: ("look", "entry 1 is stuck since round 900")}),
            Expected(agent, (YES,), findings=MUCH | {SENSORS: ("look", "entry 1 ")}),
        ),
    ),
    Case(
        "trending sensor",
        trending_sensor,
        (
            Expected(
                true_model, (YES,), findings={"trending sensors": ("look", "entry 2 rises")}, may_differ=OF_A_TREND
            ),
            Expected(agent, (YES,), findings={"trending sensors": ("look", "entry 2 rises")}, may_differ=OF_A_TREND),
        ),
    ),
    Case(
        "heavy-tailed sensor",
        heavy_tailed_sensor,
        (
            Expected(true_model, (YES,), findings={"heavy-tailed sensors": ("look", "entry 1 ")}),
            Expected(agent, (YES,), findings={"heavy-tailed sensors": ("look", "entry 1 ")}),
        ),
    ),
    Case(
        "heavy-tailed rewards",
        heavy_tailed_rewards,
        (
            Expected(true_model, (YES,), findings=MUCH | {"heavy-tailed rewards": ("look", "heavy tails")}),
            Expected(agent, (YES,), findings=MUCH | {"heavy-tailed rewards": ("look", "heavy tails")}),
        ),
    ),
    Case(
        "binary rewards",
        binary_rewards,
        (
            Expected(true_model, (YES,), findings=MUCH | {"kind of rewards": ("fine", "binary")}),
            Expected(agent, (YES,), findings=MUCH | {"kind of rewards": ("fine", "binary")}),
        ),
    ),
    Case(
        "starved arm",
        starved_arm,
        (
            Expected(true_model, (YES,), findings={"starved arms": ("look", ": arm 2 (2)")}),
            Expected(agent_with_starved_arm, (YES,), findings={"starved arms": ("look", ": arm 2 (2)")}),
        ),
    ),
)


def false_statements(expected: Expected, report: Report) -> list[str]:
    """Return the statements of an examination that are false in its case."""
    wrong = []
    if report.answer and report.answer.startswith((YES, NO)) and not report.answer.startswith(expected.answers):
        wrong.append(f"answer: {report.answer}")
    for name, finding in report.findings.items():
        unexpected = finding.verdict != "fine" and name not in {*expected.findings, *expected.may_differ}
        if unexpected or any(phrase in finding.sentence for phrase in expected.forbidden):
            wrong.append(str(finding))
    return wrong


def missing_statements(expected: Expected, report: Report) -> list[str]:
    """Return what an examination should have said and did not say."""
    missing = []
    if not report.answer.startswith(expected.answers) or not all(one in report.answer for one in expected.phrases):
        missing.append(f"answer: {report.answer or 'none'}")
    for name, (verdict, phrase) in expected.findings.items():
        finding = report.findings.get(name)
        if finding is None or finding.verdict != verdict or phrase not in finding.sentence:
            missing.append(f"{name}: none" if finding is None else str(finding))
    return missing


class Score(NamedTuple):
    right: bool
    nothing_false: bool
    lines: list[str]  # one per false or missing statement


def score(case: Case, seed: int) -> Score:
    """Examine one seed of a case."""
    data, false, missing = case.draw(seed), [], []
    for expected in case.expected:
        report, path = expected.examine(data), expected.examine.__name__
        false += [f"{path}, false: {line}" for line in false_statements(expected, report)]
        missing += [f"{path}, missing: {line}" for line in missing_statements(expected, report)]
    return Score(not false and not missing, not false, false + missing)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=2000)
    parser.add_argument("--case", choices=[case.name for case in CASES], action="append")
    parser.add_argument("--verbose", action="store_true", help="print every false or missing statement")
    given = parser.parse_args(arguments)
    rows, right = [], 0
    for case in CASES:
        if given.case and case.name not in given.case:
            continue
        scores = [score(case, seed) for seed in range(given.first_seed, given.first_seed + given.seeds)]
        row = {"case": case.name, "nothing false": sum(one.nothing_false for one in scores)}
        rows.append({name: str(cell) for name, cell in (row | {"right": sum(one.right for one in scores)}).items()})
        right += sum(one.right for one in scores)
        for seed, one in enumerate(scores, start=given.first_seed):
            for line in one.lines if given.verbose else ():
                print(f"{case.name}, seed {seed}, {line}", file=sys.stderr, flush=True)
    print(Table(rows).markdown())
    print(f"{right} of {len(rows) * given.seeds} right")


if __name__ == "__main__":
    main(sys.argv[1:])
