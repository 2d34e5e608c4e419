"""Computes the probabilities (n, K) with which a policy would have played each arm in the rounds of a log."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from halfseen.agents.agent import Agent
from halfseen.agents.catalogue import AgentSpec, agent_spec, catalog, component_entry, is_triple, make
from halfseen.agents.plain import PlainEntry
from halfseen.errors import HalfseenError, InvalidInput, UnknownName, invalid, unknown
from halfseen.evaluation.log import ROUNDING, Log, StepKind
from halfseen.evaluation.scaled_log import ScaledLog
from halfseen.kernels.random import Floats

Rule = Callable[[Floats], Any]  # maps an observation to the probabilities of all arms
Progress = Callable[[int, int], None]  # called with the number of finished rounds and the number of all rounds
LOGGED, UNIFORM, ALWAYS = "logged", "uniform", "always"  # policies that are not agents
_REPORT_EVERY = 50  # rounds between calls of a progress function


def uniform(log: Log) -> Floats:
    """Return equal probabilities for all arms that could be played."""
    return np.asarray(log.possible / log.possible.sum(axis=1, keepdims=True))


def always(log: Log, arm: str) -> Floats:
    """Return probability 1 for one arm in every round, even if the arm was not available."""
    check_arm(log, arm)
    return np.tile(np.eye(len(log.arms))[log.names.index(arm)], (log.rounds, 1))


def check_arm(log: Log, arm: str) -> None:
    """Raise an error if the log has no arm of this name."""
    if arm not in log.names:
        raise unknown("arm", arm, log.names)


def by_rule(log: Log, rule: Rule, label: str, progress: Progress | None = None) -> Floats:
    """Call a function of the observation in every round and return the probabilities."""
    probabilities = np.empty((log.rounds, len(log.arms)))
    for row, observation in enumerate(log.observations):
        where = f"policy '{label}', round {row + 1}"
        try:
            given = np.asarray(rule(observation.copy()), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{where}: expected probabilities, got {type(error).__name__}: {error}") from error
        if given.shape != probabilities[row].shape:
            raise invalid(where, f"{len(log.arms)} probabilities, one per arm", f"shape {given.shape}")
        if not (np.abs(given.sum() - 1.0) <= ROUNDING * len(given) and (given >= 0.0).all()):
            raise invalid(where, "probabilities that sum to 1", repr(given.tolist()))
        probabilities[row] = given
        _report(progress, row, log.rounds)
    return probabilities


def agent_to_replay(agent: str | AgentSpec) -> AgentSpec:
    """Return the agent, or raise if it cannot replay decisions that others made."""
    if isinstance(agent, str):
        _check_name(agent)
    spec = agent_spec(agent)
    if isinstance(spec.entry, PlainEntry) or spec.name not in catalog():
        raise _cannot_replay(f"'{spec.name}'")
    return spec


def _check_name(policy: str) -> None:
    """Raise an error that suggests a policy if there is no such agent. `policy` may have options after a colon."""
    name, _, options = (part.strip() for part in policy.partition(":"))
    if name in catalog():
        return
    if name in (LOGGED, UNIFORM):
        raise invalid("policy", f"'{name}' without options", f"'{policy}'")
    message = f"There is no agent '{name}' and no other policy of this name."
    if closest := difflib.get_close_matches(name, [LOGGED, UNIFORM, ALWAYS, *catalog()], n=1, cutoff=0.5):
        like = closest[0]
        if like == ALWAYS:
            like += f":{options or 'ARM'}"
        elif "=" in options and like not in (LOGGED, UNIFORM):
            like += f":{options}"
        message += f" Did you mean '{like}'?"
    raise UnknownName(f"{message} The policies are: {UNIFORM}, {ALWAYS}:ARM, {LOGGED}, {', '.join(sorted(catalog()))}")


def check_no_class(policy: Any) -> None:
    """Raise if the policy is a class, a triple or an agent object. Only agents given by name can replay a log."""
    if inspect.isclass(policy) or is_triple(policy) or hasattr(policy, "decide"):
        raise _cannot_replay(repr(policy))


def _cannot_replay(policy: str) -> HalfseenError:
    expected = (
        "an agent of the catalogue, to which hs.register adds triples of components (a class of one's own decides "
        "itself and cannot replay the decisions of a log), or a function that returns the probabilities of all arms"
    )
    return invalid("policy", expected, policy)


def reward_unit(agent: Agent, scaled: ScaledLog | None) -> float:
    """Return the number by which an agent's rewards are divided: 1 without `scaled`, and for clicks or counts."""
    if scaled is None or agent.policy.learner.reward_range.family != "gaussian":
        return 1.0
    return scaled.reward_unit


def by_agent(
    log: Log,
    name: str,
    options: Mapping[str, Any],
    *,
    seed: int = 0,
    progress: Progress | None = None,
    scaled: ScaledLog | None = None,
) -> tuple[Floats, Agent]:
    """Replay the log with an agent. Return its probabilities in every round, and the agent after the last round.

    In every round the agent receives the observation, computes its probabilities and is then given the arm that was
    played. It is told how many steps have passed, and also receives observations that were logged without a decision.
    The agent learns each reward at the time when the reward arrived. If a late reward replaced a default reward, the
    agent learns the default reward as a provisional one. If `scaled` is given, an agent that does not scale
    observations itself receives the scaled observations and rewards. Clicks and counts are not scaled.
    """
    entry = component_entry(name)
    if entry.reveals_context:
        raise invalid("policy", "an agent that does not need the true context", f"'{name}'")
    observations = log.observations
    if scaled is not None and entry.scales_observations:
        scaled = None
    if scaled is not None:
        observations = scaled.observations
    first = log.arms[: log.first_arms]
    named = [arm for arm in first if isinstance(arm, str)]
    agent = make(
        name,
        observed=observations.shape[1],
        arms=named or len(first),
        seed=seed,
        max_pending=log.rounds + 1,
        **options,
    )
    unit = reward_unit(agent, scaled)
    probabilities = np.zeros((log.rounds, len(log.arms)))
    for step in log.steps:
        try:
            if step.kind is StepKind.DECIDED:
                probabilities[step.at, : len(agent.arms)] = replay(agent, log, observations, step.at, scaled)
                _report(progress, step.at, log.rounds)
            elif step.kind is StepKind.REWARDED:
                agent.learn(step.at + 1, step.value / unit, provisional=step.provisional)
            elif step.kind is StepKind.ARM_ADDED:
                arm = log.arms[step.at]
                agent.add_arm(arm if isinstance(arm, str) else None)
            else:
                agent.retire_arm(agent.arms[step.at])
        except HalfseenError as error:
            raise InvalidInput(f"policy '{name}', decision {min(agent.rounds + 1, log.rounds)}: {error}") from None
    return probabilities, agent


def replay(agent: Agent, log: Log, observations: Floats, row: int, scaled: ScaledLog | None = None) -> Floats:
    """Replay the decision in `row` and the observations before it. Return the probabilities of the agent."""
    for one in log.observed_before.get(row, ()):
        y = one.observation if scaled is None else scaled.apply(one.observation)
        agent.observe(y, elapsed=one.elapsed)
    possible = log.possible[row, : len(agent.arms)]
    available = None if possible.all() else [arm for arm, able in zip(agent.arms, possible, strict=True) if able]
    decision = agent.replay(
        observations[row],
        agent.arms[log.played[row]],  # the agent numbers its arms from 0, the log may use other integers
        available=available,
        propensity=None if np.isnan(log.propensity[row]) else float(log.propensity[row]),
        elapsed=1 if log.elapsed is None else int(log.elapsed[row]),
    )
    return decision.propensities


def _report(progress: Progress | None, row: int, rounds: int) -> None:
    if progress is not None and (row % _REPORT_EVERY == _REPORT_EVERY - 1 or row + 1 == rounds):
        progress(row + 1, rounds)
