"""Ridge regression (line 11 of the paper's Algorithm 1)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfseen.components import Learner, Mask, Payoffs, StreamBatch
from halfseen.errors import HalfseenError, invalid
from halfseen.kernels.random import Floats, Ints, Keys, Purpose
from halfseen.kernels.regression import MAX_REDUCTION, learn_rewards, replace_rewards, score_arms
from halfseen.kernels.rounds import play_rounds, score_and_pick
from halfseen.validation import Numbers, positive

_CHOICE = int(Purpose.CHOICE)
_empty = np.empty


class Ridge(Learner):
    """Ridge regression, one per arm.

    The posterior of the parameters of arm a has mean μ̂_a = B_a⁻¹ f_a and covariance B_a⁻¹, in units of the noise
    variance. Here B_a = λI + Σ ccᵀ and f_a = Σ rc, summed over the rounds in which the arm was played. The learner
    stores mean and covariance and updates both by a rank-one step per reward. Only the upper triangle of the covariance
    is stored (`cov_packed`), together with log |B_a/λ| (`log_det`).

    Parameters
    ----------
    regularisation : float
        λ.
    """

    state_names: ClassVar[tuple[str, ...]] = ("mean", "cov_packed", "log_det")

    def __init__(
        self, streams: StreamBatch, dimension: int, *, regularisation: Annotated[float, Numbers(1e-100, 1e100)] = 1.0
    ) -> None:
        self.prior_precision = positive("regularisation", regularisation)
        self.arms = streams.arms
        self._triangle = np.triu_indices(dimension)
        self.mean, self.cov_packed, self.log_det = self._prior(streams.count, streams.arms, dimension)

    def _prior(self, count: int, arms: int, dimension: int) -> tuple[Floats, Floats, Floats]:
        rows, columns = self._triangle
        cov_packed = np.tile(np.where(rows == columns, 1.0 / self.prior_precision, 0.0), (count, arms, 1))
        return np.zeros((count, arms, dimension)), cov_packed, np.zeros((count, arms))

    def add_arm(self, params: ArrayLike | None) -> None:
        if params is not None:
            raise invalid("params", "nothing, as this agent estimates the arm parameters", repr(params))
        count, _, dimension = self.mean.shape
        for name, prior in zip(Ridge.state_names, self._prior(count, 1, dimension), strict=True):
            setattr(self, name, np.concatenate([getattr(self, name), prior], axis=1))
        self.arms += 1

    def score(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        shape = (len(rows), self.mean.shape[1])
        means, variances = np.empty(shape), np.empty(shape)
        score_arms(rows, self.mean, self.cov_packed, features, means, variances)
        return means, variances

    def score_and_pick(
        self,
        rows: Ints,
        features: Floats,
        widths: Floats,
        distribution: int,
        keys: Keys,
        rounds: Ints,
        available: Mask,
        arms: Ints,
    ) -> tuple[Floats, Floats]:
        scores = _empty((2, len(rows), self.arms))
        score_and_pick(
            rows, self.mean, self.cov_packed, features, widths, distribution, keys, rounds, _CHOICE, available,
            scores, arms,
        )  # fmt: skip
        return scores[0], scores[1]

    def play_rounds(
        self,
        features: Floats,
        widths: Floats,
        distribution: int,
        keys: Keys,
        rounds: Ints,
        available: Mask,
        payoffs: Payoffs,
        arms: Ints,
        rewards: Floats,
    ) -> None:
        rows, wide, expected = (array.reshape(-1, array.shape[-1]) for array in (features, widths, payoffs.expected))
        refused = play_rounds(
            self.mean, self.cov_packed, self.log_det, rows, wide, distribution, keys, rounds, _CHOICE, available,
            expected, payoffs.noise, float(payoffs.unit), arms, rewards,
        )  # fmt: skip
        if refused >= 0:
            raise self._refusal(rows[refused])

    def learn(self, rows: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        refused = learn_rewards(rows, self.mean, self.cov_packed, self.log_det, features, arms, rewards)
        if refused >= 0:
            raise self._refusal(features[refused])

    def may_refuse(self, features: Floats) -> bool:
        """Return whether cᵀB_a⁻¹c may exceed MAX_REDUCTION, in which case `learn` raises an error.

        As B_a⁻¹ ⪯ I/λ, this is possible only if |c|² is large.
        """
        largest = np.einsum("ij,ij->i", features, features).max(initial=0.0)
        return not largest <= 0.1 * MAX_REDUCTION * self.prior_precision

    def replace_rewards(
        self, rows: Ints, features: Floats, arms: Ints, old_rewards: Floats, rewards: Floats, replacement_data: Floats
    ) -> None:
        replace_rewards(rows, self.mean, self.cov_packed, features, arms, rewards - old_rewards)

    def _refusal(self, feature: Floats) -> HalfseenError:
        return invalid(
            "context",
            f"smaller entries (rescale the observations, or raise the regularisation, now {self.prior_precision:g})",
            f"{np.abs(feature).max():.3g}",
        )

    def log_determinants(self, rows: Ints) -> Floats:
        return self.log_det[rows]

    def arms_without_reward(self, row: int) -> Ints:
        return np.flatnonzero(self.log_det[row] == 0)

    @property
    def covariances(self) -> NDArray[np.float64]:
        """The matrices B_a⁻¹, (B, K, p, p)."""
        return full_matrices(self.cov_packed, self.mean.shape[-1])


def full_matrices(packed: Floats, size: int) -> Floats:
    """Return the symmetric matrices (…, p, p) with the upper triangles `packed` (…, p(p+1)/2), stored row by row."""
    rows, columns = np.triu_indices(size)
    full = np.empty((*packed.shape[:-1], size, size))
    full[..., rows, columns] = packed
    full[..., columns, rows] = packed
    return full
