"""Bayesian linear regression of all arms at once, with its hyperparameters from the data (docs/mathematics.md,
"Calibrated arms").

θ_a ~ N(θ_0, Λ) for every arm, r = θ_aᵀc + noise of variance s_a. Λ, s_a and the prior mean of the intercept (entry 0,
the only one that need not be 0) are found by expectation–maximisation on the evidence. Arms without a reward have no
part in that: adding an arm changes nothing for the others.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.compiler.decorators import helper, kernel

NOISE_WEIGHT = 10.0  # rewards that the noise pooled over arms counts for in each arm's own
PRIOR_WEIGHT = 10.0  # arms that a multiple of I counts for in the covariance of the parameters
INTERCEPT_WEIGHT, INTERCEPT_SHARE = 1.0, 0.2  # arms for which a share of the mean square reward counts in Λ_00
NOISE_SHARE = 0.5  # of the mean square reward that is taken for noise at the start
NOISE_DOUBT = 0.1  # rewards' worth of noise that is assumed beyond the residuals: few rewards can be fitted exactly
LEAST_FREEDOM = 0.02  # share of the rewards that at least counts as not used up by parameters
SLOPE_SHARE = 0.5  # of the mean square reward that the prior of the slopes can explain at the least: no lock-in
LEVER_WEIGHT = 2.0  # arms that speak against any tie between intercept and slopes
POWER_STEPS = 50  # to the direction in which contexts vary most
TINY = 1e-14


@helper("f2 f2 f2 -> f")
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


@kernel("f2 i1 f1 f3 f2 f1 f1")
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


@kernel("f3 f2 f1 f1 f1 f2 -> f")
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


@helper("f3 f1 f1 f2 -> b")
def _main_direction(G, u, image, spread):  # type: ignore[no-untyped-def]
    """The direction u (p, entry 0 is 0) in which contexts vary most, over all rewards; False if they do not vary.

    By power iteration from the largest column of their scatter, which is left in `spread` (p, p).
    """
    p, heard = G.shape[1], 0.0
    image[:], spread[:] = 0.0, 0.0
    for a in range(G.shape[0]):
        heard += G[a, 0, 0]
        for i in range(p):
            image[i] += G[a, 0, i]
            for j in range(p):
                spread[i, j] += G[a, i, j]
    first, largest = 0, 0.0
    for i in range(1, p):
        size = 0.0
        for j in range(1, p):
            spread[i, j] -= image[i] * image[j] / max(heard, 1.0)
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


@helper("f1 f3 f2 f2 f3 f1 f f f1 f b -> f")
def _lever(counts, G, h, mean, cov, noise, baseline, rest, u, lever, by_arms):  # type: ignore[no-untyped-def]
    """α in intercept_a = baseline + α·uᵀslopes_a + rest_a, by one step of EM.

    `by_arms` takes the intercepts for the hidden data and regresses them on uᵀslopes; otherwise the rests are, and
    rewards less rest and θᵀx are regressed. The first step creeps where rests are small, the second where rewards are
    few: in turn they creep nowhere. LEVER_WEIGHT further arms, with slopes of the usual size, say that α is 0.
    """
    p = mean.shape[1]
    right, system, squares, played = 0.0, 0.0, 0.0, 0
    for a in range(len(counts)):
        if counts[a] == 0.0:
            continue
        slope, square, with_intercept, with_sums = 0.0, 0.0, 0.0, 0.0  # E uᵀθ, E (uᵀθ)², E uᵀθ b, E uᵀθ θᵀΣx
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
            system += square / rest
            right += (with_intercept - slope * baseline) / rest
        else:
            system += counts[a] * square / noise[a]
            right += (slope * h[a, 0] - counts[a] * (with_intercept - lever * square) - with_sums) / noise[a]
    return right / max(system + LEVER_WEIGHT * squares / (played * rest), 1e-300)


@helper("f2 f f f1")
def _tie_intercept(prior, rest, lever, u):  # type: ignore[no-untyped-def]
    """The prior of (intercept, slopes) in which intercept = baseline + lever·uᵀslopes + N(0, rest), in place."""
    p = len(u)
    prior[0, 0] = rest
    for i in range(1, p):
        total = 0.0
        for j in range(1, p):
            total += prior[i, j] * lever * u[j]
        prior[i, 0] = prior[0, i] = total
        prior[0, 0] += total * lever * u[i]


@helper("f2 f1 -> f f")
def _untie_intercept(prior, u):  # type: ignore[no-untyped-def]
    """(rest, lever) along u of any prior: the regression of the intercept on uᵀslopes, and what it leaves."""
    tied, along = 0.0, 0.0
    for i in range(1, len(u)):
        tied += u[i] * prior[i, 0]
        for j in range(1, len(u)):
            along += u[i] * prior[i, j] * u[j]
    lever = tied / along if along > 0.0 else 0.0
    return max(prior[0, 0] - lever * tied, TINY * prior[0, 0]), lever


@kernel("f3 f2 f1 f1 f1 f2 f f2 f3 i f -> f f f")
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
    u = np.empty(p)  # of contexts, along which what an arm pays at their origin may follow from its slopes
    vary = _main_direction(G, u, right, moment)
    rest, lever = _untie_intercept(prior, u)
    if iterations > 0:  # else the prior is held as it is
        _tie_intercept(prior, rest, lever, u)
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
        spare = max(heard - freedom, LEAST_FREEDOM * heard)
        pooled = max((left + NOISE_DOUBT * power / heard) / spare, TINY * power / heard, 1e-300)
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
                for i in range(1, p):
                    baseline -= lever * u[i] * mean[a, i] / played
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
        if vary:
            lever = _lever(counts, G, h, mean, cov, noise, baseline, rest, u, lever, step % 2 == 1)
        rest = moment[0, 0]  # of the intercepts, that the slopes leave unexplained
        for i in range(1, p):
            rest -= 2.0 * lever * u[i] * moment[i, 0]
            for j in range(1, p):
                rest += lever * u[i] * moment[i, j] * lever * u[j]
        floor = INTERCEPT_WEIGHT * INTERCEPT_SHARE * max(power / heard, 1e-300)
        rest = max((rest + floor) / (INTERCEPT_WEIGHT + played), 1e-300)
        for i in range(1, p):
            before = prior[i, i]
            for j in range(1, p):
                ridge = PRIOR_WEIGHT * scale if i == j else 0.0
                prior[i, j] = (moment[i, j] + ridge) / (PRIOR_WEIGHT + played)
            prior[i, i] = max(prior[i, i], 1e-300)
            change = max(change, abs(math.log(prior[i, i] / before)))
        before = prior[0, 0]
        _tie_intercept(prior, rest, lever, u)
        change = max(change, abs(math.log(prior[0, 0] / before)))
        if change < tolerance:
            iterations = step
    return evidence, baseline, pooled
