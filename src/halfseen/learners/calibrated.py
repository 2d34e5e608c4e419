"""Bayesian linear regression with estimated noise and prior (docs/mathematics.md, "Calibrated arms")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import IntegerBounds, Learner, State, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.adaptive import (
    noise_of_played,
    noise_packed,
    replace_packed,
    reuse_packed,
    score_packed,
    update_packed,
)
from halfseen.kernels.evidence import arm_sums, first_hyperparameters, fit_arms
from halfseen.kernels.random import Floats, Ints

COLD_ITERATIONS, WARM_ITERATIONS = 60, 20  # of EM on the evidence, without and with hyperparameters to start from
TOLERANCE = 1e-2  # relative change of the hyperparameters at which the iterations stop
HYPERPARAMETERS = (  # the state arrays that a fit of the model determines
    "latent_dims", "noise_var", "prior_cov", "baseline", "smooth_cov", "reward_origin", "fitted", "pooled_noise_var",
)  # fmt: skip
MIN_RESIDUAL_SHARE = 1e-3  # lower bound of (s − cᵀCc)/s in the leave-one-out formula


class ArmFit(NamedTuple):
    """The posterior of the arms of one stream, with its hyperparameters."""

    mean: Floats  # (K, p) of the arm parameters
    cov: Floats  # (K, p, p) of the arm parameters
    noise: Floats  # (K,) variance of the rewards
    prior: Floats  # (p, p) covariance of the prior
    baseline: float  # mean of the intercept in the prior, relative to `origin`
    pooled: float  # noise variance of an arm without rewards
    origin: float  # subtracted from all rewards
    evidence: float  # log p(rewards | features)
    moment: Floats  # (p, p) mean of ccᵀ over the rewards

    def is_finite(self) -> bool:
        """Return whether all numbers are finite. Extreme features and rewards can make a fit impossible."""
        return all(bool(np.isfinite(value).all()) for value in self)


def fit_rewards(
    features: Floats,
    arms: Ints,
    rewards: Floats,
    count: int,
    start: ArmFit | None = None,
    *,
    fixed_hyperparameters: bool = False,
) -> ArmFit:
    """Compute the posterior of `count` arms from features (n, p), arms (n,) and rewards (n,).

    Rewards that are missing are NaN. The hyperparameters are estimated, starting from those of `start`. If
    `fixed_hyperparameters` is true, the hyperparameters of `start` are used unchanged. The first reward is subtracted
    from all rewards, so that a large mean does not cost precision.
    """
    p = features.shape[1]
    rewarded = np.flatnonzero(~np.isnan(rewards))
    origin = float(rewards[rewarded[0]]) if len(rewarded) else 0.0
    rewards = rewards - origin
    # Products of extreme rewards would overflow. Dividing by a power of two does not change any digit.
    unit = float(np.ldexp(1.0, int(np.frexp(np.nanmax(np.abs(rewards), initial=0.0))[1])))
    rewards = rewards / unit
    G, h = np.zeros((count, p, p)), np.zeros((count, p))
    squares, counts = np.zeros(count), np.zeros(count)
    arm_sums(np.ascontiguousarray(features), arms, rewards, G, h, squares, counts)
    if start is None:
        noise, prior = np.empty(count), np.empty((p, p))
        baseline = first_hyperparameters(G, h, squares, counts, noise, prior)
    else:
        noise, prior = start.noise / unit**2, start.prior / unit**2
        baseline = (start.baseline + (start.origin - origin)) / unit
    mean, cov = np.empty((count, p)), np.empty((count, p, p))
    iterations = COLD_ITERATIONS if start is None else 0 if fixed_hyperparameters else WARM_ITERATIONS
    evidence, baseline, pooled = fit_arms(
        G, h, squares, counts, noise, prior, baseline, mean, cov, iterations, TOLERANCE
    )
    moment = G.sum(axis=0) / max(1, len(rewarded))
    evidence -= len(rewarded) * np.log(unit)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, cov, noise, prior = mean * unit, cov * unit**2, noise * unit**2, prior * unit**2
    return ArmFit(mean, cov, noise, prior, baseline * unit, pooled * unit**2, origin, evidence, moment)


@dataclass(frozen=True)
class RewardHistory:
    """The rewards in the history of a stream, which serve to compare candidates for its contexts."""

    arms: Ints  # (n,)
    rewards: Floats  # (n,) NaN where there is none
    arm_count: int

    @property
    def count(self) -> int:
        """The number of rewards."""
        return int((~np.isnan(self.rewards)).sum())

    def evidence(self, features: Floats) -> float:
        """Return log p(rewards | features) for features (n, p)."""
        found = fit_rewards(features, self.arms, self.rewards, self.arm_count)
        return found.evidence if found.is_finite() else -np.inf

    def leave_one_out_error(self, features: Floats, query: Floats) -> float:
        """Return the mean squared error of predicting each reward from all other rewards.

        The arms learn on `features` (n, p) and predict on `query` (n, p), with hyperparameters that are fitted to all
        rewards. Leaving out a reward with features c and residual e changes the posterior mean of its arm by
        −Cce/(s − cᵀCc), where C is the posterior covariance and s the noise variance of the arm.
        """
        found = fit_rewards(features, self.arms, self.rewards, self.arm_count)
        rewarded = ~np.isnan(self.rewards)
        a, c, x, r = self.arms[rewarded], features[rewarded], query[rewarded], self.rewards[rewarded] - found.origin
        image, mean, noise = np.einsum("nij,nj->ni", found.cov[a], c), found.mean[a], found.noise[a]
        residual_var = np.maximum(noise - (image * c).sum(axis=1), MIN_RESIDUAL_SHARE * noise)
        step = (r - (mean * c).sum(axis=1)) / residual_var
        errors = r - (mean * x).sum(axis=1) + step * (image * x).sum(axis=1)
        return float(np.mean(errors**2))


class Calibrated(Learner):
    """Bayesian linear regression, one per arm, with estimated noise variances and prior.

    The model is θ_a ~ N(θ_0, Λ) and r = θ_aᵀc + noise of variance s_a. The features c consist of a 1 and the context.
    Nothing is assumed about the unit of the rewards: the first reward in the history is subtracted from all rewards,
    and the hyperparameters θ_0, Λ and s_a are estimated from the rewards by maximising their evidence. `Adaptive`
    refits the arms to the whole stored history at intervals (`fit`, `use_fit`). Between fits, each reward updates the
    posterior of its arm with fixed hyperparameters. Before the first fit, all arms have the same prediction.

    Streams may have models of different dimension d. The matrices of a stream are stored without gaps at the start of
    its row of a flat array, which is wide enough for the largest possible d.
    """

    state_names: ClassVar[tuple[str, ...]] = (
        "latent_dims", "mean", "cov", "slopes", "noise_var", "prior_cov", "baseline", "smooth_cov", "belief_cov",
        "reward_counts", "reward_origin", "fitted", "pooled_noise_var", "second_moment", "rewards_at_fit",
    )  # fmt: skip

    def __init__(self, streams: StreamBatch, dimension: int) -> None:
        count, self.arms, width = streams.count, streams.arms, dimension
        self._width, self._observed = width, streams.observed
        self.latent_dims = np.full(count, streams.observed)  # d, the dimension of the model of each stream
        self.mean = np.zeros((count, self.arms * width))
        self.cov = np.zeros((count, self.arms * width * width))
        # The slopes of θ_a at the last fit. Unlike `mean`, they do not depend on the order of later rewards.
        self.slopes = np.zeros((count, self.arms * width))
        self.noise_var = np.ones((count, self.arms))
        self.prior_cov = np.zeros((count, width * width))  # Λ
        self.baseline = np.zeros(count)  # the intercept of θ_0
        self.smooth_cov = np.zeros((count, width * width))  # P̄, covariance of the contexts that the last fit used
        self.belief_cov = np.zeros((count, width * width))  # P, covariance of the current belief about the context
        self.reward_counts = np.zeros((count, self.arms), dtype=np.int64)
        self.reward_origin = np.zeros(count)  # subtracted from all rewards since the last fit
        self.fitted = np.zeros(count, dtype=np.bool_)
        self.pooled_noise_var = np.ones(count)  # noise variance of an arm without rewards
        self.second_moment = np.zeros((count, width * width))  # mean of ccᵀ over the rewards of the last fit
        self.rewards_at_fit = np.zeros(count, dtype=np.int64)  # number of rewards at the time of the last fit
        self._reset_to_prior(np.arange(count))

    def _reset_to_prior(self, rows: Ints) -> None:
        """Give all arms the prediction 0 with variance 1, as before the first fit."""
        for b in rows:
            p = self.latent_dims[b] + 1
            self.mean[b] = self.slopes[b] = self.cov[b] = self.smooth_cov[b] = self.second_moment[b] = 0.0
            covs = self.cov[b, : self.arms * p * p].reshape(self.arms, p, p)
            covs[:, 0, 0] = 1.0
            self.noise_var[b], self.pooled_noise_var[b], self.fitted[b] = 1.0, 1.0, False

    def integer_bounds(self, state: State) -> IntegerBounds:
        rounds, dimensions = np.asarray(state["rounds"]), (self._observed, self._width - 1)
        return {"latent_dims": dimensions, "reward_counts": (0, rounds[:, None]), "rewards_at_fit": (0, rounds)}

    def score(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        shape = (len(rows), self.arms)
        means, variances = np.empty(shape), np.empty(shape)
        score_packed(rows, self.latent_dims, self.mean, self.cov, features, means, variances)
        means += self.reward_origin[rows][:, None]
        return means, variances

    def noise(self, rows: Ints, features: Floats) -> Floats:
        variances = np.empty((len(rows), self.arms))
        noise_packed(rows, self.latent_dims, self.slopes, self.noise_var, self.smooth_cov, self.belief_cov, variances)
        return variances

    def reuse(self, rows: Ints, features: Floats) -> Floats:
        shares = np.empty((len(rows), self.arms))
        reuse_packed(rows, self.latent_dims, self.cov, self.second_moment, features, shares)
        return shares

    def learn(self, rows: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        """Learn rewards. If features are NaN, because their round is no longer stored, the reward is only counted."""
        np.add.at(self.reward_counts, (rows, arms), 1)
        ready = self.fitted[rows]
        if not ready.all():
            rows, features, arms, rewards = rows[ready], features[ready], arms[ready], rewards[ready]
        if len(rows):
            variances = np.empty(len(rows))
            noise_of_played(
                rows, arms, self.latent_dims, self.slopes, self.noise_var, self.smooth_cov, self.belief_cov, variances
            )
            update_packed(
                rows,
                self.latent_dims,
                self.mean,
                self.cov,
                features,
                arms,
                rewards - self.reward_origin[rows],
                variances,
            )

    def may_refuse(self, features: Floats) -> bool:
        return False

    def replacement_data(self, rows: Ints, arms: Ints) -> Floats:
        """Return noise variances and numbers of rewards. Before the first fit the variance is infinite."""
        variances = np.empty(len(rows))
        noise_of_played(
            rows, arms, self.latent_dims, self.slopes, self.noise_var, self.smooth_cov, self.belief_cov, variances
        )
        return np.column_stack(
            [np.where(self.fitted[rows], variances, np.inf), self.reward_counts[rows].sum(axis=1) + 1]
        )

    def replace_rewards(
        self, rows: Ints, features: Floats, arms: Ints, changes: Floats, replacement_data: Floats
    ) -> None:
        """Replace rewards. Rewards whose features are NaN are left out."""
        # A fit uses the same noise variance for all rewards of an arm that were learnt before the fit.
        in_fit = np.where(self.fitted[rows], self.noise_var[rows, arms], np.inf)
        variances = np.where(replacement_data[:, 1] > self.rewards_at_fit[rows], replacement_data[:, 0], in_fit)
        replace_packed(rows, self.latent_dims, self.mean, self.cov, features, arms, changes, 1.0 / variances)

    def fit(
        self,
        row: int,
        features: Floats,
        arms: Ints,
        rewards: Floats,
        *,
        warm: bool,
        fixed_hyperparameters: bool = False,
    ) -> ArmFit | None:
        """Fit the arms of stream `row` to a history with features (n, p).

        Returns None if there is no reward, or if the numbers are so extreme that the result is not finite.

        If `warm` is true, the estimation starts from the current hyperparameters. If `fixed_hyperparameters` is also
        true, the current hyperparameters are not changed.
        """
        if np.isnan(rewards).all():
            return None
        start = None
        if warm and self.fitted[row]:
            p = features.shape[1]
            prior = self.prior_cov[row, : p * p].reshape(p, p)
            empty = np.empty((0,))
            baseline, origin = float(self.baseline[row]), float(self.reward_origin[row])
            start = ArmFit(empty, empty, self.noise_var[row], prior, baseline, 0.0, origin, 0.0, empty)
        found = fit_rewards(features, arms, rewards, self.arms, start, fixed_hyperparameters=fixed_hyperparameters)
        if fixed_hyperparameters:
            found = found._replace(pooled=float(self.pooled_noise_var[row]))
        return found if found.is_finite() else None

    def reward_history(self, arms: Ints, rewards: Floats) -> RewardHistory:
        """Return the rewards (n,) of a history, to compare candidates for its contexts."""
        return RewardHistory(arms, rewards, self.arms)

    def use_fit(self, row: int, latent: int, found: ArmFit | None) -> None:
        """Replace the arms of stream `row` by a fit for `latent` dimensions, or by the prior if the fit is None."""
        d, p, K = latent, latent + 1, self.arms
        self.latent_dims[row] = d
        self.rewards_at_fit[row] = self.reward_counts[row].sum()
        if found is None:
            self._reset_to_prior(np.array([row]))
            return
        self.mean[row] = self.slopes[row] = self.cov[row] = self.prior_cov[row] = 0.0
        self.mean[row, : K * p] = found.mean.ravel()
        self.cov[row, : K * p * p] = found.cov.ravel()
        self.slopes[row, : K * d] = found.mean[:, 1:].ravel()
        self.noise_var[row] = found.noise
        self.prior_cov[row, : p * p] = found.prior.ravel()
        self.second_moment[row] = 0.0
        self.second_moment[row, : p * p] = found.moment.ravel()
        self.baseline[row], self.pooled_noise_var[row], self.fitted[row] = found.baseline, found.pooled, True
        self.reward_origin[row] = found.origin

    def add_arm(self, params: ArrayLike | None) -> None:
        if params is not None:
            raise invalid("params", "nothing, as this agent estimates the arm parameters", repr(params))
        width, count = self._width, len(self.latent_dims)
        for name, size in (("mean", width), ("slopes", width), ("cov", width * width)):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((count, size))], axis=1))
        self.reward_counts = np.pad(self.reward_counts, ((0, 0), (0, 1)))
        self.arms += 1
        noise_var = np.empty((count, self.arms))
        noise_var[:, :-1] = self.noise_var
        for b in range(count):
            d, p, last = int(self.latent_dims[b]), int(self.latent_dims[b]) + 1, self.arms - 1
            cov = np.zeros((p, p))
            if self.fitted[b]:
                cov[:] = self.prior_cov[b, : p * p].reshape(p, p)
                self.mean[b, last * p] = self.baseline[b]
            else:
                cov[0, 0] = 1.0
            self.cov[b, last * p * p : (last + 1) * p * p] = cov.ravel()
            self.slopes[b, last * d : (last + 1) * d] = 0.0
            noise_var[b, -1] = self.pooled_noise_var[b]
        self.noise_var = noise_var

    def arms_without_reward(self, row: int) -> Ints:
        return np.flatnonzero(self.reward_counts[row] == 0)

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        facts: dict[str, object] = {"noise of each arm (standard deviation)": np.sqrt(self.noise_var[row]).tolist()}
        return (facts if self.fitted[row] else {}), []
