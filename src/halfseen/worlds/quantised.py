"""Approximates a linear-Gaussian world by a Markov chain with a few states, for agents that need such a chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from halfseen.kernels.random import Floats, Keys, Purpose, normal_series, normals, uniforms
from halfseen.kernels.simulation import move_contexts
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.statistics.k_means import k_means

STATES, ROUNDS = 16, 2_000
STARTS, STEPS = 3, 30  # number of starts of k-means, and number of iterations from each start


class Quantised(NamedTuple):
    """B Markov chains with S states."""

    transition: Floats  # (B, S, S)
    rewards: Floats  # (B, K, S) mean reward of each arm in each state
    std: Floats  # (B,) standard deviation of a reward around this mean
    prior: Floats  # (B, S)


def covariance_root(cov: Floats) -> Floats:
    """Return L with LLᵀ = cov. `cov` may be singular, and may be a stack of covariances."""
    values, vectors = np.linalg.eigh(cov)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def quantise(
    keys: Keys,
    models: Sequence[LinearGaussianModel],
    arm_params: Floats,
    reward_std: float,
    inverse_link: Callable[[Floats], Floats] | None = None,
) -> Quantised:
    """Build one Markov chain per model by k-means on the expected rewards of the arms along a simulated trajectory.

    A state is a set of contexts with similar expected rewards. Transitions between states are counted. A pseudo-count
    of 1, spread evenly over the states, is added to every row of counts. The standard deviation includes the variation
    of expected rewards within a state. The expected rewards are xᵀμ_a or, if `inverse_link` is given,
    `inverse_link(xᵀμ_a)`.
    """
    d, arms = models[0].latent, arm_params.shape[1]
    start = normals(keys, np.zeros(len(keys), dtype=np.int64), Purpose.QUANTISATION, d)
    noise = normal_series(keys, 1, ROUNDS, Purpose.QUANTISATION, d)
    draws = uniforms(keys, np.full(len(keys), ROUNDS + 1), Purpose.QUANTISATION, STARTS * STATES)
    chains = Quantised(
        np.empty((len(keys), STATES, STATES)),
        np.empty((len(keys), arms, STATES)),
        np.empty(len(keys)),
        np.empty((len(keys), STATES)),
    )
    for b, model in enumerate(models):
        x = model.initial_mean + covariance_root(model.initial_cov) @ start[b]
        steps = np.ascontiguousarray((noise[b] @ covariance_root(model.process_cov).T)[None])
        # A copy, because Numba would compile the kernel again for a read-only array.
        contexts = move_contexts(model.transition[None].copy(), steps, x[None])[0]
        expected = np.ascontiguousarray(contexts @ arm_params[b].T)
        if inverse_link is not None:
            expected = inverse_link(expected)
        centres, labels = k_means(expected, draws[b].reshape(STARTS, STATES), STEPS)
        counts = np.full((STATES, STATES), 1.0 / STATES)
        np.add.at(counts, (labels[:-1], labels[1:]), 1.0)
        visits = np.bincount(labels, minlength=STATES) + 1.0 / STATES
        chains.transition[b] = counts / counts.sum(axis=1, keepdims=True)
        chains.rewards[b] = centres.T
        chains.std[b] = np.sqrt(reward_std**2 + ((expected - centres[labels]) ** 2).mean())
        chains.prior[b] = visits / visits.sum()
    return chains
