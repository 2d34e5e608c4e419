"""Full EM, with the RTS smoother, on windows of observations."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import Estimator, StreamBatch
from halfseen.estimators.windowed_em import enough_seen, initial_filters, window_length
from halfseen.kernels.random import Floats, Ints
from halfseen.models.identification.em import FIXED, em_windows
from halfseen.validation import at_least


class SmoothedEm(Estimator):
    """A Kalman filter whose dynamics are refitted by full EM to windows of observations.

    The feature c_t is the filtered mean x_{t|t} under the current D̂ and Q̂. At the end of every window of L rounds, EM
    with the RTS smoother is run on the observations of the window. EM starts from the current model and from the belief
    at the start of the window. The filter then continues from the belief that it would have under the new model. The
    observation noise Σ is known. A window in which fewer than half of the rounds have an observed entry does not change
    the model. Smoothing L rounds every L rounds is a constant amount of work per round; in contrast to `Emkf`, the
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
    state_names = ("window_observations", "window_start_mean", "window_start_cov")

    def __init__(
        self,
        streams: StreamBatch,
        *,
        latent: int,
        observation_cov: ArrayLike = 0.0,
        window: int | None = None,
        iterations: int = 5,
        initial_transition: ArrayLike = "stochastic",
        initial_process_var: float = 1.0,
    ) -> None:
        self._bank = initial_filters(streams, latent, observation_cov, initial_transition, initial_process_var)
        self._window = window_length(window, latent)
        self._iterations = at_least("iterations", iterations, 1)
        self.dimension = latent
        self.window_observations = np.zeros((streams.count, self._window, streams.observed))
        self.window_start_mean, self.window_start_cov = self._bank.mean.copy(), self._bank.cov.copy()

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        means = self._bank.observe(rows, observations, complete)
        round_in_window = rounds % self._window
        self.window_observations[rows, round_in_window - 1] = observations
        if not round_in_window.all():
            ended = rows[round_in_window == 0]
            rounds_seen = (~np.isnan(self.window_observations[ended])).any(axis=2).sum(axis=1)
            self._refit(ended[enough_seen(rounds_seen, self._window)])
            self.window_start_mean[ended], self.window_start_cov[ended] = self._bank.mean[ended], self._bank.cov[ended]
        return means

    def _refit(self, ended: Ints) -> None:
        bank = self._bank
        transition, process_cov, _, _, _, _, mean, cov = em_windows(
            bank.transition[ended],
            bank.process_cov[ended],
            bank.observation_cov[ended],
            self.window_start_mean[ended],
            self.window_start_cov[ended],
            self.window_observations[ended],
            iterations=self._iterations,
            update_R=FIXED,
            update_initial=False,
        )
        bank.replace_model(ended, transition, process_cov)
        bank.mean[ended], bank.cov[ended] = mean, cov
