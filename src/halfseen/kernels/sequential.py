"""Rewards predicted one after the other, each from those before it: what calibration is judged by."""

from __future__ import annotations

import math

import numpy as np

from halfseen.compiler.decorators import kernel


@kernel("f2 i1 f1 f1 f2 f f1 f1")
def predict_in_turn(features, arms, rewards, noise, prior, baseline, means, variances):  # type: ignore[no-untyped-def]
    """Mean and variance (n,) of every reward given the rewards of earlier rows; written in place.

    θ_a ~ N((baseline, 0, ..), prior) and r = θ_aᵀc + noise_a, hyperparameters fixed. A reward of NaN is predicted like
    any other and teaches nothing.
    """
    n, p = features.shape
    K = noise.shape[0]
    mean, cov, gain = np.zeros((K, p)), np.empty((K, p, p)), np.empty(p)
    for a in range(K):
        mean[a, 0] = baseline
        for i in range(p):
            for j in range(p):
                cov[a, i, j] = prior[i, j]
    for t in range(n):
        a = arms[t]
        predicted, spread = 0.0, 0.0
        for i in range(p):
            total = 0.0
            for j in range(p):
                total += cov[a, i, j] * features[t, j]
            gain[i] = total
            spread += total * features[t, i]
            predicted += mean[a, i] * features[t, i]
        means[t] = predicted
        variances[t] = spread + noise[a]
        if not math.isnan(rewards[t]):
            error = (rewards[t] - predicted) / variances[t]
            for i in range(p):
                mean[a, i] += gain[i] * error
                for j in range(p):
                    cov[a, i, j] -= gain[i] * gain[j] / variances[t]
