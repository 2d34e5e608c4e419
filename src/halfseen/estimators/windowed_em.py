"""What the estimators that learn their dynamics by EM on windows share: the first model, and when it is refitted.

The first D̂ must couple seen and hidden coordinates: from a multiple of I the hidden estimate stays 0 for ever, and
from 11ᵀ/d all hidden coordinates stay equal (docs/mathematics.md, "EMKF"). So it is random and dense, from the
stream's own seed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfseen.components import StreamBatch
from halfseen.errors import invalid
from halfseen.estimators.filter_bank import FilterBank
from halfseen.kernels.random import Floats, Ints, Purpose, orthogonal_matrices, stochastic_matrices
from halfseen.validation import at_least, covariances, positive, stack_for_streams


def initial_transitions(streams: StreamBatch, latent: int, kind: ArrayLike) -> Floats:
    """D̂_0, (B, d, d): "stochastic" (uniform, rows summing to 1), "orthogonal" (0.9 × a random one), or given."""
    if not isinstance(kind, str):
        return stack_for_streams("initial_transition", kind, streams.count, (latent, latent))
    if kind == "stochastic":
        return stochastic_matrices(streams.keys, Purpose.INITIAL_MODEL, latent)
    if kind == "orthogonal":
        return 0.9 * orthogonal_matrices(streams.keys, Purpose.INITIAL_MODEL, latent)
    raise invalid("initial_transition", "'stochastic', 'orthogonal' or a matrix", repr(kind))


def initial_filters(
    streams: StreamBatch,
    latent: int,
    observation_cov: ArrayLike,
    initial_transition: ArrayLike,
    initial_process_var: float,
) -> FilterBank:
    """Filters with D̂_0, Q̂_0 = `initial_process_var` I and a known Σ (a matrix, a diagonal or one variance)."""
    count, k = streams.count, streams.observed
    d = at_least("latent", latent, k)
    Sigma = covariances("observation_cov", observation_cov, count, k)
    identity = np.tile(np.eye(d), (count, 1, 1))
    return FilterBank(
        initial_transitions(streams, d, initial_transition),
        positive("initial_process_var", initial_process_var) * identity,
        Sigma,
        np.zeros((count, d)),
        identity,
        shared_model=False,
    )


def enough_seen(rounds_seen: Ints, window: int) -> NDArray[np.bool_]:
    """Whether windows in which so many rounds showed anything may change the model: half of the rounds at least."""
    return np.asarray(2 * rounds_seen >= window)


def window_length(window: int | None, latent: int) -> int:
    """L: at least 5d rounds, so that the d × d regression of a window is well posed; by default also 200."""
    return max(200, 5 * latent) if window is None else at_least("window", window, 5 * latent)
