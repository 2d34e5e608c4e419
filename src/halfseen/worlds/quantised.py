"""A linear-Gaussian world told as a chain of a few states, for agents that know of nothing else."""

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


def root(cov: Floats) -> Floats:
    """A matrix L with LLᵀ = cov, for covariances that may be singular; of many, one each."""
    values, vectors = np.linalg.eigh(cov)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def quantise(keys: Keys, models: Sequence[LinearGaussianModel], arm_params: Floats, reward_std: float) -> Quantised:
    """k-means on what the arms pay along a simulated trajectory of each model, from draws of its own.

    A state is a set of contexts in which the arms pay much the same; transitions are counted, one more in all added
    to every row. Rewards around the mean of their state also vary because a state is many contexts.
    """
    d, arms = models[0].latent, arm_params.shape[1]
    start = normals(keys, np.zeros(len(keys), dtype=np.int64), Purpose.QUANTISATION, d)
    noise = normal_series(keys, 1, ROUNDS, Purpose.QUANTISATION, d)
    draws = uniforms(keys, np.full(len(keys), ROUNDS + 1), Purpose.QUANTISATION, STARTS * STATES)
    found = Quantised(
        np.empty((len(keys), STATES, STATES)),
        np.empty((len(keys), arms, STATES)),
        np.empty(len(keys)),
        np.empty((len(keys), STATES)),
    )
    for b, model in enumerate(models):
        x = model.initial_mean + root(model.initial_cov) @ start[b]
        steps = np.ascontiguousarray((noise[b] @ root(model.process_cov).T)[None])
        # a copy, because a read-only array would be a type of its own, for which the kernel is compiled again
        contexts = move_contexts(model.transition[None].copy(), steps, x[None])[0]
        pay = np.ascontiguousarray(contexts @ arm_params[b].T)
        centres, labels = k_means(pay, draws[b].reshape(STARTS, STATES), STEPS)
        counts = np.full((STATES, STATES), 1.0 / STATES)
        np.add.at(counts, (labels[:-1], labels[1:]), 1.0)
        visits = np.bincount(labels, minlength=STATES) + 1.0 / STATES
        found.transition[b] = counts / counts.sum(axis=1, keepdims=True)
        found.rewards[b] = centres.T
        found.std[b] = np.sqrt(reward_std**2 + ((pay - centres[labels]) ** 2).mean())
        found.prior[b] = visits / visits.sum()
    return found
