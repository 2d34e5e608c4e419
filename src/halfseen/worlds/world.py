"""The base classes of worlds, where observations and rewards come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from halfseen.kernels.random import Floats


class Rounds(NamedTuple):
    """Some rounds of B streams, time first; the observations of a round lie together in memory."""

    contexts: Floats  # x_t (n, B, d)
    observations: Floats  # y_t (n, B, k)
    expected: Floats  # (n, B, K) expected reward of each arm: ⟨x_t, μ_a⟩, or the recorded one
    reward_noise: Floats  # ω_t (n, B), the same for every arm and every agent


class Episodes(ABC):
    """B streams of a world; the noise of a round depends on its seed and number alone."""

    canonical: bool = False  # whether the context's first k coordinates are what is observed
    arm_params: Floats | None = None  # μ_a (B, K, d), where rewards are linear in the context

    @abstractmethod
    def advance(self, n: int) -> Rounds:
        """The next n rounds."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What an agent may be given of this world, by the name of its option.

        A value that is expensive may be a function without arguments; it is called if an agent has that option.
        """


class World(ABC):
    """Where observations and rewards come from. `begin` opens one stream per seed."""

    name: str
    latent: int  # d, the whole context
    observed: int  # k
    arms: int  # K
    changes_after: int | None = None  # the last round before the dynamics change, where they do
    length: int | None = None  # the number of rounds, where there is an end
    reward_every: int = 1  # rewards of this many rounds arrive together, after the last of them
    reward_unit: float = 1.0  # agents get rewards divided by this; results are in the rewards' own units
    recorded: bool = False  # whether rewards were recorded: then the best in hindsight is mostly noise
    tells: tuple[str, ...] | None = None  # the facts this world has, where not all

    @abstractmethod
    def begin(self, seeds: Sequence[int]) -> Episodes: ...

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that defines the world, for the record."""


def largest_arm_norm(episodes: Episodes, streams: int) -> Floats:
    """max_a ‖μ_a‖ of every stream, NaN where rewards are not linear in the context."""
    if episodes.arm_params is None:
        return np.full(streams, np.nan)
    return np.asarray(np.linalg.norm(episodes.arm_params, axis=2).max(axis=1))
