"""The true context, for agents that serve as an upper bound."""

from __future__ import annotations

from typing import Annotated

from halfseen.components import Estimator, StreamBatch
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import Integers, at_least


class Revealed(Estimator):
    """The true context: c_t = x_t, which is the argument `context` of `decide`.

    Parameters
    ----------
    latent : int
        d, the dimension of the context.
    """

    coordinates = "context"
    reveals_context = True

    def __init__(self, streams: StreamBatch, *, latent: Annotated[int, Integers(1, 1_000)]) -> None:
        self.dimension = at_least("latent", latent, 1)

    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        assert contexts is not None  # the policy has checked this
        return contexts.copy()
