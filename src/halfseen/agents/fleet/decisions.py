"""What a fleet answers: an arm for each of many streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfseen.agents.arms import Arm
from halfseen.components import Choices
from halfseen.errors import DecisionError
from halfseen.kernels.random import Floats, Ints


class Decisions:
    """Arrays with one row a stream, in the order asked for. `ids` are what rewards are credited to."""

    def __init__(
        self,
        ids: Ints,
        streams: Ints,
        arms: Sequence[Arm],
        parts: list[Choices],
        weigh: Callable[[Choices], Floats],
        fleet: object,
    ) -> None:
        self.ids, self.streams = ids, streams
        self.indices: Ints = _joined([part.arms for part in parts], (0,), np.int64)  # places in the fleet's arms
        self._arms, self._parts, self._weigh, self._fleet = arms, parts, weigh, fleet
        self._propensities: Floats | None = None

    def ids_for(self, fleet: object) -> Ints:
        """The ids, if the decisions are that fleet's own: numbers of streams begin at 0 in every fleet."""
        if fleet is not self._fleet:
            raise DecisionError(f"ids: got decisions of {self._fleet!r}; want some of {fleet!r}")
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
            self._propensities = _joined([self._weigh(part) for part in self._parts], (0, len(self._arms)))
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
