"""A linear-Gaussian world quantised to a Markov chain of a few states, for agents that expect one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from halfseen.kernels.clusters import k_means
from halfseen.kernels.random import Floats, Keys, Purpose, normal_series, normals, uniforms
from halfseen.kernels.simulation import move_contexts
from halfseen.models.linear_gaussian import LinearGaussianModel

STATES, ROUNDS = 16, 2_000
STARTS, STEPS = 3, 30  # of k-means


class Quantised(NamedTuple):
    """B chains of S states."""

    transition: Floats  # (B, S, S)
    rewards: Floats  # (B, K, S) what each arm pays in each state
    std: Floats  # (B,) of a reward around that
    prior: Floats  # (B, S)


def covariance_root(cov: Floats) -> Floats:
    """A matrix L with LLᵀ = cov, for covariances that may be singular; one each for a stack."""
    values, vectors = np.linalg.eigh(cov)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def quantise(keys: Keys, models: Sequence[LinearGaussianModel], arm_params: Floats, reward_std: float) -> Quantised:
    """k-means on the expected rewards of the arms along a simulated trajectory of each model.

    A state is a set of contexts in which the arms pay much the same. Transitions are counted, with a pseudo-count of 1
    spread over every row. The rewards of a state also vary because it contains many contexts.
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
        # a copy, because a read-only array would be a type of its own, for which the kernel is compiled again
        contexts = move_contexts(model.transition[None].copy(), steps, x[None])[0]
        pay = np.ascontiguousarray(contexts @ arm_params[b].T)
        centres, labels = k_means(pay, draws[b].reshape(STARTS, STATES), STEPS)
        counts = np.full((STATES, STATES), 1.0 / STATES)
        np.add.at(counts, (labels[:-1], labels[1:]), 1.0)
        visits = np.bincount(labels, minlength=STATES) + 1.0 / STATES
        chains.transition[b] = counts / counts.sum(axis=1, keepdims=True)
        chains.rewards[b] = centres.T
        chains.std[b] = np.sqrt(reward_std**2 + ((pay - centres[labels]) ** 2).mean())
        chains.prior[b] = visits / visits.sum()
    return chains
