"""The models of several dimensions that a stream's identification keeps side by side, each to be warm-started from."""

from __future__ import annotations

import numpy as np

from halfseen.components import Limits, State, Stateful, StreamBatch
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
    """One candidate per dimension of a ladder (one only, if `latent` is given), then some with noisy starts."""

    state_names = (
        "rung_transition", "rung_process_cov", "rung_noise", "rung_scale", "rung_known", "rung", "settled",
    )  # fmt: skip

    def __init__(self, streams: StreamBatch, latent: int | None) -> None:
        count, k = streams.count, streams.observed
        self._streams = streams
        regular = candidate_dimensions(k) if latent is None else (latent,)
        noisy = tuple(k + step for step in NOISY_STEPS) if latent is None else (latent,)
        self._regular, self.dimensions = len(regular), regular + noisy
        self.most = max(self.dimensions)
        shape = (count, len(self.dimensions))
        self.rung_transition = np.zeros((*shape, self.most * self.most))
        self.rung_process_cov = np.zeros((*shape, self.most * self.most))
        self.rung_noise, self.rung_scale = np.zeros((*shape, k)), np.ones((*shape, k))
        self.rung_known = np.zeros(shape, dtype=np.bool_)
        self.rung = np.full(count, -1)  # the candidate in use, −1 before there is one
        self.settled = np.zeros(count, dtype=np.int64)

    def limits(self, state: State) -> Limits:
        return {"rung": (-1, len(self.dimensions) - 1)}

    def resize(self, streams: StreamBatch) -> None:
        super().resize(streams)
        self._streams = streams

    def is_noisy(self, rung: int) -> bool:
        return rung >= self._regular

    def forget(self, row: int) -> None:
        self.rung_known[row], self.rung[row], self.settled[row] = False, -1, 0

    def choose(self, row: int, rung: int, *, as_before: bool) -> None:
        """The candidate that identification preferred; `as_before` says whether all else came out as the last time."""
        same = as_before and rung == self.rung[row]
        self.settled[row] = self.settled[row] + 1 if same else 0
        self.rung[row] = rung

    def fit(self, row: int, y: Floats, scale: Floats) -> dict[int, FittedModel]:
        """EM on y (n, k), in units of `scale`, for the candidates to refit now; the fits by candidate."""
        fits: dict[int, FittedModel] = {}
        for rung in self._candidates_to_refit(row, len(y)):
            if self.rung_known[row, rung]:
                fit = run_em(self.warm_start(row, rung, scale), y)
            else:
                keys, d = self._streams.keys[row : row + 1], self.dimensions[rung]
                start = orthogonal_matrices(keys, Purpose.INITIAL_MODEL, d)[0]
                fit = fit_from_scratch(y, d, start, noisy=self.is_noisy(rung))
            if fit is not None:
                fits[rung] = fit
                self._keep(row, rung, fit.model, scale)
        return fits

    def _candidates_to_refit(self, row: int, rounds: int) -> list[int]:
        """All at first; then the neighbours of the one in use; once settled, now and then only that one."""
        at, settled = int(self.rung[row]), int(self.settled[row])
        if at < 0:
            return list(range(len(self.dimensions)))
        if rounds >= LONG_ENOUGH and settled >= SETTLED and settled % LOOK_AROUND:
            return [at]
        middle = min(range(self._regular), key=lambda i: abs(self.dimensions[i] - self.dimensions[at]))
        near = range(max(0, middle - SPAN), min(self._regular, middle + SPAN + 1))
        return [*near, *range(self._regular, len(self.dimensions))]

    def _keep(self, row: int, rung: int, model: Parameters, scale: Floats) -> None:
        d = len(model.D)
        self.rung_transition[row, rung, : d * d] = model.D.ravel()
        self.rung_process_cov[row, rung, : d * d] = model.Q.ravel()
        self.rung_noise[row, rung], self.rung_scale[row, rung] = np.diag(model.R), scale
        self.rung_known[row, rung] = True

    def warm_start(self, row: int, rung: int, scale: Floats) -> Parameters:
        """The candidate's last model, in the units of now."""
        d, k = self.dimensions[rung], self._streams.observed
        unit = np.ones(d)
        unit[:k] = self.rung_scale[row, rung] / scale
        D = self.rung_transition[row, rung, : d * d].reshape(d, d) * unit[:, None] / unit
        Q = self.rung_process_cov[row, rung, : d * d].reshape(d, d) * np.outer(unit, unit)
        R = np.diag(self.rung_noise[row, rung] * unit[:k] ** 2)
        return Parameters(np.ascontiguousarray(D), np.ascontiguousarray(Q), R, np.zeros(d), np.eye(d))
