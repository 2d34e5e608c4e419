"""Full EM, with the RTS smoother, on windows of observations."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import LONGEST_GAP, Estimator, StreamBatch, observe_nothing
from halfseen.estimators.windowed_em import enough_seen, initial_filters, window_length
from halfseen.kernels.kalman import MAX_VARIANCE
from halfseen.kernels.random import Floats, Ints
from halfseen.models.identification.em import FIXED, em_windows
from halfseen.validation import LIMIT, Arrays, Integers, Numbers, at_least


class SmoothedEm(Estimator):
    """A Kalman filter whose dynamics are refitted by full EM to windows of observations.

    The feature c_t is the filtered mean x_{t|t} under the current D̂ and Q̂. At the end of every window of L rounds, EM
    with the RTS smoother is run on the observations of the window. EM starts from the current model and from the belief
    at the start of the window. The filter then continues from the belief that it would have under the new model. The
    observation noise Σ is known. A window in which fewer than half of the rounds have an observed entry does not change
    the model. Smoothing L rounds every L rounds is a constant amount of work per round. In contrast to `Emkf`, the
    expectation step is exact.

    Parameters
    ----------
    latent : int
        d, the dimension of the context.
    observation_cov : array_like
        Σ: a matrix, a diagonal or one variance.
    window : int, optional
        L, at least 5d. The default is the larger of 200 and 5d.
    iterations : int
        Number of iterations of EM per window.
    initial_transition : array_like, "stochastic" or "orthogonal"
        D̂ of the first window: a matrix, a random matrix with rows that sum to 1, or 0.9 times a random orthogonal
        matrix.
    initial_process_var : float
        Q̂ of the first window is this number times I.
    """

    coordinates = "canonical"
    nested = ("_bank",)
    uses_time = True
    recorded = ("window_observations",)
    state_names = ("window_observations", "window_start_mean", "window_start_cov")

    def __init__(
        self,
        streams: StreamBatch,
        *,
        latent: Annotated[int, Integers(1, 1_000)],
        observation_cov: Annotated[ArrayLike, Arrays(1_000)] = 0.0,
        window: Annotated[int | None, Integers(1, 100_000)] = None,
        iterations: Annotated[int, Integers(1, 1_000)] = 5,
        initial_transition: Annotated[ArrayLike, Arrays(1_000)] = "stochastic",
        initial_process_var: Annotated[float, Numbers(1e-100, 1e100)] = 1.0,
    ) -> None:
        self._bank = initial_filters(streams, latent, observation_cov, initial_transition, initial_process_var)
        self._window = window_length(window, latent)
        self._iterations = at_least("iterations", iterations, 1, 10_000)
        self.dimension = latent
        self.window_observations = np.zeros((streams.count, self._window, streams.observed))
        self.window_start_mean, self.window_start_cov = self._bank.mean.copy(), self._bank.cov.copy()

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        means = self._bank.observe(rows, observations, complete)
        self._add_round(rows, observations, rounds)
        return means

    def _add_round(self, rows: Ints, observations: Floats, rounds: Ints) -> None:
        """Add a round to the windows, after it has been filtered."""
        round_in_window = rounds % self._window
        self.window_observations[rows, round_in_window - 1] = observations
        if not round_in_window.all():
            ended = rows[round_in_window == 0]
            rounds_seen = (~np.isnan(self.window_observations[ended])).any(axis=2).sum(axis=1)
            self._refit(ended[enough_seen(rounds_seen, self._window)])
            self.window_start_mean[ended], self.window_start_cov[ended] = self._bank.mean[ended], self._bank.cov[ended]

    def pass_rounds(self, rows: Ints, rounds: Ints, missing: Ints) -> Ints:
        """Process short gaps as rounds in which nothing is seen. A long gap ends the window."""
        long = missing > LONGEST_GAP
        observe_nothing(self, rows[~long], rounds[~long], missing[~long], self.window_observations.shape[2])
        passed = rounds + missing
        if long.any():
            late = rows[long]
            length = (rounds[long] - 1) % self._window + 1
            for row, rounds_of_window in zip(late, length.tolist(), strict=True):
                if rounds_of_window < self._window:
                    seen = ~np.isnan(self.window_observations[row, :rounds_of_window])
                    if enough_seen(seen.any(axis=1).sum(), self._window):
                        self._refit(np.array([row]), rounds_of_window)
            self._bank.pass_rounds(late, missing[long])
            cov = self._bank.state(late)["cov"]
            self.window_start_mean[late], self.window_start_cov[late] = self._bank.mean[late], cov
            passed[long] = rounds[long] + self._window - length
        return passed

    def look_again(self, rows: Ints, observations: Floats, rounds: Ints, contexts: Floats | None) -> Floats:
        """Update the belief by another observation of the same moment, counted as a separate round of the window."""
        means = self._bank.look_again(rows, observations)
        self._add_round(rows, observations, rounds)
        return means

    def forecast(self, row: int, horizon: int) -> tuple[Floats, Floats]:
        return self._bank.forecast(row, horizon)

    def _refit(self, ended: Ints, length: int | None = None) -> None:
        bank = self._bank
        transition, process_cov, _, _, _, _, mean, cov = em_windows(
            bank.transition[ended],
            bank.process_cov[ended],
            bank.observation_cov[ended],
            self.window_start_mean[ended],
            self.window_start_cov[ended],
            np.ascontiguousarray(self.window_observations[ended, :length]),
            iterations=self._iterations,
            update_R=FIXED,
            update_initial=False,
        )
        # Unstable dynamics can overflow within a window. Such a window does not change the model.
        finite = np.isfinite(transition).all(axis=(1, 2)) & np.isfinite(process_cov).all(axis=(1, 2))
        finite &= (np.abs(mean) <= LIMIT).all(axis=1) & (np.abs(cov) <= MAX_VARIANCE).all(axis=(1, 2))
        rows = ended[finite]
        bank.replace_model(rows, transition[finite], process_cov[finite])
        bank.mean[rows], bank.cov[rows] = mean[finite], cov[finite]
