"""The choice of an arm by its score, and the probability of each choice (docs/mathematics.md, "The choosers").

The score of arm a is m_a + width_a·std_a·ζ_a, where m_a and std_a are the mean and standard deviation of its predicted
reward. The number ζ_a is drawn from one of the distributions below. The available arm with the highest score is played.

All sums are computed in the order written, so that they are accurate even if one arm is known much better than others.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.compiling import AS_WRITTEN, kernel
from halfseen.kernels.normal_distribution import CUTOFF, normals

# The distribution of the draw ζ_a. POINT: ζ_a = 1. NORMAL: ζ_a = z_a. HALF_NORMAL: ζ_a = |z_a|. z_a ~ N(0, 1).
POINT, NORMAL, HALF_NORMAL = 0, 1, 2

_REACH = 8.5  # standard deviations beyond which the tail of a normal distribution (1e-17) is ignored
_PANEL = 2.5  # width of a quadrature panel in units of the smallest standard deviation in it
# With more than _MANY normal or _MANY_HALVES half-normal arms, the integrand is steep, so panels are half as wide.
_MANY, _MANY_HALVES = 50, 10
_NEGLIGIBLE_STD = 1e-13  # a standard deviation below this share of the largest counts as 0
_TINY, _LARGE = 1e-250, 2.0**600  # if all standard deviations are below _TINY, scores are multiplied by _LARGE
_NEGLIGIBLE_PROBABILITY = 1e-30  # a panel is skipped if P(all scores are below its end) is less than this
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@kernel(AS_WRITTEN)
def pick_one(i, means, variances, noise, w, widths, distribution, v, available):  # type: ignore[no-untyped-def]
    """Return the choice of `pick` for row i of means, variances and noise, row w of widths and row v of available."""
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
    """Write the available arm with the highest score in every row to `winners` (n,).

    `means`, `variances`, `widths` and `available` are (n, K). `noise` (n, K) has the standard normals z that determine
    ζ. Ties are broken by the larger noise. The noises are exchangeable, so each of m tied arms wins with probability
    1/m.
    """
    for i in range(means.shape[0]):
        winners[i] = pick_one(i, means, variances, noise, i, widths, distribution, i, available)


@kernel(AS_WRITTEN)
def _split_equally(scores, eligible, share, probabilities):  # type: ignore[no-untyped-def]
    """Set the probabilities (K,) of the eligible arms with the highest score to equal parts of `share`."""
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
    """Return P(ζ ≤ z)."""
    if distribution == HALF_NORMAL:
        return math.erf(z / math.sqrt(2.0)) if z >= 0.0 else 0.0
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@kernel(AS_WRITTEN)
def _integrate(means, stds, distribution, random, low, high, share, probabilities):  # type: ignore[no-untyped-def]
    """Add share·∫ f_a(x) Π_{b≠a} F_b(x) dx from low to high to the probabilities (K,) of the arms in `random` (K,).

    f_a and F_a are the density and the distribution function of the score of arm a. Each Gauss–Legendre panel is as
    narrow as the narrowest density in it requires, so that arms of very different uncertainty are integrated
    accurately.
    """
    arms, nodes = means.shape[0], _NODES.shape[0]
    begin = 0.0 if distribution == HALF_NORMAL else -_REACH
    panel = _PANEL if arms <= (_MANY_HALVES if distribution == HALF_NORMAL else _MANY) else 0.5 * _PANEL
    density, lower, others = np.empty((arms, nodes)), np.empty((arms, nodes)), np.empty((arms, nodes))
    offsets, product, sums = np.empty(nodes), np.empty(nodes), np.zeros((arms, nodes))
    live = np.empty(arms, dtype=np.int64)  # the arms whose score can lie in the panel, in order
    x, started = low, distribution == HALF_NORMAL
    while x < high:
        step, count = high - x, 0
        for a in range(arms):
            if random[a] and x < means[a] + CUTOFF * stds[a]:
                live[count] = a
                count += 1
                if x < means[a] + _REACH * stds[a]:
                    step = min(step, max(panel * stds[a], means[a] + begin * stds[a] - x))
        end = x + max(step, 1e-15 * abs(x))  # x must increase despite rounding, so that the loop ends
        step = end - x  # the width after rounding, so that panels leave no gap
        if not started:
            below = 1.0
            for j in range(count):
                below *= _lower_tail((end - means[live[j]]) / stds[live[j]], distribution)
            if below < _NEGLIGIBLE_PROBABILITY:
                x = end
                continue
            started = True
        for i in range(nodes):
            offsets[i] = 0.5 * step * (1.0 + _NODES[i])
            product[i] = 1.0
        for j in range(count):  # others[j] is the product of the lower tails of all arms before live[j]
            a = live[j]  # (x − mean) + offset is accurate for a narrow density far from 0
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
            probabilities[a] = min(1.0, probabilities[a] + share * total)  # the sum may exceed 1 by rounding


@kernel(AS_WRITTEN)
def _win_probabilities(scores, spreads, distribution, available, probabilities):  # type: ignore[no-untyped-def]
    """Add to `probabilities` (K,) the probability that arm a has the highest of the independent scores m_a + s_a ζ_a.

    If s_a is 0, or negligible compared with the largest s, the score of arm a is a point mass. The highest point mass
    is a floor: no score below it wins. If no random score exceeds the floor, one of the point masses wins. The loop
    therefore repeats for the point masses, with their own scale, and with the probability of this case as `share`.
    Half-normal scores are never below their means, so the largest mean is a floor as well. The largest m_a is
    subtracted from all m_a, so that their differences are accurate. Tiny standard deviations are scaled by a power of
    2, because the density would not be finite if the standard deviation were a subnormal number.
    """
    arms = scores.shape[0]
    begin = 0.0 if distribution == HALF_NORMAL else -_REACH
    means, stds, random = np.empty(arms), np.empty(arms), np.empty(arms, dtype=np.bool_)
    remaining = available.copy()
    share = 1.0  # the probability that one of the remaining arms wins
    while share > 0.0:
        best, widest = -np.inf, 0.0
        for a in range(arms):
            if remaining[a]:
                best, widest = max(best, scores[a]), max(widest, spreads[a])
        scale = _LARGE if 0.0 < widest < _TINY else 1.0
        floor, low, high = -np.inf, -np.inf, -np.inf
        for a in range(arms):
            means[a], stds[a] = (scores[a] - best) * scale, spreads[a] * scale
            random[a] = remaining[a] and stds[a] > _NEGLIGIBLE_STD * (widest * scale)
            remaining[a] = remaining[a] and not random[a]
            if remaining[a]:
                floor = max(floor, means[a])
            elif random[a]:
                low, high = max(low, means[a] + begin * stds[a]), max(high, means[a] + _REACH * stds[a])
        if math.isinf(best) or math.isinf(high):
            for a in range(arms):
                remaining[a] = remaining[a] or random[a]
            _split_equally(scores, remaining, share, probabilities)
            return
        below = 1.0 if floor > -np.inf else 0.0
        for a in range(arms):
            if random[a]:
                below *= _lower_tail((floor - means[a]) / stds[a], distribution)
        _integrate(means, stds, distribution, random, max(floor, low), high, share, probabilities)
        share *= below


@kernel(AS_WRITTEN, nogil=True)  # by far the slowest kernel of a decision, so other threads may run meanwhile
def win_probabilities(means, variances, widths, distribution, available, probabilities):  # type: ignore[no-untyped-def]
    """Write the probability that `pick` chooses each arm to `probabilities` (n, K), with an error below 1e-10.

    `means`, `variances`, `widths` and `available` are (n, K).
    """
    n, arms = means.shape
    scores, spreads = np.empty(arms), np.empty(arms)
    for i in range(n):
        for a in range(arms):
            scores[a], spreads[a] = means[i, a], widths[i, a] * math.sqrt(variances[i, a])
            probabilities[i, a] = 0.0
            if math.isnan(scores[a] + spreads[a]):  # an arm whose score is NaN comes last
                scores[a], spreads[a] = -np.inf, 0.0
            if distribution == POINT:
                scores[a] += spreads[a]
        if distribution == POINT:
            _split_equally(scores, available[i], 1.0, probabilities[i])
        else:
            _win_probabilities(scores, spreads, distribution, available[i], probabilities[i])


@kernel(AS_WRITTEN)
def break_even(variance, noise, rounds, logs, gaps):  # type: ignore[no-untyped-def]
    """Return the gap to the best arm at which playing an arm once costs as much as it is expected to gain.

    The gap g is in standard deviations of the arm's prediction. One reward changes the mean of the arm by q·std·Z,
    where q² = variance/(variance + noise) and Z ~ N(0, 1). If the arm is then better than the best arm so far, the
    difference is gained in each of `rounds` rounds. So g solves rounds·q·E(Z − g/q)⁺ = g (docs/mathematics.md, "The
    choosers"). The table `gaps` contains solutions for q = 1, at numbers of rounds whose logarithms are `logs`. Between
    them, the solution is interpolated.
    """
    share = math.sqrt(variance / max(variance + noise, 1e-300))
    if not rounds > 0.0 or math.log(rounds) <= logs[0]:
        return share * gaps[0]
    at = math.log(rounds)
    last = logs.shape[0] - 1
    if at >= logs[last]:
        return share * gaps[last]
    i = np.searchsorted(logs, at, side="right") - 1
    return share * (gaps[i] + (at - logs[i]) * ((gaps[i + 1] - gaps[i]) / (logs[i + 1] - logs[i])))


@kernel(AS_WRITTEN)
def add_bonus(means, variances, noise, reuse, rounds, foresight, bonus, logs, gaps, scores):  # type: ignore[no-untyped-def]
    """Write means + max(bonus, gap)·std to `scores` (n, K), where gap is the result of `break_even`.

    The number of rounds ahead is foresight·rounds·reuse. `rounds` (n,) are the numbers of rounds so far. `reuse` (n, K)
    is explained in `adaptive.reuse_packed`.
    """
    for i in range(means.shape[0]):
        for a in range(means.shape[1]):
            ahead = foresight * rounds[i] * reuse[i, a]
            gap = break_even(variances[i, a], noise[i, a], ahead, logs, gaps)
            scores[i, a] = means[i, a] + max(bonus, gap) * math.sqrt(variances[i, a])


@kernel(AS_WRITTEN)
def draw_arm(probabilities, uniforms, winners):  # type: ignore[no-untyped-def]
    """Draw one arm per row with the given probabilities (n, K), by inversion of uniforms (n, 1), into winners (n,)."""
    n, arms = probabilities.shape
    for i in range(n):
        total, winners[i] = 0.0, -1
        for a in range(arms):
            if probabilities[i, a] > 0.0:
                winners[i] = a  # remains the result if the total never exceeds the uniform, because of rounding
                total += probabilities[i, a]
                if total > uniforms[i, 0]:
                    break
