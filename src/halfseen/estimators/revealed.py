"""The true context, for the oracle agents."""

from __future__ import annotations

from halfseen.components import Estimator, StreamBatch
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import at_least


class Revealed(Estimator):
    """c_t = x_t, handed to `decide` as `context`; `latent` is its dimension."""

    coordinates = "context"
    reveals_context = True

    def __init__(self, streams: StreamBatch, *, latent: int) -> None:
        self.dimension = at_least("latent", latent, 1)

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        assert contexts is not None  # the policy has looked
        return contexts.copy()
