"""Which arm wins, and how likely each was to win (docs/mathematics.md, "The choosers")."""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.compiling import AS_WRITTEN, kernel
from halfseen.kernels.normal_distribution import END, normals

# The distribution of the draw ζ_a in a score m_a + width·std_a·ζ_a: always 1, or z_a, or |z_a|, where z_a ~ N(0, 1).
POINT, NORMAL, HALF_NORMAL = 0, 1, 2

# Sums in the order written, unlike other kernels: it keeps the digits of an arm known much better than the rest.
_REACH = 8.5  # standard deviations beyond which a normal tail (1e-17) cannot be seen in the result
_PANEL = 2.5  # width of a quadrature panel in units of the narrowest distribution in play there
_MANY, _MANY_HALVES = 50, 10  # arms whose tails multiply to something steeper than each of them
_INVISIBLE = 1e-13  # beside the widest spread, one below this share of it counts as none
_NOTHING = 1e-30  # a probability that all scores are below a panel, at which it is passed over
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@kernel(AS_WRITTEN)
def pick_one(i, means, variances, noise, w, widths, distribution, v, available):  # type: ignore[no-untyped-def]
    """`pick` on row i of means, variances and noise, row w of the widths and row v of what is available."""
    best, best_score, best_noise = -1, 0.0, 0.0
    for a in range(means.shape[1]):
        if not available[v, a]:
            continue
        spread = widths[w, a] * math.sqrt(variances[i, a])
        if distribution == NORMAL:
            spread *= noise[i, a]
        elif distribution == HALF_NORMAL:
            spread *= abs(noise[i, a])
        score = means[i, a] + spread
        if math.isnan(score):
            score = -np.inf
        if best < 0 or score > best_score or (score == best_score and noise[i, a] > best_noise):
            best, best_score, best_noise = a, score, noise[i, a]
    return best


@kernel(AS_WRITTEN)
def pick(means, variances, widths, distribution, noise, available, winners):  # type: ignore[no-untyped-def]
    """The available arm with the highest score m + width·std·ζ, for every row, in `winners`; ζ is made of the noise.

    Equal scores are settled by the larger noise: the noises are exchangeable, so each of n equals wins with
    probability 1/n and no arm is favoured for its position.
    """
    for i in range(means.shape[0]):
        winners[i] = pick_one(i, means, variances, noise, i, widths, distribution, i, available)


@kernel(AS_WRITTEN)
def _share_out(scores, eligible, share, probabilities):  # type: ignore[no-untyped-def]
    """Divide `share` equally between the eligible arms with the highest score."""
    arms = scores.shape[0]
    highest, count = -np.inf, 0
    for a in range(arms):
        if eligible[a]:
            if scores[a] > highest:
                highest, count = scores[a], 0
            if scores[a] == highest:
                count += 1
    for a in range(arms):
        if eligible[a] and scores[a] == highest:
            probabilities[a] = share / count


@kernel(AS_WRITTEN)
def _lower_tail(z, distribution):  # type: ignore[no-untyped-def]
    if distribution == HALF_NORMAL:
        return math.erf(z / math.sqrt(2.0)) if z >= 0.0 else 0.0
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@kernel(AS_WRITTEN)
def _integrate(means, stds, distribution, random, low, high, share, probabilities):  # type: ignore[no-untyped-def]
    """share·∫ f_a(x) Π_{b≠a} F_b(x) dx from low to high for every random arm, added to `probabilities`.

    Gauss–Legendre on panels as narrow as the narrowest density in play asks for, so that arms known very well
    beside arms hardly known, where a rule on one arm's own scale sees a step, cost no accuracy.
    """
    arms, nodes = means.shape[0], _NODES.shape[0]
    begin = 0.0 if distribution == HALF_NORMAL else -_REACH
    panel = _PANEL if arms <= (_MANY_HALVES if distribution == HALF_NORMAL else _MANY) else 0.5 * _PANEL
    density, lower, others = np.empty((arms, nodes)), np.empty((arms, nodes)), np.empty((arms, nodes))
    offsets, product, sums = np.empty(nodes), np.empty(nodes), np.zeros((arms, nodes))
    live = np.empty(arms, dtype=np.int64)  # the arms that a panel is about, in order
    x, seen = low, distribution == HALF_NORMAL
    while x < high:
        step, count = high - x, 0
        for a in range(arms):
            if random[a] and x < means[a] + END * stds[a]:
                live[count] = a
                count += 1
                if x < means[a] + _REACH * stds[a]:
                    step = min(step, max(panel * stds[a], means[a] + begin * stds[a] - x))
        end = x + max(step, 1e-15 * abs(x))  # so that x moves
        step = end - x  # as rounded: the panels leave no gap
        if not seen:
            below = 1.0
            for j in range(count):
                below *= _lower_tail((end - means[live[j]]) / stds[live[j]], distribution)
            if below < _NOTHING:
                x = end
                continue
            seen = True
        for i in range(nodes):
            offsets[i] = 0.5 * step * (1.0 + _NODES[i])
            product[i] = 1.0
        for j in range(count):  # others[j] = Π of the lower tails of all arms before live[j]
            a = live[j]  # (x − mean) + offset, in this order: a narrow arm far out keeps its digits
            normals(x - means[a], offsets, 1.0 / stds[a], distribution == HALF_NORMAL, j, density, lower)
            for i in range(nodes):
                others[j, i] = product[i]
                product[i] *= lower[j, i]
        for i in range(nodes):
            product[i] = 0.5 * step * _WEIGHTS[i]
        for j in range(count - 1, -1, -1):
            for i in range(nodes):
                sums[live[j], i] += density[j, i] * others[j, i] * product[i]
                product[i] *= lower[j, i]
        x = end
    for a in range(arms):
        if random[a]:
            total = 0.0
            for i in range(nodes):
                total += sums[a, i]
            probabilities[a] = min(1.0, probabilities[a] + share * total)  # rounding may leave it above


@kernel(AS_WRITTEN)
def _win_probabilities(scores, stds, distribution, available, probabilities):  # type: ignore[no-untyped-def]
    """P(arm a has the highest of the independent scores m_a + s_a ζ_a), added to `probabilities`.

    Arms with s = 0 are point masses, and so are arms whose spread is lost in the rounding of the others': the best of
    them is a floor below which no other arm can win. When none comes above it, they settle it among themselves, on
    their own scale. Half-normals begin at their means: there the largest mean is a floor too, above which all
    densities are smooth. Scores are counted from the best, which has the digits that matter.
    """
    arms = scores.shape[0]
    begin = 0.0 if distribution == HALF_NORMAL else -_REACH
    means, random, left = np.empty(arms), np.empty(arms, dtype=np.bool_), available.copy()
    share = 1.0  # the probability that one of those left wins
    while share > 0.0:
        best, widest = -np.inf, 0.0
        for a in range(arms):
            if left[a]:
                best, widest = max(best, scores[a]), max(widest, stds[a])
        floor, low, high = -np.inf, -np.inf, -np.inf
        for a in range(arms):
            means[a] = scores[a] - best
            random[a] = left[a] and stds[a] > _INVISIBLE * widest
            left[a] = left[a] and not random[a]
            if left[a]:
                floor = max(floor, means[a])
            elif random[a]:
                low, high = max(low, means[a] + begin * stds[a]), max(high, means[a] + _REACH * stds[a])
        if math.isinf(best) or math.isinf(high):
            for a in range(arms):
                left[a] = left[a] or random[a]
            _share_out(scores, left, share, probabilities)
            return
        below = 1.0 if floor > -np.inf else 0.0
        for a in range(arms):
            if random[a]:
                below *= _lower_tail((floor - means[a]) / stds[a], distribution)
        _integrate(means, stds, distribution, random, max(floor, low), high, share, probabilities)
        share *= below


@kernel(AS_WRITTEN, nogil=True)  # it takes longest by far: other threads may go on
def win_probabilities(means, variances, widths, distribution, available, probabilities):  # type: ignore[no-untyped-def]
    """The probability with which `pick` chooses each arm, exact up to quadrature (below 1e-10); (n, K), in place."""
    n, arms = means.shape
    scores, spreads = np.empty(arms), np.empty(arms)
    for i in range(n):
        for a in range(arms):
            scores[a], spreads[a] = means[i, a], widths[i, a] * math.sqrt(variances[i, a])
            probabilities[i, a] = 0.0
            if math.isnan(scores[a] + spreads[a]):  # the last to be played
                scores[a], spreads[a] = -np.inf, 0.0
            if distribution == POINT:
                scores[a] += spreads[a]
        if distribution == POINT:
            _share_out(scores, available[i], 1.0, probabilities[i])
        else:
            _win_probabilities(scores, spreads, distribution, available[i], probabilities[i])


@kernel(AS_WRITTEN)
def draw_arm(probabilities, uniforms, winners):  # type: ignore[no-untyped-def]
    """One arm a row, each with its probability: the first at which their running sum passes the uniform (n, 1)."""
    n, arms = probabilities.shape
    for i in range(n):
        total, winners[i] = 0.0, -1
        for a in range(arms):
            if probabilities[i, a] > 0.0:
                winners[i] = a  # the last of them if rounding keeps the sum below the uniform
                total += probabilities[i, a]
                if total > uniforms[i, 0]:
                    break
