"""Arms whose noise and prior are found from the rewards themselves (docs/mathematics.md, "Calibrated arms").

Nothing is assumed of the units of rewards: they are counted from the oldest one kept, and every variance is
estimated. `Adaptive.refit` fits the arms anew to the whole kept history now and then (`Calibrated.fit`, `use_fit`);
in between they are updated reward by reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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

COLD, WARM = 60, 20  # iterations on the evidence, from nothing and from the last hyperparameters
TOLERANCE = 1e-2
HYPERPARAMETERS = (  # the state arrays that a fit of the model determines
    "latent_dims", "noise_var", "prior_cov", "baseline", "smooth_cov", "reward_origin", "fitted", "pooled_noise_var",
)  # fmt: skip
LEAST_SPARE = 1e-3  # share of a reward's noise that its arm does not fit, at the least


class ArmFit(NamedTuple):
    """The arms of one stream."""

    mean: Floats  # (K, p)
    cov: Floats  # (K, p, p)
    noise: Floats  # (K,)
    prior: Floats  # (p, p)
    baseline: float
    pooled: float  # noise of an arm without a reward
    origin: float  # the reward from which all are counted
    evidence: float  # log p(rewards | features)
    moment: Floats  # mean ccᵀ over the rewards (p, p)


def fit_rewards(
    features: Floats,
    arms: Ints,
    rewards: Floats,
    count: int,
    start: ArmFit | None = None,
    *,
    fixed_hyperparameters: bool = False,
) -> ArmFit:
    """The posterior of `count` arms from features (n, p), arms (n,) and rewards (n,), NaN where none came.

    Hyperparameters are found, from those of `start` if given, or left as they are there with
    `fixed_hyperparameters`. Rewards are counted from the first of them, so that a large one in common costs no digits.
    """
    p = features.shape[1]
    rewarded = np.flatnonzero(~np.isnan(rewards))
    origin = float(rewards[rewarded[0]]) if len(rewarded) else 0.0
    rewards = rewards - origin
    G, h = np.zeros((count, p, p)), np.zeros((count, p))
    squares, counts = np.zeros(count), np.zeros(count)
    arm_sums(np.ascontiguousarray(features), arms, rewards, G, h, squares, counts)
    if start is None:
        noise, prior = np.empty(count), np.empty((p, p))
        baseline = first_hyperparameters(G, h, squares, counts, noise, prior)
    else:
        noise, prior = start.noise.copy(), start.prior.copy()
        baseline = start.baseline + (start.origin - origin)
    mean, cov = np.empty((count, p)), np.empty((count, p, p))
    steps = COLD if start is None else 0 if fixed_hyperparameters else WARM
    evidence, baseline, pooled = fit_arms(G, h, squares, counts, noise, prior, baseline, mean, cov, steps, TOLERANCE)
    moment = G.sum(axis=0) / max(1, len(rewarded))
    return ArmFit(mean, cov, noise, prior, baseline, pooled, origin, evidence, moment)


@dataclass(frozen=True)
class RewardHistory:
    """The rewards of a stream's kept history: what they say of contexts that its arms might be learnt on."""

    arms: Ints  # (n,)
    rewards: Floats  # (n,), NaN where none came
    arm_count: int

    @property
    def count(self) -> int:
        """How many rewards came."""
        return int((~np.isnan(self.rewards)).sum())

    def evidence(self, features: Floats) -> float:
        """log p(rewards | features (n, p))."""
        return fit_rewards(features, self.arms, self.rewards, self.arm_count).evidence

    def leave_one_out_error(self, features: Floats, query: Floats) -> float:
        """Mean squared error of each reward as predicted on `query` (n, p) by arms that learnt all the others.

        They learnt on `features` (n, p). Leaving one out moves the posterior mean of its arm by −Ce/(s − cᵀCc), with e
        the error on c; hyperparameters are those of all rewards.
        """
        found = fit_rewards(features, self.arms, self.rewards, self.arm_count)
        rewarded = ~np.isnan(self.rewards)
        a, c, x, r = self.arms[rewarded], features[rewarded], query[rewarded], self.rewards[rewarded] - found.origin
        image, mean, noise = np.einsum("nij,nj->ni", found.cov[a], c), found.mean[a], found.noise[a]
        spare = np.maximum(noise - (image * c).sum(axis=1), LEAST_SPARE * noise)
        moved = (r - (mean * c).sum(axis=1)) / spare
        errors = r - (mean * x).sum(axis=1) + moved * (image * x).sum(axis=1)
        return float(np.mean(errors**2))


class Calibrated(Learner):
    """Features are (1, x − origin), packed at the front of a row as wide as the largest model may become."""

    state_names = (
        "latent_dims", "mean", "cov", "slopes", "noise_var", "prior_cov", "baseline", "smooth_cov", "belief_cov",
        "reward_counts", "reward_origin", "fitted", "pooled_noise_var", "second_moment", "rewards_at_fit",
    )  # fmt: skip

    def __init__(self, streams: StreamBatch, dimension: int) -> None:
        count, self.arms, width = streams.count, streams.arms, dimension
        self._width, self._observed = width, streams.observed
        self.latent_dims = np.full(count, streams.observed)  # d of each stream's model
        self.mean = np.zeros((count, self.arms * width))
        self.cov = np.zeros((count, self.arms * width * width))
        self.slopes = np.zeros((count, self.arms * width))  # μ_a at the last fit: free of the order of rewards
        self.noise_var = np.ones((count, self.arms))
        self.prior_cov = np.zeros((count, width * width))
        self.baseline = np.zeros(count)
        self.smooth_cov = np.zeros((count, width * width))  # P̄, of the contexts of the last fit
        self.belief_cov = np.zeros((count, width * width))  # P of the belief that features come with
        self.reward_counts = np.zeros((count, self.arms), dtype=np.int64)
        self.reward_origin = np.zeros(count)  # the reward from which all are counted, of the last fit
        self.fitted = np.zeros(count, dtype=np.bool_)
        self.pooled_noise_var = np.ones(count)
        self.second_moment = np.zeros((count, width * width))  # mean ccᵀ of the last fit
        self.rewards_at_fit = np.zeros(count, dtype=np.int64)  # rewards that had come when the last fit was made
        self._reset_to_prior(np.arange(count))

    def _reset_to_prior(self, rows: Ints) -> None:
        """Before any fit every arm looks the same, with a spread of 1."""
        for b in rows:
            p = self.latent_dims[b] + 1
            self.mean[b] = self.slopes[b] = self.cov[b] = self.smooth_cov[b] = self.second_moment[b] = 0.0
            covs = self.cov[b, : self.arms * p * p].reshape(self.arms, p, p)
            covs[:, 0, 0] = 1.0
            self.noise_var[b], self.pooled_noise_var[b], self.fitted[b] = 1.0, 1.0, False

    def integer_bounds(self, state: State) -> IntegerBounds:
        return {"latent_dims": (self._observed, self._width - 1)}

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
        """Rows whose feature is NaN (a round no longer remembered) are left out."""
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
        """As `learn` takes them; before the first fit it learns nothing, and the variance is infinite."""
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
        """A fit since then has taken them with the noise of their arm. Rows whose feature is NaN are left out."""
        fitted = np.where(self.fitted[rows], self.noise_var[rows, arms], np.inf)
        variances = np.where(replacement_data[:, 1] > self.rewards_at_fit[rows], replacement_data[:, 0], fitted)
        replace_packed(rows, self.latent_dims, self.mean, self.cov, features, arms, changes / variances)

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
        """The arms from a history of features (n, p); None when no reward has come.

        Warm starts from the hyperparameters in force; with `fixed_hyperparameters`, it leaves them as they are.
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
        return found._replace(pooled=float(self.pooled_noise_var[row])) if fixed_hyperparameters else found

    def use_fit(self, row: int, latent: int, found: ArmFit | None) -> None:
        """Go on from a fit in a model of `latent` dimensions; with None, from nothing."""
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
            raise invalid("params", "nothing: this agent learns what an arm pays", repr(params))
        width, count = self._width, len(self.latent_dims)
        for name, size in (("mean", width), ("slopes", width), ("cov", width * width)):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((count, size))], axis=1))
        self.reward_counts = np.pad(self.reward_counts, ((0, 0), (0, 1)))
        self.arms += 1
        wider = np.empty((count, self.arms))
        wider[:, :-1] = self.noise_var
        for b in range(count):
            d, p, last = int(self.latent_dims[b]), int(self.latent_dims[b]) + 1, self.arms - 1
            fresh = np.zeros((p, p))
            if self.fitted[b]:
                fresh[:] = self.prior_cov[b, : p * p].reshape(p, p)
                self.mean[b, last * p] = self.baseline[b]
            else:
                fresh[0, 0] = 1.0
            self.cov[b, last * p * p : (last + 1) * p * p] = fresh.ravel()
            self.slopes[b, last * d : (last + 1) * d] = 0.0
            wider[b, -1] = self.pooled_noise_var[b]
        self.noise_var = wider

    def arms_without_reward(self, row: int) -> Ints:
        return np.flatnonzero(self.reward_counts[row] == 0)

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        facts: dict[str, object] = {"noise of each arm (standard deviation)": np.sqrt(self.noise_var[row]).tolist()}
        return (facts if self.fitted[row] else {}), []
