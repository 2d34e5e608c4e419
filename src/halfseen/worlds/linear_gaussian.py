"""Worlds with linear-Gaussian dynamics of the context (equations 1 to 3 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from halfseen.errors import invalid
from halfseen.kernels.checks import COMPLETE, classify_values
from halfseen.kernels.random import (
    Floats,
    Keys,
    Purpose,
    checked_keys,
    normal_series,
    normals,
    orthogonal_matrices,
    stochastic_matrices,
)
from halfseen.kernels.simulation import move_contexts
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.validation import LIMIT, at_least, covariances, positive, real_numbers, stack_for_streams
from halfseen.worlds.quantised import Quantised, covariance_root, quantise
from halfseen.worlds.world import Episodes, Rounds, World


class Change(NamedTuple):
    """A change of the dynamics: from `first_round` on, x_t = D x_{t-1} + ε with this transition D."""

    first_round: int
    transition: Floats  # D (B, d, d)


class LinearGaussianEpisodes(Episodes):
    """B streams with the dynamics x_t = D x_{t-1} + ε.

    The transitions of the models apply until the first change. `changes` are in order of time.
    """

    arm_params: Floats

    def __init__(
        self,
        keys: Keys,
        models: Sequence[LinearGaussianModel],
        arm_params: Floats,
        reward_std: float,
        dynamics: str | None = None,
        changes: Sequence[Change] = (),
    ) -> None:
        self.models, self.arm_params, self.reward_std, self.dynamics = models, arm_params, reward_std, dynamics
        self.canonical = all(model.canonical().trivial for model in models)
        self._keys = keys
        self._schedule = [Change(1, np.stack([model.transition for model in models])), *changes]
        self._observation = np.stack([model.observation for model in models])
        self._process_root = covariance_root(np.stack([model.process_cov for model in models]))
        self._noise_root = covariance_root(np.stack([model.observation_cov for model in models]))
        d = models[0].latent
        self._observes_coordinates = bool((self._observation == np.eye(models[0].observed, d)).all())
        start = normals(keys, np.zeros(len(keys), dtype=np.int64), Purpose.INITIAL_CONTEXT, d)
        roots = covariance_root(np.stack([model.initial_cov for model in models]))
        self._context = np.stack([model.initial_mean + L @ z for model, L, z in zip(models, roots, start, strict=True)])
        self._round = 0

    def advance(self, n: int) -> Rounds:
        """Return the next n rounds."""
        first, d = self._round + 1, self._context.shape[1]
        n = at_least("n", n, 1)
        process = _scale_noise(normal_series(self._keys, first, n, Purpose.PROCESS_NOISE, d), self._process_root)
        contexts = self._move(first, process)
        if classify_values(contexts[:, -1].copy()) != COMPLETE:
            raise invalid("world", "bounded dynamics", f"contexts beyond ±{LIMIT:g} in round {first + n - 1}")
        self._context = contexts[:, -1].copy()
        self._round += n
        k = self._noise_root.shape[-1]
        observations = contexts[:, :, :k] if self._observes_coordinates else contexts @ self._observation.swapaxes(1, 2)
        if self._noise_root.any():
            noise = normal_series(self._keys, first, n, Purpose.OBSERVATION_NOISE, k)
            observations = observations + _scale_noise(noise, self._noise_root)
        expected = contexts @ self.arm_params.swapaxes(1, 2)
        reward_noise = self.reward_std * normal_series(self._keys, first, n, Purpose.REWARD_NOISE, 1)[:, :, 0]
        return Rounds(
            contexts.swapaxes(0, 1),
            np.ascontiguousarray(observations.swapaxes(0, 1)),
            expected.swapaxes(0, 1),
            reward_noise.T,
        )

    def _move(self, first: int, noise: Floats) -> Floats:
        """Return the contexts (B, n, d) of the rounds from `first` on, given the process noise (B, n, d)."""
        end = first + noise.shape[1]
        starts = [change.first_round for change in self._schedule]
        parts: list[Floats] = []
        for (_, transition), start, stop in zip(self._schedule, starts, [*starts[1:], end], strict=True):
            low, high = max(start, first), min(stop, end)
            if low < high:
                before = parts[-1][:, -1].copy() if parts else self._context
                steps = np.ascontiguousarray(noise[:, low - first : high - first])
                parts.append(move_contexts(transition, steps, before))
        return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    def facts(self) -> dict[str, Any]:
        """Return facts about this world. Each key is the name of the agent option that takes the fact.

        `model` is the model of the first round. No agent is told about later changes of the dynamics. If the true D was
        drawn at random from a family of matrices, agents that learn the dynamics start from another draw of this
        family. The paper does not say where EMKF starts, and this choice is the most favourable to EMKF. Agents that
        need a Markov chain are given an approximation of the model (worlds/quantised.py).
        """
        start = {} if self.dynamics is None else {"initial_transition": self.dynamics}
        return start | {
            "model": self.models,
            "arm_params": self.arm_params,
            "latent": self.models[0].latent,
            "observation_cov": np.stack([model.observation_cov for model in self.models]),
            "noise_std": self.reward_std,
            "context_cov": lambda: "running" if self._second_moments is None else self._second_moments,
            "observation": lambda: None if self._second_moments is None else self._observation,
            "state_transition": lambda: self._quantised.transition,
            "state_prior": lambda: self._quantised.prior,
            "state_rewards": lambda: self._quantised.rewards,
            "state_std": lambda: self._quantised.std,
        }

    @cached_property
    def _second_moments(self) -> Floats | None:
        """The limits of E[x_t x_tᵀ], (B, d, d), or None if one of the streams has no limit."""
        found = [long_run_second_moment(model) for model in self.models]
        return None if any(one is None for one in found) else np.stack([one for one in found if one is not None])

    @cached_property
    def _quantised(self) -> Quantised:
        return quantise(self._keys, self.models, self.arm_params, self.reward_std)


def _scale_noise(noise: Floats, roots: Floats) -> Floats:
    """Return L z for every standard normal vector z (B, n, d) and L (B, d, d). Diagonal matrices L take less time."""
    scales = np.einsum("bii->bi", roots)
    if np.count_nonzero(roots) == np.count_nonzero(scales):
        return np.asarray(noise * scales[:, None, :])
    return np.asarray(noise @ roots.swapaxes(1, 2))


ObservationNoise: TypeAlias = float | tuple[tuple[float, ...], ...]  # one variance for all sensors, or the matrix Σ


def observation_noise(argument: str, value: ArrayLike, observed: int) -> ObservationNoise:
    """Check a variance (at least 0) or a covariance matrix. Return a float or tuples, which `==` can compare."""
    if np.ndim(value) == 0:
        return positive(argument, value, zero_allowed=True)
    matrix = covariances(argument, value, 1, observed)[0]
    return tuple(tuple(row) for row in matrix.tolist())


@dataclass(frozen=True)
class RandomWorld(World):
    """A linear-Gaussian world whose parameters are drawn at random for every seed.

    The covariances are Q = `process_var` I and Σ = `observation_var` I, unless `observation_var` is a matrix. The
    initial context x_0 and the arm parameters μ_a are standard normal.

    Parameters
    ----------
    name : str
        Name of the world.
    latent, observed, arms : int
        The dimension of the context, the number of observed coordinates and the number of arms.
    dynamics : {"stochastic", "orthogonal"}
        How the transition D is drawn. "stochastic": uniform entries with rows scaled to sum to 1. "orthogonal": 0.98
        times a random orthogonal matrix.
    process_var : float
        The variance of the process noise.
    reward_std : float
        The standard deviation of the reward noise.
    observation_var : float or array_like of shape (k, k), optional
        The variance of the observation noise, or its covariance matrix Σ.
    changes_after : int, optional
        The round after which another random D of the same kind replaces the first D.

    Examples
    --------
    >>> import halfseen as hs
    >>> world = hs.worlds.RandomWorld(
    ...     name="small", latent=4, observed=2, arms=3, dynamics="orthogonal", process_var=0.1, reward_std=1.0
    ... )
    >>> world.begin([7]).advance(10).contexts.shape
    (10, 1, 4)
    """

    name: str
    latent: int
    observed: int
    arms: int
    dynamics: str
    process_var: float
    reward_std: float
    observation_var: ObservationNoise = 0.0
    changes_after: int | None = None

    def __post_init__(self) -> None:
        for size in ("latent", "observed", "arms"):
            object.__setattr__(self, size, at_least(size, getattr(self, size), 1))
        if self.observed > self.latent:
            raise invalid("observed", f"at most {self.latent}, the dimension of the context", self.observed)
        if self.dynamics not in ("stochastic", "orthogonal"):
            raise invalid("dynamics", "'stochastic' or 'orthogonal'", repr(self.dynamics))
        noise = observation_noise("observation_var", self.observation_var, self.observed)
        object.__setattr__(self, "observation_var", noise)

    def begin(self, seeds: Sequence[int]) -> LinearGaussianEpisodes:
        keys, d, k = checked_keys(seeds), self.latent, self.observed
        before = np.zeros(len(keys), dtype=np.int64)
        changes = []
        if self.changes_after is not None:
            changes.append(Change(self.changes_after + 1, self._transitions(keys, Purpose.SECOND_TRANSITION)))
        observation_cov = np.array(self.observation_var)
        if observation_cov.ndim == 0:
            observation_cov = observation_cov * np.eye(k)
        models = [
            LinearGaussianModel(
                transition=one, process_cov=self.process_var * np.eye(d), observation_cov=observation_cov
            )
            for one in self._transitions(keys, Purpose.TRANSITION)
        ]
        arm_params = normals(keys, before, Purpose.ARM_PARAMETERS, self.arms * d).reshape(len(keys), self.arms, d)
        return LinearGaussianEpisodes(keys, models, arm_params, self.reward_std, self.dynamics, changes)

    def _transitions(self, keys: Keys, purpose: Purpose) -> Floats:
        """Return one transition matrix per key, (n, d, d)."""
        if self.dynamics == "stochastic":
            return stochastic_matrices(keys, purpose, self.latent)
        return 0.98 * orthogonal_matrices(keys, purpose, self.latent)

    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


class FixedWorld(World):
    """A linear-Gaussian world with given matrices, made by `linear_gaussian`. Seeds differ only in the random draws."""

    def __init__(self, name: str, model: LinearGaussianModel, arm_params: ArrayLike, reward_std: float) -> None:
        if not isinstance(model, LinearGaussianModel):
            raise invalid("model", "a LinearGaussianModel", type(model).__name__)
        table = real_numbers("arm_params", arm_params)
        if table.ndim != 2:
            raise invalid("arm_params", f"shape (arms, {model.latent})", f"shape {table.shape}")
        self.name, self.model = name, model
        self.latent, self.observed, self.arms = model.latent, model.observed, len(table)
        self.arm_params = stack_for_streams("arm_params", table, 1, (self.arms, self.latent))[0]
        self.reward_std = positive("reward_std", reward_std, zero_allowed=True)

    def begin(self, seeds: Sequence[int]) -> LinearGaussianEpisodes:
        keys = checked_keys(seeds)
        arm_params = np.tile(self.arm_params, (len(keys), 1, 1))
        return LinearGaussianEpisodes(keys, [self.model] * len(keys), arm_params, self.reward_std)

    def settings(self) -> dict[str, Any]:
        model = self.model
        return {
            "name": self.name,
            "transition": model.transition.tolist(),
            "process_cov": model.process_cov.tolist(),
            "observation": model.observation.tolist(),
            "observation_cov": model.observation_cov.tolist(),
            "initial_mean": model.initial_mean.tolist(),
            "initial_cov": model.initial_cov.tolist(),
            "arm_params": self.arm_params.tolist(),
            "reward_std": self.reward_std,
        }


def linear_gaussian(
    *, model: LinearGaussianModel, arm_params: ArrayLike, reward_std: float = 1.0, name: str = "own"
) -> FixedWorld:
    """Make a world from a linear-Gaussian model and arm parameters.

    Parameters
    ----------
    model : LinearGaussianModel
        The dynamics of the context and the observation matrix.
    arm_params : array_like of shape (K, d)
        The vectors μ_a. The expected reward of arm a in context x is ⟨x, μ_a⟩.
    reward_std : float, optional
        The standard deviation of the reward noise.
    name : str, optional
        Name of the world in tables and reports.

    Returns
    -------
    FixedWorld
        The world, which can be passed to `hs.run`.

    Examples
    --------
    >>> import halfseen as hs
    >>> model = hs.LinearGaussianModel(transition=[[0.9, 0.2], [-0.2, 0.9]], process_cov=0.1, observation_cov=[0.1])
    >>> world = hs.worlds.linear_gaussian(model=model, arm_params=[[1.0, 0.0], [0.0, 1.0]], reward_std=0.5)
    >>> world.observed, world.arms
    (1, 2)
    """
    return FixedWorld(name, model, arm_params, reward_std)


def long_run_second_moment(model: LinearGaussianModel) -> Floats | None:
    """Return the limit of E[x_t x_tᵀ] = Σ_{s<t} DˢQDˢᵀ + Dᵗ(P_0 + m_0m_0ᵀ)Dᵗᵀ, or None if there is no limit."""
    D, noise = model.transition, model.process_cov
    start = model.initial_cov + np.outer(model.initial_mean, model.initial_mean)
    largest = 1e9 * (np.trace(start) + np.trace(noise))
    for _ in range(60):  # each step doubles t
        noise = noise + D @ noise @ D.T
        D = D @ D
        if not np.trace(noise) + np.trace(D @ start @ D.T) < largest:
            return None
    limit = noise + D @ start @ D.T
    return np.asarray(0.5 * (limit + limit.T))
