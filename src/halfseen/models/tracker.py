"""An online Kalman filter that turns one observation at a time into a belief about the context."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from halfseen.errors import invalid
from halfseen.kernels.arrays import Parameters
from halfseen.kernels.filter import AT_LIMIT, CONVERGED, UPDATED, exact_round, steady_round
from halfseen.kernels.uneven import filter_uneven
from halfseen.models.results import Array, Belief
from halfseen.validation import elapsed_steps, vector

# If the covariance of a model has not converged after this many rounds, the gain is computed in every step from the
# first missing entry on.
_MAX_ROUNDS_TO_LIMIT = 5_000


class Tracker:
    """An online Kalman filter. `LinearGaussianModel.tracker` creates one.

    Notes
    -----
    The beliefs equal the results of `LinearGaussianModel.filter` on the whole series. The covariances are equal bit for
    bit, the means up to rounding. While all entries are observed the gain converges, and is then not computed again. A
    missing entry changes the covariance, and the gain is computed in every round until the covariance has converged
    again.

    Examples
    --------
    >>> import halfseen as hs
    >>> model = hs.LinearGaussianModel(
    ...     transition=[[0.8, 0.5], [-0.5, 0.8]], process_cov=0.1, observation_cov=[0.2]
    ... )
    >>> tracker = model.tracker()
    >>> tracker.step([1.0]).mean.round(3).tolist()
    [0.832, 0.0]
    >>> tracker.step([None]).mean.round(3).tolist()
    [0.666, -0.416]
    >>> tracker
    <Tracker: 1 observed, 2 latent, 2 rounds>
    """

    def __init__(self, p: Parameters, to_original: Array | None) -> None:
        self._latent, self._observed = len(p.D), len(p.R)
        self._to_original = to_original  # from canonical to original coordinates, or None if both are the same
        d, k = self._latent, self._observed
        self._model = np.zeros((3, d, d))
        self._model[0], self._model[1], self._model[2, :k, :k] = p.D, p.Q, p.R
        self._covs = np.zeros((2, d, d))  # P and P⁻
        self._covs[0] = p.P0
        self._limit, self._limit_gain, self._limit_known = np.zeros((2, d, d)), np.zeros((d, k)), False
        self._gain = np.zeros((d, k))
        self._loop = np.zeros((d + k, d))  # Fᵀ stacked on Gᵀ for the converged gain G, with F = (I − GA)D
        self._steady = False  # whether P has converged, so that the gain need not be computed
        self._all_observed = True  # whether no entry has been missing so far
        self._x = p.m0
        self._rounds = 0
        self._cov = self._covariance()
        self._belief = Belief(p.m0.copy() if to_original is None else to_original @ p.m0, self._cov)

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return self._rounds

    @property
    def belief(self) -> Belief:
        """The belief about x_t given y_1, ..., y_t. Before the first observation it is the distribution of x_0."""
        return self._belief

    def step(self, y: ArrayLike, *, elapsed: int = 1) -> Belief:
        """Move to the next round and update the belief with its observation.

        Parameters
        ----------
        y : array_like, shape (k,)
            The observation. NaN and None are missing entries.
        elapsed : int, default 1
            The number of steps since the last round. If this number is n, nothing was observed in the n − 1 steps in
            between. 0 stands for another observation of the same moment.

        Returns
        -------
        Belief
            The distribution of x_t given y_1, ..., y_t. Its covariance is read-only.

        Raises
        ------
        InvalidInput
            If y does not have k entries or has an infinite entry, or if the number of steps is negative or not whole.
            The tracker is then unchanged.
        """
        observation = vector("y", y, self._observed)
        mean = np.empty(self._latent)
        if type(elapsed) is not int or elapsed != 1:
            self._uneven_step(observation, elapsed_steps("elapsed", elapsed), mean)
            self._cov = self._covariance()
        elif not (self._steady and steady_round(observation, self._loop, self._x, mean) == UPDATED):
            self._exact_step(observation, mean)
            self._cov = self._covariance()
        self._rounds += 1
        self._belief = belief = Belief(mean if self._to_original is None else self._to_original @ mean, self._cov)
        return belief

    def _exact_step(self, y: Array, mean: Array) -> None:
        if not np.isfinite(y).all():
            if np.isinf(y).any():
                raise invalid("y", "finite numbers, or NaN where missing", f"{y[np.isinf(y)][0]}")
            if self._all_observed:
                self._find_limit()
        status = self._round(y, self._covs, self._gain, self._x, mean)
        if self._all_observed and status == CONVERGED:
            self._store_limit(self._covs, self._gain)
        self._steady = status == AT_LIMIT or (self._all_observed and self._limit_known)

    def _uneven_step(self, y: Array, elapsed: int, mean: Array) -> None:
        """Move over `elapsed` steps of the model and update with y. The gain then has to converge again."""
        if np.isinf(y).any():
            raise invalid("y", "finite numbers, or NaN where missing", f"{y[np.isinf(y)][0]}")
        if self._all_observed:
            self._find_limit()
        D, Q, k = self._model[0], self._model[1], self._observed
        noise = np.ascontiguousarray(self._model[2, :k, :k])
        x, _, P, P_pred, _, _ = filter_uneven(D, Q, noise, self._x, self._covs[0], y[None], np.array([elapsed]))
        self._x[:], mean[:] = x[1], x[1]
        self._covs[0], self._covs[1] = P[1], P_pred[1]
        self._steady = False

    def _store_limit(self, covariances: Array, gain: Array) -> None:
        self._limit, self._limit_gain, self._limit_known = covariances.copy(), gain.copy(), True

    def _round(self, y: Array, covs: Array, gain: Array, x: Array, mean: Array) -> int:
        return int(
            exact_round(
                y, self._model, covs, self._limit, gain, self._limit_gain, self._limit_known, self._loop, x, mean
            )
        )

    def _find_limit(self) -> None:
        """At the first missing entry, compute the limit of P, so that a later return of P to this limit is detected."""
        self._all_observed = False
        if self._limit_known:
            return
        ahead, gain = self._covs.copy(), np.empty_like(self._gain)
        zeros, x, mean = np.zeros(self._observed), np.zeros(self._latent), np.empty(self._latent)
        for _ in range(_MAX_ROUNDS_TO_LIMIT):
            if self._round(zeros, ahead, gain, x, mean) == CONVERGED:
                self._store_limit(ahead, gain)
                return

    def _covariance(self) -> Array:
        P = self._covs[0]
        cov: Array = P.copy() if self._to_original is None else self._to_original @ P @ self._to_original.T
        cov.setflags(write=False)
        return cov

    def __repr__(self) -> str:
        return f"<Tracker: {self._observed} observed, {self._latent} latent, {self._rounds} rounds>"
