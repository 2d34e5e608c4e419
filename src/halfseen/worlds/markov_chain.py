"""Worlds in which a hidden Markov chain determines the observations and the rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfseen.kernels.random import Floats, Keys, Purpose, checked_keys, normal_series, normals, uniforms
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.validation import at_least
from halfseen.worlds.world import Episodes, Rounds, World


@dataclass(frozen=True)
class MarkovChain:
    """A Markov chain of M states with Gaussian observations.

    `transition` is F (M, M) with F_ij = P(j after i). In state s, y ~ N(m_s, `noise_var` I), where `means` is m (M, k).
    """

    transition: Floats
    means: Floats
    noise_var: float

    @property
    def stationary(self) -> Floats:
        """The stationary distribution π = Fᵀπ."""
        M = len(self.transition)
        system = np.vstack([self.transition.T - np.eye(M), np.ones(M)])
        return np.asarray(np.linalg.lstsq(system, np.append(np.zeros(M), 1.0), rcond=None)[0])

    def linear_gaussian(self) -> LinearGaussianModel:
        """Return the linear-Gaussian model with the same first two moments, where x_t is the indicator of the state.

        E[x_{t+1} | x_t] = Fᵀx_t is exact and y = mᵀx + n. So D = Fᵀ, A = mᵀ, and Q = diag(π) − Fᵀdiag(π)F is the
        average covariance of x_{t+1} given x_t. The Kalman filter of this model is the best filter that is linear in y.
        """
        F, share = self.transition, self.stationary
        cov = np.diag(share) - np.outer(share, share)
        process_cov = np.diag(share) - F.T @ np.diag(share) @ F
        return LinearGaussianModel(
            transition=F.T,
            process_cov=0.5 * (process_cov + process_cov.T),
            observation=self.means.T,
            observation_cov=self.noise_var * np.eye(self.means.shape[1]),
            initial_mean=share,
            initial_cov=cov,
        )


class ChainEpisodes(Episodes):
    """B streams of one chain, started from its stationary distribution. `arm_params` (B, K, M): expected rewards."""

    arm_params: Floats

    def __init__(self, keys: Keys, chain: MarkovChain, arm_params: Floats, reward_std: float) -> None:
        self.chain, self.arm_params, self.reward_std = chain, arm_params, reward_std
        self._keys, self._round = keys, 0
        before = uniforms(keys, np.zeros(len(keys), dtype=np.int64), Purpose.HIDDEN_STATE, 1)[:, 0]
        self._state = self._draw(np.tile(chain.stationary, (len(keys), 1)), before)

    @staticmethod
    def _draw(shares: Floats, draws: Floats) -> Any:
        """Draw one state per row of the probabilities `shares`, by inverting their cumulative sums."""
        passed = np.cumsum(shares, axis=1) > draws[:, None]
        passed[:, -1] = True
        return passed.argmax(axis=1)

    def advance(self, n: int) -> Rounds:
        first, n, B = self._round + 1, at_least("n", n, 1), len(self._keys)
        rounds = np.tile(np.arange(first, first + n), B)
        draws = uniforms(np.repeat(self._keys, n, axis=0), rounds, Purpose.HIDDEN_STATE, 1).reshape(B, n)
        states = np.empty((n, B), dtype=np.int64)
        for t in range(n):
            self._state = self._draw(self.chain.transition[self._state], draws[:, t])
            states[t] = self._state
        self._round += n
        k = self.chain.means.shape[1]
        noise = normal_series(self._keys, first, n, Purpose.OBSERVATION_NOISE, k).swapaxes(0, 1)
        reward_noise = normal_series(self._keys, first, n, Purpose.REWARD_NOISE, 1)[:, :, 0]
        return Rounds(
            np.eye(len(self.chain.means))[states],
            np.ascontiguousarray(self.chain.means[states] + np.sqrt(self.chain.noise_var) * noise),
            np.ascontiguousarray(self.arm_params[np.arange(B), :, states]),
            np.ascontiguousarray(self.reward_std * reward_noise.T),
        )

    def facts(self) -> dict[str, Any]:
        """Return facts about this world. `model` is the linear-Gaussian model with the same first two moments."""
        model, share = self.chain.linear_gaussian(), self.chain.stationary
        return {
            "model": model,
            "arm_params": self.arm_params,
            "latent": len(share),
            "observation": model.observation,
            "observation_cov": model.observation_cov,
            "context_cov": np.diag(share),
            "noise_std": self.reward_std,
            "states": len(share),
            "state_transition": self.chain.transition,
            "state_prior": share,
            "state_rewards": self.arm_params,
            "state_std": self.reward_std,
        }


@dataclass(frozen=True, eq=False)
class ChainWorld(World):
    """A world with one Markov chain for all seeds and random arms.

    The expected reward of each arm in each state is a standard normal draw, different for every seed. The context x_t
    is the indicator (0, .., 1, .., 0) of the state, and rewards are linear in x_t.
    """

    name: str
    chain: MarkovChain
    arms: int
    reward_std: float

    @property
    def latent(self) -> int:  # type: ignore[override]
        return len(self.chain.means)

    @property
    def observed(self) -> int:  # type: ignore[override]
        return int(self.chain.means.shape[1])

    def begin(self, seeds: Sequence[int]) -> ChainEpisodes:
        keys = checked_keys(seeds)
        before = np.zeros(len(keys), dtype=np.int64)
        rewards = normals(keys, before, Purpose.ARM_PARAMETERS, self.arms * self.latent)
        return ChainEpisodes(keys, self.chain, rewards.reshape(len(keys), self.arms, self.latent), self.reward_std)

    def settings(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "arms": self.arms,
            "reward_std": self.reward_std,
            "state_transition": self.chain.transition.tolist(),
            "state_means": self.chain.means.tolist(),
            "observation_var": self.chain.noise_var,
        }
