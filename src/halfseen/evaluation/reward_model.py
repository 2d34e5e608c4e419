"""The reward model of the doubly robust estimator (docs/mathematics.md, "Off-policy evaluation")."""

from __future__ import annotations

import itertools

import numpy as np

from halfseen.kernels.random import Floats, Ints

BLOCKS = 10


def predicted_rewards(
    observations: Floats, played: Ints, rewards: Floats, arms: int, *, regularisation: float, blocks: int = BLOCKS
) -> Floats:
    """Predict the reward (n, K) of every arm in every round by a ridge regression per arm on (1, standardised y).

    A missing entry of y is replaced by its mean. Rounds are divided into blocks of time, and each block is predicted by
    a regression on the other blocks, so that no round contributes to its own prediction. Predictions shrink towards the
    mean reward of all arms. This mean is also the prediction for an arm that was not played in the other blocks.
    """
    n = len(rewards)
    blocks = min(blocks, n)
    if blocks < 2:
        return np.zeros((n, arms))
    features = _features(observations)
    size = features.shape[1]
    edges = np.round(np.linspace(0, n, blocks + 1)).astype(np.int64)
    grams, sums = np.zeros((blocks, arms, size, size)), np.zeros((blocks, arms, size))
    for block, (first, end) in enumerate(itertools.pairwise(edges)):
        for arm in np.unique(played[first:end]):
            rows = first + np.flatnonzero(played[first:end] == arm)
            own = features[rows]
            grams[block, arm], sums[block, arm] = own.T @ own, own.T @ rewards[rows]
    predicted = np.empty((n, arms))
    for block, (first, end) in enumerate(itertools.pairwise(edges)):
        others = np.arange(blocks) != block
        gram, total = grams[others].sum(axis=0), sums[others].sum(axis=0)
        # The first feature is 1, so the first entries are the number of rounds and the sum of rewards.
        mean = total[:, 0].sum() / gram[:, 0, 0].sum()
        precision = gram + regularisation * np.eye(size)
        coefficients = np.linalg.solve(precision, (total - mean * gram[:, :, 0])[:, :, None])[:, :, 0]
        predicted[first:end] = mean + features[first:end] @ coefficients.T
    return predicted


def _features(observations: Floats) -> Floats:
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
