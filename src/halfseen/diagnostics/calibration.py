"""Calibration of reward predictions, and the uncertainty about every arm (docs/mathematics.md, "Model health").

Each reward is predicted from the rewards of earlier rounds.
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
UNKNOWN = 0.25  # an arm is uncertain if more than this share of its prior variance is left
CONTENDING = 0.05  # an arm might be the best if its `contending` is above this share of the rounds
_WIDTH = 1.645  # distance of a one-sided 95 % bound from the mean, in standard deviations


class Coverage(NamedTuple):
    """How often a prediction interval contained the reward."""

    level: float
    share: float
    error: float  # standard error, which allows for autocorrelation


class Calibration(NamedTuple):
    standardised: Floats  # (N,) (r − predicted)/std, standard normal if predictions are correct
    transform: Floats  # (N,) probability integral transform Φ((r − predicted)/std), uniform if predictions are correct
    coverages: tuple[Coverage, ...]

    @property
    def histogram(self) -> Floats:
        """The share of rewards in each tenth of their predicted distribution, 0.1 if predictions are correct."""
        counts, _ = np.histogram(self.transform, bins=BINS, range=(0.0, 1.0))
        return np.asarray(counts / max(1, len(self.transform)))


def measure_calibration(contexts: Floats, observed: ObservedRewards, fit: ArmFit) -> Calibration:
    """Predict every reward from earlier rewards, starting from the prior of `fit`, and measure the coverage."""
    features = np.ascontiguousarray(with_intercept(contexts)[observed.rounds])
    rewards = observed.rewards - fit.origin
    means, variances = predict_sequentially(features, observed.arms, rewards, fit.noise, fit.prior, fit.baseline)
    standardised = (rewards - means) / np.sqrt(variances)
    transform = np.asarray(normal_cdf(standardised))
    coverages = tuple(coverage(transform, level, observed.rounds) for level in LEVELS)
    return Calibration(standardised, transform, coverages)


def coverage(transform: Floats, level: float, rounds: Ints) -> Coverage:
    """Return the share of rewards inside the central prediction interval.

    Rewards of neighbouring rounds share the error of the estimated context, so the standard error is computed from sums
    over blocks of time.
    """
    inside = (np.abs(transform - 0.5) <= level / 2).astype(np.float64)
    _, sum_error = blocked_sum(inside - level, rounds)
    independent_error = float(np.sqrt(level * (1 - level) / len(inside)))
    return Coverage(level, float(inside.mean()), max(sum_error / len(inside), independent_error))


class ArmUncertainty(NamedTuple):
    """What is known about every arm: one entry per arm in each array."""

    rewards: Ints  # number of rewards
    unknown: Floats  # posterior variance of the predicted reward as a share of its prior variance, mean over rounds
    contending: Floats  # share of rounds in which the arm's 95 % upper bound exceeds the best arm's predicted reward

    @property
    def starved(self) -> Ints:
        """Indices of the arms that are uncertain and might be the best."""
        return np.flatnonzero((self.unknown > UNKNOWN) & (self.contending > CONTENDING))


def arm_uncertainty(
    contexts: Floats, observed: ObservedRewards, fit: ArmFit, retired: Iterable[int] = ()
) -> ArmUncertainty:
    """Measure the uncertainty about every arm. Arms are compared with the best arm that is not `retired`."""
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


def predict_sequentially(
    features: Floats, arms: Ints, rewards: Floats, noise: Floats, prior: Floats, baseline: float
) -> tuple[Floats, Floats]:
    """Return the mean and the variance (n,) of every reward given the rewards of earlier rows.

    The model is θ_a ~ N((baseline, 0, ..), prior) and r = θ_aᵀc + noise_a, with fixed hyperparameters. A reward of NaN
    is predicted like any other, and nothing is learnt from it.
    """
    n, p = features.shape
    means, variances = np.empty(n), np.empty(n)
    for arm in range(len(noise)):  # given the prior, arms are independent
        mean, cov = np.zeros(p), prior.copy()
        mean[0] = baseline
        for t in np.flatnonzero(arms == arm):
            gain = cov @ features[t]
            means[t] = mean @ features[t]
            variances[t] = gain @ features[t] + noise[arm]
            if not np.isnan(rewards[t]):
                step = gain / variances[t]  # divided first, because gain² may overflow
                mean += step * (rewards[t] - means[t])
                cov -= np.outer(step, gain)
    return means, variances
