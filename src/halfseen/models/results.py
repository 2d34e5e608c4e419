"""Beliefs about contexts over time: the results of filtering and smoothing a series."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Belief:
    """A Gaussian belief about a context: mean (d,) and covariance (d, d), or a batch of them."""

    mean: Array
    cov: Array


@dataclass(frozen=True, eq=False, repr=False)
class _SeriesResult:
    """States of B series at times 0..n as the kernels return them, expanded when they are first asked for."""

    _x: Array  # (B, n+1, d)
    _rows: NDArray[np.int64]  # (B, n+1), the row of each time in the tables of covariances
    _covs: Array
    _log_likelihood: Array
    _single: bool  # one series was given, without the leading axis B
    _to_original: Array | None  # from canonical coordinates to those of the model; None: they are the same

    @property
    def log_likelihood(self) -> Any:
        return float(self._log_likelihood[0]) if self._single else self._log_likelihood

    @cached_property
    def means(self) -> Array:
        return self._means(slice(1, None))

    @cached_property
    def covs(self) -> Array:
        return self._matrices(self._covs, slice(1, None))

    def _means(self, times: slice) -> Array:
        x = self._x[:, times]
        return self._unbatched(x if self._to_original is None else x @ self._to_original.T)

    def _matrices(self, table: Array, times: slice) -> Array:
        """One matrix per time, from a table of those that differ."""
        used = table[: self._rows.max() + 1]
        if self._to_original is not None:
            used = self._to_original @ used @ self._to_original.T
        return self._unbatched(used[self._rows[:, times]])

    def _unbatched(self, array: Array) -> Array:
        return array[0] if self._single else array


@dataclass(frozen=True, eq=False, repr=False)
class FilterResult(_SeriesResult):
    """The result of `LinearGaussianModel.filter`. Index 0 on the time axis is the first observation.

    .means (n, d) and .covs (n, d, d) after each observation, .predicted_means and .predicted_covs before it,
    .log_likelihood a number; with a leading axis B for a batch.
    """

    _predicted_covs: Array
    _transition: Array

    @cached_property
    def predicted_means(self) -> Array:
        return self._means(slice(None, -1)) @ self._transition.T

    @cached_property
    def predicted_covs(self) -> Array:
        return self._matrices(self._predicted_covs, slice(1, None))


@dataclass(frozen=True, eq=False, repr=False)
class SmootherResult(_SeriesResult):
    """The result of `LinearGaussianModel.smooth`. Index 0 of .means and .covs is the first observation.

    .means (n, d), .covs (n, d, d), .log_likelihood a number, .initial the belief about x_0. lag_one_covs (n, d, d):
    entry t is Cov(x_{t+1}, x_t | y_1..y_n) for t = 0..n−1, states numbered from x_0, the one before the first
    observation; so lag_one_covs[0] joins .initial and .means[0], and lag_one_covs[t] joins .means[t−1] and
    .means[t]. With a leading axis B for a batch.
    """

    _lag_one_covs: Array

    @cached_property
    def lag_one_covs(self) -> Array:
        return self._matrices(self._lag_one_covs, slice(None, -1))

    @cached_property
    def initial(self) -> Belief:
        first = slice(0, 1)
        return Belief(self._means(first)[..., 0, :], self._matrices(self._covs, first)[..., 0, :, :])
