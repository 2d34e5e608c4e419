"""Bayesian linear regression with estimated hyperparameters, for all arms (docs/mathematics.md, "Calibrated arms").

θ_a ~ N(θ_0, Λ) for every arm, and r = θ_aᵀc + noise of variance s_a. The hyperparameters are Λ, s_a and the baseline,
which is the prior mean of the intercept. They are estimated with expectation–maximisation (EM) on the evidence. The
prior means of the slopes are 0. Arms without a reward do not influence the hyperparameters, so adding an arm changes
nothing for the others.

The intercept of an arm may depend on its slopes: intercept_a = baseline + α·uᵀslopes_a + N(0, ρ), where u is the
direction in which contexts vary most. With `through_zero` there is no intercept: the baseline and α are 0, and ρ is
negligible.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.compiling import kernel

NOISE_WEIGHT = 10.0  # the pooled noise variance counts as this many rewards in the noise variance of every arm
PRIOR_WEIGHT = 10.0  # in the estimate of Λ, a multiple of the identity counts as this many arms

# In the estimate of the variance of the intercepts, a variance of INTERCEPT_SHARE times the mean square reward counts
# as INTERCEPT_WEIGHT arms.
INTERCEPT_WEIGHT, INTERCEPT_SHARE = 1.0, 0.2
NOISE_SHARE = 0.5  # the share of the mean square reward that is noise at the start of EM

# This many times the mean square reward is added to the sum of squared residuals, because a few rewards can be fitted
# without any error.
NOISE_DOUBT = 0.1
LEAST_FREEDOM = 0.02  # the least degrees of freedom of the residuals, as a share of the number of rewards

# The prior of the slopes explains at least this share of the mean square reward. With a smaller prior variance,
# exploration would stop.
SLOPE_SHARE = 0.5
ALPHA_WEIGHT = 2.0  # the prior α = 0 counts as this many arms
ZERO_SHARE = 1e-6  # with `through_zero`, the variance of intercepts as a share of the mean square reward
POWER_STEPS = 50  # number of power iterations for the direction in which contexts vary most
TINY = 1e-14
LEAST_SPREAD = 1e-30  # a lower bound of the mean square of scaled contexts, so that the prior of the slopes is finite


@kernel()
def _invert(S, factor, inverse):  # type: ignore[no-untyped-def]
    """Compute inverse = S⁻¹ of a positive definite S (p, p), and return log|S|. `factor` (p, p) is scratch."""
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


@kernel()
def arm_sums(features, arms, rewards, G, h, squares, counts):  # type: ignore[no-untyped-def]
    """Add the sums over the rounds with a reward to G, h, squares and counts.

    The rows of features (n, p) are c. arms (n,) are the arms played, and rewards (n,) are NaN where there is none. For
    every arm, G (K, p, p) is Σ ccᵀ, h (K, p) is Σ rc, squares (K,) is Σ r² and counts (K,) is the number of rewards.
    """
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


@kernel()
def first_hyperparameters(G, h, squares, counts, noise, prior, through_zero=False):  # type: ignore[no-untyped-def]
    """Write the noise (K,) and the prior (p, p) from which EM starts, and return the baseline."""
    p = h.shape[1]
    total, spread, total_rewards, baseline, played = 0.0, 0.0, 0.0, 0.0, 0
    for a in range(h.shape[0]):
        if counts[a] > 0.0:
            played += 1
            total_rewards += counts[a]
            baseline += h[a, 0] / counts[a]
            for i in range(1, p):
                spread += G[a, i, i]
    baseline = 0.0 if through_zero else baseline / max(played, 1)
    for a in range(h.shape[0]):
        total += squares[a] - baseline * (2.0 * h[a, 0] - baseline * counts[a])
    power = max(total / max(total_rewards, 1.0), 1e-300)
    slope = (1.0 - NOISE_SHARE) * power / max(spread / max(total_rewards, 1.0), LEAST_SPREAD) if spread > 0.0 else power
    for i in range(p):
        for j in range(p):
            prior[i, j] = 0.0
        prior[i, i] = slope
    prior[0, 0] = (ZERO_SHARE if through_zero else INTERCEPT_SHARE) * power
    for a in range(h.shape[0]):
        noise[a] = NOISE_SHARE * power
    return baseline


@kernel()
def _main_direction(G, u, image, spread):  # type: ignore[no-untyped-def]
    """Compute the direction u (p,) in which contexts vary most, with u_0 = 0. Return False if they do not vary.

    The method is power iteration with the scatter matrix of the contexts of all rewards, starting from its largest
    column. `image` (p,) and `spread` (p, p) are scratch.
    """
    p, total_rewards = G.shape[1], 0.0
    image[:], spread[:] = 0.0, 0.0
    for a in range(G.shape[0]):
        total_rewards += G[a, 0, 0]
        for i in range(p):
            image[i] += G[a, 0, i]
            for j in range(p):
                spread[i, j] += G[a, i, j]
    first, largest = 0, 0.0
    for i in range(1, p):
        size = 0.0
        for j in range(1, p):
            spread[i, j] -= image[i] * image[j] / max(total_rewards, 1.0)
            size += spread[i, j] * spread[i, j]
        if size > largest:
            first, largest = i, size
    for i in range(p):
        u[i] = spread[i, first] if first > 0 and i > 0 else 0.0
    for _ in range(POWER_STEPS):
        length = 0.0
        for i in range(1, p):
            length += u[i] * u[i]
        if length <= 0.0:
            return False
        length = math.sqrt(length)
        for i in range(1, p):
            image[i] = u[i] / length
        for i in range(1, p):
            u[i] = 0.0
            for j in range(1, p):
                u[i] += spread[i, j] * image[j]
    for i in range(1, p):
        u[i] = image[i]
    return True


@kernel()
def _update_alpha(counts, G, h, mean, cov, noise, baseline, rho, u, alpha, by_arms):  # type: ignore[no-untyped-def]
    """Return α after one step of EM.

    With `by_arms` the intercepts are the latent variables of EM, and they are regressed on uᵀslopes. Otherwise the
    deviations intercept − baseline − α·uᵀslopes are the latent variables, and the rewards are regressed on uᵀslopes.
    The first kind of step converges slowly if ρ is small, and the second kind if there are few rewards. The caller
    therefore alternates them. The prior of α counts as ALPHA_WEIGHT further arms with slopes of the usual size and α =
    0.
    """
    p = mean.shape[1]
    right, system, squares, played = 0.0, 0.0, 0.0, 0
    for a in range(len(counts)):
        if counts[a] == 0.0:
            continue
        # E uᵀθ, E (uᵀθ)², E[uᵀθ·intercept] and E[uᵀθ θᵀΣx], where θ are the slopes and Σx is the sum of the contexts
        slope, square, with_intercept, with_sums = 0.0, 0.0, 0.0, 0.0
        for i in range(1, p):
            slope += u[i] * mean[a, i]
            with_intercept += u[i] * (cov[a, i, 0] + mean[a, i] * mean[a, 0])
            for j in range(1, p):
                both = u[i] * (cov[a, i, j] + mean[a, i] * mean[a, j])
                square += both * u[j]
                with_sums += both * G[a, 0, j]
        played += 1
        squares += square
        if by_arms:
            system += square / rho
            right += (with_intercept - slope * baseline) / rho
        else:
            system += counts[a] * square / noise[a]
            right += (slope * h[a, 0] - counts[a] * (with_intercept - alpha * square) - with_sums) / noise[a]
    return right / max(system + ALPHA_WEIGHT * squares / (played * rho), 1e-300)


@kernel()
def _tie_intercept(prior, rho, alpha, u):  # type: ignore[no-untyped-def]
    """Set the intercept's row and column of `prior` (p, p) such that intercept = baseline + α·uᵀslopes + N(0, ρ)."""
    p = len(u)
    prior[0, 0] = rho
    for i in range(1, p):
        total = 0.0
        for j in range(1, p):
            total += prior[i, j] * alpha * u[j]
        prior[i, 0] = prior[0, i] = total
        prior[0, 0] += total * alpha * u[i]


@kernel()
def _untie_intercept(prior, u):  # type: ignore[no-untyped-def]
    """Return ρ and α of `prior` (p, p), from the regression of the intercept on uᵀslopes."""
    tied, along = 0.0, 0.0
    for i in range(1, len(u)):
        tied += u[i] * prior[i, 0]
        for j in range(1, len(u)):
            along += u[i] * prior[i, j] * u[j]
    alpha = tied / along if along > 0.0 else 0.0
    return max(prior[0, 0] - alpha * tied, TINY * prior[0, 0]), alpha


@kernel()
def fit_arms(  # type: ignore[no-untyped-def]
    G, h, squares, counts, noise, prior, baseline, mean, cov, iterations, tolerance, through_zero=False
):
    """Compute the posterior mean (K, p) and cov (K, p, p) of every arm, and update noise (K,) and prior (p, p).

    G, h, squares and counts are those of `arm_sums`. EM stops after `iterations` steps, or when no variance has a
    relative change above `tolerance`. Returns the log evidence of the rewards under the final hyperparameters, the
    baseline, and the pooled noise variance, which is used for arms without a reward.
    """
    arms, p = h.shape
    total_rewards, power, played, spread = 0.0, 0.0, 0, 0.0
    for a in range(arms):
        for i in range(1, p):
            spread += G[a, i, i]
        total_rewards += counts[a]
        power += squares[a] - baseline * (2.0 * h[a, 0] - baseline * counts[a])
        played += counts[a] > 0.0
    precision, factor, system = np.empty((p, p)), np.empty((p, p)), np.empty((p, p))
    moment, right = np.empty((p, p)), np.empty(p)
    u = np.empty(p)
    vary = not through_zero and _main_direction(G, u, right, moment)
    rho, alpha = prior[0, 0], 0.0
    if through_zero:
        u[:] = 0.0
    else:
        rho, alpha = _untie_intercept(prior, u)
    if iterations > 0:  # without iterations the prior is not changed
        _tie_intercept(prior, rho, alpha, u)
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
        # The pooled noise variance is the sum of squared residuals divided by their degrees of freedom. This converges
        # faster than EM. The noise variance of each arm comes from EM.
        spare = max(total_rewards - freedom, LEAST_FREEDOM * total_rewards)
        pooled = max((left + NOISE_DOUBT * power / total_rewards) / spare, TINY * power / total_rewards, 1e-300)
        change = 0.0
        for a in range(arms):
            if counts[a] == 0.0:
                noise[a] = pooled  # not part of `change`: without rewards, this noise does not affect the fit
                continue
            new = (residual[a] + noise[a] * used[a] + NOISE_WEIGHT * pooled) / (counts[a] + NOISE_WEIGHT)
            change = max(change, abs(math.log(new / noise[a])))
            noise[a] = new
        baseline = 0.0
        for a in range(0 if through_zero else arms):
            if counts[a] > 0.0:
                baseline += mean[a, 0] / played
                for i in range(1, p):
                    baseline -= alpha * u[i] * mean[a, i] / played
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
            scale = max(scale, SLOPE_SHARE * power / max(spread, LEAST_SPREAD * total_rewards))
        if vary:
            alpha = _update_alpha(counts, G, h, mean, cov, noise, baseline, rho, u, alpha, step % 2 == 1)
        rho = moment[0, 0]  # becomes Σ_a E(intercept_a − baseline − α·uᵀslopes_a)²
        for i in range(1, p):
            rho -= 2.0 * alpha * u[i] * moment[i, 0]
            for j in range(1, p):
                rho += alpha * u[i] * moment[i, j] * alpha * u[j]
        floor = INTERCEPT_WEIGHT * INTERCEPT_SHARE * max(power / total_rewards, 1e-300)
        rho = max((rho + floor) / (INTERCEPT_WEIGHT + played), 1e-300)
        if through_zero:
            rho = max(ZERO_SHARE * power / total_rewards, 1e-300)
        for i in range(1, p):
            before = prior[i, i]
            for j in range(1, p):
                ridge = PRIOR_WEIGHT * scale if i == j else 0.0
                prior[i, j] = (moment[i, j] + ridge) / (PRIOR_WEIGHT + played)
            prior[i, i] = max(prior[i, i], 1e-300)
            change = max(change, abs(math.log(prior[i, i] / before)))
        before = prior[0, 0]
        _tie_intercept(prior, rho, alpha, u)
        change = max(change, abs(math.log(prior[0, 0] / before)))
        if change < tolerance:
            iterations = step
    return evidence, baseline, pooled
