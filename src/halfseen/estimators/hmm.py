"""The belief over the states of a hidden Markov model that is learnt by online EM."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from halfseen.components import LONGEST_GAP, Estimator, StreamBatch, observe_nothing
from halfseen.errors import invalid
from halfseen.kernels.hidden_markov import filter_and_learn, fit_start, log_likelihood
from halfseen.kernels.random import Floats, Ints, Purpose, uniforms
from halfseen.statistics.k_means import k_means
from halfseen.validation import Integers, Numbers, at_least, positive

STARTS, STEPS = 10, 30  # starts and iterations of k-means
PASSES = 10  # iterations of EM after k-means


class Chain(NamedTuple):
    """Belief, parameters and statistics of B hidden Markov models with M states and k observed features."""

    belief: Floats  # (B, M)
    transition: Floats  # F (B, M, M)
    mean: Floats  # m, the mean of the observation in each state (B, M, k)
    var: Floats  # R, the variances of the observation in each state (B, M, k)
    # The statistics ρ of online EM for transitions, visits, y and y².
    rho_transition: Floats  # (B, M, M, M)
    rho_state: Floats  # (B, M, M)
    rho_y: Floats  # (B, M, k, M)
    rho_yy: Floats  # (B, M, k, M)


def initial_chains(count: int, M: int, k: int) -> Chain:
    """Return models that are not fitted yet, with F = 0.9 I + 0.1/M."""
    belief, F = np.full((count, M), 1.0 / M), np.tile(0.9 * np.eye(M) + 0.1 / M, (count, 1, 1))
    sums = [np.zeros((count, *shape)) for shape in ((M, M, M), (M, M), (M, k, M), (M, k, M))]
    return Chain(belief, F, np.zeros((count, M, k)), np.ones((count, M, k)), *sums)


class Hmm(Estimator):
    """The belief over the states of a hidden Markov model that is learnt by online EM.

    The feature c_t is b_t, the probabilities of M hidden states given y_1..y_t. In state j, the observation is normal
    with mean m_j and variances R_j. During the first w rounds, observations are only stored and the belief is uniform.
    Then k-means gives initial means and variances, a few iterations of EM improve them, and every later round updates
    the transition matrix F, m and R by a step of online EM. Some states may be missing from the first w rounds. So
    after 2w, 4w, ... rounds, k-means and EM are repeated on all rounds so far, and the model with the higher likelihood
    is kept.

    Parameters
    ----------
    states : int
        M.
    warm_up : int, optional
        w. The default is the larger of 50 and 10M.
    restarts : int
        How often k-means and EM are repeated.
    forgetting : float
        The step size of online EM in round t is t^−forgetting.
    variance_floor : float
        A number that is added to every variance.

    References
    ----------
    Nelson, Bhattacharjya, Gao, Liu, Bouneffouf & Poupart (2022). Linearizing contextual bandits with latent state
    dynamics. UAI.
    Cappé (2011). Online EM algorithm for hidden Markov models. Journal of Computational and Graphical Statistics 20.
    """

    coordinates = "none"
    uses_time = True
    recorded = ("first_observations",)
    state_names = ("first_observations", *Chain._fields)

    def __init__(
        self,
        streams: StreamBatch,
        *,
        states: Annotated[int, Integers(1, 200)] = 5,
        warm_up: Annotated[int | None, Integers(1, 100_000)] = None,
        restarts: Annotated[int, Integers(0, 10)] = 3,
        forgetting: Annotated[float, Numbers(0.5, 1.0)] = 0.6,
        variance_floor: Annotated[float, Numbers(1e-100, 1e100)] = 1e-3,
    ) -> None:
        M = self.dimension = at_least("states", states, 1)
        self._warm_up = max(50, 10 * M) if warm_up is None else at_least("warm_up", warm_up, M)
        self._restart_rounds = {self._warm_up << i for i in range(at_least("restarts", restarts, 0, 30) + 1)}
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
        chains = Chain(*(getattr(self, name) for name in Chain._fields))
        warm = rounds > self._warm_up
        if warm.any():
            filter_and_learn(rows[warm], observations[warm], rounds[warm], self._forgetting, self._floor, *chains)
        early = rounds <= self.first_observations.shape[1]
        if early.any():
            self.first_observations[rows[early], rounds[early] - 1] = observations[early]
            for row, t in zip(rows[early], rounds[early], strict=True):
                if t in self._restart_rounds:
                    self._restart(chains, int(row), int(t))
        return np.array(chains.belief[rows])

    def pass_rounds(self, rows: Ints, rounds: Ints, missing: Ints) -> Ints:
        """Process rounds in which nothing is seen. Long gaps are shortened to LONGEST_GAP."""
        missing = np.minimum(missing, LONGEST_GAP)
        observe_nothing(self, rows, rounds, missing, self.first_observations.shape[2])
        return rounds + missing

    def resize(self, streams: StreamBatch) -> None:
        super().resize(streams)
        self._keys = streams.keys

    def _restart(self, chains: Chain, row: int, t: int) -> None:
        """Fit a new model to the first t rounds of a stream, and use it if it is more likely than the old model."""
        ys = self.first_observations[row, :t]
        fresh = initial_chains(1, self.dimension, ys.shape[1])
        self._cluster(fresh, ys, row)
        if t > self._warm_up:
            # Each new state gets the index of a similar old state, because the learner has learnt from beliefs with the
            # old indices.
            distance = (chains.mean[row][:, None] - fresh.mean[0]) / np.sqrt(chains.var[row][:, None])
            from scipy.optimize import linear_sum_assignment  # slow to import, and seldom needed

            order = linear_sum_assignment(np.minimum((distance**2).sum(axis=2), 1e100))[1]
            fresh.mean[0], fresh.var[0] = fresh.mean[0, order], fresh.var[0, order]
        fit_start(ys, PASSES, self._forgetting, self._floor, *(array[0] for array in fresh))
        if t > self._warm_up:
            old = log_likelihood(ys, chains.transition[row], chains.mean[row], chains.var[row])
            if not log_likelihood(ys, fresh.transition[0], fresh.mean[0], fresh.var[0]) > old:
                return
        for mine, better in zip(chains, fresh, strict=True):
            mine[row] = better[0]

    def _cluster(self, fresh: Chain, ys: Floats, row: int) -> None:
        """Set means and variances by k-means, with missing entries replaced by the mean of their feature."""
        M, seen = self.dimension, ~np.isnan(ys)
        counts = np.maximum(seen.sum(axis=0), 1)
        centre = np.where(seen, ys, 0.0).sum(axis=0) / counts
        gaps = np.where(seen, ys - centre, 0.0)
        spread = np.sqrt((gaps**2).sum(axis=0) / counts)
        units = np.where(spread > 0.0, spread, 1.0)  # so that the result does not depend on units
        draws = uniforms(self._keys[[row]], np.array([len(ys)]), Purpose.CLUSTERS, STARTS * M)
        centres, labels = k_means(gaps / units, draws.reshape(STARTS, M), STEPS)
        fresh.mean[0] = centre + centres * units
        for state in range(M):
            members, observed = gaps[labels == state], seen[labels == state]
            within = np.where(observed, members - centres[state] * units, 0.0) ** 2
            # One more point with the overall variance is added, because few points would underestimate the variance.
            fresh.var[0, state] = (within.sum(axis=0) + spread**2) / (observed.sum(axis=0) + 1.0) + self._floor
