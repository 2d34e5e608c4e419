"""The distribution over arms with the lowest information ratio (docs/mathematics.md, "The choosers")."""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.compiling import AS_WRITTEN, kernel

# Sums in the order written: arms of equal numbers get equal results, wherever they stand.


@kernel(AS_WRITTEN)
def _frontier(regrets, informed, eligible, frontier):  # type: ignore[no-untyped-def]
    """The arms that none betters in regret and information both, one of each set of equals, by rising regret."""
    count, most = 0, -1.0
    while True:
        found = -1
        for a in range(regrets.shape[0]):
            if eligible[a] and informed[a] > most:
                less = found < 0 or regrets[a] < regrets[found]
                if less or (regrets[a] == regrets[found] and informed[a] > informed[found]):
                    found = a
        if found < 0:
            return count
        frontier[count], most = found, informed[found]
        count += 1


@kernel(AS_WRITTEN)
def _best_pair(regrets, gains, frontier, count):  # type: ignore[no-untyped-def]
    """Two arms and the probability of the second that minimise (Σ p_a Δ_a)² / Σ p_a g_a, with Δ_a = 1 + regret.

    On the line through two arms Δ rises by r for a unit of gain, Δ = c + r·g, and Δ²/g is least at g = c/r, where
    it is 4rc. If that is not between the two, one of them alone is best.
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
def _divide(share, arm, regrets, informed, eligible, probabilities):  # type: ignore[no-untyped-def]
    """Give `share` to the arm and its equals, those of the same regret and information, in equal parts."""
    arms, count = regrets.shape[0], 0
    for a in range(arms):
        if eligible[a] and regrets[a] == regrets[arm] and informed[a] == informed[arm]:
            count += 1
    for a in range(arms):
        if eligible[a] and regrets[a] == regrets[arm] and informed[a] == informed[arm]:
            probabilities[a] += share / count


@kernel(AS_WRITTEN)
def lowest_ratio(means, variances, widths, noise_variances, available, probabilities):  # type: ignore[no-untyped-def]
    """For every row the distribution over available arms that minimises (Σ p_a Δ_a)² / Σ p_a g_a; (n, K), in place.

    Δ_a = max_b (m_b + width_b·std_b) − m_a and g_a = ½ log(1 + variance_a/noise_a). With m the best mean, Δ_a is
    worked out as U + (m − m_a), U = max_b (width_b·std_b − (m − m_b)): nothing negative is added, so a distant origin
    costs no digits. Only proportions matter, so Δ is counted in units of U and g in units of the largest.
    """
    n, arms = means.shape
    regrets, informed, gains = np.empty(arms), np.empty(arms), np.empty(arms)
    frontier, eligible = np.empty(arms, dtype=np.int64), np.empty(arms, dtype=np.bool_)
    for i in range(n):
        best, most, scored = -np.inf, 0.0, False
        for a in range(arms):
            probabilities[i, a] = regrets[a] = informed[a] = 0.0
            variance, noise = variances[i, a], noise_variances[i, a]
            if variance > 0.0:
                informed[a] = variance / noise if noise > 0.0 else np.inf
            number = means[i, a] > -np.inf and informed[a] >= 0.0 and not math.isnan(math.sqrt(variance) + noise)
            eligible[a] = available[i, a] and number
            if eligible[a]:
                best, most, scored = max(best, means[i, a]), max(most, informed[a]), True
        unit = 0.0
        for a in range(arms):
            if eligible[a]:
                regrets[a] = best - means[i, a] if means[i, a] < best else 0.0
                unit = max(unit, widths[i, a] * math.sqrt(variances[i, a]) - regrets[a])
            elif not scored:  # no arm has a score: all are equal
                eligible[a], informed[a] = available[i, a], 0.0
        if math.isinf(most):  # arms without noise: what the others tell is nothing beside it
            most = 1.0
            for a in range(arms):
                informed[a] = 1.0 if math.isinf(informed[a]) else 0.0
        for a in range(arms):
            regrets[a] /= unit if unit > 0.0 else 1.0
            gains[a] = math.log1p(informed[a]) / math.log1p(most) if most > 0.0 else 0.0
        count = _frontier(regrets, informed, eligible, frontier)
        if count == 0:
            continue
        low, high, share = frontier[0], frontier[0], 0.0
        if unit > 0.0 and most > 0.0:
            low, high, share = _best_pair(regrets, gains, frontier, count)
        _divide(1.0 - share, low, regrets, informed, eligible, probabilities[i])
        _divide(share, high, regrets, informed, eligible, probabilities[i])
