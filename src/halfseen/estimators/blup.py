"""The best linear prediction of the context from the observation of one round."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import Estimator, IntegerBounds, Mask, State, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import Arrays, covariances, stack_for_streams

SINGULAR = 1e-12  # relative eigenvalue below which a direction is treated as having no variance


class Blup(Estimator):
    """The best linear prediction of the context from the observation of one round.

    The prediction is c_t = (AᵀΣ⁻¹A + S⁻¹)⁻¹AᵀΣ⁻¹ y_t, where S = E[xxᵀ]. It is computed as S Aᵀ(A S Aᵀ + Σ)⁻¹ y_t, which
    also works if Σ or S is singular. Earlier observations are not used. Missing entries of y_t are left out; if all are
    missing, the prediction is 0. If `context_cov` is "running", S is the mean of yyᵀ so far, minus Σ. Then only the
    observed coordinates are predicted, because y contains no information on their covariance with the hidden
    coordinates. The running mean starts as if yyᵀ had been I + Σ in one earlier round.

    Parameters
    ----------
    context_cov : array_like or "running"
        S, of shape (d, d).
    observation_cov : array_like
        Σ, the covariance of the observation noise: a matrix, a diagonal or one variance.
    observation : array_like, optional
        A, the observation matrix (k, d). The default is [I 0].

    References
    ----------
    Park & Faradonbeh (2021). Analysis of Thompson sampling for partially observable contextual multi-armed bandits.
    """

    state_names = ("outer_sum", "pair_counts")
    per_stream = ("_observation_cov", "_observation", "_context_cov", "_gain")

    def __init__(
        self,
        streams: StreamBatch,
        *,
        context_cov: Annotated[ArrayLike, Arrays(1_000)] = "running",
        observation_cov: Annotated[ArrayLike, Arrays(1_000)] = 0.0,
        observation: Annotated[ArrayLike | None, Arrays(1_000)] = None,
    ) -> None:
        count, k = streams.count, streams.observed
        self._observation_cov = covariances("observation_cov", observation_cov, count, k)
        self._running = isinstance(context_cov, str)
        if self._running and context_cov != "running":
            raise invalid("context_cov", "a matrix or 'running'", repr(context_cov))
        d = k if self._running else np.shape(context_cov)[-1] if np.ndim(context_cov) >= 2 else 0
        if d < k:
            raise invalid("context_cov", f"a matrix of at least {k} × {k}", f"shape {np.shape(context_cov)}")
        self.dimension, self.coordinates = d, "canonical" if self._running else "context"
        if self._running and observation is not None:
            given = np.asarray(observation, dtype=np.float64)
            if given.shape[-2:-1] != (k,) or (given != np.eye(k, given.shape[-1])).any():
                raise invalid("observation", "[I 0], if context_cov is 'running'", f"a matrix of shape {given.shape}")
            observation = None
        A = np.eye(k, d) if observation is None else observation
        self._observation = stack_for_streams("observation", A, count, (k, d))
        self._context_cov = covariances("context_cov", 1.0 if self._running else context_cov, count, d)
        self._gain = self._gains(np.arange(count), self._context_cov, None)
        pairs = (count, k, k) if self._running else (count, 0, 0)
        # The sum of yyᵀ and the number of its terms, per pair of entries, over the rounds in which both were observed.
        self.outer_sum = np.zeros(pairs)
        self.pair_counts = np.zeros(pairs, dtype=np.int64)

    def integer_bounds(self, state: State) -> IntegerBounds:
        return {"pair_counts": (0, state["rounds"][:, None, None])}

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        seen = ~np.isnan(observations)
        y = observations if complete else np.where(seen, observations, 0.0)
        if self._running:
            self.outer_sum[rows] += y[:, :, None] * y[:, None, :]
            self.pair_counts[rows] += seen[:, :, None] & seen[:, None, :]
            gain = self._gains(rows, self._running_cov(rows), None if complete else seen)
        elif complete:
            gain = self._gain[rows]
        else:
            gain = self._gains(rows, self._context_cov[rows], seen)
        return np.ascontiguousarray((gain @ y[:, :, None])[:, :, 0])

    def _running_cov(self, rows: Ints) -> Floats:
        """Return the mean of yyᵀ minus Σ, with negative eigenvalues set to 0."""
        noise = self._observation_cov[rows]
        second = (self.outer_sum[rows] + noise + np.eye(noise.shape[1])) / (self.pair_counts[rows] + 1)
        values, vectors = np.linalg.eigh(second - noise)
        return np.asarray((vectors * np.maximum(values, 0.0)[:, None]) @ vectors.swapaxes(1, 2))

    def _gains(self, rows: Ints, cov: Floats, seen: Mask | None) -> Floats:
        """Return S Aᵀ(A S Aᵀ + Σ)⁻¹ (n, d, k), with columns of zeros for missing entries."""
        cross = cov @ self._observation[rows].swapaxes(1, 2)
        observed_cov = self._observation[rows] @ cross + self._observation_cov[rows]
        if seen is not None:
            cross = np.where(seen[:, None], cross, 0.0)
            observed_cov = np.where(seen[:, :, None] & seen[:, None], observed_cov, 0.0)
        # The correlation matrix is inverted, so that the rank does not depend on the units of the features.
        stds = np.sqrt(np.diagonal(observed_cov, axis1=1, axis2=2))
        units = 1.0 / np.where(stds > 0.0, stds, 1.0)
        inverse_correlation = np.linalg.pinv(
            units[:, :, None] * observed_cov * units[:, None], rcond=SINGULAR, hermitian=True
        )
        return np.asarray(cross @ (units[:, :, None] * inverse_correlation * units[:, None]))
