"""What every arm pays in every state of a hidden chain, known (Hong et al., 2020)."""

from __future__ import annotations

from numpy.typing import ArrayLike

from halfseen.components import Streams
from halfseen.learners.known import Known


class KnownByState(Known):
    """Predicts Σ_s b_s m(a, s) for the belief b: `state_rewards` is m, (K, S), or (B, K, S) for one table a stream."""

    option = "state_rewards"

    def __init__(self, streams: Streams, dimension: int, *, state_rewards: ArrayLike) -> None:
        super().__init__(streams, dimension, arm_params=state_rewards)
