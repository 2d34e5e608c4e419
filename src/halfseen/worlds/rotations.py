"""Linear-Gaussian worlds whose hidden part consists of damped rotations, drawn at random for every seed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Keys, Purpose, checked_keys, normals, orthogonal_matrices, uniforms
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.validation import at_least
from halfseen.worlds.linear_gaussian import LinearGaussianEpisodes
from halfseen.worlds.world import World


def rotation_blocks(radii: Floats, angles: Floats, size: int) -> Floats:
    """Return a block-diagonal matrix (size, size) of 2 × 2 rotations, each multiplied by its radius.

    If `size` is odd, the last entry of the diagonal is the last radius.
    """
    blocks = np.zeros((size, size))
    for i, (radius, angle) in enumerate(zip(radii, angles, strict=True)):
        c, s = radius * np.cos(angle), radius * np.sin(angle)
        if 2 * i + 1 < size:
            blocks[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, -s], [s, c]]
        else:
            blocks[2 * i, 2 * i] = radius
    return blocks


@dataclass(frozen=True)
class _RotationWorld(World):
    """A world whose model and arms are drawn at random for every seed."""

    name: str
    latent: int
    observed: int
    arms: int

    def __post_init__(self) -> None:
        for size in ("latent", "observed", "arms"):
            object.__setattr__(self, size, at_least(size, getattr(self, size), 1))
        if self.observed > self.latent:
            raise invalid("observed", f"at most {self.latent}, the dimension of the context", self.observed)

    @abstractmethod
    def _model(self, key: Keys) -> LinearGaussianModel:
        """Draw and return the model of one stream. `key` (1, 2) is the key of the stream."""

    @property
    @abstractmethod
    def _reward_stds(self) -> tuple[float, float]:
        """The standard deviations of the reward noise and of the entries of the arm parameters."""

    def begin(self, seeds: Sequence[int]) -> LinearGaussianEpisodes:
        keys = checked_keys(seeds)
        noise_std, arm_std = self._reward_stds
        drawn = normals(keys, np.zeros(len(keys), dtype=np.int64), Purpose.ARM_PARAMETERS, self.arms * self.latent)
        arm_params = arm_std * drawn.reshape(len(keys), self.arms, self.latent)
        models = [self._model(keys[i : i + 1]) for i in range(len(keys))]
        return LinearGaussianEpisodes(keys, models, arm_params, noise_std)

    def settings(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, **vars(self)}


class DeepWorld(_RotationWorld):
    """Many damped rotations, with few observed coordinates.

    D = H·B·Hᵀ, where H is a random orthogonal matrix, and B is block-diagonal and consists of rotations with radii from
    .96 to .995 and angles from .05 to 1.2. Q = .1·diag(U(.3, 2)), Σ = .02 I, σ = .5 and μ_a ~ N(0, I/d).
    """

    @property
    def _reward_stds(self) -> tuple[float, float]:
        return 0.5, self.latent**-0.5

    def _model(self, key: Keys) -> LinearGaussianModel:
        d, pairs = self.latent, (self.latent + 1) // 2
        H = orthogonal_matrices(key, Purpose.TRANSITION, d)[0]
        drawn = uniforms(key, np.ones(1, dtype=np.int64), Purpose.TRANSITION, 2 * pairs + d)[0]
        radii, angles = 0.96 + 0.035 * drawn[:pairs], 0.05 + 1.15 * drawn[pairs : 2 * pairs]
        return LinearGaussianModel(
            transition=H @ rotation_blocks(radii, angles, d) @ H.T,
            process_cov=np.diag(0.1 * (0.3 + 1.7 * drawn[2 * pairs :])),
            observation_cov=0.02 * np.eye(self.observed),
        )


class TwoScalesWorld(_RotationWorld):
    """Observed coordinates with a short memory, and slow hidden rotations that are observed only through them.

    The k fast coordinates have D = .5 and process variance 1. The other d − k coordinates are rotations with radius
    .996 and angle .03, and have process variance .02. A = [I, L] with loadings L ~ N(0, .4²), Σ = .05 I, σ = 1 and
    μ_a ~ N(0, I).
    """

    @property
    def _reward_stds(self) -> tuple[float, float]:
        return 1.0, 1.0

    def _model(self, key: Keys) -> LinearGaussianModel:
        d, k, slow = self.latent, self.observed, self.latent - self.observed
        transition, process_var = np.zeros((d, d)), np.ones(d)
        transition[:k, :k] = 0.5 * np.eye(k)
        pairs = (slow + 1) // 2
        transition[k:, k:] = rotation_blocks(np.full(pairs, 0.996), np.full(pairs, 0.03), slow)
        process_var[k:] = 0.02
        loadings = 0.4 * normals(key, np.zeros(1, dtype=np.int64), Purpose.TRANSITION, k * slow).reshape(k, slow)
        return LinearGaussianModel(
            transition=transition,
            process_cov=np.diag(process_var),
            observation=np.hstack([np.eye(k), loadings]),
            observation_cov=0.05 * np.eye(k),
        )
