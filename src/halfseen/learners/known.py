"""Arm parameters that are known: nothing to learn, nothing to explore."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import Learner, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.kernels.regression import score_known
from halfseen.validation import stack_for_streams


class Known(Learner):
    """Predicts cᵀμ_a with the true μ_a: `arm_params` (K, p), or (B, K, p) for one table per stream."""

    per_stream = ("arm_params",)
    option: ClassVar[str] = "arm_params"  # what the table is called when it is refused

    def __init__(self, streams: StreamBatch, dimension: int, *, arm_params: ArrayLike) -> None:
        self.arms = streams.arms
        self.arm_params = stack_for_streams(self.option, arm_params, streams.count, (streams.arms, dimension))

    def score(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        means = np.empty((len(rows), self.arms))
        score_known(rows, self.arm_params, features, means)
        return means, np.zeros_like(means)

    def learn(self, rows: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        """Nothing to learn."""

    def may_refuse(self, features: Floats) -> bool:
        return False

    def replace_rewards(
        self, rows: Ints, features: Floats, arms: Ints, changes: Floats, replacement_data: Floats
    ) -> None:
        """Nothing was learnt."""

    def add_arm(self, params: ArrayLike | None) -> None:
        count, _, dimension = self.arm_params.shape
        if params is None:
            raise invalid("params", f"{dimension} numbers: this agent must be told what an arm pays", "nothing")
        fresh = stack_for_streams("params", params, count, (dimension,))
        self.arm_params = np.concatenate([self.arm_params, fresh[:, None]], axis=1)
        self.arms += 1


class KnownByState(Known):
    """Predicts Σ_s b_s m(a, s) for the belief b over the states of a hidden chain (Hong et al., 2020).

    `state_rewards` is m, what every arm pays in every state: (K, S), or (B, K, S) for one table per stream.
    """

    option = "state_rewards"

    def __init__(self, streams: StreamBatch, dimension: int, *, state_rewards: ArrayLike) -> None:
        super().__init__(streams, dimension, arm_params=state_rewards)
