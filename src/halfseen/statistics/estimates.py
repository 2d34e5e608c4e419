"""Numbers about runs: how fast a curve grows, how two agents differ, what the theorem speaks of."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from halfseen.kernels.random import Floats, Ints
from halfseen.statistics.distributions import student_quantile

CONFIDENCE = 0.95
BOUND_DELTA = 0.1  # the probability with which the theorem's bound may fail


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval; NaN ends where there is too little data for one."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)

    def __format__(self, spec: str) -> str:
        if np.isnan(self.value):
            return "–"
        if np.isnan(self.low):
            return format(self.value, spec)
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def __str__(self) -> str:
        return f"{self:.3g}"


def mean_estimate(values: Floats) -> Estimate:
    """The mean over independent replications with Student's interval."""
    finite = np.asarray(values)[np.isfinite(values)]
    if len(finite) == 0 or len(finite) < len(values):
        return Estimate(np.nan, np.nan, np.nan)
    mean = float(finite.mean())
    if len(finite) == 1:
        return Estimate(mean, np.nan, np.nan)
    half = student_quantile(0.5 + CONFIDENCE / 2, len(finite) - 1) * finite.std(ddof=1) / np.sqrt(len(finite))
    return Estimate(mean, mean - float(half), mean + float(half))


def relative_difference(values: Floats, baseline: Floats) -> Estimate:
    """(mean(values) − mean(baseline)) / mean(baseline) from paired replications.

    A ratio of two means, so Student's interval of the differences that are left when the ratio found is taken out:
    (v_i − b_i) − ρ b_i.
    """
    unit = float(np.mean(baseline))
    if unit <= 0:
        return Estimate(np.nan, np.nan, np.nan)
    ratio = float(np.mean(values - baseline)) / unit
    left = mean_estimate(values - baseline - ratio * baseline)
    half = (left.high - left.low) / 2 / unit
    return Estimate(ratio, ratio - half, ratio + half)


def ratio_of_means(values: Floats, baseline: Floats) -> Estimate:
    """mean(values) / mean(baseline) from paired replications, with the interval of `relative_difference`."""
    found = relative_difference(values, baseline)
    return Estimate(1.0 + found.value, 1.0 + found.low, 1.0 + found.high)


def paired_p_value(values: Floats, baseline: Floats) -> float:
    """Wilcoxon's signed-rank test that paired differences are symmetric about 0, two-sided.

    Regret comes in bursts, so a few replications may carry most of a mean; ranks are not moved by how large those are.
    """
    differences = values - baseline
    if not differences.any():  # nothing to rank
        return 1.0
    from scipy.stats import wilcoxon  # slow to import, and seldom needed

    return float(wilcoxon(differences).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of one family, adjusted (Holm 1979): calling those below α real errs even once with probability ≤ α."""
    adjusted, largest = list(p_values), 0.0
    for rank, at in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(adjusted) - rank) * adjusted[at]))
        adjusted[at] = largest
    return adjusted


def log_grid(rounds: int, points: int = 40, *, first: int = 1) -> Ints:
    """Distinct rounds from `first` to `rounds`, evenly spaced on a log scale."""
    return np.unique(np.round(np.geomspace(first, rounds, points)).astype(np.int64))


def slope(x: Floats, y: Floats) -> Estimate:
    """The least-squares slope of y on x with Student's interval from the residuals."""
    if len(x) < 3 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return Estimate(np.nan, np.nan, np.nan)
    if np.ptp(y) == 0:
        return Estimate(0.0, 0.0, 0.0)
    from scipy.stats import linregress

    fit = linregress(x, y)
    half = student_quantile(0.5 + CONFIDENCE / 2, len(x) - 2) * fit.stderr
    return Estimate(float(fit.slope), float(fit.slope - half), float(fit.slope + half))


def power_exponents(at: Ints, curves: Floats) -> Floats:
    """β in curve ∝ t^β for every replication (S,): least squares of log curve (S, G) on log t (G,)."""
    if len(at) < 3:
        return np.full(len(curves), np.nan)
    x = np.log(at) - np.log(at).mean()
    with np.errstate(divide="ignore", invalid="ignore"):  # a curve that touches 0 has no exponent: NaN
        logs = np.log(curves)
        return np.asarray((logs - logs.mean(axis=1, keepdims=True)) @ x / (x @ x))


def growth_exponent(per_round: Floats) -> Estimate:
    """How fast a sum grows late in a run: Σ_{s≤t} ∝ t^β, from its terms (S, T).

    The terms of such a sum go as t^{β−1}, so β − 1 is the slope of log(mean per round) on log t over the blocks
    T/16…T/8…T/4…T/2…T. Terms, not the sum: the sum carries the cost of learning from the first rounds along and
    looks flatter than it grows. Means are taken over replications before the logarithm; the interval is
    the jackknife's over replications.
    """
    replications, rounds = per_round.shape
    edges = rounds // np.array([16, 8, 4, 2, 1])
    if edges[0] < 1:
        return Estimate(np.nan, np.nan, np.nan)
    blocks = np.stack([per_round[:, a:b].mean(axis=1) for a, b in itertools.pairwise(edges)], axis=1)
    middles = np.log((edges[1:] + edges[:-1]) / 2)
    x = middles - middles.mean()

    def exponent(means: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(1.0 + np.log(means) @ x / (x @ x))

    value = float(exponent(blocks.mean(axis=0)))
    if replications == 1 or not np.isfinite(value):
        return Estimate(value if np.isfinite(value) else np.nan, np.nan, np.nan)
    without = exponent((blocks.sum(axis=0) - blocks) / (replications - 1))
    if not np.isfinite(without).all():  # one replication has all of a block's regret: no telling how it varies
        return Estimate(value, np.nan, np.nan)
    spread = np.sqrt((replications - 1) / replications * ((without - without.mean()) ** 2).sum())
    half = float(student_quantile(0.5 + CONFIDENCE / 2, replications - 1) * spread)
    return Estimate(value, value - half, value + half)


def bound_shape(at: Ints, summed_error: Floats, *, latent: int, arms: int, delta: float = BOUND_DELTA) -> Floats:
    """Theorem 1's right-hand side without its constant, as the appendix has it, at rounds t (G,):

    d √t min(√d, √ln K) (ln t + √(ln t ln 1/δ)) + √(d ln t) Σ_{s≤t} ‖ε_s‖.
    """
    t, log_t = at.astype(np.float64), np.log(np.maximum(at, 2))
    learning = latent * np.sqrt(t) * min(np.sqrt(latent), np.sqrt(np.log(max(arms, 2))))
    learning = learning * (log_t + np.sqrt(log_t * np.log(1 / delta)))
    return np.asarray(learning + np.sqrt(latent * log_t) * summed_error)


def theorem_quantities(
    *,
    regret: Floats,  # (S, T)
    error: Floats,  # (S, T)
    context_norm: Floats,  # (S, T)
    arm_norm: Floats,  # (S,)
    checkpoints: Ints,  # (C,)
    gram: Floats,  # (S, C)
    latent: int,
    arms: int,
) -> dict[str, Any]:
    """What Theorem 1 assumes and bounds, as measured (docs/mathematics.md, "The theorem")."""
    rounds = regret.shape[1]
    at, late = log_grid(rounds), log_grid(rounds, first=max(1, rounds // 10))
    summed_error = np.cumsum(error, axis=1)
    return {
        "A1 largest arm norm": float(arm_norm.max()),
        "A2 largest context norm": float(context_norm.max()),
        "A2 growth of the largest context norm": mean_estimate(
            power_exponents(late, np.maximum.accumulate(context_norm, axis=1)[:, late - 1])
        ).as_dict(),
        "A3 rounds": checkpoints.tolist(),
        "A3 t·|B⁻¹(t)|, mean over seeds": gram.mean(axis=0).tolist(),
        "A3 growth of t·|B⁻¹(t)|": mean_estimate(power_exponents(checkpoints, gram)).as_dict(),
        "summed estimation error": mean_estimate(summed_error[:, -1]).as_dict(),
        "growth of the summed estimation error": growth_exponent(error).as_dict(),
        "regret": mean_estimate(regret.sum(axis=1)).as_dict(),
        "growth of the regret": growth_exponent(regret).as_dict(),
        "bound rounds": at.tolist(),
        "bound shape": bound_shape(at, summed_error.mean(axis=0)[at - 1], latent=latent, arms=arms).tolist(),
    }
