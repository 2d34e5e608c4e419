"""The distribution over arms with the lowest information ratio (docs/mathematics.md, "The choosers").

Sums are computed in the order written, so that identical arms get equal probabilities at any position.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.compiling import AS_WRITTEN, kernel


@kernel(AS_WRITTEN)
def _frontier(regrets, information, eligible, frontier):  # type: ignore[no-untyped-def]
    """Write the Pareto-optimal arms, in order of increasing regret, to `frontier` (K,), and return their number.

    An arm is Pareto-optimal if every eligible arm with less regret has less information, and every eligible arm with
    equal regret has no more information. Of several arms with equal regret and equal information, only one is written
    to the frontier.
    """
    count, most = 0, -1.0
    while True:
        best = -1
        for a in range(regrets.shape[0]):
            if eligible[a] and information[a] > most:
                less = best < 0 or regrets[a] < regrets[best]
                if less or (regrets[a] == regrets[best] and information[a] > information[best]):
                    best = a
        if best < 0:
            return count
        frontier[count], most = best, information[best]
        count += 1


@kernel(AS_WRITTEN)
def _best_pair(regrets, gains, frontier, count):  # type: ignore[no-untyped-def]
    """Return the two arms whose mixture minimises (Σ p_a Δ_a)² / Σ p_a g_a, and the probability of the second arm.

    Δ_a is 1 + regret_a, and g_a is the gain. For mixtures of two arms, the mean Δ and the mean gain g satisfy Δ = c +
    r·g, where r is the increase of Δ per unit of gain. Δ²/g has its minimum 4rc at g = c/r. If this g is not between
    the gains of the two arms, one of them alone is best.
    """
    low, high, share, lowest = frontier[0], frontier[0], 0.0, np.inf
    for i in range(count):
        a = frontier[i]
        ratio = (1.0 + regrets[a]) ** 2 / gains[a]
        if ratio < lowest:
            low, high, share, lowest = a, a, 0.0, ratio
        for j in range(i + 1, count):
            b = frontier[j]
            gained = gains[b] - gains[a]
            price = (regrets[b] - regrets[a]) / gained
            p = ((1.0 + regrets[a]) / price - 2.0 * gains[a]) / gained
            ratio = 4.0 * price * (1.0 + regrets[a] - gains[a] * price)
            if 0.0 < p < 1.0 and ratio < lowest:
                low, high, share, lowest = a, b, p, ratio
    return low, high, share


@kernel(AS_WRITTEN)
def _divide(share, arm, regrets, information, eligible, probabilities):  # type: ignore[no-untyped-def]
    """Add equal parts of `share` to the probabilities of all arms with the regret and information of `arm`."""
    arms, count = regrets.shape[0], 0
    for a in range(arms):
        if eligible[a] and regrets[a] == regrets[arm] and information[a] == information[arm]:
            count += 1
    for a in range(arms):
        if eligible[a] and regrets[a] == regrets[arm] and information[a] == information[arm]:
            probabilities[a] += share / count


@kernel(AS_WRITTEN)
def minimise_information_ratio(means, variances, widths, noise_variances, available, probabilities):  # type: ignore[no-untyped-def]
    """Write the distribution over available arms that minimises (Σ p_a Δ_a)² / Σ p_a g_a to `probabilities` (n, K).

    Δ_a = max_b (m_b + width_b·std_b) − m_a and g_a = ½ log(1 + variance_a/noise_a). All arguments are (n, K). Let m be
    the best mean. Δ_a is computed as U + (m − m_a), where U = max_b (width_b·std_b − (m − m_b)). This sum of
    nonnegative numbers is accurate even if all means are large. Only proportions matter, so Δ is divided by U and g by
    its maximum.
    """
    n, arms = means.shape
    regrets, information, gains = np.empty(arms), np.empty(arms), np.empty(arms)
    frontier, eligible = np.empty(arms, dtype=np.int64), np.empty(arms, dtype=np.bool_)
    for i in range(n):
        best, most, scored = -np.inf, 0.0, False
        for a in range(arms):
            probabilities[i, a] = regrets[a] = information[a] = 0.0
            variance, noise = variances[i, a], noise_variances[i, a]
            if variance > 0.0:
                information[a] = variance / noise if noise > 0.0 else np.inf
            number = means[i, a] > -np.inf and information[a] >= 0.0 and not math.isnan(math.sqrt(variance) + noise)
            eligible[a] = available[i, a] and number
            if eligible[a]:
                best, most, scored = max(best, means[i, a]), max(most, information[a]), True
        unit = 0.0
        for a in range(arms):
            if eligible[a]:
                regrets[a] = best - means[i, a] if means[i, a] < best else 0.0
                unit = max(unit, widths[i, a] * math.sqrt(variances[i, a]) - regrets[a])
            elif not scored:  # no arm has a score, so all are equal
                eligible[a], information[a] = available[i, a], 0.0
        if math.isinf(most):  # infinite information (no noise) counts as 1, finite information as 0
            most = 1.0
            for a in range(arms):
                information[a] = 1.0 if math.isinf(information[a]) else 0.0
        for a in range(arms):
            regrets[a] /= unit if unit > 0.0 else 1.0
            gains[a] = math.log1p(information[a]) / math.log1p(most) if most > 0.0 else 0.0
        count = _frontier(regrets, information, eligible, frontier)
        if count == 0:
            continue
        low, high, share = frontier[0], frontier[0], 0.0
        if unit > 0.0 and most > 0.0:
            low, high, share = _best_pair(regrets, gains, frontier, count)
        _divide(1.0 - share, low, regrets, information, eligible, probabilities[i])
        _divide(share, high, regrets, information, eligible, probabilities[i])
