"""Worlds whose rewards are clicks or counts, with linear-Gaussian dynamics of the context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Keys, Purpose, checked_keys, uniforms
from halfseen.worlds.linear_gaussian import LinearGaussianEpisodes, RandomWorld, long_run_second_moment
from halfseen.worlds.quantised import Quantised, quantise
from halfseen.worlds.world import DrawnRounds, Episodes, World

_NODES = 101  # number of nodes of the quadrature over the linear predictor


@dataclass(frozen=True)
class FamilyWorld(World):
    """A world with the contexts of another world. Its rewards are 0 or 1 ("binary"), or Poisson counts ("count").

    The expected reward of arm a is μ(η_a) with η_a = b + `spread`·x_tᵀμ_a/s, where μ is the logistic function or exp,
    and s² is the long-run mean of (x_tᵀμ_a)² over rounds and arms. The intercept b is chosen so that the long-run mean
    reward of an arm drawn at random is `mean_reward` if η_a is normally distributed.

    Parameters
    ----------
    name : str
        Name of the world.
    contexts : RandomWorld
        The world that provides contexts, observations and the arm parameters μ_a.
    reward_family : {"binary", "count"}
        The family of the rewards.
    mean_reward : float
        The long-run mean reward of random play.
    spread : float
        The standard deviation of the linear predictor over rounds and arms.
    """

    name: str
    contexts: RandomWorld
    reward_family: str = "binary"
    mean_reward: float = 0.1
    spread: float = 1.5

    def __post_init__(self) -> None:
        if self.reward_family not in ("binary", "count"):
            raise invalid("reward_family", "'binary' or 'count'", repr(self.reward_family))
        most = 1.0 if self.reward_family == "binary" else 1e6
        if not 0.0 < self.mean_reward < most:
            raise invalid("rate", f"a number between 0 and {most:g}", self.mean_reward)

    @property
    def latent(self) -> int:  # type: ignore[override]
        return self.contexts.latent

    @property
    def observed(self) -> int:  # type: ignore[override]
        return self.contexts.observed

    @property
    def arms(self) -> int:  # type: ignore[override]
        return self.contexts.arms

    def begin(self, seeds: Sequence[int]) -> FamilyEpisodes:
        inner = self.contexts.begin(seeds)
        powers = []
        for model, params in zip(inner.models, inner.arm_params, strict=True):
            moment = long_run_second_moment(model)
            if moment is None:
                raise invalid("world", "contexts with a long-run variance", f"those of '{self.contexts.name}'")
            powers.append(np.einsum("ad,de,ae->a", params, moment, params).mean())
        scales = self.spread / np.sqrt(np.array(powers))
        return FamilyEpisodes(checked_keys(seeds), inner, self.reward_family, self.intercept, scales)

    def settings(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("name", "reward_family", "mean_reward", "spread")}
        return self.contexts.settings() | own

    @cached_property
    def intercept(self) -> float:
        """The intercept b of the linear predictors η_a."""
        if self.reward_family == "count":
            return float(np.log(self.mean_reward) - 0.5 * self.spread**2)
        from scipy.optimize import brentq

        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)

        def excess(b: float) -> float:
            return float(weights @ _inverse_link("binary", b + self.spread * nodes) / weights.sum() - self.mean_reward)

        return float(brentq(excess, -100.0, 100.0, xtol=1e-12))


class FamilyEpisodes(Episodes):
    """B streams of a `FamilyWorld`. In every round, the rewards of all arms are computed from the same uniform draw."""

    def __init__(
        self, keys: Keys, inner: LinearGaussianEpisodes, family: str, intercept: float, scales: Floats
    ) -> None:
        self.canonical, self.models = inner.canonical, inner.models
        self._keys, self._inner, self._family, self._round = keys, inner, family, 0
        self._intercept, self._params = intercept, inner.arm_params * scales[:, None, None]

    def advance(self, n: int) -> DrawnRounds:
        rounds = self._inner.advance(n)
        expected = self._expected(np.einsum("nbd,bad->nba", rounds.contexts, self._params))
        B = len(self._keys)
        numbers = np.tile(np.arange(self._round + 1, self._round + n + 1), B)
        draws = uniforms(np.repeat(self._keys, n, axis=0), numbers, Purpose.REWARD_NOISE, 1).reshape(B, n)
        self._round += n
        draws = draws.T[:, :, None]
        if self._family == "binary":
            rewards = (draws < expected).astype(np.float64)
        else:
            from scipy.stats import poisson

            rewards = np.asarray(poisson.ppf(draws, expected))
        return DrawnRounds.of(rounds.contexts, rounds.observations, expected, rewards)

    def _expected(self, products: Floats) -> Floats:
        return _inverse_link(self._family, self._intercept + products)

    def facts(self) -> dict[str, Any]:
        """Return facts about this world. Each key is the name of the agent option that takes the fact.

        `noise_std` is the standard deviation of a reward whose linear predictor η is the intercept b.
        """
        mean = float(self._expected(np.zeros(1))[0])
        std = float(np.sqrt(mean * (1.0 - mean) if self._family == "binary" else mean))
        return self._inner.facts() | {
            "arm_params": self._params,
            "noise_std": std,
            "state_transition": lambda: self._quantised.transition,
            "state_prior": lambda: self._quantised.prior,
            "state_rewards": lambda: self._quantised.rewards,
            "state_std": lambda: self._quantised.std,
        }

    @cached_property
    def _quantised(self) -> Quantised:
        return quantise(self._keys, self.models, self._params, float(self.facts()["noise_std"]), self._expected)


def _inverse_link(family: str, predictors: Floats) -> Floats:
    if family == "binary":
        from scipy.special import expit

        return np.asarray(expit(predictors))
    return np.exp(predictors)
