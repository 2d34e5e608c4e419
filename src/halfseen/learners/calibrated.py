"""Bayesian linear regression with estimated noise and prior (docs/mathematics.md, "Calibrated arms")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import IntegerBounds, Learner, Mask, State, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.adaptive import (
    FREEDOM,
    LIMIT,
    WILD,
    learn_packed,
    noise_of_played,
    noise_packed,
    replace_packed,
    reuse_packed,
    score_packed,
    update_context,
)
from halfseen.kernels.evidence import arm_sums, first_hyperparameters, fit_arms
from halfseen.kernels.random import Floats, Ints

COLD_ITERATIONS, WARM_ITERATIONS = 60, 20  # the most iterations of EM, without and with hyperparameters to start from
TOLERANCE = 1e-2  # relative change of the hyperparameters at which the iterations stop
HYPERPARAMETERS = (  # the state arrays that a refit determines and that `Agent.model` returns
    "latent_dims", "noise_var", "prior_cov", "baseline", "smooth_cov", "reward_origin", "fitted", "pooled_noise_var",
    "through_zero", "has_other", "other_shift", "other_noise_var", "other_prior_cov", "other_baseline",
    "other_pooled_noise_var",
)  # fmt: skip
LEAST_LEAD = -10.0  # in nats; a fit under another origin is stored only if its `lead` is above this
WILD_RATIO = (FREEDOM + LIMIT) / WILD - FREEDOM  # squared standardised error at which the weight of a reward is WILD
# Before the first fit, a reward is far from the rest if it is more than this many robust standard deviations from the
# median.
MARGINAL_RATIO = 30.0
MIN_RESIDUAL_SHARE = 1e-3  # lower bound of (s − cᵀCc)/s in the leave-one-out formula


MIN_VALUES = 7  # among at most this many values, none is called wild
NO_LEAD = -1e9  # the lead in a stream without another origin


def most_wild(count: int) -> int:
    """Return how many of `count` values may be called wild.

    A wild value is so far from the rest that a fit does not use it. If more values are far, none is called wild.
    """
    return max(2, count // 2000) if count > MIN_VALUES else 0


class ArmFit(NamedTuple):
    """The posterior of the arms of one stream, with its hyperparameters."""

    mean: Floats  # (K, p), posterior means of the arm parameters
    cov: Floats  # (K, p, p), posterior covariances of the arm parameters
    noise: Floats  # (K,), noise variances of the rewards
    prior: Floats  # (p, p), covariance of the prior
    baseline: float  # prior mean of the intercept, relative to `origin`
    pooled: float  # noise variance assumed for an arm without rewards
    origin: float  # subtracted from all rewards
    evidence: float  # log p(rewards | features)
    moment: Floats  # (p, p), mean of ccᵀ over the rounds with a reward

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
    through_zero: bool = False,
) -> ArmFit:
    """Compute the posterior of `count` arms from features (n, p), arms (n,) and rewards (n,).

    Missing rewards are NaN. The hyperparameters are estimated, starting from those of `start`. If
    `fixed_hyperparameters` is true, the hyperparameters of `start` are used unchanged. The first reward is subtracted
    from all rewards, so that a large mean does not cost precision. If `through_zero` is true, nothing is subtracted:
    expected rewards are then 0 where the context is 0.
    """
    p = features.shape[1]
    rewarded = np.flatnonzero(~np.isnan(rewards))
    origin = float(rewards[rewarded[0]]) if len(rewarded) and not through_zero else 0.0
    rewards = rewards - origin
    # Products of extreme rewards would overflow, so rewards are divided by a power of two, which changes no digit.
    unit = float(np.ldexp(1.0, int(np.frexp(np.nanmax(np.abs(rewards), initial=0.0))[1])))
    rewards = rewards / unit
    G, h = np.zeros((count, p, p)), np.zeros((count, p))
    squares, counts = np.zeros(count), np.zeros(count)
    arm_sums(np.ascontiguousarray(features), arms, rewards, G, h, squares, counts)
    if start is None:
        noise, prior = np.empty(count), np.empty((p, p))
        baseline = first_hyperparameters(G, h, squares, counts, noise, prior, through_zero)
    else:
        noise, prior = start.noise / unit**2, start.prior / unit**2
        baseline = (start.baseline + (start.origin - origin)) / unit
    mean, cov = np.empty((count, p)), np.empty((count, p, p))
    iterations = COLD_ITERATIONS if start is None else 0 if fixed_hyperparameters else WARM_ITERATIONS
    evidence, baseline, pooled = fit_arms(
        G, h, squares, counts, noise, prior, baseline, mean, cov, iterations, TOLERANCE, through_zero
    )
    moment = G.sum(axis=0) / max(1, len(rewarded))
    evidence -= len(rewarded) * np.log(unit)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, cov, noise, prior = mean * unit, cov * unit**2, noise * unit**2, prior * unit**2
    return ArmFit(mean, cov, noise, prior, baseline * unit, pooled * unit**2, origin, evidence, moment)


@dataclass(frozen=True)
class RewardHistory:
    """The rewards in the history of a stream, used to compare candidate estimates of its contexts."""

    arms: Ints  # (n,)
    rewards: Floats  # (n,) NaN where there is none
    arm_count: int

    @property
    def count(self) -> int:
        """The number of rewards."""
        return int((~np.isnan(self.rewards)).sum())

    def evidence(self, features: Floats, *, through_zero: bool = False) -> float:
        """Return log p(rewards | features) for features (n, p)."""
        found = fit_rewards(features, self.arms, self.rewards, self.arm_count, through_zero=through_zero)
        return found.evidence if found.is_finite() else -np.inf

    def leave_one_out_error(self, features: Floats, query: Floats, *, through_zero: bool = False) -> float:
        """Return the mean squared error of predicting each reward from all other rewards.

        The arms are fitted to `features` (n, p), and rewards are predicted from `query` (n, p). The hyperparameters are
        fitted to all rewards. Leaving out a reward with features c and residual e changes the posterior mean of its arm
        by −Cce/(s − cᵀCc), where C is the posterior covariance and s the noise variance of the arm.
        """
        found = fit_rewards(features, self.arms, self.rewards, self.arm_count, through_zero=through_zero)
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

    If `through_zero` is true, expected rewards are 0 at the origin of the contexts, and there is no intercept. The arms
    may also be fitted under another origin of contexts and rewards. This second posterior (`other_mean`, ...) is stored
    in the coordinates of the first. `lead` is the log likelihood ratio of the other origin to the origin in use. While
    `lead` is above VOTE, each arm is scored by the more optimistic of the two posteriors.

    A reward far from its prediction is learnt with a reduced weight (`kernels.adaptive.weight`). The weight depends on
    the prediction of the last fit, so that the order of later rewards does not matter.

    Streams may have models of different dimension d. The matrices of a stream are stored without gaps at the start of
    its row of a two-dimensional array. A row is long enough for the largest possible d.
    """

    state_names: ClassVar[tuple[str, ...]] = (
        "latent_dims", "mean", "cov", "slopes", "noise_var", "prior_cov", "baseline", "smooth_cov", "belief_cov",
        "reward_counts", "reward_origin", "fitted", "pooled_noise_var", "second_moment", "rewards_at_fit", "fit_mean",
        "fit_var", "wild_rewards", "through_zero", "has_other", "other_mean", "other_cov", "other_shift",
        "other_noise_var", "other_prior_cov", "other_baseline", "other_pooled_noise_var", "lead",
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
        self.smooth_cov = np.zeros((count, width * width))  # P̄, covariance of the context estimates in the last fit
        self.belief_cov = np.zeros((count, width * width))  # P, covariance of the current belief about the context
        self.reward_counts = np.zeros((count, self.arms), dtype=np.int64)
        self.reward_origin = np.zeros(count)  # set by each fit and subtracted from all rewards
        self.fitted = np.zeros(count, dtype=np.bool_)
        self.pooled_noise_var = np.ones(count)  # noise variance of an arm without rewards
        self.second_moment = np.zeros((count, width * width))  # mean of ccᵀ over the rewarded rounds of the last fit
        self.rewards_at_fit = np.zeros(count, dtype=np.int64)  # number of rewards at the time of the last fit
        self.fit_mean = self.mean.copy()  # `mean` at the last fit
        self.fit_var = self.mean.copy()  # the diagonals of `cov` at the last fit
        self.wild_rewards = np.zeros(count, dtype=np.int64)  # number of rewards with a weight below WILD
        self.through_zero = np.zeros(count, dtype=np.bool_)
        self.has_other = np.zeros(count, dtype=np.bool_)  # whether the arms are also fitted under another origin
        self.other_mean, self.other_cov = self.mean.copy(), self.cov.copy()
        # This shift is added to the observed part of a context, which is then relative to the other origin.
        self.other_shift = np.zeros((count, streams.observed))
        self.other_noise_var = np.ones((count, self.arms))
        self.other_prior_cov, self.other_baseline = self.prior_cov.copy(), np.zeros(count)
        self.other_pooled_noise_var = np.ones(count)
        self.lead = np.full(count, NO_LEAD)  # log likelihood ratio of the other origin to the one in use
        self._reset_to_prior(np.arange(count))

    def _reset_to_prior(self, rows: Ints) -> None:
        """Give all arms the prediction 0 with variance 1, as before the first fit."""
        for b in rows:
            p = self.latent_dims[b] + 1
            self.mean[b] = self.slopes[b] = self.cov[b] = self.smooth_cov[b] = self.second_moment[b] = 0.0
            self.prior_cov[b] = self.baseline[b] = 0.0
            covs = self.cov[b, : self.arms * p * p].reshape(self.arms, p, p)
            covs[:, 0, 0] = 1.0
            self.noise_var[b], self.pooled_noise_var[b], self.fitted[b] = 1.0, 1.0, False
            self.fit_mean[b], self.fit_var[b], self.through_zero[b] = self.mean[b], 0.0, False
            self.fit_var[b, : self.arms * p : p] = 1.0
            self.drop_other(b)

    def drop_other(self, row: int) -> None:
        """Drop the fit of the arms under the other origin."""
        self.has_other[row], self.lead[row], self.other_noise_var[row] = False, NO_LEAD, 1.0
        for array in (self.other_mean, self.other_cov, self.other_shift, self.other_prior_cov, self.other_baseline):
            array[row] = 0.0
        self.other_pooled_noise_var[row] = 1.0

    def integer_bounds(self, state: State) -> IntegerBounds:
        rounds, dimensions = np.asarray(state["rounds"]), (self._observed, self._width - 1)
        return {"latent_dims": dimensions, "reward_counts": (0, rounds[:, None]), "rewards_at_fit": (0, rounds)}

    def score(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        return self._predictions(rows, features, self.lead)

    def predict(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        return self._predictions(rows, features, np.full_like(self.lead, NO_LEAD))

    def _predictions(self, rows: Ints, features: Floats, lead: Floats) -> tuple[Floats, Floats]:
        shape = (len(rows), self.arms)
        means, variances = np.empty(shape), np.empty(shape)
        score_packed(
            rows, self.latent_dims, self.mean, self.cov, self.other_mean, self.other_cov, lead, self.reward_origin,
            features, means, variances,
        )  # fmt: skip
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
        """Learn rewards. A reward whose features are NaN is counted but not learnt: its round is no longer stored."""
        np.add.at(self.reward_counts, (rows, arms), 1)
        ready = self.fitted[rows]
        if not ready.all():
            rows, features, arms, rewards = rows[ready], features[ready], arms[ready], rewards[ready]
        if len(rows):
            learn_packed(
                rows, arms, features, rewards - self.reward_origin[rows], self.latent_dims, self.mean, self.cov,
                self.fit_mean, self.fit_var, self.slopes, self.noise_var, self.smooth_cov, self.belief_cov,
                self.other_mean, self.other_cov, self.other_noise_var, self.has_other, self.lead, self.wild_rewards,
            )  # fmt: skip

    def may_refuse(self, features: Floats) -> bool:
        return False

    def replacement_data(self, rows: Ints, arms: Ints) -> Floats:
        """Return the noise variance (infinite before the first fit) and the number of the next reward of each stream.

        The rewards of all arms of a stream are numbered together, from 1.
        """
        variances = np.empty(len(rows))
        noise_of_played(
            rows, arms, self.latent_dims, self.slopes, self.noise_var, self.smooth_cov, self.belief_cov, variances
        )
        return np.column_stack(
            [np.where(self.fitted[rows], variances, np.inf), self.reward_counts[rows].sum(axis=1) + 1]
        )

    def replace_rewards(
        self, rows: Ints, features: Floats, arms: Ints, old_rewards: Floats, rewards: Floats, replacement_data: Floats
    ) -> None:
        """Replace rewards. Rewards whose features are NaN are not replaced."""
        # A fit uses the same noise variance for all rewards of an arm that were learnt before the fit.
        in_fit = ~(replacement_data[:, 1] > self.rewards_at_fit[rows])
        variances = np.where(in_fit, self.noise_var[rows, arms], replacement_data[:, 0])
        variances[~self.fitted[rows]] = np.inf
        origin = self.reward_origin[rows]
        replace_packed(
            rows, arms, features, old_rewards - origin, rewards - origin, variances, in_fit, self.latent_dims,
            self.mean, self.cov, self.fit_mean, self.fit_var, self.noise_var, self.other_mean, self.other_cov,
            self.other_noise_var, self.has_other, self.lead, self.wild_rewards,
        )  # fmt: skip

    def without_wild(self, row: int, features: Floats, arms: Ints, rewards: Floats) -> Floats:
        """Return the rewards (n,) of a history with NaN in place of rewards that a fit must not use.

        A fit must not use rewards that are far from the predictions of the last fit. Before the first fit, it must not
        use rewards that are far from the median. If many rewards are far, all are kept: the rewards then have heavy
        tails, or their distribution has changed.
        """
        given = np.flatnonzero(~np.isnan(rewards))
        if len(given) == 0:
            return rewards
        with np.errstate(over="ignore", invalid="ignore"):
            far = self._far(row, features[given], arms[given], rewards[given])
        if not 0 < len(far) <= most_wild(len(given)):
            return rewards
        kept = rewards.copy()
        kept[given[far]] = np.nan
        return kept

    def _far(self, row: int, features: Floats, arms: Ints, rewards: Floats) -> Ints:
        """Return the indices of rewards (n,) far from their predictions or, before the first fit, from the median."""
        r, a = rewards, arms
        if self.fitted[row]:
            p = int(self.latent_dims[row]) + 1
            c = features[:, :p]
            mean = self.fit_mean[row, : self.arms * p].reshape(self.arms, p)
            errors, variances = r - self.reward_origin[row] - (mean[a] * c).sum(axis=1), self.noise_var[row, a]
            far = np.flatnonzero(errors**2 > WILD_RATIO * variances)
            variance = self.fit_var[row, : self.arms * p].reshape(self.arms, p)
            spread = (variance[a[far]] * c[far] ** 2).sum(axis=1)
            return np.asarray(far[errors[far] ** 2 > WILD_RATIO * (variances[far] + spread)])
        errors = np.abs(r - np.median(r))
        typical = 1.4826 * np.median(errors)
        return np.flatnonzero((errors > MARGINAL_RATIO * typical) & (typical > 0.0))

    def fit(
        self,
        row: int,
        features: Floats,
        arms: Ints,
        rewards: Floats,
        *,
        warm: bool,
        fixed_hyperparameters: bool = False,
        through_zero: bool = False,
    ) -> ArmFit | None:
        """Fit the arms of stream `row` to a history with features (n, p).

        Returns None if there is no reward, or if the numbers are so extreme that the result is not finite.

        If `warm` is true, the estimation starts from the current hyperparameters. If `fixed_hyperparameters` is also
        true, they are used unchanged.
        """
        if np.isnan(rewards).all():
            return None
        start = None
        if warm and self.fitted[row]:
            start = self._start(features.shape[1], row, self.noise_var, self.prior_cov, self.baseline)
            start = start._replace(origin=float(self.reward_origin[row]))
        found = fit_rewards(
            features,
            arms,
            rewards,
            self.arms,
            start,
            fixed_hyperparameters=fixed_hyperparameters,
            through_zero=through_zero,
        )
        if fixed_hyperparameters:
            found = found._replace(pooled=float(self.pooled_noise_var[row]))
        return found if found.is_finite() else None

    def reward_history(self, arms: Ints, rewards: Floats) -> RewardHistory:
        """Return the rewards (n,) of a history, to compare candidate estimates of its contexts."""
        return RewardHistory(arms, rewards, self.arms)

    @staticmethod
    def _start(p: int, row: int, noise: Floats, prior: Floats, baseline: Floats) -> ArmFit:
        """Return hyperparameters of stream `row` from which a fit starts, with the origin 0."""
        empty = np.empty((0,))
        prior = prior[row, : p * p].reshape(p, p).copy()
        return ArmFit(empty, empty, noise[row].copy(), prior, float(baseline[row]), 0.0, 0.0, 0.0, empty)

    def fit_other(
        self,
        row: int,
        features: Floats,
        arms: Ints,
        rewards: Floats,
        in_force: ArmFit | None,
        *,
        through_zero: bool,
        shift: Floats,
        warm: bool = False,
        fixed_hyperparameters: bool = False,
    ) -> None:
        """Fit the arms of stream `row` under the other origin too. `use_fit` must have stored the fit `in_force`.

        `features` (n, p) are the features of the fit in force. `shift` (k,) is added to their observed part. The
        posterior is converted to the coordinates of the fit in force, which is possible because θᵀ(c + shift) is linear
        in c too.
        """
        start = None
        if warm and self.has_other[row]:
            start = self._start(features.shape[1], row, self.other_noise_var, self.other_prior_cov, self.other_baseline)
        pooled, unknown = float(self.other_pooled_noise_var[row]), fixed_hyperparameters and start is None
        self.drop_other(row)
        if in_force is None or unknown:
            return
        k, p, K = len(shift), features.shape[1], self.arms
        moved = features.copy()
        moved[:, 1 : k + 1] += shift
        found = fit_rewards(
            moved,
            arms,
            rewards,
            K,
            start,
            fixed_hyperparameters=fixed_hyperparameters,
            through_zero=through_zero,
        )
        lead = found.evidence - in_force.evidence
        if not (found.is_finite() and lead > LEAST_LEAD):
            return
        shear = self._shear(p, shift)
        with np.errstate(over="ignore", invalid="ignore"):
            mean, cov = found.mean @ shear.T, shear @ found.cov @ shear.T
            mean[:, 0] += found.origin - in_force.origin
        if not (np.isfinite(mean).all() and np.isfinite(cov).all()):
            return
        self.other_mean[row, : K * p] = mean.ravel()
        self.other_cov[row, : K * p * p] = cov.ravel()
        self.other_shift[row], self.other_noise_var[row] = shift, found.noise
        self.other_prior_cov[row, : p * p] = found.prior.ravel()
        self.other_baseline[row] = found.baseline + found.origin
        self.other_pooled_noise_var[row] = pooled if fixed_hyperparameters else found.pooled
        self.has_other[row], self.lead[row] = True, lead

    def update_context(
        self, rows: Ints, positions: Ints, arms: Ints, rewards: Floats, x: Floats, shift: Floats, raw: Mask
    ) -> None:
        """Update the beliefs about contexts, with means x (B, d), from rewards, which are used as measurements of them.

        The rewards are those at `positions` (n,) of the histories `arms` and `rewards` (B, H). Streams marked in `raw`
        (B,) are not updated, because their context is the raw observation.
        """
        update_context(
            rows, positions, arms, rewards, self.reward_origin, self.latent_dims, self.mean, self.cov, self.fit_mean,
            self.fit_var, self.slopes, self.noise_var, self.smooth_cov, x, self.belief_cov, shift, self.fitted, raw,
        )  # fmt: skip

    def use_fit(self, row: int, latent: int, found: ArmFit | None, *, through_zero: bool = False) -> None:
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
        self.fit_mean[row], self.fit_var[row] = self.mean[row], 0.0
        self.fit_var[row, : K * p] = np.einsum("aii->ai", found.cov).ravel()
        self.slopes[row, : K * d] = found.mean[:, 1:].ravel()
        self.noise_var[row] = found.noise
        self.prior_cov[row, : p * p] = found.prior.ravel()
        self.second_moment[row] = 0.0
        self.second_moment[row, : p * p] = found.moment.ravel()
        self.baseline[row], self.pooled_noise_var[row], self.fitted[row] = found.baseline, found.pooled, True
        self.reward_origin[row], self.through_zero[row] = found.origin, through_zero

    def add_arm(self, params: ArrayLike | None) -> None:
        if params is not None:
            raise invalid("params", "nothing, as this agent estimates the arm parameters", repr(params))
        width, count = self._width, len(self.latent_dims)
        wide, square = ("mean", "fit_mean", "fit_var", "other_mean", "slopes"), ("cov", "other_cov")
        for name, size in (*((name, width) for name in wide), *((name, width * width) for name in square)):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros((count, size))], axis=1))
        self.noise_var = np.column_stack([self.noise_var, self.pooled_noise_var])
        self.other_noise_var = np.column_stack([self.other_noise_var, self.other_pooled_noise_var])
        self.reward_counts = np.pad(self.reward_counts, ((0, 0), (0, 1)))
        last, self.arms = self.arms, self.arms + 1
        for b in range(count):
            p = int(self.latent_dims[b]) + 1
            prior, baseline = np.zeros((p, p)), 0.0
            prior[0, 0] = 1.0
            if self.fitted[b]:
                prior, baseline = self.prior_cov[b, : p * p].reshape(p, p), float(self.baseline[b])
            self.mean[b, last * p] = self.fit_mean[b, last * p] = baseline
            self.cov[b, last * p * p : (last + 1) * p * p] = prior.ravel()
            self.fit_var[b, last * p : (last + 1) * p] = np.diag(prior)
            if self.has_other[b]:
                shear = self._shear(p, self.other_shift[b])
                prior = shear @ self.other_prior_cov[b, : p * p].reshape(p, p) @ shear.T
                self.other_mean[b, last * p] = self.other_baseline[b] - self.reward_origin[b]
                self.other_cov[b, last * p * p : (last + 1) * p * p] = prior.ravel()

    @staticmethod
    def _shear(p: int, shift: Floats) -> Floats:
        """Return the matrix S with θᵀ(c + shift) = (Sθ)ᵀc for features c (p,)."""
        shear = np.eye(p)
        shear[0, 1 : len(shift) + 1] = shift
        return shear

    def arms_without_reward(self, row: int) -> Ints:
        return np.flatnonzero(self.reward_counts[row] == 0)

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        facts: dict[str, object] = {
            "noise of each arm (standard deviation)": np.sqrt(self.noise_var[row]).tolist(),
            "rewards far from their prediction": int(self.wild_rewards[row]),
        }
        return (facts if self.fitted[row] else {}), []
