"""The problem of the jobs: its sizes, its world, and the number of floating-point operations (flops) of its steps.

A multiplication and an addition count as one flop each. Square roots, comparisons and random draws are not counted. The
jobs count the flops of the most economical form: equal entries of symmetric matrices are computed once, and constant
gains are not computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import halfseen as hs
from halfseen.worlds import named

LATENT, OBSERVED, ARMS = 20, 10, 15


def orbit(rounds: int, seed: int = 0):
    """Return a model of the world `orbit` with additional sensor noise, and its observations."""
    episodes = named("orbit").begin([seed])
    clean = episodes.models[0]
    model = hs.LinearGaussianModel(
        transition=clean.transition, process_cov=clean.process_cov, observation_cov=0.05 * np.eye(OBSERVED)
    )
    noise = np.random.default_rng(seed).normal(size=(rounds, OBSERVED)) * np.sqrt(0.05)
    return model, episodes.advance(rounds).observations[:, 0] + noise


def first_belief(model):
    """Return mean and covariance of x_1, with which other libraries start. halfseen starts with x_0."""
    D = model.transition
    return D @ model.initial_mean, D @ model.initial_cov @ D.T + model.process_cov


def dynamax_parameters(dynamax: Any, model: Any, first_mean: Any, first_cov: Any) -> Any:
    """Convert a model to parameters of dynamax, given the belief about x_1."""
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
    """Return the flops of a product of matrices (m, n) and (n, p)."""
    return 2 * m * n * p


def triangle(d: int) -> int:
    """Return the number of distinct entries of a symmetric matrix."""
    return d * (d + 1) // 2


def filter_flops(d: int, k: int) -> int:
    """Return the flops of x ← Dx + G(y − ADx) with A = [I 0]: Dx, k differences, G times a vector, d sums."""
    return product_flops(d, d) + k + product_flops(d, k) + d


def score_flops(d: int, arms: int) -> int:
    """Return the flops of cᵀm_a and cᵀC_a c for all arms: one triangle of ccᵀ, and two dot products per arm."""
    return triangle(d) + d - 1 + arms * (2 * triangle(d) + 2 * d)


def learn_flops(d: int) -> int:
    """Return the flops of a rank-one update: g = Cc, q = cᵀg, r − cᵀm, m += g·step, g scaled, C −= ggᵀ (a triangle)."""
    return product_flops(d, d) + 2 * d + 2 * d + 1 + 2 * d + d + 2 * triangle(d)
