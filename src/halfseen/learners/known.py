"""Learners that are given the arm parameters."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import Learner, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.kernels.regression import score_known
from halfseen.validation import Arrays, stack_for_streams


class Known(Learner):
    """Known arm parameters: predicts the reward cᵀμ_a with the true μ_a.

    Rewards change nothing, and the predictions have variance 0.

    Parameters
    ----------
    arm_params : array_like
        The parameters μ_a, of shape (K, p), or (B, K, p) if the streams have different parameters.
    """

    per_stream = ("arm_params",)
    option: ClassVar[str] = "arm_params"  # the name of the option in error messages

    def __init__(
        self, streams: StreamBatch, dimension: int, *, arm_params: Annotated[ArrayLike, Arrays(100_000)]
    ) -> None:
        self.arms = streams.arms
        self.arm_params = stack_for_streams(self.option, arm_params, streams.count, (streams.arms, dimension))

    def score(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        means = np.empty((len(rows), self.arms))
        score_known(rows, self.arm_params, features, means)
        return means, np.zeros_like(means)

    def learn(self, rows: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        """Do nothing: the parameters are known."""

    def may_refuse(self, features: Floats) -> bool:
        return False

    def replace_rewards(
        self, rows: Ints, features: Floats, arms: Ints, old_rewards: Floats, rewards: Floats, replacement_data: Floats
    ) -> None:
        """Do nothing: the parameters are known."""

    def add_arm(self, params: ArrayLike | None) -> None:
        count, _, dimension = self.arm_params.shape
        if params is None:
            raise invalid("params", f"{dimension} numbers, as this agent is given the arm parameters", "nothing")
        added = stack_for_streams("params", params, count, (dimension,))
        self.arm_params = np.concatenate([self.arm_params, added[:, None]], axis=1)
        self.arms += 1


class KnownByState(Known):
    """Known rewards per hidden state: predicts Σ_s b_s m(a, s) for the belief b over the states of a Markov chain.

    The features must be the belief.

    Parameters
    ----------
    state_rewards : array_like
        m(a, s), the expected reward of every arm in every state, of shape (K, S), or (B, K, S) if the streams have
        different rewards.

    References
    ----------
    Hong, Kveton, Zaheer, Chow, Ahmed, Ghavamzadeh & Boutilier (2020). Non-stationary latent bandits.
    """

    option = "state_rewards"

    def __init__(
        self, streams: StreamBatch, dimension: int, *, state_rewards: Annotated[ArrayLike, Arrays(100_000)]
    ) -> None:
        super().__init__(streams, dimension, arm_params=state_rewards)
