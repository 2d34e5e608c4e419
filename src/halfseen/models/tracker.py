"""The Kalman filter online: one observation in, one belief out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from halfseen.errors import invalid
from halfseen.kernels.arrays import Parameters
from halfseen.kernels.filter import BACK, DONE, SETTLED, exact_round, steady_round
from halfseen.models.results import Array, Belief
from halfseen.validation import vector

_LONGEST = 5_000  # rounds ahead in which the frozen gain is looked for; a model that needs more steps exactly


class Tracker:
    """The belief of a model about its context, round by round. Make one with `LinearGaussianModel.tracker`.

    Its results are those of `LinearGaussianModel.filter` on the whole series, covariances bit for bit. While every
    entry is observed the gain converges and is then no longer computed. After a missing entry the steps are exact
    until the covariance has converged again.
    """

    def __init__(self, p: Parameters, to_original: Array | None) -> None:
        self._latent, self._observed = len(p.D), len(p.R)
        self._to_original = to_original  # from canonical coordinates; None: they are the model's own
        d, k = self._latent, self._observed
        self._model = np.zeros((3, d, d))
        self._model[0], self._model[1], self._model[2, :k, :k] = p.D, p.Q, p.R
        self._now = np.zeros((2, d, d))  # P and P⁻
        self._now[0] = p.P0
        self._limit, self._limit_gain, self._known = np.zeros((2, d, d)), np.zeros((d, k)), False
        self._gain = np.zeros((d, k))
        self._loop = np.zeros((d + k, d))
        self._steady = False  # P is the frozen one
        self._on_schedule = True  # everything has been seen so far: P is on its way to the frozen one
        self._x = p.m0
        self._rounds = 0
        self._cov = self._covariance()
        self._belief = Belief(p.m0.copy() if to_original is None else to_original @ p.m0, self._cov)

    @property
    def rounds(self) -> int:
        """The number of observations so far."""
        return self._rounds

    @property
    def belief(self) -> Belief:
        """E[x_t | y_1..y_t] and its covariance now; before the first observation, of x_0."""
        return self._belief

    def step(self, y: ArrayLike) -> Belief:
        """Update with y_t (k,), NaN or None where not observed, and return the belief about x_t.

        The arrays of the belief must not be changed. An observation that raises leaves the tracker as it was.
        """
        seen = vector("y", y, self._observed)
        mean = np.empty(self._latent)
        if not (self._steady and steady_round(seen, self._loop, self._x, mean) == DONE):
            self._exact_step(seen, mean)
            self._cov = self._covariance()
        self._rounds += 1
        self._belief = belief = Belief(mean if self._to_original is None else self._to_original @ mean, self._cov)
        return belief

    def _exact_step(self, y: Array, mean: Array) -> None:
        if not np.isfinite(y).all():
            if np.isinf(y).any():
                raise invalid("y", "finite numbers, or nan for not seen", f"{y[np.isinf(y)][0]}")
            if self._on_schedule:
                self._leave_schedule()
        status = self._round(y, self._now, self._gain, self._x, mean)
        if self._on_schedule and status == SETTLED:
            self._freeze(self._now, self._gain)
        self._steady = status == BACK or (self._on_schedule and self._known)

    def _freeze(self, settled: Array, gain: Array) -> None:
        self._limit, self._limit_gain, self._known = settled.copy(), gain.copy(), True

    def _round(self, y: Array, now: Array, gain: Array, x: Array, mean: Array) -> int:
        return int(
            exact_round(y, self._model, now, self._limit, gain, self._limit_gain, self._known, self._loop, x, mean)
        )

    def _leave_schedule(self) -> None:
        """At the first missing entry, find the limit of P once, so that its return to the limit can be noticed."""
        self._on_schedule = False
        if self._known:
            return
        ahead, gain = self._now.copy(), np.empty_like(self._gain)
        nothing, x, mean = np.zeros(self._observed), np.zeros(self._latent), np.empty(self._latent)
        for _ in range(_LONGEST):
            if self._round(nothing, ahead, gain, x, mean) == SETTLED:
                self._freeze(ahead, gain)
                return

    def _covariance(self) -> Array:
        P = self._now[0]
        cov: Array = P.copy() if self._to_original is None else self._to_original @ P @ self._to_original.T
        cov.setflags(write=False)
        return cov

    def __repr__(self) -> str:
        return f"<Tracker: {self._observed} observed, {self._latent} latent, {self._rounds} rounds>"
