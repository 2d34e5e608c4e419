"""Thompson sampling over the states of a hidden Markov chain."""

from __future__ import annotations

import numpy as np

from halfseen.choosers.sampled import Sampled
from halfseen.components import Choices, Learner, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.known import Known


class StateSampling(Sampled):
    """Thompson sampling over the states of a hidden Markov chain.

    A state is drawn from the belief, and the arm with the highest expected reward in that state is played. If several
    arms have the highest expected reward, each is equally likely. The features must be the belief over the states, and
    the learner must know the reward of every arm in every state (`KnownByState`).

    References
    ----------
    Hong, Kveton, Zaheer, Chow, Ahmed, Ghavamzadeh & Boutilier (2020). Non-stationary latent bandits.
    """

    def __init__(self, streams: StreamBatch, dimension: int) -> None:
        """This chooser has no options."""

    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        """Return the reward of every arm in every state, (n, K, S).

        `Choices` stores these rewards, because `probabilities` may be called after an arm has been added.
        """
        if not isinstance(learner, Known):
            raise invalid(
                "learner", "a learner that knows the reward of every arm in every state", type(learner).__name__
            )
        return learner.arm_params[rows]

    def with_penalties(self, choices: Choices) -> Choices:
        assert choices.penalties is not None
        return choices._replace(widths=choices.widths - choices.penalties[:, :, None])

    def probabilities(self, choices: Choices) -> Floats:
        state_rewards = np.where(choices.available[:, :, None], choices.widths, -np.inf)
        best = state_rewards == state_rewards.max(axis=1, keepdims=True)
        shares = choices.features[:, None] * best / best.sum(axis=1, keepdims=True)
        return np.asarray(np.minimum(shares.sum(axis=2), 1.0))  # the sum may exceed 1 by rounding
