"""What a world is: where observations and rewards come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Keys, stream_keys
from halfseen.validation import seed_number


class Rounds(NamedTuple):
    """Some rounds of B streams, time first; the observations of a round lie together in memory."""

    contexts: Floats  # x_t (n, B, d)
    observations: Floats  # y_t (n, B, k)
    expected: Floats  # (n, B, K) what each arm pays in the mean: ⟨x_t, μ_a⟩, or what was recorded
    reward_noise: Floats  # ω_t (n, B), the same for every arm and every agent


class Episodes(ABC):
    """B streams of a world, moving forward; the noise of a round depends on its seed and number alone."""

    canonical: bool = False  # whether the context's first k coordinates are what is observed
    arm_params: Floats | None = None  # μ_a (B, K, d), where rewards are linear in the context

    @abstractmethod
    def advance(self, n: int) -> Rounds:
        """The next n rounds."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What an agent may be told of this world, by the option that asks for it.

        A fact that takes work may be a function without arguments that gives it; it is called if an agent asks.
        """


class World(ABC):
    """`begin` opens one stream a seed."""

    name: str
    latent: int  # d, the whole context
    observed: int  # k
    arms: int  # K
    changes_after: int | None = None  # the last round before the dynamics change, where they do
    length: int | None = None  # the number of rounds there are, where there is an end
    reward_every: int = 1  # rewards of so many rounds come together, after the last of them
    reward_unit: float = 1.0  # agents hear rewards divided by this; records are in the rewards' own units
    recorded: bool = False  # whether rewards are what was recorded: then their best in hindsight is mostly noise
    tells: tuple[str, ...] | None = None  # the facts there are to tell, where they are not all

    @abstractmethod
    def begin(self, seeds: Sequence[int]) -> Episodes: ...

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that defines the world, for the record."""


def checked_keys(seeds: Sequence[int]) -> Keys:
    """The keys of the streams that `seeds` open."""
    if not isinstance(seeds, Iterable) or not (listed := list(seeds)):
        raise invalid("seeds", repr(seeds), "a list of at least one seed")
    return stream_keys([seed_number("seeds", seed) for seed in listed])


def largest_arm_norm(episodes: Episodes, streams: int) -> Floats:
    """max_a ‖μ_a‖ of every stream, NaN where rewards are not linear in the context."""
    if episodes.arm_params is None:
        return np.full(streams, np.nan)
    return np.asarray(np.linalg.norm(episodes.arm_params, axis=2).max(axis=1))
