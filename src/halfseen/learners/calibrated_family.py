"""Generalised linear regression with an estimated prior, for `adaptive` (docs/mathematics.md, "Reward families")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from halfseen.components import Choices, Mask, StreamBatch
from halfseen.errors import invalid
from halfseen.kernels.evidence import INTERCEPT_SHARE, INTERCEPT_WEIGHT, LEAST_SPREAD, PRIOR_WEIGHT, SLOPE_SHARE
from halfseen.kernels.generalised_linear import (
    FIRST_CHECKED,
    base_rate,
    context_variances,
    expected_rewards,
    family_sums,
    learn_family_packed,
    replace_family_packed,
    update_context_from_family,
    working_noise,
)
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.calibrated import (
    COLD_ITERATIONS,
    MIN_RESIDUAL_SHARE,
    TOLERANCE,
    WARM_ITERATIONS,
    ArmFit,
    Calibrated,
    RewardHistory,
)
from halfseen.learners.generalised_linear import FAMILIES
from halfseen.learners.links import LINKS
from halfseen.validation import REWARD_RANGES, Words

NEWTON_STEPS, HALVINGS = 25, 8  # the most Newton steps after EM, and the most reductions of one step
CONVERGED = 1e-8  # gain in log posterior below which the Newton steps after EM stop
MIN_EIGENVALUE = 1e-14  # smaller eigenvalues of a precision matrix, scaled to unit diagonal, are raised to this
MAX_PARAMETER = 1e3  # largest parameter of an arm; in scaled contexts, larger ones change no expected reward


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a result that is not finite is not used
def fit_family(
    family: int,
    features: Floats,
    arms: Ints,
    rewards: Floats,
    count: int,
    start: ArmFit | None = None,
    *,
    fixed_hyperparameters: bool = False,
) -> ArmFit:
    """Compute the Laplace approximation of the posterior of `count` arms, given rewards that are clicks or counts.

    The prior of the parameters is θ_a ~ N((b, 0, ..), Λ), where Λ is block-diagonal: a variance for the intercept and a
    matrix for the slopes. Each iteration takes a Newton step (iteratively reweighted least squares) and then an EM step
    on b and Λ. Afterwards, Newton steps alone are taken until they converge to the mode m_a of the posterior of each
    arm, whose covariance is C_a. The evidence is Laplace's approximation
    Σ_a log p(r | m_a) + log N(m_a | (b, 0, ..), Λ) + ½ log |2π C_a|, without constants.
    """
    p = features.shape[1]
    features = np.ascontiguousarray(features)
    rewarded = ~np.isnan(rewards)
    played = np.bincount(arms[rewarded], minlength=count) > 0
    number, total = int(rewarded.sum()), float(rewards[rewarded].sum())
    moment = features[rewarded].T @ features[rewarded] / max(1, number)
    spread = max(float(np.trace(moment)) - 1.0, LEAST_SPREAD)  # mean |x|²
    if start is None:
        baseline, prior = base_rate(family, 1.0, total, float(number)), np.eye(p) / spread
        prior[0, 0] = INTERCEPT_SHARE
    else:
        baseline, prior = start.baseline, start.prior.copy()
    mean = np.zeros((count, p))
    mean[:, 0] = baseline

    def posterior(at: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return G and h of `family_sums`, the log likelihoods (K,) and the log posteriors (K,) at `at` (K, p)."""
        G, h, likelihoods = np.zeros((count, p, p)), np.zeros((count, p)), np.zeros(count)
        family_sums(family, features, arms, rewards, at, G, h, likelihoods)
        gap = at - mean_of_prior()
        return G, h, likelihoods, likelihoods - 0.5 * np.einsum("ai,ij,aj->a", gap, precision, gap)

    def mean_of_prior() -> Floats:
        return np.append(baseline, np.zeros(p - 1))

    def newton(at: Floats) -> tuple[Floats, Floats, float, Floats]:
        """Take a Newton step from the parameters `at` (K, p).

        Returns the new parameters, the covariances at `at`, the largest gain of an arm in log posterior, and the log
        likelihoods at `at`.
        """
        G, h, likelihoods, height = posterior(at)
        cov = _inverse(G + precision)
        target = np.einsum("aij,aj->ai", cov, h + precision @ mean_of_prior())
        step = np.clip(target, -MAX_PARAMETER, MAX_PARAMETER) - at
        for _ in range(HALVINGS):
            after = posterior(at + step)[3]
            worse = ~(after >= height - 1e-9 * np.abs(height))
            if not worse.any():
                break
            step[worse] *= 0.25
        gained = float(np.max(after - height, initial=0.0))
        return at + step, cov, gained, likelihoods

    iterations = COLD_ITERATIONS if start is None else 0 if fixed_hyperparameters else WARM_ITERATIONS
    for _ in range(iterations):
        precision = _inverse(prior)
        mean, cov, _, _ = newton(mean)
        before = np.append(np.diag(prior), 1.0 + baseline)
        baseline = float(mean[played, 0].mean())
        gap = mean[played] - mean_of_prior()
        second = cov[played].sum(axis=0) + gap.T @ gap
        arm_count = int(played.sum())
        scale = float(np.trace(second[1:, 1:])) / (arm_count * (p - 1)) if p > 1 else 0.0
        scale = max(scale, SLOPE_SHARE / spread)
        prior = np.zeros((p, p))
        prior[1:, 1:] = (second[1:, 1:] + PRIOR_WEIGHT * scale * np.eye(p - 1)) / (PRIOR_WEIGHT + arm_count)
        prior[0, 0] = (second[0, 0] + INTERCEPT_WEIGHT * INTERCEPT_SHARE) / (INTERCEPT_WEIGHT + arm_count)
        after = np.append(np.diag(prior), 1.0 + baseline)
        if np.abs(after - before).max() <= TOLERANCE * np.abs(before).max():
            break
    precision = _inverse(prior)
    for _ in range(NEWTON_STEPS):
        mean, cov, gained, _ = newton(mean)
        if gained < CONVERGED:
            break
    mean[~played] = mean_of_prior()
    G, _, _, height = posterior(mean)
    cov = _inverse(G + precision)
    log_dets = np.linalg.slogdet(cov)[1] - np.linalg.slogdet(prior)[1]
    evidence = float((height + 0.5 * log_dets)[played].sum())
    return ArmFit(mean, cov, np.ones(count), prior, float(baseline), 1.0, 0.0, evidence, moment)


def _inverse(precision: Floats) -> Floats:
    """Return the inverses of positive definite matrices (..., p, p).

    The inverses are symmetric and positive semi-definite in spite of rounding: the matrices are scaled to a unit
    diagonal, and their small eigenvalues are raised to the size of rounding errors.
    """
    if not np.isfinite(precision).all():
        return np.full_like(precision, np.nan)
    scale = np.sqrt(np.einsum("...ii->...i", precision))
    values, vectors = np.linalg.eigh(precision / (scale[..., :, None] * scale[..., None, :]))
    root = vectors / (np.sqrt(np.maximum(values, MIN_EIGENVALUE))[..., None, :] * scale[..., :, None])
    return np.asarray(root @ root.swapaxes(-1, -2))


@dataclass(frozen=True)
class FamilyRewardHistory(RewardHistory):
    """The clicks or counts in the history of a stream, used to compare candidate estimates of its contexts."""

    family: int = 0

    def evidence(self, features: Floats, *, through_zero: bool = False) -> float:
        """Return the Laplace approximation of log p(rewards | features) for features (n, p).

        The result is −inf if `through_zero` is true. At the origin of the contexts, η would then be 0: clicks would
        have rate ½ there, or counts the mean 1. There is no reason to expect this.
        """
        if through_zero:
            return -np.inf
        found = fit_family(self.family, features, self.arms, self.rewards, self.arm_count)
        return found.evidence if found.is_finite() else -np.inf

    def leave_one_out_error(self, features: Floats, query: Floats, *, through_zero: bool = False) -> float:
        """Return the mean squared error of predicting each reward from all other rewards.

        The formula is that of `RewardHistory`, with the noise variance 1/w and the working residual (r − μ)/w of each
        reward, where w is its weight in iteratively reweighted least squares.
        """
        found = fit_family(self.family, features, self.arms, self.rewards, self.arm_count)
        rewarded = ~np.isnan(self.rewards)
        a, c, x, r = self.arms[rewarded], features[rewarded], query[rewarded], self.rewards[rewarded]
        image, mean = np.einsum("nij,nj->ni", found.cov[a], c), found.mean[a]
        here = np.ascontiguousarray((mean * c).sum(axis=1)[:, None])
        noise, level = np.zeros_like(here), np.empty_like(here)
        working_noise(self.family, here, noise)
        expected_rewards(self.family, here, np.zeros_like(here), level)
        noise = noise[:, 0]
        residual_var = np.maximum(noise - (image * c).sum(axis=1), MIN_RESIDUAL_SHARE * noise)
        step = (r - level[:, 0]) * noise / residual_var
        left_out = np.ascontiguousarray(((mean * x).sum(axis=1) - step * (image * x).sum(axis=1))[:, None])
        expected_rewards(self.family, left_out, np.zeros_like(left_out), level)
        return float(np.mean((r - level[:, 0]) ** 2))


class CalibratedFamily(Calibrated):
    """Generalised linear regression, one per arm, with an estimated prior, for clicks and counts in `adaptive`.

    The expected reward is μ(η) with η = θ_aᵀc, as in `GeneralisedLinear`, and θ_a ~ N(θ_0, Λ) as in `Calibrated`. A fit
    to the stored history is the Laplace approximation at the mode of the posterior, and its evidence is used to compare
    models (`fit_family`). Between fits, each reward updates the posterior of its arm as in `GeneralisedLinear`. The
    uncertainty of the context is then a part of the variance of η.

    Parameters
    ----------
    reward_family : {"binary", "count"}
        The family of the rewards: numbers from 0 to 1, or numbers of at least 0.
    """

    state_names = (*Calibrated.state_names, "calibration")
    weighs_noise = True

    def __init__(
        self, streams: StreamBatch, dimension: int, *, reward_family: Annotated[str, Words(FAMILIES)] = "binary"
    ) -> None:
        if reward_family not in FAMILIES[1:]:
            raise invalid("reward_family", "'binary' or 'count'", repr(reward_family))
        self._family, self.reward_range = FAMILIES.index(reward_family), REWARD_RANGES[reward_family]
        self.link = LINKS[reward_family]
        super().__init__(streams, dimension)
        # Per arm, sums of expected rewards, of rewards and of predicted variances. The first FIRST_CHECKED rewards are
        # not included.
        self.calibration = np.zeros((streams.count, streams.arms, 3))

    def noise(self, rows: Ints, features: Floats) -> Floats:
        """Return 1/w + max(mᵀPm − mᵀP̄m, 0), the noise variance of a reward on the scale of η.

        P is the covariance of the belief about the context. The slopes m were fitted to context estimates with the
        covariance P̄. This uncertainty made the slopes smaller, so the noise includes only the excess of mᵀPm over mᵀP̄m.
        """
        means, _ = self.score(rows, features)
        present, smoothed = (self._context_variances(rows, cov) for cov in (self.belief_cov, self.smooth_cov))
        variances = np.maximum(present - smoothed, 0.0)
        working_noise(self._family, means, variances)
        return variances

    def _context_variances(self, rows: Ints, cov: Floats) -> Floats:
        variances = np.empty((len(rows), self.arms))
        context_variances(rows, self.latent_dims, self.slopes, cov, variances)
        return variances

    def expected_rewards(self, choices: Choices) -> Floats:
        """Return expected rewards, with the excess of mᵀPm over mᵀP̄m (see `noise`) added to the variance of η."""
        assert choices.noise_variances is not None
        own = np.zeros_like(choices.means)
        working_noise(self._family, choices.means, own)
        variances = choices.variances + np.maximum(choices.noise_variances - own, 0.0)
        expected = np.empty_like(choices.means)
        expected_rewards(self._family, choices.means, variances, expected)
        return expected

    def learn(self, rows: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        """Learn rewards. A reward whose features are NaN is counted but not learnt: its round is no longer stored."""
        self.reward_range.check("rewards", rewards)
        np.add.at(self.reward_counts, (rows, arms), 1)
        ready = self.fitted[rows]
        if not ready.all():
            rows, features, arms, rewards = rows[ready], features[ready], arms[ready], rewards[ready]
        if len(rows):
            learn_family_packed(
                self._family, rows, self.latent_dims, self.mean, self.cov, self.slopes, self.belief_cov,
                self.smooth_cov, self.reward_counts, self.calibration, features, arms, rewards,
            )  # fmt: skip

    def may_refuse(self, features: Floats) -> bool:
        return False

    def replacement_data(self, rows: Ints, arms: Ints) -> Floats:
        """Return a noise variance of 1 (infinite before the first fit), and the number of the next reward of `arms`.

        The rewards of each arm are counted from 1.
        """
        learnt = np.where(self.fitted[rows], 1.0, np.inf)
        return np.column_stack([learnt, self.reward_counts[rows, arms] + 1.0])

    def replace_rewards(
        self, rows: Ints, features: Floats, arms: Ints, old_rewards: Floats, rewards: Floats, replacement_data: Floats
    ) -> None:
        """Replace rewards by one Newton step, m += Cc(r_new − r_old). The next fit replaces them exactly."""
        fitted = self.fitted[rows]
        learnt, numbers = replacement_data[fitted].T
        rows, features, arms, changes = rows[fitted], features[fitted], arms[fitted], (rewards - old_rewards)[fitted]
        replace_family_packed(rows, self.latent_dims, self.mean, self.cov, features, arms, changes)
        checked = (numbers > FIRST_CHECKED) & np.isfinite(learnt) & ~np.isnan(features[:, 0])
        np.add.at(self.calibration[:, :, 1], (rows[checked], arms[checked]), changes[checked])

    def without_wild(self, row: int, features: Floats, arms: Ints, rewards: Floats) -> Floats:
        """Return the rewards unchanged. Clicks are within 0 and 1, and counts are expected to have a long tail."""
        return rewards

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
        """Fit the arms of stream `row`, as `Calibrated.fit` does, but always with an intercept."""
        if np.isnan(rewards).all():
            return None
        start = None
        if warm and self.fitted[row]:
            start = self._start(features.shape[1], row, self.noise_var, self.prior_cov, self.baseline)
        try:
            found = fit_family(
                self._family, features, arms, rewards, self.arms, start, fixed_hyperparameters=fixed_hyperparameters
            )
        except np.linalg.LinAlgError:
            return None
        return found if found.is_finite() else None

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
        """Drop the other origin: η need not be 0 where the context is 0 in the units of the user."""
        self.drop_other(row)

    def reward_history(self, arms: Ints, rewards: Floats) -> RewardHistory:
        return FamilyRewardHistory(arms, rewards, self.arms, self._family)

    def update_context(
        self, rows: Ints, positions: Ints, arms: Ints, rewards: Floats, x: Floats, shift: Floats, raw: Mask
    ) -> None:
        update_context_from_family(
            self._family, rows, positions, arms, rewards, self.latent_dims, self.mean, self.cov, self.slopes, x,
            self.belief_cov, shift, self.fitted, raw,
        )  # fmt: skip

    def add_arm(self, params: ArrayLike | None) -> None:
        super().add_arm(params)
        self.calibration = np.pad(self.calibration, ((0, 0), (0, 1), (0, 0)))

    def checked_rewards(self, rows: Ints) -> tuple[Ints, Floats]:
        """Return an upper bound (K,) of how many rewards the `calibration` of `rows` includes, and its sums (K, 3)."""
        counts = np.maximum(self.reward_counts[rows] - FIRST_CHECKED, 0).sum(axis=0)
        return counts, self.calibration[rows].sum(axis=0)

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        return {}, []
