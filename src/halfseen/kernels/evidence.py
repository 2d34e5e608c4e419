"""Bayesian linear regression of all arms at once, with its hyperparameters from the data (docs/mathematics.md,
"Calibrated arms").

θ_a ~ N(θ_0, Λ) for every arm, r = θ_aᵀc + noise of variance s_a. Λ, s_a and the prior mean of the intercept (entry 0,
the only one that need not be 0) are found by expectation–maximisation on the evidence. Arms without a reward have no
part in that: adding an arm changes nothing for the others.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.compiler import njit
from halfseen.kernels.linalg import INNER, KERNEL

NOISE_WEIGHT = 10.0  # rewards that the noise pooled over arms counts for in each arm's own
PRIOR_WEIGHT = 10.0  # arms that a multiple of I counts for in the covariance of the parameters
INTERCEPT_WEIGHT, INTERCEPT_SHARE = 1.0, 0.2  # arms for which a share of the mean square reward counts in Λ_00
NOISE_SHARE = 0.5  # of the mean square reward that is taken for noise at the start
LEAST_FREEDOM = 0.02  # share of the rewards that at least counts as not used up by parameters
SLOPE_SHARE = 0.5  # of the mean square reward that the prior of the slopes can explain at the least: no lock-in
TINY = 1e-14


@njit(**INNER)
def _invert(S, factor, inverse):  # type: ignore[no-untyped-def]
    """inverse = S⁻¹ of a positive definite S; log|S|. `factor` is scratch."""
    p = S.shape[0]
    log_det = 0.0
    for i in range(p):
        for j in range(i + 1):
            total = S[i, j]
            for l in range(j):  # noqa: E741
                total -= factor[i, l] * factor[j, l]
            if i == j:
                total = max(total, TINY * S[i, i], 1e-300)
                factor[i, i] = math.sqrt(total)
                log_det += math.log(total)
            else:
                factor[i, j] = total / factor[j, j]
    for i in range(p):
        factor[i, i] = 1.0 / factor[i, i]
        for j in range(i):
            total = 0.0
            for l in range(j, i):  # noqa: E741
                total += factor[i, l] * factor[l, j]
            factor[i, j] = -total * factor[i, i]
    for i in range(p):
        for j in range(i + 1):
            total = 0.0
            for l in range(i, p):  # noqa: E741
                total += factor[l, i] * factor[l, j]
            inverse[i, j] = total
            inverse[j, i] = total
    return log_det


@njit(**KERNEL)
def arm_sums(features, arms, rewards, G, h, squares, counts):  # type: ignore[no-untyped-def]
    """G_a = Σ ccᵀ, h_a = Σ rc, Σ r² and the number of rewards, over the rounds (rows) with a reward; in place."""
    p = features.shape[1]
    for t in range(features.shape[0]):
        r = rewards[t]
        if math.isnan(r):
            continue
        a = arms[t]
        counts[a] += 1.0
        squares[a] += r * r
        for i in range(p):
            c = features[t, i]
            h[a, i] += r * c
            for j in range(i + 1):
                G[a, i, j] += c * features[t, j]
    for a in range(G.shape[0]):
        for i in range(p):
            for j in range(i):
                G[a, j, i] = G[a, i, j]


@njit(**KERNEL)
def first_hyperparameters(G, h, squares, counts, noise, prior):  # type: ignore[no-untyped-def]
    """Where the search for s_a and Λ starts: half of the mean square reward is noise. Returns the prior mean."""
    p = h.shape[1]
    total, spread, heard, baseline, played = 0.0, 0.0, 0.0, 0.0, 0
    for a in range(h.shape[0]):
        if counts[a] > 0.0:
            played += 1
            heard += counts[a]
            baseline += h[a, 0] / counts[a]
            for i in range(1, p):
                spread += G[a, i, i]
    baseline /= max(played, 1)
    for a in range(h.shape[0]):
        total += squares[a] - baseline * (2.0 * h[a, 0] - baseline * counts[a])
    power = max(total / max(heard, 1.0), 1e-300)
    slope = (1.0 - NOISE_SHARE) * power / max(spread / max(heard, 1.0), 1e-300) if spread > 0.0 else power
    for i in range(p):
        for j in range(p):
            prior[i, j] = 0.0
        prior[i, i] = slope
    prior[0, 0] = INTERCEPT_SHARE * power
    for a in range(h.shape[0]):
        noise[a] = NOISE_SHARE * power
    return baseline


@njit(**KERNEL)
def fit_arms(G, h, squares, counts, noise, prior, baseline, mean, cov, iterations, tolerance):  # type: ignore[no-untyped-def]
    """Posterior mean (K, p) and cov (K, p, p) of every arm, with `noise` (K,) and `prior` (p, p) improved in place.

    At most `iterations` of EM on the evidence, fewer once no variance moves by more than `tolerance` of itself.
    Returns the log evidence of the rewards under the hyperparameters reached, the baseline (the prior mean of the
    intercept) and the noise of an arm of which nothing is known.
    """
    arms, p = h.shape
    heard, power, played, spread = 0.0, 0.0, 0, 0.0
    for a in range(arms):
        for i in range(1, p):
            spread += G[a, i, i]
        heard += counts[a]
        power += squares[a] - baseline * (2.0 * h[a, 0] - baseline * counts[a])
        played += counts[a] > 0.0
    precision, factor, system = np.empty((p, p)), np.empty((p, p)), np.empty((p, p))
    moment, right = np.empty((p, p)), np.empty(p)
    residual, used = np.zeros(arms), np.zeros(arms)
    evidence, step, pooled = 0.0, 0, noise[0]
    while True:
        prior_log_det = _invert(prior, factor, precision)
        evidence, left, freedom = 0.0, 0.0, 0.0
        for a in range(arms):
            if counts[a] == 0.0:
                for i in range(p):
                    mean[a, i] = baseline if i == 0 else 0.0
                    for j in range(p):
                        cov[a, i, j] = prior[i, j]
                continue
            weight = 1.0 / noise[a]
            for i in range(p):
                right[i] = h[a, i] * weight + precision[i, 0] * baseline
                for j in range(p):
                    system[i, j] = precision[i, j] + G[a, i, j] * weight
            log_det = _invert(system, factor, cov[a])
            for i in range(p):
                total = 0.0
                for j in range(p):
                    total += cov[a, i, j] * right[j]
                mean[a, i] = total
            error, trace, distance = squares[a], 0.0, 0.0
            for i in range(p):
                image, away = 0.0, 0.0
                for j in range(p):
                    image += G[a, i, j] * mean[a, j]
                    trace += cov[a, i, j] * G[a, i, j]
                    away += precision[i, j] * (mean[a, j] - (baseline if j == 0 else 0.0))
                error += mean[a, i] * (image - 2.0 * h[a, i])
                distance += away * (mean[a, i] - (baseline if i == 0 else 0.0))
            residual[a] = max(error, TINY * squares[a])
            used[a] = trace * weight
            left += residual[a]
            freedom += used[a]
            evidence -= 0.5 * (
                counts[a] * math.log(2.0 * math.pi * noise[a])
                + log_det + prior_log_det + residual[a] * weight + distance
            )  # fmt: skip
        if step >= iterations or played == 0:
            break
        step += 1
        # The pooled noise by counting degrees of freedom, which gets there faster than EM; each arm's own by EM.
        pooled = max(left / max(heard - freedom, LEAST_FREEDOM * heard), TINY * power / heard, 1e-300)
        change = 0.0
        for a in range(arms):
            if counts[a] == 0.0:
                noise[a] = pooled  # and no part in when to stop
                continue
            new = (residual[a] + noise[a] * used[a] + NOISE_WEIGHT * pooled) / (counts[a] + NOISE_WEIGHT)
            change = max(change, abs(math.log(new / noise[a])))
            noise[a] = new
        baseline = 0.0
        for a in range(arms):
            if counts[a] > 0.0:
                baseline += mean[a, 0] / played
        for i in range(p):
            for j in range(p):
                moment[i, j] = 0.0
        for a in range(arms):
            if counts[a] > 0.0:
                for i in range(p):
                    x = mean[a, i] - (baseline if i == 0 else 0.0)
                    for j in range(p):
                        moment[i, j] += cov[a, i, j] + x * (mean[a, j] - (baseline if j == 0 else 0.0))
        scale = 0.0
        for i in range(1, p):
            scale += moment[i, i] / (played * (p - 1))
        if spread > 0.0:
            scale = max(scale, SLOPE_SHARE * power / spread)
        for i in range(p):
            before = prior[i, i]
            for j in range(p):
                if i > 0 and j > 0:
                    ridge = PRIOR_WEIGHT * scale if i == j else 0.0
                    prior[i, j] = (moment[i, j] + ridge) / (PRIOR_WEIGHT + played)
                else:
                    prior[i, j] = 0.0
            if i == 0:
                floor = INTERCEPT_WEIGHT * INTERCEPT_SHARE * max(power / heard, 1e-300)
                prior[0, 0] = (moment[0, 0] + floor) / (INTERCEPT_WEIGHT + played)
            prior[i, i] = max(prior[i, i], 1e-300)
            change = max(change, abs(math.log(prior[i, i] / before)))
        if change < tolerance:
            iterations = step
    return evidence, baseline, pooled
