"""Logged decisions: what was observed, which arm was played with which probability, and what it paid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from halfseen.agents.arms import Arm
from halfseen.components import Mask
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import LIMIT

ROUNDING = 1e-6  # probabilities may be off by this much
LEAST_CHANCE = 1e-100  # of an arm that was played: nothing less likely has ever happened, and its weight has a square
_EMPTY = (type(None), float, int)


class StepKind(IntEnum):
    DECIDED = 0
    REWARDED = 1
    ARM_ADDED = 2
    ARM_RETIRED = 3


class LogStep(NamedTuple):
    """One event: `at` is a row of the log or, where an arm is added or retired, the index of the arm."""

    kind: StepKind
    at: int
    value: float = math.nan
    provisional: bool = False  # of a reward: another one of the same decision comes in its place


@dataclass(frozen=True)
class Log:
    """n decisions in order, K arms in all; `steps` are the decisions and the events between them, in order."""

    source: str
    arms: tuple[Arm, ...]
    first_arms: int  # how many of them were there at the start
    observations: Floats  # (n, k), NaN where not seen
    played: Ints  # (n,), places in `arms`
    propensity: Floats  # (n,), of the arm played
    propensities: Floats | None  # (n, K), of every arm, if they were recorded
    possible: Mask  # (n, K), the arms that could have been played, as far as the log tells
    rewards: Floats  # (n,), NaN where none came
    defaults: int  # rewards that nobody gave: the stream's default after its wait
    steps: tuple[LogStep, ...]

    @property
    def rounds(self) -> int:
        return len(self.played)

    @property
    def rewarded(self) -> Mask:
        return ~np.isnan(self.rewards)

    @property
    def names(self) -> list[str]:
        return [str(arm) for arm in self.arms]

    @property
    def logged_probabilities(self) -> Floats:
        """(n, K), as recorded; 1 for the arm played where those of the other arms were not."""
        return np.eye(len(self.arms))[self.played] if self.propensities is None else self.propensities


@dataclass
class _LoggedDecision:
    """A decision while the log is being built."""

    observation: list[float]
    played: int
    propensity: float
    propensities: list[float] | None
    possible: list[int]
    reward: float = math.nan
    is_default: bool = False
    learnt_at: int | None = None  # the step with which its reward was learnt


class LogBuilder:
    """Builds a log from events in order, and checks it. `where` is the name of the line or row in messages."""

    def __init__(self, source: str, arms: Iterable[Arm], observed: int | None = None) -> None:
        self.source, self.arms = source, list(arms)
        self.first_arms, self.observed = len(self.arms), observed
        self._places = {arm: place for place, arm in enumerate(self.arms)}
        self._active = [True] * len(self.arms)
        self._decisions: list[_LoggedDecision] = []
        self._steps: list[LogStep] = []

    def place(self, where: str, arm: Any) -> int:
        """Return the index of an arm; a number is not the name of an arm, and True is not a number."""
        found = None if isinstance(arm, bool) or not isinstance(arm, str | int) else self._places.get(arm)
        if found is None:
            shown = ", ".join(map(str, self.arms[:8])) + (", …" if len(self.arms) > 8 else "")
            raise invalid(where, f"one of the arms: {shown}", f"arm {arm!r}")
        return found

    def decided(
        self,
        where: str,
        *,
        observation: Any,
        arm: Any,
        propensity: Any,
        propensities: Any = None,
        available: Any = None,
    ) -> int:
        """Add a decision and return its row."""
        seen = self._seen(where, observation)
        place = self.place(where, arm)
        chance = check_propensity(where, propensity)
        chances = None if propensities is None else self._chances(where, propensities, place, chance)
        if self._decisions and (chances is None) != (self._decisions[0].propensities is None):
            got = "no propensities" if chances is None else "propensities"
            raise invalid(where, "them in all decisions or in none", got)
        possible = [at for at, active in enumerate(self._active) if active]
        if available is not None:
            if not isinstance(available, list) or not available:
                raise invalid(where, "a list of arms", f"available {available!r}")
            possible = [at for one in available if self._active[at := self.place(where, one)]]
        if place not in possible:
            raise invalid(where, "an arm available and not retired", f"arm {arm!r}, which could not be played then")
        row = len(self._decisions)
        self._decisions.append(_LoggedDecision(seen, place, min(chance, 1.0), chances, possible))
        self._steps.append(LogStep(StepKind.DECIDED, row))
        return row

    def rewarded(self, where: str, row: int, value: Any, *, default: bool = False, learnt: bool = True) -> None:
        """Add a reward of the decision in `row`. It replaces a default reward that came before it.

        Agents that are replayed on the log learn it at this point if it was `learnt`; a reward that is replaced later
        is provisional for them.
        """
        number, decision = check_finite(where, "value", value), self._decisions[row]
        if not math.isnan(decision.reward) and (default or not decision.is_default):
            raise invalid(where, "one, or one after the default", "a second reward for one decision")
        decision.reward, decision.is_default = number, default
        if learnt:
            if (first := decision.learnt_at) is not None:
                self._steps[first] = self._steps[first]._replace(provisional=True)
            decision.learnt_at = len(self._steps)
            self._steps.append(LogStep(StepKind.REWARDED, row, number))

    def arm_added(self, where: str, arm: Any) -> None:
        numbered = bool(self.arms) and not isinstance(self.arms[0], str)
        if numbered != (isinstance(arm, int) and not isinstance(arm, bool)) or arm in self._places:
            raise invalid(where, "one there was not yet, named as the others are", f"a new arm {arm!r}")
        if numbered and arm != len(self.arms):
            raise invalid(where, f"{len(self.arms)}, the next number", f"a new arm {arm!r}")
        self._places[arm] = len(self.arms)
        self._steps.append(LogStep(StepKind.ARM_ADDED, len(self.arms)))
        self.arms.append(arm)
        self._active.append(True)

    def arm_retired(self, where: str, arm: Any) -> None:
        place = self.place(where, arm)
        if not self._active[place]:
            raise invalid(where, "an arm that is active", f"arm {arm!r} retired again")
        self._active[place] = False
        self._steps.append(LogStep(StepKind.ARM_RETIRED, place))

    def finish(self) -> Log:
        """Return the log; raise if it has no decision or no reward."""
        n, K = len(self._decisions), len(self.arms)
        if n == 0:
            raise invalid(self.source, "a log of decisions and their rewards", "no decisions")
        rewards = np.array([one.reward for one in self._decisions])
        observations = np.array([one.observation for one in self._decisions], dtype=np.float64)
        if np.isnan(rewards).all():
            raise invalid(self.source, "rewards of at least some of them", f"{n:,} decisions and no reward")
        possible = np.zeros((n, K), dtype=np.bool_)
        propensities = np.zeros((n, K))
        for row, one in enumerate(self._decisions):
            possible[row, one.possible] = True
            if one.propensities is not None:
                propensities[row, : len(one.propensities)] = one.propensities
                possible[row, len(one.propensities) :] = False  # arms that came later
        return Log(
            source=self.source,
            arms=tuple(self.arms),
            first_arms=self.first_arms,
            observations=observations.reshape(n, self.observed or 0),
            played=np.array([one.played for one in self._decisions], dtype=np.int64),
            propensity=np.array([one.propensity for one in self._decisions]),
            propensities=None if self._decisions[0].propensities is None else propensities,
            possible=possible,
            rewards=rewards,
            defaults=sum(one.is_default for one in self._decisions),
            steps=tuple(self._steps),
        )

    def _seen(self, where: str, observation: Any) -> list[float]:
        if not isinstance(observation, list):
            raise invalid(where, "a list of numbers, null where not seen", f"observation {observation!r}")
        self.observed = len(observation) if self.observed is None else self.observed
        if len(observation) != self.observed:
            raise invalid(where, f"{self.observed}", f"an observation of {len(observation)} entries")
        for entry in observation:
            if type(entry) not in _EMPTY or (entry is not None and abs(entry) > LIMIT):
                raise invalid(where, f"numbers within ±{LIMIT:g}, or null", f"{entry!r} in the observation")
        return [math.nan if entry is None else float(entry) for entry in observation]

    def _chances(self, where: str, given: Any, place: int, chance: float) -> list[float]:
        if not isinstance(given, list) or not place < len(given) <= len(self.arms):
            shown = f"{len(given)} propensities" if isinstance(given, list) else f"propensities {given!r}"
            raise invalid(where, f"{len(self.arms)}, one per arm", shown)
        chances = [_check_probability(where, "propensities with", one) for one in given]
        if abs(sum(chances) - 1.0) > ROUNDING * len(chances):
            raise invalid(where, "probabilities that sum to 1", f"propensities with the sum {sum(chances):.6g}")
        if abs(chances[place] - chance) > ROUNDING:
            raise invalid(where, f"{chances[place]:.6g}, as in the propensities", f"propensity {chance:.6g}")
        return chances


def check_finite(where: str, what: str, value: Any) -> float:
    """Return the value as a float; raise if it is no number within the limits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LIMIT:
        raise invalid(where, f"a number within ±{LIMIT:g}", f"{what} {value!r}")
    return float(value)


def check_propensity(where: str, propensity: Any) -> float:
    """Return the probability with which an arm was played; raise if it is none, or too small for that."""
    chance = _check_probability(where, "propensity", propensity)
    if chance < LEAST_CHANCE:
        wanted = f"a probability of at least {LEAST_CHANCE:g}"
        raise invalid(where, wanted, f"propensity {propensity!r} of the arm played")
    return chance


def _check_probability(where: str, what: str, value: Any) -> float:
    """Return the value as a float; raise if it is no probability."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0 + ROUNDING:
        raise invalid(where, "a probability from 0 to 1", f"{what} {value!r}")
    return float(value)
