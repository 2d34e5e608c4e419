"""Generalised linear regression: rewards that are numbers, clicks or counts."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import Choices, IntegerBounds, Learner, Mask, State, StreamBatch
from halfseen.errors import HalfseenError, invalid
from halfseen.kernels.generalised_linear import (
    FIRST_CHECKED,
    GAUSSIAN,
    base_rate,
    expected_rewards,
    learn_family_rewards,
    replace_family_rewards,
)
from halfseen.kernels.random import Floats, Ints, Keys
from halfseen.kernels.regression import MAX_REDUCTION, learn_rewards, score_arms
from halfseen.learners.links import LINKS
from halfseen.learners.ridge import Ridge
from halfseen.validation import REWARD_RANGES, Numbers, Words, positive

FAMILIES = tuple(REWARD_RANGES)  # in the order of GAUSSIAN, BINARY and COUNT of the kernels
INTERCEPT_VAR = 1.0  # prior variance of the intercept
MAX_SLOPE_VAR = 1.0  # the prior of the intercepts is computed as if the slopes added at most this to Var η


class GeneralisedLinear(Ridge):
    """Generalised linear regression, one per arm, with a Gaussian approximation of the posterior.

    The expected reward of arm a is μ(η) with the linear predictor η = θ_aᵀ(1, c). The family of the rewards determines
    μ: the identity for "gaussian" with noise variance 1, the logistic function for "binary", exp for "count" (the
    Poisson distribution). The learner stores the posterior of θ_a as N(m_a, C_a). Before a reward r is learnt, the
    linear predictor has the mean mᵀ(1, c) and the variance q = (1, c)ᵀC(1, c). Let z be the mode of its posterior given
    r, and w the curvature of −log p(r | z) at the mode. The updates are m += C(1, c)(r − μ(z)) and
    C −= w C(1, c)(1, c)ᵀC/(1 + wq). For "gaussian" this is exact. In `Ridge` the covariance is in units of the noise
    variance. Here it is not, because the family determines the variance of the rewards.

    The prior of the p slopes is N(0, I/(λp)): for features of variance 1, the slopes contribute 1/λ to the prior
    variance of η, whatever p is. The prior of the intercepts is N(b, 1). b is set so that the expected reward of an arm
    without rewards is the base rate: the mean of all rewards of the stream so far and of one more reward, which is ½
    for "binary" and 1 for "count". For "gaussian" b is 0.

    Arms are scored by the linear predictor. `expected_rewards` are on the scale of the rewards: the mean of μ(η) over
    the posterior of η.

    Parameters
    ----------
    reward_family : {"gaussian", "binary", "count"}
        The family of the rewards: any numbers, numbers from 0 to 1, or numbers of at least 0.
    regularisation : float
        λ.

    References
    ----------
    Spiegelhalter & Lauritzen (1990). Sequential updating of conditional probabilities on directed graphical structures.
    MacKay (1992). The evidence framework applied to classification networks.
    """

    state_names = (*Ridge.state_names, "reward_counts", "reward_totals", "baseline", "calibration")

    def __init__(
        self,
        streams: StreamBatch,
        dimension: int,
        *,
        reward_family: Annotated[str, Words(FAMILIES)] = "binary",
        regularisation: Annotated[float, Numbers(1e-100, 1e100)] = 1.0,
    ) -> None:
        if reward_family not in FAMILIES:
            raise invalid("reward_family", str(Words(FAMILIES)), repr(reward_family))
        self.reward_range, self.link = REWARD_RANGES[reward_family], LINKS[reward_family]
        self._family, self._regularisation = FAMILIES.index(reward_family), positive("regularisation", regularisation)
        self._slope_var = 1.0 / (self._regularisation * dimension)
        self._prior_var = INTERCEPT_VAR + min(1.0 / self._regularisation, MAX_SLOPE_VAR)  # of η, if |c|² = p
        super().__init__(streams, dimension + 1, regularisation=regularisation)
        self.prior_precision = 1.0 / self._slope_var
        self.reward_counts = np.zeros((streams.count, streams.arms), dtype=np.int64)
        self.reward_totals = np.zeros(streams.count)
        self.baseline = np.full(streams.count, base_rate(self._family, self._prior_var, 0.0, 0.0))
        self.mean[:, :, 0] = self.baseline[:, None]  # the prior mean of the intercepts
        # Per arm, sums of expected rewards, of rewards and of predicted variances. The first FIRST_CHECKED rewards are
        # not included. The sums are 0 for "gaussian", because this family does not determine the variance.
        self.calibration = np.zeros((streams.count, streams.arms, 3))

    def _prior(self, count: int, arms: int, dimension: int) -> tuple[Floats, Floats, Floats]:
        rows, columns = self._triangle
        variances = np.where(rows == columns, self._slope_var, 0.0)
        variances[0] = INTERCEPT_VAR
        return np.zeros((count, arms, dimension)), np.tile(variances, (count, arms, 1)), np.zeros((count, arms))

    def add_arm(self, params: ArrayLike | None) -> None:
        super().add_arm(params)
        self.mean[:, -1, 0] = self.baseline
        self.reward_counts = np.pad(self.reward_counts, ((0, 0), (0, 1)))
        self.calibration = np.pad(self.calibration, ((0, 0), (0, 1), (0, 0)))

    def score(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        return super().score(rows, _with_intercept(features))

    def score_and_pick(
        self,
        rows: Ints,
        features: Floats,
        widths: Floats,
        distribution: int,
        keys: Keys,
        rounds: Ints,
        available: Mask,
        arms: Ints,
    ) -> tuple[Floats, Floats]:
        return super().score_and_pick(
            rows, _with_intercept(features), widths, distribution, keys, rounds, available, arms
        )

    def expected_rewards(self, choices: Choices) -> Floats:
        return self._expected(choices.means, choices.variances)

    def _expected(self, predictors: Floats, variances: Floats) -> Floats:
        expected = np.empty_like(predictors)
        expected_rewards(self._family, predictors, variances, expected)
        return expected

    def learn(self, rows: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        """Learn rewards. Nothing is learnt if one of them is outside of the range of the family."""
        self.reward_range.check("rewards", rewards)
        refused = learn_family_rewards(
            self._family, INTERCEPT_VAR, self._prior_var, rows, self.mean, self.cov_packed, self.log_det,
            self.reward_counts, self.reward_totals, self.baseline, self.calibration, _with_intercept(features), arms,
            rewards,
        )  # fmt: skip
        if refused >= 0:
            raise self._refusal(features[refused])

    def may_refuse(self, features: Floats) -> bool:
        """Return whether `learn` may refuse features because they are too large, as `Ridge.may_refuse` does."""
        largest = np.einsum("ij,ij->i", features, features).max(initial=0.0) * self._slope_var
        return not largest + INTERCEPT_VAR <= 0.1 * MAX_REDUCTION

    def _refusal(self, feature: Floats) -> HalfseenError:
        return invalid(
            "context",
            f"smaller entries (rescale the observations, or raise the regularisation, now {self._regularisation:g})",
            f"{np.abs(feature).max():.3g}",
        )

    def replacement_data(self, rows: Ints, arms: Ints) -> Floats:
        """Return a noise variance of 1, and the number of the next reward of each of `arms`, counted from 1 per arm."""
        return np.column_stack([np.ones(len(rows)), self.reward_counts[rows, arms] + 1.0])

    def replace_rewards(
        self, rows: Ints, features: Floats, arms: Ints, old_rewards: Floats, rewards: Floats, replacement_data: Floats
    ) -> None:
        """Replace rewards by one step of Newton's method, m += C(1, c)(r_new − r_old).

        This is exact for "gaussian". For the other families it is the first-order term of the exact change.
        """
        changes = rewards - old_rewards
        replace_family_rewards(
            self._family, INTERCEPT_VAR, self._prior_var, rows, self.mean, self.cov_packed, self.reward_counts,
            self.reward_totals, self.baseline, _with_intercept(features), arms, changes,
        )  # fmt: skip
        checked = (replacement_data[:, 1] > FIRST_CHECKED) & (self._family != GAUSSIAN)
        np.add.at(self.calibration[:, :, 1], (rows[checked], arms[checked]), changes[checked])

    def checked_rewards(self, rows: Ints) -> tuple[Ints, Floats]:
        """Return the number of rewards (K,) in `calibration`, and its sums (K, 3), both over all streams in `rows`."""
        counts = np.maximum(self.reward_counts[rows] - FIRST_CHECKED, 0).sum(axis=0)
        return counts, self.calibration[rows].sum(axis=0)

    def integer_bounds(self, state: State) -> IntegerBounds:
        return {"reward_counts": (0, np.asarray(state["rounds"])[:, None])}

    def arms_without_reward(self, row: int) -> Ints:
        return np.flatnonzero(self.reward_counts[row] == 0)


class QuasiLikelihood(GeneralisedLinear):
    """The learner of GLM-UCB: a quasi-likelihood estimate of the arms, with the confidence widths of linear bandits.

    The score of arm a is μ(θ̂_aᵀ(1, c)), the expected reward at the estimate. The squared width is (1, c)ᵀM_a⁻¹(1, c)
    with M_a = Λ + Σ (1, c)(1, c)ᵀ over the rounds of the arm, whatever their rewards were.

    Filippi et al. have one parameter vector for all arms, and maximise the quasi-likelihood anew in every round. Here
    every arm has its own parameters. Λ is the prior precision of `GeneralisedLinear`, so that the maximum exists from
    the first round on. The estimate is updated reward by reward, as in `GeneralisedLinear`.

    Parameters
    ----------
    reward_family : {"gaussian", "binary", "count"}
        The family of the rewards: any numbers, numbers from 0 to 1, or numbers of at least 0.
    regularisation : float
        λ.

    References
    ----------
    Filippi, Cappé, Garivier & Szepesvári (2010). Parametric bandits: the generalized linear case. NeurIPS.
    """

    state_names = (*GeneralisedLinear.state_names, "design_cov", "design_log_det")
    score_and_pick = Learner.score_and_pick

    def __init__(
        self,
        streams: StreamBatch,
        dimension: int,
        *,
        reward_family: Annotated[str, Words(FAMILIES)] = "binary",
        regularisation: Annotated[float, Numbers(1e-100, 1e100)] = 1.0,
    ) -> None:
        super().__init__(streams, dimension, reward_family=reward_family, regularisation=regularisation)
        self.design_cov, self.design_log_det = self.cov_packed.copy(), self.log_det.copy()  # M⁻¹, log|M| − log|Λ|
        self._zeros = np.zeros((0, 0, 0))
        self.link = None  # scores are on the scale of rewards

    def add_arm(self, params: ArrayLike | None) -> None:
        super().add_arm(params)
        count, _, dimension = self.mean.shape
        _, design_cov, log_det = self._prior(count, 1, dimension)
        self.design_cov = np.concatenate([self.design_cov, design_cov], axis=1)
        self.design_log_det = np.concatenate([self.design_log_det, log_det], axis=1)

    def score(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        predictors = np.empty((len(rows), self.arms))
        variances = np.empty_like(predictors)
        score_arms(rows, self.mean, self.design_cov, _with_intercept(features), predictors, variances)
        return self._expected(predictors, np.zeros_like(predictors)), variances

    def expected_rewards(self, choices: Choices) -> Floats:
        return choices.means

    def learn(self, rows: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        super().learn(rows, features, arms, rewards)
        if self._zeros.shape != self.mean.shape:
            self._zeros = np.zeros_like(self.mean)
        # A ridge regression on rewards of 0 updates M⁻¹ and leaves its mean at 0.
        refused = learn_rewards(
            rows,
            self._zeros,
            self.design_cov,
            self.design_log_det,
            _with_intercept(features),
            arms,
            np.zeros(len(rows)),
        )
        if refused >= 0:
            raise self._refusal(features[refused])

    may_refuse = GeneralisedLinear.may_refuse
    replace_rewards = GeneralisedLinear.replace_rewards

    def log_determinants(self, rows: Ints) -> Floats:
        return self.design_log_det[rows]


def _with_intercept(features: Floats) -> Floats:
    """Return the features (1, c), (n, p + 1)."""
    augmented = np.ones((len(features), features.shape[1] + 1))
    augmented[:, 1:] = features
    return augmented
