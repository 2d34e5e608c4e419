"""A hidden Markov chain learnt by online EM; its belief is the context (Nelson et al., 2022; Cappé, 2011)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halfseen.components import Estimator, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.hidden_markov import filter_and_learn, fit_start, log_likelihood
from halfseen.kernels.random import Floats, Ints, Purpose, uniforms
from halfseen.statistics.k_means import k_means
from halfseen.validation import at_least, positive

STARTS, STEPS = 10, 30  # of k-means
PASSES = 10  # of EM over the first rounds


class Chain(NamedTuple):
    """Belief, parameters and statistics of B chains of M states that show k numbers."""

    belief: Floats  # (B, M)
    transition: Floats  # (B, M, M)
    mean: Floats  # (B, M, k)
    var: Floats  # (B, M, k)
    rho_transition: Floats  # (B, M, M, M)
    rho_state: Floats  # (B, M, M)
    rho_y: Floats  # (B, M, k, M)
    rho_yy: Floats  # (B, M, k, M)


def initial_chains(count: int, M: int, k: int) -> Chain:
    """Nothing seen, F = 0.9 I + 0.1/M."""
    belief, F = np.full((count, M), 1.0 / M), np.tile(0.9 * np.eye(M) + 0.1 / M, (count, 1, 1))
    sums = [np.zeros((count, *shape)) for shape in ((M, M, M), (M, M), (M, k, M), (M, k, M))]
    return Chain(belief, F, np.zeros((count, M, k)), np.ones((count, M, k)), *sums)


class Hmm(Estimator):
    """c_t = b_t, the probabilities of M = `states` hidden states given y_1..y_t.

    In the first w = max(50, 10M) rounds, `warm_up`, y is only kept and the belief is uniform. Then k-means gives first
    means and variances, a few iterations of EM improve them, and from there on every round changes F, m and R. A chain
    that stays long in its states may not have shown all of them by then, so k-means starts again from all rounds so
    far at 2w, 4w, .. (`restarts` times), and the likelier chain of the two goes on. Round t counts with weight
    t^−`forgetting`; `variance_floor` is added to every variance.
    """

    coordinates = "none"
    state_names = ("first_observations", *Chain._fields)

    def __init__(
        self,
        streams: StreamBatch,
        *,
        states: int = 5,
        warm_up: int | None = None,
        restarts: int = 3,
        forgetting: float = 0.6,
        variance_floor: float = 1e-3,
    ) -> None:
        M = self.dimension = at_least("states", states, 1)
        self._warm_up = max(50, 10 * M) if warm_up is None else at_least("warm_up", warm_up, M)
        self._restart_rounds = {self._warm_up << i for i in range(at_least("restarts", restarts, 0) + 1)}
        self._forgetting = positive("forgetting", forgetting)
        if not 0.5 < self._forgetting <= 1.0:
            raise invalid("forgetting", "a number above 0.5 and at most 1", repr(forgetting))
        self._floor = positive("variance_floor", variance_floor)
        self._keys = streams.keys
        self.first_observations = np.zeros(
            (streams.count, max(self._restart_rounds), streams.observed)
        )  # y of the first rounds
        for name, array in initial_chains(streams.count, M, streams.observed)._asdict().items():
            setattr(self, name, array)

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        own = Chain(*(getattr(self, name) for name in Chain._fields))
        warm = rounds > self._warm_up
        if warm.any():
            filter_and_learn(rows[warm], observations[warm], rounds[warm], self._forgetting, self._floor, *own)
        early = rounds <= self.first_observations.shape[1]
        if early.any():
            self.first_observations[rows[early], rounds[early] - 1] = observations[early]
            for row, t in zip(rows[early], rounds[early], strict=True):
                if t in self._restart_rounds:
                    self._restart(own, int(row), int(t))
        return np.array(own.belief[rows])

    def resize(self, streams: StreamBatch) -> None:
        super().resize(streams)
        self._keys = streams.keys

    def _restart(self, own: Chain, row: int, t: int) -> None:
        """The chain that k-means on the first t rounds leads to, if it explains them better than the one in force."""
        ys = self.first_observations[row, :t]
        fresh = initial_chains(1, self.dimension, ys.shape[1])
        self._cluster(fresh, ys, row)
        if t > self._warm_up:
            # States keep their numbers as far as they can, because the arms have been learnt by them.
            spread = (own.mean[row][:, None] - fresh.mean[0]) / np.sqrt(own.var[row][:, None])
            from scipy.optimize import linear_sum_assignment  # slow to import, and seldom needed

            order = linear_sum_assignment(np.minimum((spread**2).sum(axis=2), 1e100))[1]
            fresh.mean[0], fresh.var[0] = fresh.mean[0, order], fresh.var[0, order]
        fit_start(ys, PASSES, self._forgetting, self._floor, *(array[0] for array in fresh))
        if t > self._warm_up:
            old = log_likelihood(ys, own.transition[row], own.mean[row], own.var[row])
            if not log_likelihood(ys, fresh.transition[0], fresh.mean[0], fresh.var[0]) > old:
                return
        for mine, better in zip(own, fresh, strict=True):
            mine[row] = better[0]

    def _cluster(self, fresh: Chain, ys: Floats, row: int) -> None:
        """Means and variances from k-means, in which an entry not seen is taken as average."""
        M, seen = self.dimension, ~np.isnan(ys)
        counts = np.maximum(seen.sum(axis=0), 1)
        centre = np.where(seen, ys, 0.0).sum(axis=0) / counts
        gaps = np.where(seen, ys - centre, 0.0)
        spread = np.sqrt((gaps**2).sum(axis=0) / counts)
        units = np.where(spread > 0.0, spread, 1.0)  # so that no entry counts for its unit
        draws = uniforms(self._keys[[row]], np.array([len(ys)]), Purpose.CLUSTERS, STARTS * M)
        centres, labels = k_means(gaps / units, draws.reshape(STARTS, M), STEPS)
        fresh.mean[0] = centre + centres * units
        for state in range(M):
            mine, observed = gaps[labels == state], seen[labels == state]
            within = np.where(observed, mine - centres[state] * units, 0.0) ** 2
            # As if one round more had the spread of all: a cluster of few points is not a sharp one.
            fresh.var[0, state] = (within.sum(axis=0) + spread**2) / (observed.sum(axis=0) + 1.0) + self._floor
