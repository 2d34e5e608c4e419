"""The models of several dimensions that a stream's identification keeps side by side, each to be warm-started from."""

from __future__ import annotations

import numpy as np

from halfseen.components import IntegerBounds, State, Stateful, StreamBatch
from halfseen.kernels.arrays import Parameters
from halfseen.kernels.random import Floats, Purpose, orthogonal_matrices
from halfseen.models.identification.em import FittedModel
from halfseen.models.identification.order import candidate_dimensions
from halfseen.models.identification.selection import fit_from_scratch, run_em

NOISY_STEPS = (0,)  # hidden coordinates tried from a start that puts what has no memory into the sensors
SPAN = 2  # candidates tried to either side
SETTLED, LONG_ENOUGH = 3, 500  # identifications of one outcome, and rounds, after which only it is refined
LOOK_AROUND = 4  # of those, how often the neighbours are tried all the same


class CandidateModels(Stateful):
    """One for each of the candidate dimensions (one only, if `latent` is given), then some with noisy starts."""

    state_names = (
        "candidate_transition", "candidate_process_cov", "candidate_observation_var", "candidate_scale",
        "candidate_fitted", "chosen_candidate", "times_confirmed",
    )  # fmt: skip

    def __init__(self, streams: StreamBatch, latent: int | None) -> None:
        count, k = streams.count, streams.observed
        self._streams = streams
        regular = candidate_dimensions(k) if latent is None else (latent,)
        noisy = tuple(k + step for step in NOISY_STEPS) if latent is None else (latent,)
        self._regular, self.dimensions = len(regular), regular + noisy
        self.max_dimension = max(self.dimensions)
        shape = (count, len(self.dimensions))
        self.candidate_transition = np.zeros((*shape, self.max_dimension * self.max_dimension))
        self.candidate_process_cov = np.zeros((*shape, self.max_dimension * self.max_dimension))
        self.candidate_observation_var, self.candidate_scale = np.zeros((*shape, k)), np.ones((*shape, k))
        self.candidate_fitted = np.zeros(shape, dtype=np.bool_)
        self.chosen_candidate = np.full(count, -1)  # the candidate in use, −1 before there is one
        self.times_confirmed = np.zeros(count, dtype=np.int64)

    def integer_bounds(self, state: State) -> IntegerBounds:
        return {"chosen_candidate": (-1, len(self.dimensions) - 1)}

    def resize(self, streams: StreamBatch) -> None:
        super().resize(streams)
        self._streams = streams

    def is_noisy(self, candidate: int) -> bool:
        return candidate >= self._regular

    def reset(self, row: int) -> None:
        self.candidate_fitted[row], self.chosen_candidate[row], self.times_confirmed[row] = False, -1, 0

    def choose(self, row: int, candidate: int, *, as_before: bool) -> None:
        """The candidate that identification preferred; `as_before` says whether all else came out as the last time."""
        same = as_before and candidate == self.chosen_candidate[row]
        self.times_confirmed[row] = self.times_confirmed[row] + 1 if same else 0
        self.chosen_candidate[row] = candidate

    def fit(self, row: int, y: Floats, scale: Floats) -> dict[int, FittedModel]:
        """EM on y (n, k), in units of `scale`, for the candidates to refit now; the fits by candidate."""
        fits: dict[int, FittedModel] = {}
        for candidate in self._candidates_to_refit(row, len(y)):
            if self.candidate_fitted[row, candidate]:
                fit = run_em(self.warm_start(row, candidate, scale), y)
            else:
                keys, d = self._streams.keys[row : row + 1], self.dimensions[candidate]
                start = orthogonal_matrices(keys, Purpose.INITIAL_MODEL, d)[0]
                fit = fit_from_scratch(y, d, start, noisy=self.is_noisy(candidate))
            if fit is not None:
                fits[candidate] = fit
                self._store_model(row, candidate, fit.model, scale)
        return fits

    def _candidates_to_refit(self, row: int, rounds: int) -> list[int]:
        """All at first; then the neighbours of the one in use; once settled, now and then only that one."""
        at, settled = int(self.chosen_candidate[row]), int(self.times_confirmed[row])
        if at < 0:
            return list(range(len(self.dimensions)))
        if rounds >= LONG_ENOUGH and settled >= SETTLED and settled % LOOK_AROUND:
            return [at]
        middle = min(range(self._regular), key=lambda i: abs(self.dimensions[i] - self.dimensions[at]))
        near = range(max(0, middle - SPAN), min(self._regular, middle + SPAN + 1))
        return [*near, *range(self._regular, len(self.dimensions))]

    def _store_model(self, row: int, candidate: int, model: Parameters, scale: Floats) -> None:
        d = len(model.D)
        self.candidate_transition[row, candidate, : d * d] = model.D.ravel()
        self.candidate_process_cov[row, candidate, : d * d] = model.Q.ravel()
        self.candidate_observation_var[row, candidate], self.candidate_scale[row, candidate] = np.diag(model.R), scale
        self.candidate_fitted[row, candidate] = True

    def warm_start(self, row: int, candidate: int, scale: Floats) -> Parameters:
        """The candidate's last model, in the units of now."""
        d, k = self.dimensions[candidate], self._streams.observed
        unit = np.ones(d)
        unit[:k] = self.candidate_scale[row, candidate] / scale
        D = self.candidate_transition[row, candidate, : d * d].reshape(d, d) * unit[:, None] / unit
        Q = self.candidate_process_cov[row, candidate, : d * d].reshape(d, d) * np.outer(unit, unit)
        R = np.diag(self.candidate_observation_var[row, candidate] * unit[:k] ** 2)
        return Parameters(np.ascontiguousarray(D), np.ascontiguousarray(Q), R, np.zeros(d), np.eye(d))
