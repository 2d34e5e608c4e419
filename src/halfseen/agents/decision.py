"""The decisions that agents and fleets return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from halfseen.agents.arms import Arm
from halfseen.agents.guardrails import BRANCHES, Branch
from halfseen.agents.policy import Policy
from halfseen.components import Choices
from halfseen.errors import DecisionError
from halfseen.kernels.random import Floats, Ints
from halfseen.reports.frames import data_frame
from halfseen.reports.tables import Table, html_block

_SHOWN = 10  # a notebook shows at most this many decisions


class Owner(Protocol):
    """The agent that made a decision."""

    policy: Policy

    @property
    def arms(self) -> tuple[Arm, ...]: ...


def decision_rows(decisions: Sequence[Decision]) -> list[tuple[int, list[float], list[float | None]]]:
    """Return `index`, `propensities` and `expected` of several decisions of one agent.

    Decisions with the same number of arms are processed together, which is faster than processing each one alone.
    """
    alike: dict[tuple[int, bool, bool, bool], list[int]] = {}
    for position, decision in enumerate(decisions):
        choices = decision._choices
        absent = choices.reserved is None, choices.penalties is None, choices.numbers is None
        fields = choices.means.shape[1], *absent
        alike.setdefault(fields, []).append(position)
    rows: list[Any] = [None] * len(decisions)
    for positions in alike.values():
        parts = zip(*(decisions[position]._choices for position in positions), strict=True)
        columns: list[Any] = [np.concatenate(part) if isinstance(part[0], np.ndarray) else part[0] for part in parts]
        choices, policy = Choices(*columns), decisions[positions[0]]._agent.policy
        propensities, expected = policy.propensities(choices), policy.learner.expected_rewards(choices)
        results = zip(choices.arms.tolist(), propensities.tolist(), expected.tolist(), strict=True)
        for position, row in zip(positions, results, strict=True):
            rows[position] = row
    return rows


class Decision:
    """A decision of one agent.

    Attributes
    ----------
    id : int
        The id under which `Agent.learn` expects the reward. The id is the number of the agent's round, counted from 1.

    Examples
    --------
    >>> import halfseen as hs
    >>> agent = hs.make("random", observed=2, arms=["low", "high"], seed=1)
    >>> decision = agent.decide([0.5, -1.0])
    >>> decision.id, decision.propensities.tolist()
    (1, [0.5, 0.5])
    """

    __slots__ = ("_agent", "_choices", "_propensities", "id")

    def __init__(self, agent: Owner, choices: Choices, decision_id: int) -> None:
        self.id = decision_id
        self._agent = agent
        self._choices = choices
        self._propensities: Floats | None = None

    def id_for(self, agent: Owner) -> int:
        """Return the id, or raise a `DecisionError` if another agent made the decision."""
        if agent is not self._agent:
            raise DecisionError(f"decision_id: expected a decision of {agent!r}, got a decision of {self._agent!r}")
        return self.id

    @property
    def index(self) -> int:
        """The index of the chosen arm in `Agent.arms`."""
        return int(self._choices.arms[0])

    @property
    def arm(self) -> Arm:
        """The chosen arm: its name, or its number if the arms have no names."""
        return self._agent.arms[self.index]

    @property
    def expected(self) -> Floats:
        """The expected reward of every arm, before its cost is subtracted.

        The arms are those that `Agent.arms` contained when the decision was made, in the same order. With the reward
        family "binary", the expected rewards are probabilities.
        """
        return np.array(self._agent.policy.learner.expected_rewards(self._choices)[0])

    @property
    def context(self) -> Floats:
        """The agent's estimate of the context when it made the decision."""
        return np.array(self._choices.features[0])

    @property
    def propensities(self) -> Floats:
        """The exact probability of choosing each arm, computed when it is first read."""
        if self._propensities is None:
            self._propensities = self._agent.policy.propensities(self._choices)[0]
            self._propensities.setflags(write=False)
        return self._propensities

    @property
    def propensity(self) -> float:
        """The exact probability of choosing the arm that was chosen."""
        return float(self.propensities[self.index])

    @property
    def branch(self) -> Branch | None:
        """What made the decision: "chooser", "floor", "holdback" or "control".

        None if no guardrails are in force, or if the decision was replayed without its branch.
        """
        branches = self._choices.branches
        return None if branches is None or branches[0] < 0 else BRANCHES[branches[0]]

    def to_frame(self, library: str | None = None) -> Any:
        """Return the decision as a DataFrame with one row per arm.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            The library of the DataFrame. By default, the first of these libraries that is installed.

        Returns
        -------
        DataFrame
            The columns are `decision` (the id), `arm`, `expected`, `propensity` and `chosen`.

        Raises
        ------
        HalfseenError
            If the library is not installed.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("random", observed=2, arms=["low", "high"], seed=1)
        >>> frame = agent.decide([0.5, -1.0]).to_frame()
        >>> frame["propensity"].to_list()
        [0.5, 0.5]
        """
        expected = self.expected
        return data_frame(
            {
                "decision": np.full(len(expected), self.id),
                "arm": list(self._agent.arms[: len(expected)]),
                "expected": expected,
                "propensity": np.array(self.propensities),
                "chosen": np.arange(len(expected)) == self.index,
            },
            library,
        )

    def _repr_html_(self) -> str:
        rows = [
            {"arm": str(arm), "expected reward": f"{mean:.4g}", "propensity": f"{share:.4g}"}
            for arm, mean, share in zip(self._agent.arms, self.expected, self.propensities, strict=False)
        ]
        return html_block(f"Decision {self.id}: arm {self.arm}", Table(rows))

    def __repr__(self) -> str:
        return f"Decision(id={self.id}, arm={self.arm!r}, expected={self.expected[self.index]:.4g})"


class Decisions:
    """The decisions of a fleet for n streams, as arrays with one row per stream.

    Attributes
    ----------
    ids : ndarray of shape (n,)
        The ids under which `Fleet.learn` expects the rewards.
    streams : ndarray of shape (n,)
        The numbers of the streams.
    indices : ndarray of shape (n,)
        The indices of the chosen arms in `Fleet.arms`.

    Examples
    --------
    >>> import halfseen as hs
    >>> fleet = hs.Fleet("random", observed=2, arms=["low", "high"])
    >>> numbers = fleet.add(3)
    >>> decisions = fleet.decide([[0.5, -1.0], [0.1, 0.3], [0.0, 0.2]])
    >>> decisions.propensity.tolist()
    [0.5, 0.5, 0.5]
    """

    def __init__(
        self,
        ids: Ints,
        streams: Ints,
        arms: Sequence[Arm],
        parts: list[Choices],
        policy: Policy,
        fleet: object,
    ) -> None:
        self.ids, self.streams = ids, streams
        self.indices: Ints = _concatenated([part.arms for part in parts], (0,), np.int64)
        self._arms, self._parts, self._policy, self._fleet = arms, parts, policy, fleet
        self._propensities: Floats | None = None

    def ids_for(self, fleet: object) -> Ints:
        """Return the ids, or raise a `DecisionError` if another fleet made the decisions."""
        if fleet is not self._fleet:  # ids do not identify a fleet, because each fleet numbers its streams from 0
            raise DecisionError(f"ids: expected decisions of {fleet!r}, got decisions of {self._fleet!r}")
        return self.ids

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def arms(self) -> NDArray[Any]:
        """The chosen arms (n,): their names, or their numbers if the arms have no names."""
        return np.array(self._arms)[self.indices] if isinstance(self._arms[0], str) else self.indices.copy()

    @property
    def expected(self) -> Floats:
        """The expected reward of every arm, (n, K)."""
        expected = [self._policy.learner.expected_rewards(part) for part in self._parts]
        return _concatenated(expected, (0, len(self._arms)))

    @property
    def contexts(self) -> Floats:
        """The estimates of the contexts when the decisions were made, (n, p)."""
        return _concatenated([part.features for part in self._parts], (0, 0))

    @property
    def propensities(self) -> Floats:
        """The exact probability of choosing each arm, (n, K), computed when it is first read."""
        if self._propensities is None:
            parts = [self._policy.propensities(part) for part in self._parts]
            self._propensities = _concatenated(parts, (0, len(self._arms)))
            self._propensities.setflags(write=False)
        return self._propensities

    @property
    def propensity(self) -> Floats:
        """The probability with which each chosen arm was chosen, exact up to about 1e-9, (n,)."""
        return self.propensities[np.arange(len(self)), self.indices]

    @property
    def branches(self) -> NDArray[Any] | None:
        """The `Decision.branch` of each decision, (n,). None if no guardrails are in force."""
        if not self._parts or self._parts[0].branches is None:
            return None
        marks = np.concatenate([part.branches for part in self._parts if part.branches is not None])
        return np.asarray(np.array(BRANCHES)[marks])

    def to_frame(self, library: str | None = None) -> Any:
        """Return the decisions as a DataFrame with one row per stream.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            The library of the DataFrame. By default, the first of these libraries that is installed.

        Returns
        -------
        DataFrame
            The columns are `decision` (the id), `stream`, `arm` (the chosen arm), `expected` and `propensity` (both of
            the chosen arm) and, if guardrails are in force, `branch`.

        Raises
        ------
        HalfseenError
            If the library is not installed.

        Examples
        --------
        >>> import halfseen as hs
        >>> fleet = hs.Fleet("random", observed=1, arms=["low", "high"])
        >>> numbers = fleet.add(2)
        >>> list(fleet.decide([[0.5], [0.1]]).to_frame().columns)
        ['decision', 'stream', 'arm', 'expected', 'propensity']
        """
        columns: dict[str, Any] = {
            "decision": self.ids,
            "stream": self.streams,
            "arm": self.arms,
            "expected": self.expected[np.arange(len(self)), self.indices],
            "propensity": self.propensity,
        }
        return data_frame(columns | ({} if self.branches is None else {"branch": self.branches}), library)

    def _repr_html_(self) -> str:
        shown = min(len(self), _SHOWN)
        rows = [
            {"stream": str(stream), "arm": str(arm), "expected reward": f"{mean:.4g}", "propensity": f"{share:.4g}"}
            for stream, arm, mean, share in zip(
                self.streams[:shown],
                self.arms[:shown],
                self.expected[np.arange(shown), self.indices[:shown]],
                self.propensity[:shown],
                strict=True,
            )
        ]
        more = f"and {len(self) - shown:,} more" if shown < len(self) else ""
        return html_block(f"{len(self):,} decisions of {len(self._arms)} arms", Table(rows), more)

    def __repr__(self) -> str:
        return f"<{len(self)} decisions of {len(self._arms)} arms>"


def _concatenated(parts: list[NDArray[Any]], empty: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """Concatenate arrays, or return an array of the shape `empty` if there are none."""
    return np.concatenate(parts) if parts else np.empty(empty, dtype=dtype)
