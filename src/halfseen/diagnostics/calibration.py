"""Whether rewards are distributed as predicted, and arms of which too little is known.

docs/mathematics.md, "Model health". Each reward is predicted from those before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from halfseen.diagnostics.examination_data import ObservedRewards
from halfseen.diagnostics.explained_rewards import with_intercept
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.calibrated import ArmFit
from halfseen.statistics.distributions import normal_cdf
from halfseen.statistics.time_series import blocked_sum

LEVELS = (0.5, 0.9)
BINS = 10
UNKNOWN = 0.25  # share of the prior variance above which an arm is mostly unknown
CONTENDING = 0.05  # share of the rounds in which an arm may have been the best
_WIDTH = 1.645  # 95 % one-sided


class Coverage(NamedTuple):
    """How often a prediction interval contained the reward."""

    level: float
    share: float
    error: float  # standard, allowing for the autocorrelation that errors of the context have


class Calibration(NamedTuple):
    transform: Floats  # (N,) probability integral transform Φ((r − predicted)/std), uniform if predictions are right
    coverages: tuple[Coverage, ...]

    @property
    def histogram(self) -> Floats:
        """The share of rewards in each tenth of their predicted distribution; 0.1 if predictions are right."""
        counts, _ = np.histogram(self.transform, bins=BINS, range=(0.0, 1.0))
        return np.asarray(counts / max(1, len(self.transform)))


def measure_calibration(contexts: Floats, observed: ObservedRewards, fit: ArmFit) -> Calibration:
    """One-step-ahead predictions of all rewards by arms that start at the prior of `fit`, with its noise."""
    features = np.ascontiguousarray(with_intercept(contexts)[observed.rounds])
    rewards = observed.rewards - fit.origin
    means, variances = predict_in_turn(features, observed.arms, rewards, fit.noise, fit.prior, fit.baseline)
    transform = normal_cdf((rewards - means) / np.sqrt(variances))
    return Calibration(np.asarray(transform), tuple(coverage(transform, level, observed.rounds) for level in LEVELS))


def coverage(transform: Floats, level: float, rounds: Ints) -> Coverage:
    """The share of rewards inside the central interval. Rewards of neighbouring rounds share the error of the context,
    so the standard error comes from sums over blocks of time.
    """
    inside = (np.abs(transform - 0.5) <= level / 2).astype(np.float64)
    _, sum_error = blocked_sum(inside - level, rounds)
    independent_error = float(np.sqrt(level * (1 - level) / len(inside)))
    return Coverage(level, float(inside.mean()), max(sum_error / len(inside), independent_error))


class ArmUncertainty(NamedTuple):
    """One entry per arm."""

    rewards: Ints  # how many
    unknown: Floats  # share of the prior variance of its predicted reward that is left, mean over rounds
    contending: Floats  # share of rounds in which the arm could, at 95 %, pay more than the best is expected to

    @property
    def starved(self) -> Ints:
        """Arms that are mostly unknown and might be worth playing."""
        return np.flatnonzero((self.unknown > UNKNOWN) & (self.contending > CONTENDING))


def arm_uncertainty(
    contexts: Floats, observed: ObservedRewards, fit: ArmFit, retired: Iterable[int] = ()
) -> ArmUncertainty:
    """How well every arm is known. Arms are compared with the best one that is not `retired`."""
    features = with_intercept(contexts)
    prior_var = np.einsum("ti,ij,tj->t", features, fit.prior, features, optimize=True)
    posterior_var = np.einsum("ti,aij,tj->ta", features, fit.cov, features, optimize=True)
    means = features @ fit.mean.T
    upper = means + _WIDTH * np.sqrt(np.maximum(posterior_var, 0.0))
    rivals = means.copy()
    rivals[:, list(retired)] = -np.inf
    could_be_best = upper >= rivals.max(axis=1, keepdims=True)
    could_be_best[np.arange(len(means)), rivals.argmax(axis=1)] = True
    counts = np.bincount(observed.arms, minlength=len(fit.noise))
    unknown = posterior_var.sum(axis=0) / max(float(prior_var.sum()), 1e-300)
    return ArmUncertainty(counts, unknown, could_be_best.mean(axis=0))


def predict_in_turn(
    features: Floats, arms: Ints, rewards: Floats, noise: Floats, prior: Floats, baseline: float
) -> tuple[Floats, Floats]:
    """Mean and variance (n,) of every reward given the rewards of earlier rows.

    θ_a ~ N((baseline, 0, ..), prior) and r = θ_aᵀc + noise_a, hyperparameters fixed. A reward of NaN is predicted like
    any other and teaches nothing.
    """
    n, p = features.shape
    means, variances = np.empty(n), np.empty(n)
    for arm in range(len(noise)):  # arms share nothing but their prior
        mean, cov = np.zeros(p), prior.copy()
        mean[0] = baseline
        for t in np.flatnonzero(arms == arm):
            gain = cov @ features[t]
            means[t] = mean @ features[t]
            variances[t] = gain @ features[t] + noise[arm]
            if not np.isnan(rewards[t]):
                mean += gain * ((rewards[t] - means[t]) / variances[t])
                cov -= np.outer(gain, gain) / variances[t]
    return means, variances
