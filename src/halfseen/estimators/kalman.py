"""The Kalman filter with a known model (section 2.1 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from halfseen.components import Estimator, StreamBatch
from halfseen.errors import invalid
from halfseen.estimators.filter_bank import FilterBank
from halfseen.kernels.random import Floats, Ints
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.validation import LIMIT, MAX_DIMENSIONS, Models


class Kalman(Estimator):
    """The Kalman filter with a known model.

    The feature c_t is the filtered mean x_{t|t}, in the coordinates of the model. The filter itself works in canonical
    coordinates, in which the observation matrix is [I 0]. Streams that share a model also share covariance and gain.

    Parameters
    ----------
    model : LinearGaussianModel or sequence of LinearGaussianModel
        One model for all streams, or one model per stream.
    """

    coordinates = "context"
    nested = ("_bank",)
    uses_time = True

    def __init__(
        self,
        streams: StreamBatch,
        *,
        model: Annotated[LinearGaussianModel | Sequence[LinearGaussianModel], Models(MAX_DIMENSIONS)],
    ) -> None:
        models = list(model) if isinstance(model, Sequence) else [model]
        if all(one is models[0] for one in models):
            models = models[:1]  # so that the streams share the gain of the model
        if not all(isinstance(one, LinearGaussianModel) for one in models):
            raise invalid("model", "a LinearGaussianModel", type(model).__name__)
        if len(models) not in (1, streams.count):
            raise invalid("model", f"one model, or {streams.count} models, one per stream", f"{len(models)} models")
        for one in models:
            if one.observed != streams.observed:
                raise invalid("model", f"a model of {streams.observed} observed features", f"one of {one.observed}")
            if one.latent != models[0].latent:
                wanted = "models of the same latent dimension"
                raise invalid("model", wanted, f"dimensions {models[0].latent} and {one.latent}")
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
        return self._original(rows, self._bank.observe(rows, observations, complete))

    def pass_rounds(self, rows: Ints, rounds: Ints, missing: Ints) -> Ints:
        self._bank.pass_rounds(rows, missing)
        return rounds

    def look_again(self, rows: Ints, observations: Floats, rounds: Ints, contexts: Floats | None) -> Floats:
        return self._original(rows, self._bank.look_again(rows, observations))

    def forecast(self, row: int, horizon: int) -> tuple[Floats, Floats]:
        means, covs = self._bank.forecast(row, horizon)
        if self._to_original is None:
            return means, covs
        T = self._to_original[0 if len(self._to_original) == 1 else row]
        return means @ T.T, T @ covs @ T.T

    def to_canonical(self, row: int) -> Floats:
        """Return the matrix (d, d) by which features of stream `row` are converted to canonical coordinates."""
        if self._to_original is None:
            return np.eye(self.dimension)
        return np.linalg.inv(self._to_original[0 if len(self._to_original) == 1 else row])

    def _original(self, rows: Ints, means: Floats) -> Floats:
        """Return filtered means in the coordinates of the model."""
        if self._to_original is None:
            return means
        maps = self._to_original if len(self._to_original) == 1 else self._to_original[rows]
        return np.clip((maps @ means[:, :, None])[:, :, 0], -LIMIT, LIMIT)

    def observe_rounds(self, observations: Floats, rounds: Ints, contexts: Floats | None, features: Floats) -> None:
        if self._to_original is None:
            self._bank.observe_rounds(observations, 0, len(observations), features)
        else:
            super().observe_rounds(observations, rounds, contexts, features)
