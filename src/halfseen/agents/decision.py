"""What an agent or a fleet answers when it is asked for arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from halfseen.agents.arms import Arm
from halfseen.agents.policy import Policy
from halfseen.components import Choices
from halfseen.errors import DecisionError
from halfseen.kernels.random import Floats, Ints


class Owner(Protocol):
    """The agent that decided."""

    policy: Policy

    @property
    def arms(self) -> tuple[Arm, ...]: ...


def summarise(decisions: Sequence[Decision]) -> list[tuple[int, list[float], list[float | None]]]:
    """`index`, `propensities` and `expected` of decisions of one agent, all that have the same arms at once."""
    by_arms: dict[int, list[int]] = {}
    for number, decision in enumerate(decisions):
        by_arms.setdefault(decision._choices.means.shape[1], []).append(number)
    rows: list[Any] = [None] * len(decisions)
    for alike in by_arms.values():
        parts = zip(*(decisions[number]._choices for number in alike), strict=True)
        fields: list[Any] = [None if part[0] is None else np.concatenate(part) for part in parts]
        choices = Choices(*fields)
        propensities = decisions[alike[0]]._agent.policy.propensities(choices)
        columns = choices.arms.tolist(), propensities.tolist(), choices.means.tolist()
        for number, row in zip(alike, zip(*columns, strict=True), strict=True):
            rows[number] = row
    return rows


class Decision:
    """An arm, and why. `id` is what a reward is credited to."""

    __slots__ = ("_agent", "_choices", "_propensities", "id")

    def __init__(self, agent: Owner, choices: Choices, number: int) -> None:
        self.id = number
        self._agent = agent
        self._choices = choices
        self._propensities: Floats | None = None

    def id_for(self, agent: Owner) -> int:
        """The id, if the decision is that agent's own."""
        if agent is not self._agent:
            raise DecisionError(f"decision_id: expected a decision of {agent!r}, got one of {self._agent!r}")
        return self.id

    @property
    def index(self) -> int:
        """The index of the arm in the agent's list of arms."""
        return int(self._choices.arms[0])

    @property
    def arm(self) -> Arm:
        """The arm to play: its name, or its number where the arms have no names."""
        return self._agent.arms[self.index]

    @property
    def expected(self) -> Floats:
        """The reward predicted for every arm there was, in the order of the agent's arms."""
        return np.array(self._choices.means[0])

    @property
    def context(self) -> Floats:
        """The context as the agent estimated it when it decided."""
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


class Decisions:
    """Arrays with one row per stream, in the order asked for. `ids` are what rewards are credited to."""

    def __init__(
        self,
        ids: Ints,
        streams: Ints,
        arms: Sequence[Arm],
        parts: list[Choices],
        probabilities: Callable[[Choices], Floats],
        fleet: object,
    ) -> None:
        self.ids, self.streams = ids, streams
        self.indices: Ints = _joined([part.arms for part in parts], (0,), np.int64)  # indices into the fleet's arms
        self._arms, self._parts, self._probabilities, self._fleet = arms, parts, probabilities, fleet
        self._propensities: Floats | None = None

    def ids_for(self, fleet: object) -> Ints:
        """The ids, if the decisions are that fleet's own: numbers of streams begin at 0 in every fleet."""
        if fleet is not self._fleet:
            raise DecisionError(f"ids: expected decisions of {fleet!r}, got decisions of {self._fleet!r}")
        return self.ids

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def arms(self) -> NDArray[Any]:
        """The arms to play, (n,): their names, or their numbers where the arms have no names."""
        return np.array(self._arms)[self.indices] if isinstance(self._arms[0], str) else self.indices.copy()

    @property
    def expected(self) -> Floats:
        """The reward predicted for every arm, (n, K)."""
        return _joined([part.means for part in self._parts], (0, len(self._arms)))

    @property
    def contexts(self) -> Floats:
        """The contexts as they were estimated for the decision, (n, p)."""
        return _joined([part.features for part in self._parts], (0, 0))

    @property
    def propensities(self) -> Floats:
        """The exact probability with which each arm was going to be chosen, (n, K); worked out when first asked for."""
        if self._propensities is None:
            self._propensities = _joined([self._probabilities(part) for part in self._parts], (0, len(self._arms)))
            self._propensities.setflags(write=False)
        return self._propensities

    @property
    def propensity(self) -> Floats:
        """The probability with which each of the arms played was chosen, (n,)."""
        return self.propensities[np.arange(len(self)), self.indices]

    def __repr__(self) -> str:
        return f"<{len(self)} decisions of {len(self._arms)} arms>"


def _joined(parts: list[NDArray[Any]], shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(shape, dtype=dtype)
