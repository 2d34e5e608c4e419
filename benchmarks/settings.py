"""The sizes every job is run at, and one world to run it in."""

from __future__ import annotations

import numpy as np

from halfseen.worlds import named

LATENT, OBSERVED, ARMS = 20, 10, 15


def orbit(rounds: int, seed: int = 0):
    """A model of the world `orbit`, with some sensor noise, and what is seen of it."""
    import halfseen as hs

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
