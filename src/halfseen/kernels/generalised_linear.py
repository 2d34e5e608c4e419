"""Bayesian regression for rewards that are numbers, clicks or counts (docs/mathematics.md, "Reward families").

The reward of an arm depends on the linear predictor η = cᵀθ_a through the inverse link μ(η): η itself (GAUSSIAN), the
logistic function (BINARY) or exp (COUNT). The posterior of θ_a is approximated by N(m_a, C_a), which is stored as in
`kernels.regression`.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.adaptive import context_gain, has_usable_reward, move_context, predict_arm, write_features
from halfseen.kernels.compiling import kernel
from halfseen.kernels.linalg import subtract_outer
from halfseen.kernels.regression import (
    MAX_REDUCTION,
    SAFE_REDUCTION,
    covariance_times_feature,
    keep_definite,
    variance_without_correlation,
)
from halfseen.validation import LIMIT

GAUSSIAN, BINARY, COUNT = 0, 1, 2
MAX_EXPONENT = math.log(LIMIT)  # no expected count is above LIMIT
MAX_STEPS = 200  # the most steps of Newton's method; bisection alone would find a mode in fewer
PRECISION = 1e-13  # relative error at which the search for a mode stops
SMALL_STEP = 1e-7  # after a step of this size, the error of Newton's method is about SMALL_STEP²
REACH = 8.5  # standard deviations on either side of the mean over which normal variables are integrated
WIDE = 400.0  # for a larger variance, `logistic_normal` uses an approximation instead of an integral
FIRST_CHECKED = 10  # number of rewards of an arm before its predictions are compared with its rewards


@kernel()
def inverse_link(family, predictor):  # type: ignore[no-untyped-def]
    """Return the expected reward μ(η)."""
    if family == BINARY:
        if predictor >= 0.0:
            return 1.0 / (1.0 + math.exp(-min(predictor, MAX_EXPONENT)))
        ratio = math.exp(max(predictor, -MAX_EXPONENT))
        return ratio / (1.0 + ratio)
    if family == COUNT:
        return math.exp(max(min(predictor, MAX_EXPONENT), -MAX_EXPONENT))
    return predictor


@kernel()
def curvature(family, predictor):  # type: ignore[no-untyped-def]
    """Return w = −∂² log p(r | η)/∂η², which equals μ′(η) and does not depend on r."""
    if family == BINARY:
        ratio = math.exp(max(-abs(predictor), -MAX_EXPONENT))
        return ratio / ((1.0 + ratio) * (1.0 + ratio))
    if family == COUNT:
        return inverse_link(family, predictor)
    return 1.0


@kernel()
def logistic_normal(mean, variance):  # type: ignore[no-untyped-def]
    """Return E[σ(η)] for η ~ N(mean, variance), and its derivative with respect to the mean.

    σ is the logistic function. The trapezoidal rule converges exponentially here. The larger the standard deviation,
    the more points the rule needs. For a variance above WIDE, MacKay's approximation is used instead. Its relative
    error is then below 0.4 %.
    """
    binary = np.int64(BINARY)  # Numba would compile `inverse_link` a second time for the constant
    if variance > WIDE:
        scale = math.sqrt(1.0 + math.pi * variance / 8.0)
        return inverse_link(binary, mean / scale), curvature(binary, mean / scale) / scale
    std = math.sqrt(variance)
    half = math.ceil(REACH * max(2.0, std))
    step = REACH / half
    total, slope, weights = 0.0, 0.0, 0.0
    for i in range(-half, half + 1):
        z = i * step
        weight = math.exp(-0.5 * z * z)
        weights += weight
        probability = inverse_link(binary, mean + std * z)
        total += weight * probability
        slope += weight * probability * (1.0 - probability)
    return total / weights, slope / weights


@kernel()
def expected_reward(family, predictor, variance):  # type: ignore[no-untyped-def]
    """Return E[μ(η)] for η ~ N(predictor, variance)."""
    if family == BINARY:
        return logistic_normal(predictor, variance)[0]
    if family == COUNT:
        return inverse_link(family, predictor + 0.5 * variance)
    return predictor


@kernel()
def posterior_mode(family, reward, predictor, variance):  # type: ignore[no-untyped-def]
    """Return the mode z of −(z − η)²/(2q) + log p(r | z), where η is `predictor` and q is `variance`.

    The negative derivative, (z − η)/q + μ(z) − r, increases with z. Its zero is found by Newton's method within an
    interval that contains it, with a bisection wherever Newton's method would converge slowly.
    """
    if variance <= 0.0:
        return predictor
    if family == GAUSSIAN:
        return predictor + variance * (reward - predictor) / (1.0 + variance)
    residual = reward - inverse_link(family, predictor)
    low, high = min(predictor, predictor + variance * residual), max(predictor, predictor + variance * residual)
    z = predictor
    if family == COUNT:
        if residual > 0.0:
            high = max(low, min(high, math.log(reward)))
        else:
            # At the zero, exp(z) = r + (η − z)/q. If exp(z) < r + 1, then z > η − q. If z > 0, then exp(z) < r + η/q.
            low = min(predictor, max(low, min(math.log(reward + 1.0), predictor - variance)))
            top = math.log(reward + max(predictor, 0.0) / variance + 1.0)
            high = max(low, min(high, top))
        z = high
    previous = high - low
    for _ in range(MAX_STEPS):
        slope = (z - predictor) / variance - (reward - inverse_link(family, z))
        if slope > 0.0:
            high = z
        else:
            low = z
        found = z - slope / (1.0 / variance + curvature(family, z))
        if not (low <= found <= high) or abs(found - z) > 0.5 * previous:
            found = 0.5 * (low + high)
        previous = abs(found - z)
        z = found
        if previous <= PRECISION * (1e-3 + abs(z)):
            break
    return z


@kernel()
def step_and_curvature(family, reward, predictor, variance, reach):  # type: ignore[no-untyped-def]
    """Return r − μ(z) and the curvature w at the mode z of `posterior_mode`.

    w is limited, so that no reward reduces a variance by a factor of more than MAX_REDUCTION. `reach` is the variance
    that the linear predictor would have if its terms were not correlated. If `reach` is much larger than `variance`,
    `variance` is mostly rounding error, so `reach` sets the limit.
    """
    z = posterior_mode(family, reward, predictor, variance)
    level = inverse_link(family, z)
    step = reward - level
    # At the mode, r − μ(z) = (z − η)/q. The left side is inaccurate if the reward or the variance is large.
    if variance * max(abs(reward), abs(level)) > abs(z) + abs(predictor):
        step = (z - predictor) / variance
    return step, min(curvature(family, z), MAX_REDUCTION / max(variance, reach, 1e-300))


@kernel()
def learn_family_reward(family, b, a, mean, cov, i, features, reward, gain):  # type: ignore[no-untyped-def]
    """Update arm a of stream b with one reward on features[i]. `gain` (p,) is scratch.

    Let η = cᵀm, q = cᵀCc, z the `posterior_mode` and w the curvature at z. Then m += Cc(r − μ(z)) and
    C −= w Cc(Cc)ᵀ/(1 + wq). For GAUSSIAN, these are the updates of `regression.learn_one`.

    Returns the increase of log|C_a⁻¹|, or −1 if the reward was refused (see `learn_rewards`).
    """
    m, C, feature = mean[b, a], cov[b, a], features[i]
    covariance_times_feature(C, feature, gain)
    predictor = 0.0
    quadratic = 0.0
    for j in range(gain.shape[0]):
        predictor += m[j] * feature[j]
        quadratic += gain[j] * feature[j]
    reach = variance_without_correlation(C, feature)
    if not (quadratic <= MAX_REDUCTION and reach <= MAX_REDUCTION * (1.0 + max(quadratic, 0.0))):
        return -1.0
    q = max(quadratic, 0.0)
    step, w = step_and_curvature(family, reward, predictor, q, reach)
    denominator = 1.0 + w * q
    root = math.sqrt(w / denominator)
    for j in range(gain.shape[0]):
        m[j] += gain[j] * step
        gain[j] *= root
    p, at = gain.shape[0], 0
    for j in range(p):
        first, rest, row = gain[j], gain[j:], C[at : at + p - j]
        for l in range(row.shape[0]):  # noqa: E741
            row[l] -= first * rest[l]
        at += p - j
    if not (quadratic >= 0.0 and w * reach <= SAFE_REDUCTION):
        keep_definite(C, gain)
    return math.log(denominator)


@kernel()
def base_rate(family, prior_var, total, count):  # type: ignore[no-untyped-def]
    """Return the η with E[μ(η + ε)] = r̄ for ε ~ N(0, prior_var), where E is computed as in `expected_reward`.

    r̄ is the mean of `count` rewards with sum `total` and of one added reward, which is ½ for BINARY and 1 for COUNT.
    The result is 0 for GAUSSIAN.
    """
    if family == BINARY:
        clicks = max(total, 0.0) + 0.5
        log_odds = math.log(clicks / max(count + 1.0 - clicks, 0.5))
        found = log_odds * math.sqrt(1.0 + math.pi * prior_var / 8.0)  # MacKay's approximation
        for _ in range(MAX_STEPS):  # Newton's method on the log-odds of E[μ(η + ε)], which are nearly linear in η
            mean, slope = logistic_normal(found, prior_var)
            change = (math.log(mean / (1.0 - mean)) - log_odds) * mean * (1.0 - mean) / slope
            found -= change
            if not abs(change) > SMALL_STEP:
                break
        return found
    if family == COUNT:
        return math.log((max(total, 0.0) + 1.0) / (count + 1.0)) - 0.5 * prior_var
    return 0.0


@kernel()
def move_baseline(b, mean, cov, baseline, found, intercept_var):  # type: ignore[no-untyped-def]
    """Change the prior mean of the intercepts of stream b from baseline[b] to `found`.

    A priori, the intercept has the variance v and is independent of the other parameters. The mean of every arm
    therefore moves by the first column of C_a times the change of the baseline divided by v.
    """
    change = (found - baseline[b]) / intercept_var
    baseline[b] = found
    if change == 0.0:
        return
    for a in range(mean.shape[1]):
        for j in range(mean.shape[2]):
            mean[b, a, j] += cov[b, a, j] * change


@kernel()
def learn_family_rewards(  # type: ignore[no-untyped-def]
    family,
    intercept_var,
    prior_var,
    rows,
    mean,
    cov,
    log_det,
    counts,
    totals,
    baseline,
    calibration,
    features,
    arms,
    rewards,
):
    """Update the posteriors of the arms played (n,) with rewards (n,) on features (n, p), row by row.

    After every reward, the prior mean of the intercepts, baseline (B,), is set to the `base_rate` of all rewards of the
    stream. totals (B,) are the sums of these rewards, and counts (B, K) are the numbers of rewards. calibration (B, K,
    3) are the sums of predicted rewards, of rewards and of the predicted variances of rewards. These sums leave out the
    first FIRST_CHECKED rewards of each arm, and are 0 for GAUSSIAN. Each reward is predicted before it is learnt.
    Returns the index of the first reward that was refused, or −1.
    """
    gain = np.empty(mean.shape[2])
    refused = -1
    for i in range(rows.shape[0]):
        b, a = rows[i], arms[i]
        m, C, feature = mean[b, a], cov[b, a], features[i]
        predictor = 0.0
        variance = 0.0
        covariance_times_feature(C, feature, gain)
        for j in range(gain.shape[0]):
            predictor += m[j] * feature[j]
            variance += gain[j] * feature[j]
        increase = learn_family_reward(family, b, a, mean, cov, i, features, rewards[i], gain)
        if increase < 0.0:
            if refused < 0:
                refused = i
            continue
        log_det[b, a] += increase
        if family != GAUSSIAN and counts[b, a] >= FIRST_CHECKED:
            predicted = expected_reward(family, predictor, max(variance, 0.0))
            if family == BINARY:
                spread = predicted * (1.0 - predicted)
            else:
                spread = predicted * (1.0 + predicted * (math.exp(min(max(variance, 0.0), MAX_EXPONENT)) - 1.0))
            calibration[b, a, 0] += predicted
            calibration[b, a, 1] += rewards[i]
            calibration[b, a, 2] += spread
        counts[b, a] += 1
        totals[b] += rewards[i]
        found = base_rate(family, prior_var, totals[b], float(counts[b].sum()))
        move_baseline(b, mean, cov, baseline, found, intercept_var)
    return refused


@kernel()
def replace_family_rewards(  # type: ignore[no-untyped-def]
    family, intercept_var, prior_var, rows, mean, cov, counts, totals, baseline, features, arms, changes
):
    """Add changes (n,) to rewards learnt earlier on features (n, p): m_a += C_a c·change. Also update the baseline."""
    gain = np.empty(mean.shape[2])
    for i in range(rows.shape[0]):
        b, a = rows[i], arms[i]
        m = mean[b, a]
        covariance_times_feature(cov[b, a], features[i], gain)
        for j in range(gain.shape[0]):
            m[j] += gain[j] * changes[i]
        totals[b] += changes[i]
        found = base_rate(family, prior_var, totals[b], float(counts[b].sum()))
        move_baseline(b, mean, cov, baseline, found, intercept_var)


@kernel()
def expected_rewards(family, means, variances, expected):  # type: ignore[no-untyped-def]
    """Write `expected_reward` of every entry of means and variances (n, K) to `expected` (n, K)."""
    for i in range(means.shape[0]):
        for a in range(means.shape[1]):
            expected[i, a] = expected_reward(family, means[i, a], variances[i, a])


# ---------------------------------------------------------------------- arms of the agent `adaptive`
# Packed arrays as in `kernels.adaptive`: mean is (K, p), cov is (K, p, p), slopes is (K, d), P is (d, d), x is (d,).


@kernel()
def family_sums(family, features, arms, rewards, mean, G, h, likelihoods):  # type: ignore[no-untyped-def]
    """Add the terms of a Newton step at the parameters `mean` (K, p) to G, h and likelihoods, for all rewards (n,).

    A missing reward is NaN. Let w be the curvature at the linear predictor η = cᵀm_a. Then G (K, p, p) is Σ
    w ccᵀ, h (K, p) is Σ c(wη + r − μ(η)), and likelihoods (K,) is Σ log p(r | η) up to a constant.
    """
    p = features.shape[1]
    for t in range(features.shape[0]):
        r = rewards[t]
        if math.isnan(r):
            continue
        a = arms[t]
        predictor = 0.0
        for i in range(p):
            predictor += mean[a, i] * features[t, i]
        level, w = inverse_link(family, predictor), curvature(family, predictor)
        target = w * predictor + r - level
        if family == BINARY:
            top = max(predictor, 0.0)
            likelihoods[a] += r * predictor - top - math.log(math.exp(-top) + math.exp(predictor - top))
        elif family == COUNT:
            likelihoods[a] += r * predictor - level
        else:
            likelihoods[a] -= 0.5 * (r - predictor) * (r - predictor)
        for i in range(p):
            c = features[t, i]
            h[a, i] += target * c
            for j in range(i + 1):
                G[a, i, j] += w * c * features[t, j]
    for a in range(G.shape[0]):
        for i in range(p):
            for j in range(i):
                G[a, j, i] = G[a, i, j]


@kernel()
def _context_variance(b, a, d, slopes, P):  # type: ignore[no-untyped-def]
    """Return mᵀPm, the part of the variance of arm a's linear predictor that comes from the context."""
    total = 0.0
    for i in range(d):
        for j in range(d):
            total += slopes[b, a * d + i] * P[b, i * d + j] * slopes[b, a * d + j]
    return max(total, 0.0)


@kernel()
def context_variances(rows, sizes, slopes, P, variances):  # type: ignore[no-untyped-def]
    """Write to `variances` (n, K) the part of every linear predictor's variance that comes from the context."""
    for s in range(rows.shape[0]):
        for a in range(variances.shape[1]):
            variances[s, a] = _context_variance(rows[s], a, sizes[rows[s]], slopes, P)


@kernel()
def working_noise(family, means, noise):  # type: ignore[no-untyped-def]
    """Add the noise variance 1/w of a reward to every entry of `noise` (n, K).

    The variance is on the scale of the linear predictors, which are `means` (n, K).
    """
    for i in range(means.shape[0]):
        for a in range(means.shape[1]):
            noise[i, a] += 1.0 / max(curvature(family, means[i, a]), 1.0 / MAX_REDUCTION)


@kernel()
def learn_family_packed(  # type: ignore[no-untyped-def]
    family, rows, sizes, mean, cov, slopes, P, smooth_cov, counts, calibration, features, arms, rewards
):
    """Update the posteriors of the arms played (n,) with rewards (n,), as `learn_family_rewards` does.

    The variance of the linear predictor is q = cᵀCc + mᵀPm. Two kinds of reward are ignored: those with features of
    NaN, because their round is no longer in the history, and those with features so large that no digit of cᵀCc is
    right. For calibration, see `learn_family_rewards`. The parameters of the last fit already allow for smooth_cov, the
    covariance of its contexts. In the predictions for `calibration`, mᵀPm therefore counts only as far as it exceeds
    the same product with smooth_cov in place of P.
    """
    for s in range(rows.shape[0]):
        if math.isnan(features[s, 0]):
            continue
        b, a = rows[s], arms[s]
        p = sizes[b] + 1
        m = mean[b, a * p : (a + 1) * p]
        C = cov[b, a * p * p : (a + 1) * p * p].reshape((p, p))
        gain = np.empty(p)
        predictor, quadratic, reach = 0.0, 0.0, 0.0
        for i in range(p):
            total = 0.0
            for j in range(p):
                total += C[i, j] * features[s, j]
            gain[i] = total
            quadratic += total * features[s, i]
            reach += C[i, i] * features[s, i] * features[s, i]
            predictor += m[i] * features[s, i]
        if not reach <= MAX_REDUCTION * (1.0 + max(quadratic, 0.0)):
            continue
        present = _context_variance(b, a, p - 1, slopes, P)
        q = max(quadratic, 0.0) + present
        if counts[b, a] > FIRST_CHECKED:
            beyond = max(present - _context_variance(b, a, p - 1, slopes, smooth_cov), 0.0) + max(quadratic, 0.0)
            predicted = expected_reward(family, predictor, beyond)
            spread = predicted * (1.0 - predicted)
            if family == COUNT:
                spread = predicted * (1.0 + predicted * (math.exp(min(beyond, MAX_EXPONENT)) - 1.0))
            calibration[b, a, 0] += predicted
            calibration[b, a, 1] += rewards[s]
            calibration[b, a, 2] += spread
        step, w = step_and_curvature(family, rewards[s], predictor, q, reach)
        share = w / (1.0 + w * q)
        for i in range(p):
            m[i] += gain[i] * step
        subtract_outer(C, gain, share, quadratic >= 0.0 and w * reach <= SAFE_REDUCTION)


@kernel()
def replace_family_packed(rows, sizes, mean, cov, features, arms, changes):  # type: ignore[no-untyped-def]
    """Add C_a c·change to m_a, for changes (n,) of earlier rewards. Rewards whose features are NaN are not replaced."""
    for s in range(rows.shape[0]):
        if math.isnan(features[s, 0]):
            continue
        b, a = rows[s], arms[s]
        p = sizes[b] + 1
        for i in range(p):
            image, at = 0.0, (a * p + i) * p
            for j in range(p):
                image += cov[b, at + j] * features[s, j]
            mean[b, a * p + i] += image * changes[s]


@kernel()
def update_context_from_family(  # type: ignore[no-untyped-def]
    family, rows, slots, arm, reward, sizes, mean, cov, slopes, x, P, shift, fitted, raw
):
    """Update x and P of the streams in `rows` (n,) with rewards as observations of the context.

    The arguments are those of `kernels.adaptive.update_context`. Let g = mᵀPm, s the parameter variance cᵀCc of the
    linear predictor before the arm learnt from the reward, and q = s + g. Let z be the mode of the linear predictor
    given the reward, and w the curvature at z. The updates are x += Pm(r − μ(z)) and P −= w Pm mᵀP/(1 + wq).

    But the arm has already learnt from the reward. Let η⁺ and s⁺ be the mean and the parameter variance of its linear
    predictor after learning. Then z is the `posterior_mode` for the prior mean η⁺ and the prior variance g, and
    s = s⁺(1 + wg)/(1 + wg − ws⁺).
    """
    for t in range(rows.shape[0]):
        b = rows[t]
        if not has_usable_reward(b, slots[t], reward, fitted, raw):
            continue
        d, a = sizes[b], arm[b, slots[t]]
        feature, gain = np.empty(d + 1), np.empty(d)
        write_features(b, d, x, shift, feature)
        predictor, after = predict_arm(b, a, d + 1, mean, cov, feature)
        g = context_gain(b, a, d, slopes, P, gain)
        if not g > 0.0:
            continue
        step, w = step_and_curvature(family, reward[b, slots[t]], predictor, g, g)
        left = 1.0 + w * g - w * after
        if not left > 0.0:  # then the arm has not learnt from this reward yet
            continue
        before = after * (1.0 + w * g) / left
        move_context(b, d, x, P, gain, g, step, 1.0, w / (1.0 + w * (g + before)))
