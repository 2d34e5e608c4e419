"""Rewards predicted in rounds that taught nothing: the errors by which descriptions of the context are compared.

Arms are those of docs/mathematics.md, "Calibrated arms". Rounds are cut into contiguous blocks; the rewards of a block
are predicted by arms that have learnt from all other blocks. Noise and prior come from all rewards: two numbers an arm,
against as many rewards as there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from halfseen.diagnostics.record import Payments, Record
from halfseen.kernels.evidence import arm_sums, fit_arms
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.calibrated import ArmFit, fit_rewards

BLOCKS = 10  # that are left out in turn
LEAST_REWARDS = 30
STRETCHES = 30  # whose sums of errors are taken as independent, for the standard error of a difference


class HeldOut(NamedTuple):
    """Predictions of one description of the context."""

    fit: ArmFit  # on all rewards
    predicted: Floats  # (n, K) what each arm was expected to pay, from the other blocks
    losses: Floats  # (N,) squared errors, a reward each
    dimension: int


def with_intercept(contexts: Floats) -> Floats:
    return np.column_stack([np.ones(len(contexts)), contexts])


def hold_out(record: Record, contexts: Floats, paid: Payments | None = None) -> HeldOut:
    """Predict every reward from contexts (n, p) by arms that have not heard of its block."""
    paid = record.payments() if paid is None else paid
    rounds, arms, rewards = paid
    K, features = len(record.arm_names), with_intercept(contexts)
    p = features.shape[1]
    fit = fit_rewards(features[rounds], arms, rewards, K)
    block = rounds * BLOCKS // record.rounds
    sums = [_sums(features[rounds], arms, rewards - fit.origin, block == b, K) for b in range(BLOCKS)]
    whole = [np.sum(part, axis=0) for part in zip(*sums, strict=True)]
    predicted = np.empty((record.rounds, K))
    of_round = np.arange(record.rounds) * BLOCKS // record.rounds
    for b in range(BLOCKS):
        rest = [np.ascontiguousarray(all_ - left) for all_, left in zip(whole, sums[b], strict=True)]
        mean, cov = np.empty((K, p)), np.empty((K, p, p))
        fit_arms(*rest, fit.noise.copy(), fit.prior.copy(), fit.baseline, mean, cov, 0, 1.0)
        predicted[of_round == b] = features[of_round == b] @ mean.T + fit.origin
    losses = (rewards - predicted[rounds, arms]) ** 2
    return HeldOut(fit, predicted, losses, p - 1)


def _sums(features: Floats, arms: Ints, rewards: Floats, chosen: Floats, K: int) -> tuple[Floats, ...]:
    p = features.shape[1]
    G, h, squares, counts = np.zeros((K, p, p)), np.zeros((K, p)), np.zeros(K), np.zeros(K)
    arm_sums(np.ascontiguousarray(features[chosen]), arms[chosen], rewards[chosen], G, h, squares, counts)
    return G, h, squares, counts


class Gain(NamedTuple):
    """By how much one description beats another, in shares of the reward variance."""

    value: float
    error: float  # standard

    @property
    def clear(self) -> bool:
        """Beyond chance: two standard errors."""
        return self.value > 2.0 * self.error


def gain(worse: HeldOut, better: HeldOut, nothing: HeldOut, rounds: Ints) -> Gain:
    """(Σ losses of `worse` − Σ losses of `better`) / Σ losses of `nothing`; errors from sums over stretches of time."""
    total = float(nothing.losses.sum())
    if not total > 0.0:
        return Gain(0.0, 0.0)
    stretch = (rounds - rounds.min()) * STRETCHES // (int(np.ptp(rounds)) + 1)
    sums = np.bincount(stretch, weights=worse.losses - better.losses, minlength=STRETCHES)
    spread = float(np.sqrt(STRETCHES * sums.var(ddof=1)))
    return Gain(float(sums.sum()) / total, spread / total)


def share(held: HeldOut, nothing: HeldOut) -> float:
    """Of the variance of rewards around what each arm pays in the mean, the part that was predicted."""
    total = float(nothing.losses.sum())
    return 1.0 - float(held.losses.sum()) / total if total > 0.0 else 0.0


def greedy_reward(record: Record, held: HeldOut) -> float:
    """What the arm expected to pay most, by arms that had not seen the block, paid in the mean; all arms recorded."""
    best = held.predicted.argmax(axis=1)
    return float(np.nanmean(record.rewards[np.arange(record.rounds), best]))
