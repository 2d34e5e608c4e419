"""The problem that jobs are run on: its sizes, one world, and the floating-point operations of its building blocks.

Of operations, a multiplication and an addition are one each; square roots, comparisons and random draws are left out.
The formulas of the jobs, in their own files, are made of these and count the form that needs fewest: symmetric matrices
once, gains that no longer change not at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import halfseen as hs
from halfseen.worlds import named

LATENT, OBSERVED, ARMS = 20, 10, 15


def orbit(rounds: int, seed: int = 0):
    """A model of the world `orbit`, with some sensor noise, and what is seen of it."""
    episodes = named("orbit").begin([seed])
    clean = episodes.models[0]
    model = hs.LinearGaussianModel(
        transition=clean.transition, process_cov=clean.process_cov, observation_cov=0.05 * np.eye(OBSERVED)
    )
    noise = np.random.default_rng(seed).normal(size=(rounds, OBSERVED)) * np.sqrt(0.05)
    return model, episodes.advance(rounds).observations[:, 0] + noise


def first_belief(model):
    """Mean and covariance of x_1, where peers start: one transition later than our x_0."""
    D = model.transition
    return D @ model.initial_mean, D @ model.initial_cov @ D.T + model.process_cov


def dynamax_parameters(dynamax: Any, model: Any, first_mean: Any, first_cov: Any) -> Any:
    """A model of ours as parameters of dynamax, with the belief about x_1 given."""
    ssm = dynamax.LinearGaussianSSM(model.latent, model.observed, has_dynamics_bias=False, has_emissions_bias=False)
    parameters, _ = ssm.initialize(
        initial_mean=first_mean,
        initial_covariance=first_cov,
        dynamics_weights=np.asarray(model.transition),
        dynamics_covariance=np.asarray(model.process_cov),
        emission_weights=np.asarray(model.observation),
        emission_covariance=np.asarray(model.observation_cov),
    )
    return parameters


def product_flops(m: int, n: int, p: int = 1) -> int:
    """(m, n) times (n, p)."""
    return 2 * m * n * p


def triangle(d: int) -> int:
    """Entries of a symmetric matrix."""
    return d * (d + 1) // 2


def filter_flops(d: int, k: int) -> int:
    """x ← Dx + G(y − ADx), with A = [I 0] and the gain known: the product Dx, k differences, G times them, d sums."""
    return product_flops(d, d) + k + product_flops(d, k) + d


def score_flops(d: int, arms: int) -> int:
    """cᵀm_a and cᵀC_a c of every arm: ccᵀ once, one triangle, doubled off the diagonal; two dot products an arm."""
    return triangle(d) + d - 1 + arms * (2 * triangle(d) + 2 * d)


def learn_flops(d: int) -> int:
    """A rank-one update of one arm: g = Cc, q = cᵀg, r − cᵀm, m += g·step, g scaled, C −= ggᵀ (one triangle)."""
    return product_flops(d, d) + 2 * d + 2 * d + 1 + 2 * d + d + 2 * triangle(d)
