"""Choices by scores on the scale of the rewards, for clicks and counts (docs/mathematics.md, "Costs").

The score of arm a is μ(η_a + spread_a·ζ_a) − penalty_a: the random part spread_a·ζ_a is added to the linear predictor
η_a, and the penalty is subtracted from the expected reward μ of the sum. Without penalties the arms would have the same
order as their random linear predictors, because μ is increasing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from halfseen.components import Link, Mask
from halfseen.kernels.choice import HALF_NORMAL, POINT
from halfseen.kernels.random import Floats, Ints

_REACH = 8.5  # standard deviations beyond which the tail of a normal distribution (1e-17) is ignored
_EDGES = np.array([-_REACH, -6.0, -4.0, -2.5, -1.0, 0.0, 1.0, 2.5, 4.0, 6.0, _REACH])  # edges of quadrature panels
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def pick(
    link: Link, means: Floats, spreads: Floats, distribution: int, noise: Floats, penalties: Floats, available: Mask
) -> Ints:
    """Return the available arm with the highest score in every row (n,). The arm with the larger noise wins a tie.

    `means`, `spreads`, `noise`, `penalties` and `available` are (n, K).
    """
    draws = np.ones_like(noise) if distribution == POINT else np.abs(noise) if distribution == HALF_NORMAL else noise
    scores = np.where(available, _scores(link, means + spreads * draws, penalties), -np.inf)
    scores[~available] = np.nan  # so that even an available arm with a score of −inf is preferred to these
    best = scores == np.nanmax(scores, axis=1, keepdims=True)
    return np.asarray(np.where(best, noise, -np.inf).argmax(axis=1))


def probabilities(
    link: Link, means: Floats, spreads: Floats, distribution: int, penalties: Floats, available: Mask
) -> Floats:
    """Return the probability with which `pick` chooses each arm, (n, K), with an error of about 1e-9."""
    shares = np.zeros_like(means)
    for i, arms in enumerate(available):
        spread = np.zeros(arms.sum()) if distribution == POINT else spreads[i, arms]
        mean = means[i, arms] + (spreads[i, arms] if distribution == POINT else 0.0)
        row = _Row(link, mean, spread, penalties[i, arms], distribution == HALF_NORMAL)
        with np.errstate(over="ignore", invalid="ignore"):  # extreme predictors
            shares[i, arms] = row.probabilities()
    return shares


def _scores(link: Link, predictors: Floats, penalties: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.where(np.isnan(predictors), -np.inf, link.mean(predictors) - penalties)


class _Row(NamedTuple):
    """The available arms of one decision. All arrays have one entry per available arm."""

    link: Link
    means: Floats
    spreads: Floats
    penalties: Floats
    half: bool  # whether the draws are half-normal

    def probabilities(self) -> Floats:
        """Return the probability that each arm has the highest score.

        Arms whose spread is 0 have a fixed score. The highest fixed score is a floor: no arm wins with a lower score.
        """
        random = np.flatnonzero(self.spreads > 0.0).tolist()
        scores = _scores(self.link, self.means, self.penalties)
        fixed = self.spreads == 0.0
        floor = float(scores[fixed].max()) if fixed.any() else -np.inf
        shares = np.zeros(len(self.means))
        for a in random:
            shares[a] = self._integrate(a, [b for b in random if b != a], floor)
        if fixed.any():
            tied = fixed & (scores == floor)
            below = math.prod(float(self._lower(b, np.array(floor))) for b in random)
            shares[tied] = below / tied.sum()
        total = shares.sum()
        return shares / total if total > 0.0 else np.full(len(shares), 1.0 / len(shares))

    def _lower(self, b: int, score: Floats) -> Floats:
        """Return the probability that arm b scores at most `score`."""
        z = (self.link.inverse(score + self.penalties[b]) - self.means[b]) / self.spreads[b]
        return np.maximum(2.0 * ndtr(z) - 1.0, 0.0) if self.half else np.asarray(ndtr(z))

    def _integrate(self, a: int, others: list[int], floor: float) -> float:
        """Return ∫ f(ζ) [score > floor] Π_b P(score of b ≤ score of a) dζ, where the draw ζ of arm a has density f."""
        low = 0.0 if self.half else -_REACH
        begin = max(low, float(self._draw(a, floor))) if floor > -np.inf else low
        if not begin < _REACH:
            return 0.0
        edges = [_EDGES]
        for b in others:  # edges where the distribution function of the score of arm b is steep
            predictors = self.means[b] + _EDGES * self.spreads[b]
            edges.append(self._draw(a, _scores(self.link, predictors, self.penalties[b])))
        inner = np.concatenate(edges)
        panels = np.unique(np.concatenate([[begin], inner[(inner > begin) & (inner < _REACH)], [_REACH]]))
        half_widths = 0.5 * np.diff(panels)
        draws = (panels[:-1] + half_widths)[:, None] + half_widths[:, None] * _NODES
        scores = _scores(self.link, self.means[a] + self.spreads[a] * draws, self.penalties[a])
        product = np.exp(-0.5 * draws**2) / np.sqrt(2.0 * np.pi) * (2.0 if self.half else 1.0)
        for b in others:
            product = product * self._lower(b, scores)
        return float((product * _WEIGHTS * half_widths[:, None]).sum())

    def _draw(self, a: int, score: float | Floats) -> Floats:
        """Return the value of the draw ζ at which arm a has this score, or ±inf if no value gives it."""
        return np.asarray((self.link.inverse(np.asarray(score + self.penalties[a])) - self.means[a]) / self.spreads[a])
