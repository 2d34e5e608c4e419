"""Rewards predicted one after the other, each from those before it: what calibration is judged by."""

from __future__ import annotations

import numpy as np

from halfseen.kernels._types import Index, Matrix, Vector


def predict_in_turn(
    features: Matrix, arms: Index, rewards: Vector, noise: Vector, prior: Matrix, baseline: float
) -> tuple[Vector, Vector]:
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
