"""One stream of decisions: ask for an arm, reward it now, late, out of order or never."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen import savefile
from halfseen.component import at_least
from halfseen.errors import DecisionError, HalfseenError, invalid, unknown
from halfseen.kernels.checks import COMPLETE, EXCESSIVE, LIMIT, survey
from halfseen.model import real_numbers
from halfseen.policy import Choices, Policy
from halfseen.randomness import Floats

Arm = int | str


class Decision:
    """An arm, and why. `id` is what a reward is credited to."""

    __slots__ = ("_agent", "_choices", "_propensities", "id")

    def __init__(self, agent: Agent, choices: Choices, number: int) -> None:
        self.id = number
        self._agent = agent
        self._choices = choices
        self._propensities: Floats | None = None

    def id_for(self, agent: Agent) -> int:
        """The id, if the decision is that agent's own."""
        if agent is not self._agent:
            raise DecisionError(f"decision_id: got a decision of {self._agent!r}; want one of {agent!r}")
        return self.id

    @property
    def index(self) -> int:
        """The place of the arm in the agent's list of arms."""
        return int(self._choices.arms[0])

    @property
    def arm(self) -> Arm:
        """The arm to play: its name, or its number where the arms have no names."""
        return self._agent.arms[self.index]

    @property
    def expected(self) -> Floats:
        """The reward predicted for every arm, in the order of the agent's arms."""
        return np.array(self._choices.means[0])

    @property
    def context(self) -> Floats:
        """The context as the agent estimated it, and as it will credit the reward with."""
        return np.array(self._choices.features[0])

    @property
    def propensities(self) -> Floats:
        """The exact probability with which each arm was going to be chosen; worked out when first asked for."""
        if self._propensities is None:
            self._propensities = self._agent.policy.propensities(self._choices)[0]
            self._propensities.setflags(write=False)
        return self._propensities

    @property
    def propensity(self) -> float:
        """The probability with which this arm was chosen."""
        return float(self.propensities[self.index])

    def __repr__(self) -> str:
        return f"Decision(id={self.id}, arm={self.arm!r}, expected={self.expected[self.index]:.4g})"


class Agent:
    """A catalogued agent on one stream. Make one with `halfseen.make`."""

    def __init__(self, policy: Policy, recipe: Mapping[str, Any], *, arms: Sequence[Arm], max_pending: int) -> None:
        self.policy = policy
        self.arms = tuple(arms)
        self._recipe = dict(recipe)
        self._places = {arm: place for place, arm in enumerate(self.arms)}
        self._max_pending = at_least("max_pending", max_pending, 1)
        self._pending: dict[int, tuple[Any, Floats]] = {}
        self._decided = 0

    @property
    def name(self) -> str:
        """Its name in the catalogue."""
        return str(self._recipe["name"])

    @property
    def rounds(self) -> int:
        """Decisions made so far."""
        return self._decided

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the decisions that may still be rewarded, oldest first."""
        return tuple(self._pending)

    def decide(
        self,
        observation: ArrayLike,
        *,
        context: ArrayLike | None = None,
        available: Iterable[Arm] | None = None,
    ) -> Decision:
        """See y_t (NaN or None where not seen) and choose an arm, from `available` if given.

        Agents named `oracle-…` also want the true `context`.
        """
        y = _row("observation", observation, self.policy.streams.observed)
        x = self._context(context)
        mask = None if available is None else self._mask(available)
        choices = self.policy.decide(y, contexts=x, available=mask)
        number = self._await_reward(choices.arms, choices.features)
        return Decision(self, choices, number)

    def learn(self, decision_id: int | Decision, reward: float) -> None:
        """Credit a reward to its decision (or the id of it), with the context of that decision's own round.

        Ids are numbers of this agent's rounds: they mean nothing to another agent.
        """
        value = reward if isinstance(reward, float) else _number("reward", reward)
        if not abs(value) <= LIMIT:  # NaN and ±inf alike
            raise invalid("reward", repr(reward), f"a number within ±{LIMIT:g}")
        if isinstance(decision_id, Decision):
            decision_id = decision_id.id_for(self)
        try:
            waiting = self._pending.get(decision_id)
        except TypeError:
            raise invalid("decision_id", repr(decision_id), "the id of a decision") from None
        if waiting is None:
            raise self._no_such_decision(decision_id)
        self.policy.learn(waiting[1], waiting[0], np.array([value]))
        del self._pending[decision_id]

    def fold(
        self,
        observations: ArrayLike,
        arms: Sequence[Arm],
        rewards: ArrayLike,
        *,
        contexts: ArrayLike | None = None,
    ) -> Agent:
        """Live through a recorded history: observations (n, k), the arms played, their rewards (NaN: none came).

        The state afterwards is, bit for bit, that of an agent that made these decisions and was rewarded at once.
        """
        k = self.policy.streams.observed
        ys, values = _table("observations", observations, k), _numbers("rewards", rewards, "numbers, one a round")
        places = np.array([self._place("arms", arm) for arm in _listed("arms", arms)], dtype=np.int64)
        if survey(ys) == EXCESSIVE:
            raise invalid("observations", "an entry too large", f"numbers within ±{LIMIT:g}, NaN for what was not seen")
        if values.shape != (len(ys),) or survey(values[None]) == EXCESSIVE:
            wanted = f"{len(ys)} numbers within ±{LIMIT:g}, one a round, NaN where none came"
            raise invalid("rewards", f"shape {values.shape}", wanted)
        if len(places) != len(ys):
            raise invalid("arms", f"{len(places)} arms", f"{len(ys)}, one a round")
        xs = None
        if self.policy.estimator.reveals_context:
            xs = _table("contexts", () if contexts is None else contexts, self.policy.estimator.dimension)
            if len(xs) != len(ys) or survey(xs) != COMPLETE:
                raise invalid("contexts", f"{len(xs)} rows", f"{len(ys)} rows of numbers within ±{LIMIT:g}")
        before = self.state()
        try:
            for t in range(len(ys)):
                shown = None if xs is None else xs[t : t + 1]
                features = self.policy.observe(ys[t : t + 1], contexts=shown)[2]
                number = self._await_reward(places[t : t + 1], features)
                if not np.isnan(values[t]):
                    self.learn(number, values[t])
        except HalfseenError:
            self.restore(before)
            raise
        return self

    def save(self, path: str | Path) -> None:
        """Write the whole agent to a file; `halfseen.load` gives it back and it goes on bit for bit."""
        if not isinstance(path, str | Path):
            raise invalid("path", repr(path), "the path of a file")
        savefile.write(Path(path), self._recipe, self.state())

    def state(self) -> dict[str, Any]:
        """A copy of every array the agent carries from round to round, by name."""
        waiting = list(self._pending.values())
        empty = np.zeros((0, self.policy.estimator.dimension))
        return {name: array.copy() for name, array in self.policy.state().items()} | {
            "pending.ids": np.array(list(self._pending), dtype=np.int64),
            "pending.arms": np.array([int(arm[0]) for arm, _ in waiting], dtype=np.int64),
            "pending.features": np.concatenate([features for _, features in waiting]) if waiting else empty,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state()` described; a state of another shape is refused."""
        known = self.state()
        if state.keys() != known.keys():
            raise invalid("state", f"{len(state)} arrays of other names", f"the arrays {', '.join(known)}")
        counts = {len(state[name]) for name in ("pending.ids", "pending.arms", "pending.features")}
        if len(counts) != 1 or state["pending.features"].shape[1:] != (self.policy.estimator.dimension,):
            raise invalid("state", "pending decisions that do not fit together", "those of one agent of this kind")
        self.policy.restore(dict(state))
        self._decided = int(self.policy.rounds[0])
        arms, features = np.array(state["pending.arms"]), np.array(state["pending.features"], order="C")
        self._pending = {
            int(number): (arms[i : i + 1], features[i : i + 1]) for i, number in enumerate(state["pending.ids"])
        }

    def __repr__(self) -> str:
        k, waiting = self.policy.streams.observed, len(self._pending)
        return f"<{self.name}: {k} observed, {len(self.arms)} arms, {self.rounds} rounds, {waiting} unrewarded>"

    def _await_reward(self, arm: Any, features: Floats) -> int:
        self._decided += 1
        self._pending[self._decided] = (arm, features)
        if len(self._pending) > self._max_pending:
            del self._pending[next(iter(self._pending))]
        return self._decided

    def _no_such_decision(self, decision_id: object) -> DecisionError:
        if isinstance(decision_id, int | np.integer) and 1 <= decision_id <= self._decided:
            return DecisionError(
                f"decision_id: got {decision_id}, which was rewarded before or is older than the last "
                f"{self._max_pending} unrewarded decisions; want one of agent.pending"
            )
        return DecisionError(
            f"decision_id: got {decision_id!r}, which was never decided; want one of agent.pending "
            f"(decisions so far: {self._decided})"
        )

    def _context(self, context: ArrayLike | None) -> Floats | None:
        if not self.policy.estimator.reveals_context:
            if context is not None:
                raise invalid("context", "the true context", f"nothing: '{self.name}' decides without it")
            return None
        if context is None:
            raise invalid("context", "nothing", f"the true context: '{self.name}' decides on it")
        x = _row("context", context, self.policy.estimator.dimension)
        if survey(x) != COMPLETE:
            raise invalid("context", "an entry missing or too large", f"numbers within ±{LIMIT:g}")
        return x

    def _place(self, argument: str, arm: object) -> int:
        try:
            return self._places[arm]  # type: ignore[index]
        except (KeyError, TypeError):
            if isinstance(arm, np.integer):
                return self._place(argument, int(arm))
            if isinstance(self.arms[0], str):
                raise unknown(argument, arm, (str(name) for name in self.arms)) from None
            raise invalid(argument, repr(arm), f"arm numbers from 0 to {len(self.arms) - 1}") from None

    def _mask(self, available: Iterable[Arm]) -> Any:
        mask = np.zeros((1, len(self.arms)), dtype=np.bool_)
        for arm in _listed("available", available):
            mask[0, self._place("available", arm)] = True
        if not mask.any():
            raise invalid("available", "no arms", "at least one arm")
        return mask


def _listed(argument: str, arms: Iterable[Arm]) -> list[Arm]:
    if isinstance(arms, str) or not isinstance(arms, Iterable):
        raise invalid(argument, repr(arms), "a list of arms")
    return list(arms)


def _numbers(argument: str, value: ArrayLike, wanted: str) -> Floats:
    if type(value) is np.ndarray and value.dtype == np.float64:
        return np.ascontiguousarray(value)
    try:
        return real_numbers(argument, value)
    except (HalfseenError, OverflowError):
        raise invalid(argument, repr(value), wanted) from None


def _number(argument: str, value: ArrayLike) -> float:
    array = _numbers(argument, value, f"a number within ±{LIMIT:g}")
    if array.ndim:
        raise invalid(argument, repr(value), f"a number within ±{LIMIT:g}")
    return float(array)


def _row(argument: str, value: ArrayLike, length: int) -> Floats:
    array = _numbers(argument, value, f"{length} numbers")
    if array.shape != (length,):
        raise invalid(argument, f"shape {np.shape(value)}", f"{length} numbers")
    return array.reshape(1, length)


def _table(argument: str, value: ArrayLike, columns: int) -> Floats:
    array = _numbers(argument, value, f"a table of {columns} columns")
    if array.ndim != 2 or array.shape[1] != columns:
        raise invalid(argument, f"shape {array.shape}", f"a table of {columns} columns")
    return array
