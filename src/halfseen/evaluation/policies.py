"""With which probabilities a policy would have played each arm in the rounds of a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from halfseen.agents.agent import Agent
from halfseen.agents.arms import Arm
from halfseen.agents.catalogue import CATALOG, make
from halfseen.errors import HalfseenError, InvalidInput, invalid, unknown
from halfseen.evaluation.log import ROUNDING, Kind, Log
from halfseen.kernels.random import Floats

Progress = Callable[[int, int], None]
_TELL_EVERY = 50  # rounds between two words of progress


def uniform(log: Log) -> Floats:
    """Every arm that could be played, equally."""
    return np.asarray(log.possible / log.possible.sum(axis=1, keepdims=True))


def always(log: Log, arm: str) -> Floats:
    """One arm in every round, available or not."""
    if arm not in log.names:
        raise unknown("arm of 'always'", arm, log.names)
    return np.tile(np.eye(len(log.arms))[log.names.index(arm)], (log.rounds, 1))


def logged(log: Log) -> Floats:
    """What was recorded; without the chances of the other arms, those that were played."""
    return np.eye(len(log.arms))[log.played] if log.propensities is None else log.propensities


def by_rule(log: Log, rule: Callable[[Floats], Any], label: str, progress: Progress | None = None) -> Floats:
    """A function of the observation, asked round by round for the probabilities of all arms."""
    chances = np.empty((log.rounds, len(log.arms)))
    for row, seen in enumerate(log.observations):
        where = f"policy '{label}', round {row + 1}"
        try:
            given = np.asarray(rule(seen.copy()), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{where}: got {type(error).__name__}: {error}; want probabilities") from error
        if given.shape != chances[row].shape:
            raise invalid(where, f"shape {given.shape}", f"{len(log.arms)} probabilities, one an arm")
        if not (np.abs(given.sum() - 1.0) <= ROUNDING * len(given) and (given >= 0.0).all()):
            raise invalid(where, repr(given.tolist()), "probabilities that sum to 1")
        chances[row] = given
        _tell(progress, row, log.rounds)
    return chances


def by_agent(
    log: Log, name: str, options: Mapping[str, Any], *, seed: int = 0, progress: Progress | None = None
) -> tuple[Floats, Agent]:
    """A catalogued agent that lives through the log: its chances in every round, and the agent at the end.

    It sees what was seen, is asked, is then given the arm that was played, and learns each reward when that came: a
    default for the time being, where a late reward was learnt in its place.
    """
    if CATALOG[name].reveals_context:
        raise invalid("policy", f"'{name}'", "an agent that decides on what was seen, not on the true context")
    first = log.arms[: log.first_arms]
    named = [arm for arm in first if isinstance(arm, str)]
    agent = make(
        name,
        observed=log.observations.shape[1],
        arms=named or len(first),
        seed=seed,
        max_pending=log.rounds + 1,
        **options,
    )
    chances = np.zeros((log.rounds, len(log.arms)))
    for step in log.steps:
        arm: Arm = log.arms[step.at] if step.kind in (Kind.ARM_ADDED, Kind.ARM_RETIRED) else 0
        try:
            if step.kind is Kind.DECIDED:
                chances[step.at, : len(agent.arms)] = _lived(agent, log, step.at)
                _tell(progress, step.at, log.rounds)
            elif step.kind is Kind.REWARDED:
                agent.learn(step.at + 1, step.value, provisional=step.provisional)
            elif step.kind is Kind.ARM_ADDED:
                agent.add_arm(arm if isinstance(arm, str) else None)
            else:
                agent.retire_arm(arm)
        except HalfseenError as error:
            raise InvalidInput(f"policy '{name}', decision {min(agent.rounds + 1, log.rounds)}: {error}") from None
    return chances, agent


def _lived(agent: Agent, log: Log, row: int) -> Floats:
    there = log.possible[row, : len(agent.arms)]
    available = None if there.all() else [arm for arm, able in zip(agent.arms, there, strict=True) if able]
    decision = agent.replay(
        log.observations[row],
        log.arms[log.played[row]],
        available=available,
        propensity=float(log.propensity[row]),
    )
    return decision.propensities


def _tell(progress: Progress | None, row: int, rounds: int) -> None:
    if progress is not None and (row % _TELL_EVERY == _TELL_EVERY - 1 or row + 1 == rounds):
        progress(row + 1, rounds)
