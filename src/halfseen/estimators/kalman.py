"""The Kalman filter of a known model (the paper, section 2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halfseen.components import Estimator, StreamBatch
from halfseen.errors import invalid
from halfseen.estimators.filter_bank import FilterBank
from halfseen.kernels.random import Floats, Ints
from halfseen.models.linear_gaussian import LinearGaussianModel


class Kalman(Estimator):
    """c_t = x_{t|t} under `model`: one for all streams, or a sequence with one per stream.

    A model with a general observation matrix is filtered in canonical form; features are in its own coordinates.
    """

    coordinates = "context"
    parts = ("_bank",)

    def __init__(self, streams: StreamBatch, *, model: LinearGaussianModel | Sequence[LinearGaussianModel]) -> None:
        models = list(model) if isinstance(model, Sequence) else [model]
        if all(one is models[0] for one in models):
            models = models[:1]  # one model for all streams: they share its gain
        if not all(isinstance(one, LinearGaussianModel) for one in models):
            raise invalid("model", "a LinearGaussianModel", type(model).__name__)
        if len(models) not in (1, streams.count):
            raise invalid("model", f"1, or one for each of {streams.count} streams", f"{len(models)} models")
        for one in models:
            if one.observed != streams.observed:
                raise invalid("model", f"{streams.observed}", f"a model of {one.observed} observed features")
            if one.latent != models[0].latent:
                raise invalid("model", "one dimension", f"latent dimensions {models[0].latent} and {one.latent}")
        self.dimension = models[0].latent
        forms = [one.canonical() for one in models]
        canonical = [form.model for form in forms]
        self._to_original = None
        if not all(form.trivial for form in forms):
            self._to_original = np.stack([form.to_original for form in forms])
        self._bank = FilterBank(
            np.stack([one.transition for one in canonical]),
            np.stack([one.process_cov for one in canonical]),
            np.stack([one.observation_cov for one in canonical]),
            np.repeat(np.stack([one.initial_mean for one in canonical]), streams.count // len(models), axis=0),
            np.stack([one.initial_cov for one in canonical]),
            shared_model=len(models) == 1,
        )

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        means = self._bank.observe(rows, observations, complete)
        if self._to_original is None:
            return means
        maps = self._to_original if len(self._to_original) == 1 else self._to_original[rows]
        return np.ascontiguousarray((maps @ means[:, :, None])[:, :, 0])

    def observe_rounds(self, observations: Floats, rounds: Ints, contexts: Floats | None, features: Floats) -> None:
        if self._to_original is None:
            self._bank.observe_rounds(observations, 0, len(observations), features)
        else:
            super().observe_rounds(observations, rounds, contexts, features)
