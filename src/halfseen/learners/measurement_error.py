"""Regression that knows how noisy its context is: the measurement-error bandit (Guo, Xu & Murphy, 2024).

Least squares on y = x + n shrinks what it finds towards 0, because Σ yyᵀ is Σ xxᵀ plus the noise's own Σ. Subtracting
the noise makes it right on average, provided that every round counts as it would had the arm been drawn without
looking at y: hence the weights 1/π, π being the probability with which the arm was chosen.

π is needed when the reward comes, which may be much later, and after the agent has been saved and loaded. So it is
the last feature of its round: what waits for a reward waits with its features already, and nothing else has to be
carried or saved (`Learner.weighs_propensity`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import Learner, StreamBatch, resized
from halfseen.errors import invalid
from halfseen.kernels.measurement_error import estimate_arms, score_observed, update_corrected
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import at_least, covariances, positive, probability


class MeasurementError(Learner):
    """V_a = λI + Σ w yyᵀ, W_a = Σ w Σ, f_a = Σ w r y over the rounds of the arm, w = 1/π; θ_a = (V_a − W_a)⁻¹ f_a.

    `observation_cov` is Σ, the covariance of y around x; λ is `regularisation`. Until `burn_in` rewards have come, and
    where V_a − W_a ⪰ `safety`·V_a does not hold, θ_a = V_a⁻¹ f_a. Entries of y not seen are left out of all three
    sums, and of the prediction. Nothing is believed about how far off a prediction may be: variances are 0.
    """

    weighs_propensity = True
    state_names = ("gram", "noise_gram", "reward_sum", "reward_count")
    per_stream = ("_observation_cov",)

    def __init__(
        self,
        streams: StreamBatch,
        dimension: int,
        *,
        observation_cov: ArrayLike = 0.0,
        regularisation: float = 1.0,
        burn_in: int = 100,
        safety: float = 0.1,
    ) -> None:
        self.prior_precision = positive("regularisation", regularisation)
        self._burn_in = at_least("burn_in", burn_in, 1)
        self._safety = probability("safety", safety)
        self.arms, self._size = streams.arms, dimension - 1  # the last feature is the propensity
        self._observation_cov = covariances("observation_cov", observation_cov, streams.count, self._size)
        self.gram, self.noise_gram, self.reward_sum = self._prior(streams.count, streams.arms)
        self.reward_count = np.zeros(streams.count, dtype=np.int64)
        self.theta = np.zeros_like(self.reward_sum)  # what V, W, f and `reward_count` come to: no state of its own

    def _prior(self, count: int, arms: int) -> tuple[Floats, Floats, Floats]:
        square = (count, arms, self._size, self._size)
        V = np.array(np.broadcast_to(self.prior_precision * np.eye(self._size), square), order="C")
        return V, np.zeros(square), np.zeros(square[:-1])

    def score(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        means = np.empty((len(rows), self.arms))
        score_observed(rows, self.theta, features, means)
        return means, np.zeros_like(means)

    def learn(self, rows: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        refused = update_corrected(
            rows,
            self.gram,
            self.noise_gram,
            self.reward_sum,
            self.reward_count,
            self.theta,
            self._observation_cov,
            self._burn_in,
            self._safety,
            features,
            arms,
            rewards,
        )
        if refused >= 0:
            largest = np.nanmax(np.abs(features[refused, :-1]))
            raise invalid(
                "context",
                "observations scaled to ordinary size: double precision cannot learn from these",
                f"entries as large as {largest:.3g} beside a regularisation of {self.prior_precision:g}",
            )

    def replace_rewards(
        self, rows: Ints, features: Floats, arms: Ints, changes: Floats, replacement_data: Floats
    ) -> None:
        weighed = np.nan_to_num(features[:, :-1]) * (changes / features[:, -1])[:, None]
        np.add.at(self.reward_sum, (rows, arms), weighed)
        estimate_arms(
            rows,
            self.gram,
            self.noise_gram,
            self.reward_sum,
            self.reward_count,
            self._burn_in,
            self._safety,
            self.theta,
        )

    def add_arm(self, params: ArrayLike | None) -> None:
        if params is not None:
            raise invalid("params", "nothing: this agent learns what its arms pay", repr(params))
        V, W, f = self._prior(len(self.gram), 1)
        for name, fresh in (("gram", V), ("noise_gram", W), ("reward_sum", f), ("theta", f)):
            setattr(self, name, np.concatenate([getattr(self, name), fresh], axis=1))
        self.arms += 1

    def resize(self, streams: StreamBatch) -> None:
        super().resize(streams)
        self.theta = resized(self.theta, streams.count)

    def rebuild_caches(self, rows: Ints | None = None) -> None:
        rows = np.arange(len(self.gram)) if rows is None else rows
        estimate_arms(
            rows,
            self.gram,
            self.noise_gram,
            self.reward_sum,
            self.reward_count,
            self._burn_in,
            self._safety,
            self.theta,
        )

    def arms_without_reward(self, row: int) -> Ints:
        return np.flatnonzero((self.gram[row] == self.prior_precision * np.eye(self._size)).all(axis=(1, 2)))
