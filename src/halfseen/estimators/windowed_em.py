"""Functions shared by the estimators that refit their dynamics to windows of observations.

The initial D̂ must couple observed and hidden coordinates. With a multiple of I the estimates of the hidden coordinates
would always stay 0, and with a matrix of equal entries they would all stay equal (docs/mathematics.md, "EMKF"). So the
default is a dense random matrix that depends on the seed of the stream.
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
    """Return the initial D̂, (B, d, d).

    `kind` is a matrix, "stochastic" for a random matrix with rows that sum to 1, or "orthogonal" for 0.9 times a random
    orthogonal matrix.
    """
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
    """Return filters with the initial D̂, Q̂ = `initial_process_var`·I and the known Σ."""
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
    """Return which windows may change the model: those with observed entries in at least half of their rounds."""
    return np.asarray(2 * rounds_seen >= window)


def window_length(window: int | None, latent: int) -> int:
    """Return L: by default the larger of 200 and 5d. At least 5d rounds make the regression for D̂ well posed."""
    return max(200, 5 * latent) if window is None else at_least("window", window, 5 * latent)
