"""Which arm wins, and how likely each was to win (docs/mathematics.md, "The choosers")."""

from __future__ import annotations

import math

import numpy as np

from halfseen.compiler import njit
from halfseen.kernels.linalg import INNER, KERNEL

# Sums in the order written, unlike other kernels: it keeps the digits of an arm known much better than the rest.
_KERNEL, _INNER = KERNEL | {"fastmath": False}, INNER | {"fastmath": False}
_REACH = 8.5  # standard deviations beyond which a normal tail (1e-17) cannot be seen in the result
_PANEL = 2.5  # width of a quadrature panel in units of the narrowest law in play there
_MANY = 50  # arms
_INVISIBLE = 1e-13  # a spread below this share of the widest counts as none
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@njit(**_KERNEL)
def pick(means, variances, widths, sampled, noise, available, winners):  # type: ignore[no-untyped-def]
    """The available arm with the highest score m + width·std·(noise if sampled else 1), for every row, in `winners`.

    Equal scores are settled by the larger noise: the noises are exchangeable, so each of n equals wins with
    probability 1/n and no arm is favoured for its position.
    """
    n, arms = means.shape
    for i in range(n):
        best, best_score, best_noise = -1, 0.0, 0.0
        for a in range(arms):
            if not available[i, a]:
                continue
            spread = widths[i, a] * math.sqrt(variances[i, a])
            score = means[i, a] + (spread * noise[i, a] if sampled else spread)
            if math.isnan(score):
                score = -np.inf
            if best < 0 or score > best_score or (score == best_score and noise[i, a] > best_noise):
                best, best_score, best_noise = a, score, noise[i, a]
        winners[i] = best


@njit(**_INNER)
def _share_out(scores, eligible, shares):  # type: ignore[no-untyped-def]
    """Equal shares for the eligible arms with the highest score, none for the others. That score, or −inf."""
    arms = scores.shape[0]
    highest, count = -np.inf, 0
    for a in range(arms):
        if eligible[a]:
            if scores[a] > highest:
                highest, count = scores[a], 0
            if scores[a] == highest:
                count += 1
    for a in range(arms):
        shares[a] = 1.0 / count if eligible[a] and scores[a] == highest else 0.0
    return highest


@njit(**_INNER)
def _win_probabilities(scores, stds, available, probabilities):  # type: ignore[no-untyped-def]
    """P(arm a has the highest of independent scores N(m_a, s_a²)): ∫ f_a(x) Π_{b≠a} F_b(x) dx.

    Gauss–Legendre on panels as narrow as the narrowest density in play asks for, so that arms known very well
    beside arms hardly known, where a rule on one arm's own scale sees a step, cost no accuracy. Arms with s = 0
    are point masses, and so are arms whose spread is lost in the rounding of the others': the best of them is
    a floor below which no other arm can win. Scores are counted from the best, which has the digits that matter.
    """
    arms = scores.shape[0]
    best, widest = -np.inf, 0.0
    for a in range(arms):
        if available[a]:
            best, widest = max(best, scores[a]), max(widest, stds[a])
    means = np.empty(arms)
    random, fixed = np.empty(arms, dtype=np.bool_), np.empty(arms, dtype=np.bool_)
    for a in range(arms):
        means[a] = scores[a] - best
        random[a] = available[a] and stds[a] > _INVISIBLE * widest
        fixed[a] = available[a] and not random[a]
    low = _share_out(means, fixed, probabilities)
    high = -np.inf
    if low > -np.inf:
        below = 1.0
        for a in range(arms):
            if random[a]:
                below *= 0.5 * math.erfc((means[a] - low) / (stds[a] * math.sqrt(2.0)))
        for a in range(arms):
            probabilities[a] *= below
    for a in range(arms):
        if random[a]:
            low, high = max(low, means[a] - _REACH * stds[a]), max(high, means[a] + _REACH * stds[a])
    panel = _PANEL if arms <= _MANY else 0.5 * _PANEL  # the product of many tails is steeper than each of them
    density, lower, others = np.empty(arms), np.empty(arms), np.empty(arms)
    x = low
    while x < high:
        step = high - x
        for a in range(arms):
            if random[a] and x < means[a] + _REACH * stds[a]:
                step = min(step, max(panel * stds[a], means[a] - _REACH * stds[a] - x))
        end = x + max(step, 1e-15 * abs(x))  # so that x moves
        step = end - x  # as rounded: the panels leave no gap
        for node in range(_NODES.shape[0]):
            offset = 0.5 * step * (1.0 + _NODES[node])
            product = 1.0
            for a in range(arms):  # others[a] = Π of the lower tails of all arms before a
                if random[a]:
                    z = ((x - means[a]) + offset) / stds[a]  # in this order: a narrow arm far out keeps its digits
                    density[a] = math.exp(-0.5 * z * z) / (stds[a] * math.sqrt(2.0 * math.pi))
                    lower[a] = 0.5 * math.erfc(-z / math.sqrt(2.0))
                    others[a] = product
                    product *= lower[a]
            product = 0.5 * step * _WEIGHTS[node]
            for a in range(arms - 1, -1, -1):
                if random[a]:
                    probabilities[a] += density[a] * others[a] * product
                    product *= lower[a]
        x = end


@njit(**_KERNEL)
def win_probabilities(means, variances, widths, sampled, available, probabilities):  # type: ignore[no-untyped-def]
    """The probability with which `pick` chooses each arm, exact up to quadrature (below 1e-10); (n, K), in place."""
    n, arms = means.shape
    spreads = np.empty(arms)
    for i in range(n):
        for a in range(arms):
            spreads[a] = widths[i, a] * math.sqrt(variances[i, a])
        if sampled:
            _win_probabilities(means[i], spreads, available[i], probabilities[i])
        else:
            for a in range(arms):
                spreads[a] += means[i, a]
            _share_out(spreads, available[i], probabilities[i])
