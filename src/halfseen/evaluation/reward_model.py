"""What each arm would have paid in each round, predicted from rounds of other times (docs/mathematics.md)."""

from __future__ import annotations

import itertools

import numpy as np

from halfseen.kernels.random import Floats, Ints

BLOCKS = 10


def predicted_rewards(
    observations: Floats, played: Ints, rewards: Floats, arms: int, *, regularisation: float, blocks: int = BLOCKS
) -> Floats:
    """Rewards (n, K) of every arm, by a ridge regression per arm on (1, standardised y), NaN counting as the mean.

    Rounds are cut into blocks of time, and each block is predicted by what was learnt in the others: no row has a part
    in its own prediction. Coefficients shrink towards the mean reward of all arms, which is also what is predicted
    of an arm the other blocks never played.
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
        # The first feature is 1: its sums are counts and summed rewards.
        mean = total[:, 0].sum() / gram[:, 0, 0].sum()
        precision = gram + regularisation * np.eye(size)
        coefficients = np.linalg.solve(precision, (total - mean * gram[:, :, 0])[:, :, None])[:, :, 0]
        predicted[first:end] = mean + features[first:end] @ coefficients.T
    return predicted


def _features(observations: Floats) -> Floats:
    """(1, y) with every entry of y centred and scaled by what was seen of it; only y is used, never a reward."""
    seen = ~np.isnan(observations)
    count = np.maximum(seen.sum(axis=0), 1)
    centred = np.where(seen, observations, 0.0)
    mean = centred.sum(axis=0) / count
    centred = np.where(seen, observations - mean, 0.0)
    spread = np.sqrt((centred**2).sum(axis=0) / count)
    moves = spread > 1e-12 * np.abs(mean)  # an entry that stands still tells nothing
    scaled = centred / np.where(moves, spread, np.inf)
    return np.column_stack([np.ones(len(observations)), scaled])
