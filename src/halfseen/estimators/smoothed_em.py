"""Full EM with the RTS smoother on a window of observations: what the paper says it cannot afford, affordably.

Smoothing the last L rounds once every L rounds is a constant amount of work per round. It fills the place of Liu
et al. (2022) in the paper's discussion: the same EM as EMKF, with the expectation step done exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import Estimator, StreamBatch
from halfseen.estimators.windowed_em import enough_seen, initial_filters, window_length
from halfseen.kernels.random import Floats, Ints
from halfseen.models.identification.em import FIXED, em_windows
from halfseen.validation import at_least


class SmoothedEm(Estimator):
    """c_t = x_{t|t} with the D̂, Q̂ in force before y_t; `window` is L, `observation_cov` is Σ, which is known.

    At the end of a window `iterations` of EM run on its observations, starting from the model in force and from the
    belief held when the window opened; the filter goes on from where the new model would have brought it. A window of
    which less than half of the rounds showed anything changes nothing.
    """

    coordinates = "canonical"
    parts = ("_bank",)
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
