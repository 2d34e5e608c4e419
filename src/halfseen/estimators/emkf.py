"""EMKF, the estimator of the paper's Algorithm 1."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import LONGEST_GAP, Estimator, IntegerBounds, State, StreamBatch, observe_nothing
from halfseen.estimators.windowed_em import enough_seen, initial_filters, window_length
from halfseen.kernels.emkf import add_pairs, add_pairs_ahead, maximise
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import Arrays, Integers, Numbers


class Emkf(Estimator):
    """EMKF: a Kalman filter whose dynamics are refitted to its own filtered means.

    The feature c_t is the filtered mean x_{t|t} under the current D̂ and Q̂. At the end of every window of L rounds, D̂
    is refitted by least squares to the filtered means of the window, and Q̂ is the covariance of the residuals. The
    observation noise Σ is known. A window in which fewer than half of the rounds have an observed entry does not change
    the model. docs/mathematics.md, "EMKF", lists the choices that the paper leaves open and explains what this
    estimator cannot learn.

    Parameters
    ----------
    latent : int
        d, the dimension of the context.
    observation_cov : array_like
        Σ: a matrix, a diagonal or one variance.
    window : int, optional
        L, at least 5d. The default is the larger of 200 and 5d.
    initial_transition : array_like, "stochastic" or "orthogonal"
        D̂ of the first window: a matrix, a random matrix with rows that sum to 1, or 0.9 times a random orthogonal
        matrix.
    initial_process_var : float
        Q̂ of the first window is this number times I.
    """

    coordinates = "canonical"
    nested = ("_bank",)
    uses_time = True
    state_names = ("last_mean", "window_start_mean", "outer_sum", "lagged_outer_sum", "rounds_seen")

    def __init__(
        self,
        streams: StreamBatch,
        *,
        latent: Annotated[int, Integers(1, 1_000)],
        observation_cov: Annotated[ArrayLike, Arrays(1_000)] = 0.0,
        window: Annotated[int | None, Integers(1, 100_000)] = None,
        initial_transition: Annotated[ArrayLike, Arrays(1_000)] = "stochastic",
        initial_process_var: Annotated[float, Numbers(1e-100, 1e100)] = 1.0,
    ) -> None:
        self._bank = initial_filters(streams, latent, observation_cov, initial_transition, initial_process_var)
        self._window = window_length(window, latent)
        self.dimension = latent
        self.last_mean = np.zeros((streams.count, latent))
        self.window_start_mean = np.zeros((streams.count, latent))
        self.outer_sum = np.zeros((streams.count, latent, latent))
        self.lagged_outer_sum = np.zeros((streams.count, latent, latent))
        self.rounds_seen = np.zeros(streams.count, dtype=np.int64)  # rounds of the window with an observed entry

    def forecast(self, row: int, horizon: int) -> tuple[Floats, Floats]:
        return self._bank.forecast(row, horizon)

    def integer_bounds(self, state: State) -> IntegerBounds:
        return {"rounds_seen": (0, np.minimum(self._window, state["rounds"]))}

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        means = self._bank.observe(rows, observations, complete)
        self._add_round(rows, observations, rounds, complete)
        return means

    def _add_round(self, rows: Ints, observations: Floats, rounds: Ints, complete: bool) -> None:
        """Add a round to the windows, after it has been filtered."""
        round_in_window = rounds % self._window
        opens = (round_in_window == 1).astype(np.int64)
        add_pairs(
            rows, opens, self._bank.mean, self.last_mean, self.window_start_mean, self.outer_sum, self.lagged_outer_sum
        )
        seen = 1 if complete else (~np.isnan(observations)).any(axis=1)
        self.rounds_seen[rows] = np.where(opens, 0, self.rounds_seen[rows]) + seen
        if not round_in_window.all():
            self._refit(rows[round_in_window == 0])

    def pass_rounds(self, rows: Ints, rounds: Ints, missing: Ints) -> Ints:
        """Process short gaps as rounds in which nothing is seen. A long gap ends the window."""
        long = missing > LONGEST_GAP
        observe_nothing(self, rows[~long], rounds[~long], missing[~long], self._bank.observation_cov.shape[-1])
        passed = rounds + missing
        if long.any():
            length = (rounds[long] - 1) % self._window + 1
            for row, rounds_of_window in zip(rows[long], length.tolist(), strict=True):
                if rounds_of_window < self._window:
                    self._refit(np.array([row]), rounds_of_window)
            self._bank.pass_rounds(rows[long], missing[long])
            passed[long] = rounds[long] + self._window - length
        return passed

    def look_again(self, rows: Ints, observations: Floats, rounds: Ints, contexts: Floats | None) -> Floats:
        """Update the belief by another observation of the same moment, counted as a separate round of the window."""
        means = self._bank.look_again(rows, observations)
        self._add_round(rows, observations, rounds, False)
        return means

    def observe_rounds(self, observations: Floats, rounds: Ints, contexts: Floats | None, features: Floats) -> None:
        if (rounds != rounds[0]).any():
            super().observe_rounds(observations, rounds, contexts, features)
            return
        start, total = 0, len(observations)
        while start < total:
            elapsed = (int(rounds[0]) + start - 1) % self._window  # rounds of the window that have already passed
            stop = min(start + self._window - elapsed, total)
            self._bank.observe_rounds(observations, start, stop, features)
            add_pairs_ahead(
                features,
                start,
                stop,
                elapsed == 0,
                self.last_mean,
                self.window_start_mean,
                self.outer_sum,
                self.lagged_outer_sum,
            )
            self.rounds_seen = (0 if elapsed == 0 else self.rounds_seen) + np.full(len(rounds), stop - start)
            if elapsed + stop - start == self._window:
                self._refit(np.arange(len(rounds)))
            start = stop

    def _refit(self, ended: Ints, length: int | None = None) -> None:
        """Do the M-step for streams whose window has ended, if enough rounds of the window were observed.

        If a gap has ended the window early, `length` is the number of rounds in the window.

        Windows with few observations are not used, because their filtered means mostly repeat the predictions of the
        model.
        """
        informative = ended[enough_seen(self.rounds_seen[ended], self._window) & self.outer_sum[ended].any(axis=(1, 2))]
        if len(informative):
            transition, process_cov = maximise(
                self.outer_sum[informative],
                self.lagged_outer_sum[informative],
                self.window_start_mean[informative],
                self.last_mean[informative],
                (length or self._window) - 1,
            )
            self._bank.replace_model(informative, transition, process_cov)
