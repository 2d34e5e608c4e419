"""What an agent answers when it is asked for an arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from halfseen.agents.arms import Arm
from halfseen.agents.policy import Policy
from halfseen.components import Choices
from halfseen.errors import DecisionError
from halfseen.kernels.random import Floats


class Owner(Protocol):
    """The agent that decided."""

    policy: Policy

    @property
    def arms(self) -> tuple[Arm, ...]: ...


def weighed(decisions: Sequence[Decision]) -> list[tuple[int, list[float], list[float | None]]]:
    """`index`, `propensities` and `expected` of decisions of one agent, all that have the same arms at once."""
    by_arms: dict[int, list[int]] = {}
    for number, decision in enumerate(decisions):
        by_arms.setdefault(decision._choices.means.shape[1], []).append(number)
    found: list[Any] = [None] * len(decisions)
    for alike in by_arms.values():
        parts = zip(*(decisions[number]._choices for number in alike), strict=True)
        fields: list[Any] = [None if part[0] is None else np.concatenate(part) for part in parts]
        together = Choices(*fields)
        shares = decisions[alike[0]]._agent.policy.propensities(together)
        told = zip(together.arms.tolist(), shares.tolist(), together.means.tolist(), strict=True)
        for number, row in zip(alike, told, strict=True):
            found[number] = row
    return found


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
