"""Regression on contexts that are observed with noise of known covariance."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import IntegerBounds, Learner, State, StreamBatch, resized
from halfseen.errors import invalid
from halfseen.kernels.measurement_error import estimate_arms, score_observed, update_corrected
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import Arrays, Integers, Numbers, at_least, covariances, positive, probability


class MeasurementError(Learner):
    """The regression of the measurement-error bandit, one per arm.

    Least squares on y = x + noise estimates arm parameters that are too small, because E[yyᵀ] is E[xxᵀ] plus the
    covariance Σ of the noise. This learner subtracts the noise: θ_a = (V_a − W_a)⁻¹ f_a with V_a = λI + Σ_t w yyᵀ,
    W_a = Σ_t w Σ and f_a = Σ_t w r y over the rounds of the arm. The choice of the arm depends on y. To correct for
    this, each round has the weight w = 1/π, where π is the propensity of the arm. The uncorrected θ_a = V_a⁻¹ f_a is
    used until `burn_in` rewards have been learnt, and whenever V_a − W_a ⪰ `safety`·V_a does not hold. Missing entries
    of y are left out of the three sums and of the prediction. The learner does not estimate how uncertain its
    predictions are: their variances are 0.

    The propensity is the last feature of each round (`Learner.weighs_propensity`). Features are stored with every
    decision until its reward arrives, so the propensity is stored with them.

    Parameters
    ----------
    observation_cov : array_like
        Σ, the covariance of the noise: a matrix, a diagonal or one variance.
    regularisation : float
        λ.
    burn_in : int
        Number of rewards before the correction is applied.
    safety : float
        Smallest eigenvalue of V_a − W_a, relative to V_a, at which the correction is applied.

    References
    ----------
    Guo, Xu & Murphy (2024). Online learning in bandits with predicted context. AISTATS.
    """

    weighs_propensity = True
    state_names = ("gram", "noise_gram", "reward_sum", "reward_count")
    per_stream = ("_observation_cov",)

    def __init__(
        self,
        streams: StreamBatch,
        dimension: int,
        *,
        observation_cov: Annotated[ArrayLike, Arrays(1_000)] = 0.0,
        regularisation: Annotated[float, Numbers(1e-100, 1e100)] = 1.0,
        burn_in: Annotated[int, Integers(1, 1_000_000_000)] = 100,
        safety: Annotated[float, Numbers(1e-100, 1.0)] = 0.1,
    ) -> None:
        self.prior_precision = positive("regularisation", regularisation)
        self._burn_in = at_least("burn_in", burn_in, 1)
        self._safety = probability("safety", safety)
        self.arms, self._size = streams.arms, dimension - 1  # the last feature is the propensity
        self._observation_cov = covariances("observation_cov", observation_cov, streams.count, self._size)
        self.gram, self.noise_gram, self.reward_sum = self._prior(streams.count, streams.arms)
        self.reward_count = np.zeros(streams.count, dtype=np.int64)
        self.theta = np.zeros_like(self.reward_sum)  # computed from the state arrays

    def _prior(self, count: int, arms: int) -> tuple[Floats, Floats, Floats]:
        square = (count, arms, self._size, self._size)
        V = np.array(np.broadcast_to(self.prior_precision * np.eye(self._size), square), order="C")
        return V, np.zeros(square), np.zeros(square[:-1])

    def integer_bounds(self, state: State) -> IntegerBounds:
        return {"reward_count": (0, state["rounds"])}

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
                "smaller entries (rescale the observations, or raise the regularisation, now "
                f"{self.prior_precision:g})",
                f"{largest:.3g}",
            )

    def replace_rewards(
        self, rows: Ints, features: Floats, arms: Ints, old_rewards: Floats, rewards: Floats, replacement_data: Floats
    ) -> None:
        weighted = np.nan_to_num(features[:, :-1]) * ((rewards - old_rewards) / features[:, -1])[:, None]
        np.add.at(self.reward_sum, (rows, arms), weighted)
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
            raise invalid("params", "nothing, as this agent estimates the arm parameters", repr(params))
        V, W, f = self._prior(len(self.gram), 1)
        for name, prior in (("gram", V), ("noise_gram", W), ("reward_sum", f), ("theta", f)):
            setattr(self, name, np.concatenate([getattr(self, name), prior], axis=1))
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
