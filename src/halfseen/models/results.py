"""Beliefs about contexts over time: what filtering and smoothing a series gives back."""

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


@dataclass(frozen=True, eq=False)
class Walk:
    """Means and table rows of B series on a time axis 0..n, as the kernels return them, and the way back."""

    x: Array  # (B, n+1, d)
    rows: NDArray[np.int64]  # (B, n+1)
    single: bool
    back: Array | None  # from the coordinates of the kernels to those of the model; None: the same

    def means(self, times: slice) -> Array:
        x = self.x[:, times]
        return self._shaped(x if self.back is None else x @ self.back.T)

    def matrices(self, table: Array, times: slice) -> Array:
        """One matrix a time, from a table of those that differ."""
        used = table[: self.rows.max() + 1]
        if self.back is not None:
            used = self.back @ used @ self.back.T
        return self._shaped(used[self.rows[:, times]])

    def number(self, values: Array) -> Any:
        return float(values[0]) if self.single else values

    def _shaped(self, array: Array) -> Array:
        return array[0] if self.single else array


@dataclass(frozen=True, eq=False, repr=False)
class _Series:
    """Means, covariances and log-likelihood of a series; covariances are expanded when first asked for."""

    _walk: Walk
    _covs: Array
    _log_likelihood: Array

    @property
    def log_likelihood(self) -> Any:
        return self._walk.number(self._log_likelihood)

    @cached_property
    def means(self) -> Array:
        return self._walk.means(slice(1, None))

    @cached_property
    def covs(self) -> Array:
        return self._walk.matrices(self._covs, slice(1, None))


@dataclass(frozen=True, eq=False, repr=False)
class FilterResult(_Series):
    """What `LinearGaussianModel.filter` returns; index 0 on the time axis is the first observation.

    .means (n, d) and .covs (n, d, d) after each observation, .predicted_means and .predicted_covs before it,
    .log_likelihood a number; with a leading axis B for a batch.
    """

    _pred: Array
    _transition: Array

    @cached_property
    def predicted_means(self) -> Array:
        return self._walk.means(slice(None, -1)) @ self._transition.T

    @cached_property
    def predicted_covs(self) -> Array:
        return self._walk.matrices(self._pred, slice(1, None))


@dataclass(frozen=True, eq=False, repr=False)
class SmootherResult(_Series):
    """What `LinearGaussianModel.smooth` returns; index 0 of .means and .covs is the first observation.

    .means (n, d), .covs (n, d, d), .log_likelihood a number, .initial the belief about x_0. lag_one_covs (n, d, d):
    entry t is Cov(x_{t+1}, x_t | y_1..y_n) for t = 0..n−1, states numbered from x_0, the one before the first
    observation; so lag_one_covs[0] joins .initial and .means[0], and lag_one_covs[t] joins .means[t−1] and
    .means[t]. With a leading axis B for a batch.
    """

    _lag: Array

    @cached_property
    def lag_one_covs(self) -> Array:
        return self._walk.matrices(self._lag, slice(None, -1))

    @cached_property
    def initial(self) -> Belief:
        mean = self._walk.means(slice(0, 1))[..., 0, :]
        return Belief(mean, self._walk.matrices(self._covs, slice(0, 1))[..., 0, :, :])
