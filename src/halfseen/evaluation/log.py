"""A log of decisions: observations, arms played, propensities and rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from halfseen.agents.arms import Arm
from halfseen.agents.guardrails import BRANCHES
from halfseen.components import Mask
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import LIMIT, elapsed_steps
from halfseen.worlds.preparation import Steps

ROUNDING = 1e-6  # allowed error of probabilities
LEAST_PROPENSITY = 1e-100  # smallest allowed propensity of an arm played; the square of its weight is finite
ESTIMATED = ("all", "others")  # which propensities of a journal are estimates: all, or all but that of the arm played
_EMPTY = (type(None), float, int)


class StepKind(IntEnum):
    DECIDED = 0
    REWARDED = 1
    ARM_ADDED = 2
    ARM_RETIRED = 3


class LogStep(NamedTuple):
    """One event. `at` is a row of the log or, if an arm is added or retired, the index of the arm."""

    kind: StepKind
    at: int
    value: float = math.nan
    provisional: bool = False  # whether a later reward of the same decision replaces this one


class LoggedObservation(NamedTuple):
    """An observation without a decision."""

    observation: Floats  # (k,), NaN for entries that were not observed
    elapsed: int  # steps since the decision or observation before it


@dataclass(frozen=True)
class Log:
    """n decisions between K arms, in order of time."""

    source: str  # the name of the log in messages
    arms: tuple[Arm, ...]
    first_arms: int  # number of arms at the start
    observations: Floats  # (n, k), NaN for entries that were not observed
    played: Ints  # (n,) indices of the arms played
    propensity: Floats  # (n,) propensity of the arm played, NaN if it was not logged
    propensities: Floats | None  # (n, K) propensities of all arms, None if at most those of the arms played were logged
    possible: Mask  # (n, K) the arms that could have been played, as far as the log tells
    rewards: Floats  # (n,), NaN if there is no reward
    defaults: int  # number of rewards that are the default reward of the stream
    steps: tuple[LogStep, ...]  # decisions, rewards and changes of arms, in order of time
    branches: Ints | None = None  # (n,) index in BRANCHES, −1 if unknown or before a change of the shares of branches
    notes: tuple[str, ...] = ()  # remarks about columns that had to be encoded, and about times
    times: Floats | None = None  # (n,) in seconds, None if they were not logged
    perhaps_times: tuple[str, ...] = ()  # columns that could be the time, if `times` is None
    dates_in_index: bool = False  # whether the log was a pandas DataFrame whose index has dates
    rows: Ints | None = None  # (n,) rows of the table, counted from 0
    features: tuple[str, ...] = ()  # names of the k observed features of a table
    estimated: bool = False  # whether propensities were estimated
    unstable: str | None = None  # why estimated propensities are wrong in some period, as a sentence
    elapsed: Ints | None = None  # (n,) steps since the previous decision or observation, None if all are 1
    time_steps: Steps | None = None  # the time step of a table, None if its times are irregular or too few
    # Observations without a decision, by the row of the decision after them.
    observed_before: Mapping[int, tuple[LoggedObservation, ...]] = field(default_factory=dict)
    filled: int = 0  # number of rewards that were assumed for decisions without one

    @property
    def step(self) -> str | None:
        """The time step of a table as text, such as "1 day", or None if there is none."""
        return None if self.time_steps is None else self.time_steps.shown

    @property
    def rounds(self) -> int:
        return len(self.played)

    @property
    def rewarded(self) -> Mask:
        return ~np.isnan(self.rewards)

    @property
    def without_reward(self) -> int:
        """The number of decisions for which no reward was logged."""
        return self.filled + int((~self.rewarded).sum())

    def with_missing_rewards(self, value: float) -> Log:
        """Return the log with the reward `value`, learnt right after the decision, for every decision without one."""
        empty = ~self.rewarded
        steps: list[LogStep] = []
        for step in self.steps:
            steps.append(step)
            if step.kind is StepKind.DECIDED and empty[step.at]:
                steps.append(LogStep(StepKind.REWARDED, step.at, value))
        rewards = np.where(empty, value, self.rewards)
        return replace(self, rewards=rewards, steps=tuple(steps), filled=self.without_reward)

    def without_propensities(self) -> Log:
        """Return the log as if no propensity had been logged."""
        return replace(self, propensity=np.full(self.rounds, math.nan), propensities=None)

    @property
    def has_propensities(self) -> bool:
        """Whether the propensity of the arm played is known in every decision."""
        return not np.isnan(self.propensity).any()

    @property
    def names(self) -> list[str]:
        return [str(arm) for arm in self.arms]

    @property
    def is_table(self) -> bool:
        """Whether the log was read from a table, and not from a journal."""
        return bool(self.features)

    @property
    def order_note(self) -> str | None:
        """A sentence about the order of the rows of a table. None if a column is the time, or if there is no table."""
        if not self.is_table or self.times is not None:
            return None
        note = "no column is known to be the time, so the order of the rows is taken as the order in time"
        if self.perhaps_times:
            names = " or ".join(f"'{name}'" for name in self.perhaps_times)
            note += f"; if {names} is the time: --time {self.perhaps_times[0]}"
        if self.dates_in_index:
            note += "; if the index of the DataFrame is the time: reset_index() makes it a column"
        return note

    @property
    def logged_probabilities(self) -> Floats:
        """The propensities (n, K). If they were not logged, 1 for the arm played and 0 for the others."""
        return np.eye(len(self.arms))[self.played] if self.propensities is None else self.propensities


@dataclass
class _LoggedDecision:
    """One decision of a log under construction."""

    observation: list[float]
    played: int
    propensity: float
    propensities: list[float] | None
    possible: list[int]
    branch: int
    elapsed: int
    reward: float = math.nan
    is_default: bool = False
    learnt_at: int | None = None  # index of the step at which its reward was learnt


class LogBuilder:
    """Builds a log from events, which are added in order of time, and checks them.

    `where` is the line or row of the event, for error messages.
    """

    def __init__(self, source: str, arms: Iterable[Arm], observed: int | None = None) -> None:
        self.source, self.arms = source, list(arms)
        self.first_arms, self.observed = len(self.arms), observed
        self._indices = {arm: index for index, arm in enumerate(self.arms)}
        self._active = [True] * len(self.arms)
        self._decisions: list[_LoggedDecision] = []
        self._steps: list[LogStep] = []
        self._observed_before: dict[int, list[LoggedObservation]] = {}
        self._with_propensities: bool | None = None  # whether decisions have all propensities, None if unknown
        self._others_estimated = False

    def index(self, where: str, arm: Any) -> int:
        """Return the index of an arm. Numbers do not match names, and True does not match 1."""
        found = None if isinstance(arm, bool) or not isinstance(arm, str | int) else self._indices.get(arm)
        if found is None:
            names = ", ".join(map(str, self.arms[:8])) + (", …" if len(self.arms) > 8 else "")
            raise invalid(where, f"one of the arms {names}", f"arm {arm!r}")
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
        branch: Any = None,
        elapsed: Any = None,
        estimated: Any = None,
    ) -> int:
        """Add a decision and return its row. `propensity` is None if no propensity was logged.

        `estimated`, one of ESTIMATED or None, says which of the propensities are estimates. Estimates are not used.
        """
        entries = self._check_observation(where, observation)
        played = self.index(where, arm)
        logged = math.nan if propensity is None else check_propensity(where, propensity)
        listed = None if propensities is None else self._check_propensities(where, propensities, played, logged)
        if estimated not in (None, *ESTIMATED):
            raise invalid(f"{where}, estimated", f"one of {', '.join(ESTIMATED)}", repr(estimated))
        if estimated == "all":
            logged, listed = math.nan, None
        self._others_estimated |= estimated == "others"
        if not math.isnan(logged):
            if self._with_propensities is None:
                self._with_propensities = listed is not None
            elif self._with_propensities != (listed is not None):
                got = "a decision without propensities" if listed is None else "a decision with propensities"
                raise invalid(where, "propensities in all decisions or in none", got)
        possible = [at for at, active in enumerate(self._active) if active]
        if available is not None:
            if not isinstance(available, list) or not available:
                raise invalid(where, "a list of available arms", repr(available))
            possible = [at for one in available if self._active[at := self.index(where, one)]]
        if played not in possible:
            raise invalid(where, "an arm that is available and not retired", f"arm {arm!r}")
        if branch is not None and branch not in BRANCHES:
            raise invalid(f"{where}, branch", f"one of {', '.join(BRANCHES)}", repr(branch))
        mark, steps = -1 if branch is None else BRANCHES.index(branch), _check_elapsed(where, elapsed)
        row = len(self._decisions)
        self._decisions.append(_LoggedDecision(entries, played, min(logged, 1.0), listed, possible, mark, steps))
        self._steps.append(LogStep(StepKind.DECIDED, row))
        return row

    def observed_only(self, where: str, observation: Any, elapsed: Any) -> None:
        """Add an observation without a decision."""
        entries, steps = self._check_observation(where, observation), _check_elapsed(where, elapsed)
        before = self._observed_before.setdefault(len(self._decisions), [])
        before.append(LoggedObservation(np.array(entries, dtype=np.float64), steps))

    def rewarded(self, where: str, row: int, value: Any, *, default: bool = False, learnt: bool = True) -> None:
        """Add a reward to the decision in `row`. It replaces an earlier default reward.

        If `learnt`, an agent that replays the log learns the reward at this point. A reward that is replaced
        later is provisional for the agent.
        """
        number, decision = check_finite(f"{where}, reward", value), self._decisions[row]
        if not math.isnan(decision.reward) and (default or not decision.is_default):
            raise invalid(where, "one reward per decision, or one after the default reward", "another reward")
        decision.reward, decision.is_default = number, default
        if learnt:
            if (first := decision.learnt_at) is not None:
                self._steps[first] = self._steps[first]._replace(provisional=True)
            decision.learnt_at = len(self._steps)
            self._steps.append(LogStep(StepKind.REWARDED, row, number))

    def arm_added(self, where: str, arm: Any) -> None:
        numbered = bool(self.arms) and not isinstance(self.arms[0], str)
        if numbered != (isinstance(arm, int) and not isinstance(arm, bool)) or arm in self._indices:
            raise invalid(where, "a new name or number of the same kind as the other arms", f"arm {arm!r}")
        if numbered and arm != len(self.arms):
            raise invalid(where, f"the new arm {len(self.arms)}", f"arm {arm!r}")
        self._indices[arm] = len(self.arms)
        self._steps.append(LogStep(StepKind.ARM_ADDED, len(self.arms)))
        self.arms.append(arm)
        self._active.append(True)

    def arm_retired(self, where: str, arm: Any) -> None:
        index = self.index(where, arm)
        if not self._active[index]:
            raise invalid(where, "an active arm", f"arm {arm!r}, which is retired")
        self._active[index] = False
        self._steps.append(LogStep(StepKind.ARM_RETIRED, index))

    def shares_changed(self) -> None:
        """Forget which branch made each decision so far: later decisions have other shares of holdback and control."""
        for decision in self._decisions:
            decision.branch = -1

    def finish(self) -> Log:
        """Return the log. Raise an error if it has no decision or no reward."""
        n, K = len(self._decisions), len(self.arms)
        if n == 0:
            raise invalid(self.source, "a log with decisions and rewards", "no decisions")
        rewards = np.array([one.reward for one in self._decisions])
        observations = np.array([one.observation for one in self._decisions], dtype=np.float64)
        if np.isnan(rewards).all():
            raise invalid(self.source, "rewards for at least some decisions", f"{n:,} decisions without a reward")
        branches = np.array([one.branch for one in self._decisions])
        elapsed = np.array([one.elapsed for one in self._decisions], dtype=np.int64)
        possible = np.zeros((n, K), dtype=np.bool_)
        propensities = np.zeros((n, K))
        for row, one in enumerate(self._decisions):
            possible[row, one.possible] = True
            if one.propensities is not None:
                propensities[row, : len(one.propensities)] = one.propensities
                possible[row, len(one.propensities) :] = False  # arms that were added later
        return Log(
            source=self.source,
            arms=tuple(self.arms),
            first_arms=self.first_arms,
            observations=observations.reshape(n, self.observed or 0),
            played=np.array([one.played for one in self._decisions], dtype=np.int64),
            propensity=np.array([one.propensity for one in self._decisions]),
            propensities=propensities if self._with_propensities and not self._others_estimated else None,
            possible=possible,
            rewards=rewards,
            defaults=sum(one.is_default for one in self._decisions),
            steps=tuple(self._steps),
            branches=branches if (branches >= 0).any() else None,
            elapsed=elapsed if (elapsed != 1).any() else None,
            observed_before={row: tuple(before) for row, before in self._observed_before.items()},
        )

    def _check_observation(self, where: str, observation: Any) -> list[float]:
        if not isinstance(observation, list):
            raise invalid(where, "an observation that is a list of numbers or null", repr(observation))
        self.observed = len(observation) if self.observed is None else self.observed
        if len(observation) != self.observed:
            raise invalid(where, f"an observation with {self.observed} entries", str(len(observation)))
        for entry in observation:
            if type(entry) not in _EMPTY or (entry is not None and abs(entry) > LIMIT):
                raise invalid(where, f"an observation with numbers within ±{LIMIT:g} or null", repr(entry))
        return [math.nan if entry is None else float(entry) for entry in observation]

    def _check_propensities(self, where: str, given: Any, played: int, propensity: float) -> list[float]:
        if not isinstance(given, list) or not played < len(given) <= len(self.arms):
            got = str(len(given)) if isinstance(given, list) else repr(given)
            raise invalid(where, f"{len(self.arms)} propensities, one per arm", got)
        propensities = [_check_probability(where, "propensities", one) for one in given]
        if abs(sum(propensities) - 1.0) > ROUNDING * len(propensities):
            raise invalid(where, "propensities that sum to 1", f"the sum {sum(propensities):.6g}")
        if abs(propensities[played] - propensity) > ROUNDING:
            expected = f"the propensity {propensities[played]:.6g}, as in the list of propensities"
            raise invalid(where, expected, f"{propensity:.6g}")
        return propensities


def check_finite(where: str, value: Any) -> float:
    """Return the value as a float. Raise an error if it is not a number within ±LIMIT."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LIMIT:
        raise invalid(where, f"a number within ±{LIMIT:g}", repr(value))
    return float(value)


def _check_elapsed(where: str, elapsed: Any) -> int:
    """Return `elapsed`, the steps since the previous decision or observation, or 1 if it was not logged."""
    return 1 if elapsed is None else elapsed_steps(f"{where}, elapsed", elapsed)


def check_propensity(where: str, propensity: Any) -> float:
    """Return the propensity of an arm that was played. Raise an error if it is not a positive probability."""
    probability = _check_probability(where, "propensity", propensity)
    if probability < LEAST_PROPENSITY:
        least = f"of at least {LEAST_PROPENSITY:g}" if probability > 0.0 else "above 0"
        raise invalid(f"{where}, propensity", f"a probability {least}", repr(propensity))
    return probability


def _check_probability(where: str, what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0 + ROUNDING:
        raise invalid(f"{where}, {what}", "a probability from 0 to 1", repr(value))
    return float(value)
