"""The Kalman filters of a batch of streams, shared by every estimator that filters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from halfseen.components import State, Stateful
from halfseen.errors import invalid
from halfseen.kernels.kalman import advance_gain, advance_mean, advance_means
from halfseen.kernels.random import Floats, Ints


class FilterBank(Stateful):
    """One filter a stream, in canonical coordinates (A = [I 0]).

    The matrices carry a leading axis of lanes. Given one model for all streams there is one lane, and its gain
    is computed once for the whole batch; the first time streams part company (a missing entry, a step of some
    of them only) every stream gets a lane of its own.
    """

    state_names = ("transition", "process_cov", "observation_cov", "mean", "cov", "gain", "frozen")
    symmetric = ("process_cov", "cov")
    constant = ("observation_cov",)

    def __init__(
        self,
        transition: Floats,  # (M, d, d), M = 1 for a shared model or B
        process_cov: Floats,  # (M, d, d)
        observation_cov: Floats,  # (M, k, k)
        initial_mean: Floats,  # (B, d)
        initial_cov: Floats,  # (M, d, d)
    ) -> None:
        lanes, d, k = len(transition), transition.shape[-1], observation_cov.shape[-1]
        self.transition, self.process_cov = transition, process_cov
        self.observation_cov = observation_cov
        self.mean, self.cov = initial_mean, initial_cov
        self.gain = np.zeros((lanes, d, k))
        self.frozen = np.zeros(lanes, dtype=np.bool_)
        self.settle()

    def settle(self) -> None:
        """Whatever follows from the state and need not be saved with it."""
        count, k = len(self.mean), self.observation_cov.shape[-1]
        self._shared = len(self.transition) < count
        self._lane = np.zeros(count, dtype=np.int64) if self._shared else np.arange(count)
        self._one_lane = np.zeros(1, dtype=np.int64)
        self._all_seen = np.ones((count, k), dtype=np.bool_)
        self._steady = bool(self.frozen.all())

    def _fits(self, mine: NDArray[np.generic], given: NDArray[np.generic]) -> bool:
        if mine is self.mean:
            return super()._fits(mine, given)
        lanes = (1, len(self.mean))  # one for all streams, or one each
        return mine.dtype == given.dtype and mine.shape[1:] == given.shape[1:] and len(given) in lanes

    def agree(self, state: State) -> None:
        lanes = {name: len(state[name]) for name in self.state_names if name != "mean"}
        if len(set(lanes.values())) != 1:
            raise invalid("state", f"filters with {lanes} lanes", "as many lanes in each")

    def restore(self, state: State) -> None:
        super().restore(state)
        self.settle()

    def _part(self) -> None:
        for name in ("transition", "process_cov", "observation_cov", "cov", "gain", "frozen"):
            setattr(self, name, np.repeat(getattr(self, name), len(self.mean), axis=0))
        self.settle()

    def observe(self, rows: Ints, observations: Floats, complete: bool) -> Floats:
        """One Kalman step of the streams `rows`; their filtered means, a copy."""
        if self._shared and not (complete and len(rows) == len(self.mean)):
            self._part()
        if not (self._steady and complete):
            lanes = self._one_lane if self._shared else rows
            seen = self._all_seen[: len(lanes)] if complete else ~np.isnan(observations)
            advance_gain(
                lanes,
                self.transition,
                self.process_cov,
                self.observation_cov,
                self.cov,
                self.gain,
                self.frozen,
                seen,
            )
            self._steady = bool(self.frozen.all())
        advance_mean(rows, self._lane, self.transition, self.gain, self.mean, observations)
        return self.mean.copy() if len(self.mean) == 1 == len(rows) else self.mean.take(rows, axis=0)

    def observe_ahead(self, observations: Floats, start: int, stop: int, means: Floats) -> None:
        """`observe` of all streams in rounds start:stop of observations (n, B, k), all seen, into means (B, n, d)."""
        everyone, t = np.arange(len(self.mean)), start
        while t < stop and not self._steady:
            means[:, t] = self.observe(everyone, observations[t], True)
            t += 1
        advance_means(self._lane, self.transition, self.gain, self.mean, observations, t, stop, means)

    def replace_model(self, rows: Ints, transition: Floats, process_cov: Floats) -> None:
        """New dynamics for some streams from the next round on; mean and covariance stay."""
        if self._shared:
            self._part()
        self.transition[rows], self.process_cov[rows] = transition, process_cov
        self.frozen[rows] = False
        self._steady = False
