"""Gaussian beliefs about contexts, and the results of filtering and smoothing a series."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Belief:
    """A Gaussian distribution of a context.

    Attributes
    ----------
    mean : ndarray, shape (d,)
        The mean. The belief of a batch has a leading axis B.
    cov : ndarray, shape (d, d)
        The covariance. The belief of a batch has a leading axis B.

    Examples
    --------
    >>> import halfseen as hs
    >>> model = hs.LinearGaussianModel(transition=[[0.9]], process_cov=1.0, observation_cov=[0.5])
    >>> belief = model.tracker().belief
    >>> belief.mean.tolist(), belief.cov.tolist()
    ([0.0], [[1.0]])
    """

    mean: Array
    cov: Array


@dataclass(frozen=True, eq=False, repr=False)
class _SeriesResult:
    """Contexts of B series at times 0 to n, as the kernels return them. The full arrays are built when first used."""

    _x: Array  # (B, n+1, d)
    _rows: NDArray[np.int64]  # (B, n+1), for each time its row in the tables of distinct covariances
    _covs: Array
    _log_likelihood: Array
    _single: bool  # the input was one series (n, k) without the leading axis B
    _to_original: Array | None  # from canonical to original coordinates, or None if both are the same

    @property
    def log_likelihood(self) -> Any:
        """The log-likelihood of the observations, a float, or an array (B,) for a batch."""
        return float(self._log_likelihood[0]) if self._single else self._log_likelihood

    @cached_property
    def means(self) -> Array:
        """The mean of every context x_1, ..., x_n, (n, d) or (B, n, d)."""
        return self._means(slice(1, None))

    @cached_property
    def covs(self) -> Array:
        """The covariance of every context x_1, ..., x_n, (n, d, d) or (B, n, d, d)."""
        return self._matrices(self._covs, slice(1, None))

    def _means(self, times: slice) -> Array:
        x = self._x[:, times]
        return self._unbatched(x if self._to_original is None else x @ self._to_original.T)

    def _matrices(self, table: Array, times: slice) -> Array:
        """Return one matrix per time from a table of the distinct matrices."""
        used = table[: self._rows.max() + 1]
        if self._to_original is not None:
            used = self._to_original @ used @ self._to_original.T
        return self._unbatched(used[self._rows[:, times]])

    def _unbatched(self, array: Array) -> Array:
        return array[0] if self._single else array


@dataclass(frozen=True, eq=False, repr=False)
class FilterResult(_SeriesResult):
    """The result of `LinearGaussianModel.filter`.

    Index 0 of the time axis is the round of the first observation. For a batch all arrays have a leading axis B.

    Attributes
    ----------
    means : ndarray, shape (n, d)
        E[x_t | y_1, ..., y_t].
    covs : ndarray, shape (n, d, d)
        Cov(x_t | y_1, ..., y_t).
    predicted_means : ndarray, shape (n, d)
        E[x_t | y_1, ..., y_{t−1}].
    predicted_covs : ndarray, shape (n, d, d)
        Cov(x_t | y_1, ..., y_{t−1}).
    log_likelihood : float
        log p(y_1, ..., y_n), an array (B,) for a batch.
    """

    _predicted_covs: Array
    _transition: Array

    @cached_property
    def predicted_means(self) -> Array:
        """The mean of every context before its observation, (n, d) or (B, n, d)."""
        before = self._means(slice(None, -1))
        if self._transition.ndim == 3:  # one transition per round
            return np.asarray((self._transition @ before[..., None])[..., 0])
        return np.asarray(before @ self._transition.T)

    @cached_property
    def predicted_covs(self) -> Array:
        """The covariance of every context before its observation, (n, d, d) or (B, n, d, d)."""
        return self._matrices(self._predicted_covs, slice(1, None))


@dataclass(frozen=True, eq=False, repr=False)
class SmootherResult(_SeriesResult):
    """The result of `LinearGaussianModel.smooth`.

    Index 0 of `means` and `covs` is the round of the first observation. For a batch all arrays have a leading axis B.

    Attributes
    ----------
    means : ndarray, shape (n, d)
        E[x_t | y_1, ..., y_n] for t = 1, ..., n.
    covs : ndarray, shape (n, d, d)
        Cov(x_t | y_1, ..., y_n) for t = 1, ..., n.
    lag_one_covs : ndarray, shape (n, d, d)
        Cov(x_{t+1}, x_t | y_1, ..., y_n) for t = 0, ..., n − 1. Entry 0 belongs to `initial` and `means[0]`, and every
        later entry t to `means[t - 1]` and `means[t]`.
    initial : Belief
        The belief about x_0, the context before the first observation.
    log_likelihood : float
        log p(y_1, ..., y_n), an array (B,) for a batch.
    """

    _lag_one_covs: Array

    @cached_property
    def lag_one_covs(self) -> Array:
        """The covariance of every context with the one before it, (n, d, d) or (B, n, d, d)."""
        return self._matrices(self._lag_one_covs, slice(None, -1))

    @cached_property
    def initial(self) -> Belief:
        """The belief about x_0 given all observations."""
        first = slice(0, 1)
        return Belief(self._means(first)[..., 0, :], self._matrices(self._covs, first)[..., 0, :, :])
