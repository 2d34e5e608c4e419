"""The names of the arms of one stream and their indices in arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from halfseen.components import Mask
from halfseen.errors import invalid, unknown
from halfseen.validation import as_list

Arm = int | str


class Arms:
    """All arms of a stream, including retired arms.

    Arms have names or are numbered from 0. Their indices never change.
    """

    def __init__(self, names: Sequence[Arm]) -> None:
        self.names = tuple(names)
        self._indices = {arm: index for index, arm in enumerate(self.names)}
        self._named = isinstance(self.names[0], str)

    def index(self, argument: str, arm: object) -> int:
        try:
            return self._indices[arm]  # type: ignore[index]
        except (KeyError, TypeError):
            if isinstance(arm, np.integer):
                return self.index(argument, int(arm))
            if self._named:
                raise unknown("arm", arm, (str(name) for name in self.names)) from None
            raise invalid(argument, f"arm numbers from 0 to {len(self.names) - 1}", repr(arm)) from None

    def mask(self, available: Iterable[Arm], active: Mask) -> Mask:
        """Return a mask (1, K) of the `available` arms, all of which must be `active` (1, K)."""
        mask = np.zeros((1, len(self.names)), dtype=np.bool_)
        for arm in as_list("available", available, "a list of arms"):
            index = self.index("available", arm)
            if not active[0, index]:
                raise invalid("available", "arms of agent.active_arms", f"{arm!r}, which is retired")
            mask[0, index] = True
        if not mask.any():
            raise invalid("available", "at least one arm", "no arms")
        return mask

    def next(self, name: object) -> Arm:
        """Check the name of a new arm. Return what to `append`: the name, or the next number if arms are numbered."""
        if not self._named:
            if name is not None:
                raise invalid("name", f"None, because arms are numbered and the next is {len(self.names)}", repr(name))
            return len(self.names)
        if not isinstance(name, str) or not name:
            raise invalid("name", "a name, because the other arms have names", repr(name))
        if name in self._indices:
            raise invalid("name", "a name that no arm has had", repr(name))
        return name

    def append(self, arm: Arm) -> None:
        self._indices[arm] = len(self.names)
        self.names = (*self.names, arm)
