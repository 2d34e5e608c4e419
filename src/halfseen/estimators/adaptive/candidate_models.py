"""The candidate models of different dimensions that identification chooses from."""

from __future__ import annotations

import numpy as np

from halfseen.components import IntegerBounds, State, Stateful, StreamBatch
from halfseen.kernels.arrays import Parameters
from halfseen.kernels.random import Floats, Purpose, orthogonal_matrices
from halfseen.models.identification.em import FittedModel
from halfseen.models.identification.order import candidate_dimensions
from halfseen.models.identification.selection import ITERATIONS, fit_from_scratch, level_start, run_em

# For each number in NOISY_STEPS there is a candidate with a noisy start and this many hidden coordinates. SLOW_STEPS is
# the same for candidates with a slow start (see `CandidateModels`).
NOISY_STEPS = (0,)
SLOW_STEPS = (2,)
# Once the history has LONG_HISTORY rounds, EM does only FEW_ITERATIONS iterations for each candidate except the chosen
# one, starting from its last model. For the level, EM does FEW_ITERATIONS iterations from its last model at any length
# of the history, or half as many if the level is not in use.
FEW_ITERATIONS, LONG_HISTORY = 8, 1000
SPAN = 2  # beside the chosen dimension, up to this many lower ones and this many higher ones are refitted
# After MIN_CONFIRMATIONS identifications with the same result and MIN_ROUNDS rounds, only the chosen candidate is
# refitted, except in every FULL_REFIT_INTERVAL-th identification.
MIN_CONFIRMATIONS, MIN_ROUNDS = 3, 500
FULL_REFIT_INTERVAL = 4


class CandidateModels(Stateful):
    """The candidate models of each stream.

    There is one regular candidate for each dimension in `candidate_dimensions`, or one of dimension `latent` if
    `latent` is given. After the regular candidates come candidates with a noisy start: their EM starts from a model in
    which the part of y without memory is sensor noise. Then come candidates with a slow start, in which hidden
    coordinates with a long memory drive observed coordinates with a short memory. The last candidate is a level of
    dimension k: a random walk, observed with noise. Only rewards can select it, so it is not among the results of
    `fit`. The last model of every candidate is stored, and the next EM of the candidate starts from it.
    """

    state_names = (
        "candidate_transition", "candidate_process_cov", "candidate_observation_var", "candidate_scale",
        "candidate_fitted", "chosen_candidate", "times_confirmed",
    )  # fmt: skip

    def __init__(self, streams: StreamBatch, latent: int | None) -> None:
        count, k = streams.count, streams.observed
        self._streams = streams
        regular = candidate_dimensions(k) if latent is None else (latent,)
        noisy = tuple(k + step for step in NOISY_STEPS) if latent is None else (latent,)
        slow = tuple(k + step for step in SLOW_STEPS) if latent is None else (latent,)
        self._regular, self._noisy, self.dimensions = len(regular), len(noisy), (*regular, *noisy, *slow, k)
        self.level = len(self.dimensions) - 1
        self.max_dimension = max(self.dimensions)
        shape = (count, len(self.dimensions))
        # Arrays store the matrices of all candidates one after the other. The slices say where each matrix is.
        ends = np.cumsum([d * d for d in self.dimensions]).tolist()
        self._places = [slice(end - d * d, end) for end, d in zip(ends, self.dimensions, strict=True)]
        self.candidate_transition = np.zeros((count, ends[-1]))
        self.candidate_process_cov = np.zeros((count, ends[-1]))
        self.candidate_observation_var = np.zeros((*shape, k))
        self.candidate_scale = np.ones((*shape, k))  # scale of the observations to which the candidate was fitted
        self.candidate_fitted = np.zeros(shape, dtype=np.bool_)
        self.chosen_candidate = np.full(count, -1)  # −1 before the first identification
        self.times_confirmed = np.zeros(count, dtype=np.int64)  # identifications in a row with the same result

    def integer_bounds(self, state: State) -> IntegerBounds:
        return {"chosen_candidate": (-1, self.level - 1)}

    def resize(self, streams: StreamBatch) -> None:
        super().resize(streams)
        self._streams = streams

    def is_noisy(self, candidate: int) -> bool:
        return self._regular <= candidate < self._regular + self._noisy

    def _is_slow(self, candidate: int) -> bool:
        return self._regular + self._noisy <= candidate < self.level

    def reset(self, row: int) -> None:
        self.candidate_fitted[row], self.chosen_candidate[row], self.times_confirmed[row] = False, -1, 0

    def choose(self, row: int, candidate: int, *, as_before: bool, in_use: bool) -> None:
        """Store the chosen candidate, and count how often in a row the result was the same.

        `as_before` is true if the kind of context (a candidate, the level or y itself) has not changed. If the
        candidate is not `in_use`, because y itself or the level is the context, another candidate also counts as the
        same result.
        """
        same = as_before and (candidate == self.chosen_candidate[row] or not in_use)
        self.times_confirmed[row] = self.times_confirmed[row] + 1 if same else 0
        self.chosen_candidate[row] = candidate

    def fit(self, row: int, y: Floats, scale: Floats) -> dict[int, FittedModel]:
        """Refit some of the candidates to y (n, k), in units of `scale`, by EM. Returns the fits by candidate."""
        fits: dict[int, FittedModel] = {}
        for candidate in self._candidates_to_refit(row, len(y)):
            fitted, slow = bool(self.candidate_fitted[row, candidate]), self._is_slow(candidate)
            many = candidate == self.chosen_candidate[row] or len(y) < LONG_HISTORY
            iterations = ITERATIONS if many else FEW_ITERATIONS
            tried = [run_em(self.warm_start(row, candidate, scale), y, iterations=iterations)] if fitted else []
            # On a short history EM moves away from a slow start, so this start is tried again until the history is
            # long.
            if not fitted or (slow and len(y) < 2 * LONG_HISTORY):
                d = self.dimensions[candidate]
                start = orthogonal_matrices(self._streams.keys[row : row + 1], Purpose.INITIAL_MODEL, d)[0]
                tried.append(fit_from_scratch(y, d, start, noisy=self.is_noisy(candidate), slow=slow))
            fit = max((one for one in tried if one is not None), key=lambda one: one.log_likelihood, default=None)
            self.candidate_fitted[row, candidate] = fit is not None
            if fit is not None:
                fits[candidate] = fit
                self._store_model(row, candidate, fit.model, scale)
        return fits

    def fit_level(self, row: int, y: Floats, scale: Floats, *, in_use: bool) -> FittedModel | None:
        """Refit the level to y (n, k), in units of `scale`, by EM with D = I held fixed.

        When only the chosen candidate is due for a refit, the level is refitted only if it is `in_use`.
        """
        k = self._streams.observed
        if self._is_settled(row, len(y)) and not in_use:
            return None
        start, iterations = level_start(k), ITERATIONS
        if self.candidate_fitted[row, self.level]:
            start = self.warm_start(row, self.level, scale)
            iterations = FEW_ITERATIONS if in_use else FEW_ITERATIONS // 2
        fit = run_em(start._replace(D=np.eye(k)), y, fixed_transition=True, iterations=iterations)
        self.candidate_fitted[row, self.level] = fit is not None
        if fit is not None:
            self._store_model(row, self.level, fit.model, scale)
        return fit

    def _candidates_to_refit(self, row: int, rounds: int) -> list[int]:
        """Return the candidates to refit now.

        At the first identification, these are all candidates except the level. Later, they are the regular candidates
        with the dimensions nearest to the chosen one, and the candidates with noisy or slow starts. Once the result is
        settled, often only the chosen candidate is refitted.
        """
        chosen = int(self.chosen_candidate[row])
        if chosen < 0:
            return list(range(self.level))
        if self._is_settled(row, rounds):
            return [chosen]
        middle = min(range(self._regular), key=lambda i: abs(self.dimensions[i] - self.dimensions[chosen]))
        near = range(max(0, middle - SPAN), min(self._regular, middle + SPAN + 1))
        return [*near, *range(self._regular, self.level)]

    def _is_settled(self, row: int, rounds: int) -> bool:
        """Return whether only the chosen candidate is refitted this time."""
        confirmed = int(self.times_confirmed[row])
        return rounds >= MIN_ROUNDS and confirmed >= MIN_CONFIRMATIONS and confirmed % FULL_REFIT_INTERVAL != 0

    def _store_model(self, row: int, candidate: int, model: Parameters, scale: Floats) -> None:
        place = self._places[candidate]
        self.candidate_transition[row, place] = model.D.ravel()
        self.candidate_process_cov[row, place] = model.Q.ravel()
        self.candidate_observation_var[row, candidate], self.candidate_scale[row, candidate] = np.diag(model.R), scale

    def warm_start(self, row: int, candidate: int, scale: Floats) -> Parameters:
        """Return the last model of a candidate, converted to units of `scale`."""
        d, k, place = self.dimensions[candidate], self._streams.observed, self._places[candidate]
        unit = np.ones(d)
        unit[:k] = np.clip(self.candidate_scale[row, candidate] / scale, 1e-50, 1e50)  # squares must not overflow
        with np.errstate(over="ignore"):  # EM refuses a start that is not finite
            D = self.candidate_transition[row, place].reshape(d, d) * unit[:, None] / unit
            Q = self.candidate_process_cov[row, place].reshape(d, d) * np.outer(unit, unit)
            R = np.diag(self.candidate_observation_var[row, candidate] * unit[:k] ** 2)
        return Parameters(np.ascontiguousarray(D), np.ascontiguousarray(Q), R, np.zeros(d), np.eye(d))
