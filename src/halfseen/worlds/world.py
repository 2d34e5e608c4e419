"""The base classes of worlds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from halfseen.kernels.random import Floats, Ints


class Rounds(NamedTuple):
    """n consecutive rounds of B streams, as returned by `Episodes.advance`.

    Parameters
    ----------
    contexts : ndarray of shape (n, B, d)
        The contexts x_t, including the hidden coordinates.
    observations : ndarray of shape (n, B, k)
        The observations y_t, contiguous in memory for each round.
    expected : ndarray of shape (n, B, K)
        The expected reward ⟨x_t, μ_a⟩ of every arm, or the recorded reward.
    reward_noise : ndarray of shape (n, B)
        The noise ω_t of the reward, the same for every arm and every agent.
    """

    contexts: Floats
    observations: Floats
    expected: Floats
    reward_noise: Floats

    @property
    def rewards(self) -> Floats | None:
        """The reward of every arm, (n, B, K), or None if it is the expected reward plus noise."""
        return None

    @property
    def elapsed(self) -> Ints | None:
        """The steps (n,) between each round and the round before it, or None if all are 1 or unknown."""
        return None

    def with_elapsed(self, elapsed: Ints) -> Rounds:
        """Return these rounds with `elapsed` (n,), the steps between each round and the round before it."""
        rounds = UnevenRounds(*self)
        rounds._elapsed, rounds._rewards = elapsed, self.rewards
        return rounds

    def reward_of(self, t: int, streams: Ints, arms: Ints) -> Floats:
        """Return the rewards (n,) of `streams` (n,) that play `arms` (n,) in round t of these rounds."""
        if self.rewards is not None:
            return np.asarray(self.rewards[t, streams, arms])
        return np.asarray(self.expected[t, streams, arms] + self.reward_noise[t, streams])


class DrawnRounds(Rounds):
    """Rounds whose rewards are not the expected reward plus a common noise, for example clicks."""

    _rewards: Floats

    @classmethod
    def of(cls, contexts: Floats, observations: Floats, expected: Floats, rewards: Floats) -> DrawnRounds:
        """Return rounds with the given expected rewards and rewards of every arm, both (n, B, K)."""
        rounds = cls(contexts, observations, expected, np.zeros(expected.shape[:2]))
        rounds._rewards = rewards
        return rounds

    @property
    def rewards(self) -> Floats:
        """The reward of every arm, (n, B, K)."""
        return self._rewards


class UnevenRounds(Rounds):
    """Rounds that are unequal numbers of steps apart."""

    _elapsed: Ints
    _rewards: Floats | None

    @property
    def elapsed(self) -> Ints:
        return self._elapsed

    @property
    def rewards(self) -> Floats | None:
        return self._rewards


class Episodes(ABC):
    """B streams of a world, as returned by `World.begin`. The noise of a round depends only on seed and round."""

    canonical: bool = False  # whether the first k coordinates of the context are observed
    arm_params: Floats | None = None  # μ_a (B, K, d), None if rewards are not linear in the context

    @abstractmethod
    def advance(self, n: int) -> Rounds:
        """Return the next n rounds."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return facts about this world. Each key is the name of the agent option that takes the fact.

        A value that is expensive to compute may be a function without arguments. The function is called only if an
        agent has the option.
        """


class World(ABC):
    """A source of contexts, observations and rewards. `begin` starts one stream per seed.

    Examples
    --------
    >>> import halfseen as hs
    >>> world = hs.worlds.named("keyhole")
    >>> world.latent, world.observed, world.arms
    (8, 3, 6)
    >>> rounds = world.begin([0, 1]).advance(5)
    >>> rounds.observations.shape, rounds.expected.shape
    ((5, 2, 3), (5, 2, 6))
    """

    name: str
    latent: int  # d, the dimension of the context
    observed: int  # k, the number of observed features
    arms: int  # K, the number of arms
    changes_after: int | None = None  # the last round before the dynamics change, None if they do not change
    length: int | None = None  # the number of rounds, None if there is no limit
    reward_every: int = 1  # the rewards of this many rounds arrive together, after the last of these rounds
    reward_unit: float = 1.0  # agents receive rewards divided by this; results are in the original units
    reward_family: str = "gaussian"  # given to agents that have an option `reward_family`
    recorded: bool = False  # whether rewards are recorded; then results show rewards, as regret would be mostly noise
    costs: tuple[float, ...] | None = None  # of the arms, in units of reward; regret then uses reward minus cost
    is_own: bool = False  # whether the world is not part of the package
    known_facts: tuple[str, ...] | None = None  # the keys of `Episodes.facts`, None if they are not known in advance

    @abstractmethod
    def begin(self, seeds: Sequence[int]) -> Episodes:
        """Start one stream per seed."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return everything that defines the world, as plain data."""


def all_settings(world: World) -> dict[str, Any]:
    """Return the settings of a world, and its costs if it has any."""
    return world.settings() | ({} if world.costs is None else {"costs": list(world.costs)})


def largest_arm_norm(episodes: Episodes, streams: int) -> Floats:
    """Return max_a ‖μ_a‖ of every stream, or NaN if rewards are not linear in the context."""
    if episodes.arm_params is None:
        return np.full(streams, np.nan)
    return np.asarray(np.linalg.norm(episodes.arm_params, axis=2).max(axis=1))
