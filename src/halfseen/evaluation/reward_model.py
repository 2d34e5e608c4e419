"""The reward model of the direct and doubly robust estimators (docs/mathematics.md, "Off-policy evaluation")."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from halfseen.kernels.random import Floats, Ints

BLOCKS = 10


class _Fit(NamedTuple):
    """The normal equations of the regressions that predict one block of time."""

    rows: Ints  # the block
    others: Ints  # the rounds of the other blocks
    mean: float  # the mean reward in the rounds `others`
    precision: Floats  # (K, k + 1, k + 1)
    target: Floats  # (K, k + 1)


class RewardModel:
    """A ridge regression per arm on (1, standardised y), fitted on other blocks of time than the one it predicts.

    A missing entry of y is replaced by the mean of its column. No round contributes to its own prediction. Predictions
    shrink towards the mean reward of all arms. This mean is also the prediction for an arm that was not played in the
    other blocks.

    Parameters
    ----------
    observations : ndarray of shape (n, k)
        The observations. NaN marks missing entries.
    played : ndarray of shape (n,)
        The indices of the arms played.
    rewards : ndarray of shape (n,)
        The rewards, without NaN.
    arms : int
        The number of arms, K.
    regularisation : float
        The ridge penalty.
    limits : tuple of float, optional
        The range of rewards, to which predictions are clipped.
    blocks : int, optional
        The number of blocks of time.
    """

    def __init__(
        self,
        observations: Floats,
        played: Ints,
        rewards: Floats,
        arms: int,
        *,
        regularisation: float,
        limits: tuple[float, float] = (-np.inf, np.inf),
        blocks: int = BLOCKS,
    ) -> None:
        self.played, self.rewards, self.arms = played, rewards, arms
        self.regularisation, self.limits, self.blocks = regularisation, limits, blocks
        self.features = standardised(observations)
        self._plain = list(self._fits(np.ones(len(rewards))))

    def predict(self, weights: Floats | None = None) -> Floats:
        """Predict the reward (n, K) of every arm in every round.

        `weights` (n,) are the weights of the squared errors. Each regression divides its weights by their mean, or
        ignores them if all of them are 0.
        """
        predicted = np.zeros((len(self.rewards), self.arms))
        for fit in self._plain if weights is None else self._fits(weights):
            coefficients = np.linalg.solve(fit.precision, fit.target[:, :, None])[:, :, 0]
            predicted[fit.rows] = fit.mean + self.features[fit.rows] @ coefficients.T
        return np.clip(predicted, *self.limits)

    def direct_weights(self, probabilities: Floats) -> Floats:
        """Return the weights (n,) with which the rewards enter the estimate of the direct method.

        The estimate, the mean of Σ_a π(a) r̂(a), is linear in the rewards. The weights are n times its coefficients,
        with the mean reward of each fit (`fit.mean`) treated as a constant.
        """
        weights = np.zeros(len(self.rewards))
        for fit in self._plain:
            shares = probabilities[fit.rows].T @ self.features[fit.rows]
            coefficients = np.linalg.solve(fit.precision, shares[:, :, None])[:, :, 0]
            weights[fit.others] += (self.features[fit.others] * coefficients[self.played[fit.others]]).sum(axis=1)
        return weights

    def _fits(self, weights: Floats) -> Iterator[_Fit]:
        n, size = self.features.shape
        for rows in time_blocks(n, self.blocks):
            others = np.setdiff1d(np.arange(n), rows, assume_unique=True)
            chosen = weights[others] if weights[others].any() else np.ones(len(others))
            chosen = chosen / chosen.mean()
            mean = float(chosen @ self.rewards[others] / len(others))
            precision = np.tile(self.regularisation * np.eye(size), (self.arms, 1, 1))
            target = np.zeros((self.arms, size))
            for arm in np.unique(self.played[others]):
                at = self.played[others] == arm
                own = self.features[others[at]]
                weighted = own * chosen[at, None]
                precision[arm] += weighted.T @ own
                target[arm] = weighted.T @ (self.rewards[others[at]] - mean)
            yield _Fit(rows, others, mean, precision, target)


def time_blocks(rounds: int, blocks: int = BLOCKS) -> list[Ints]:
    """Divide the rounds into blocks of time. Return an empty list if there would be fewer than two."""
    count = min(blocks, rounds)
    edges = np.round(np.linspace(0, rounds, count + 1)).astype(np.int64)
    return [np.arange(first, end) for first, end in itertools.pairwise(edges)] if count >= 2 else []


def standardised(observations: Floats) -> Floats:
    """Return the features (1, standardised y). Rewards are not used."""
    present = ~np.isnan(observations)
    count = np.maximum(present.sum(axis=0), 1)
    centred = np.where(present, observations, 0.0)
    mean = centred.sum(axis=0) / count
    centred = np.where(present, observations - mean, 0.0)
    spread = np.sqrt((centred**2).sum(axis=0) / count)
    varies = spread > 1e-12 * np.abs(mean)  # a constant entry is replaced by 0
    scaled = centred / np.where(varies, spread, np.inf)
    return np.column_stack([np.ones(len(observations)), scaled])
