"""Kernels that call several others, because a call from Python takes longer than most kernels.

The results are the same, bit for bit, as those of the single kernels.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.checks import EXCESSIVE, classify_values
from halfseen.kernels.choice import pick, pick_one
from halfseen.kernels.compiling import AS_WRITTEN, kernel
from halfseen.kernels.random import EXTRA, draw, draw_one
from halfseen.kernels.regression import learn_one, score_arms, score_one


@kernel(AS_WRITTEN)
def begin_round(rows, observations, rounds, now):  # type: ignore[no-untyped-def]
    """Return `classify_values` of observations (n, k), and start the next round of the streams in `rows` (n,).

    Unless the observations are EXCESSIVE, the round numbers of these streams in `rounds` (B,) increase by 1 and are
    copied to `now` (n,).
    """
    result = classify_values(observations)
    if result != EXCESSIVE:
        for i in range(rows.shape[0]):
            now[i] = rounds[rows[i]] + 1
        for i in range(rows.shape[0]):
            rounds[rows[i]] = now[i]
    return result


@kernel(AS_WRITTEN)
def score_and_pick(  # type: ignore[no-untyped-def]
    rows, mean, cov, features, widths, distribution, keys, rounds, purpose, available, scores, winners
):
    """Call `score_arms`, `draw` and `pick`. Means and variances go to `scores` (2, n, K), arms to `winners` (n,)."""
    means, variances = scores[0], scores[1]
    score_arms(rows, mean, cov, features, means, variances)
    noise = np.empty(means.shape)
    draw(keys, rounds, purpose, np.bool_(True), noise)
    pick(means, variances, widths, distribution, noise, available, winners)


@kernel(AS_WRITTEN)
def play_rounds(  # type: ignore[no-untyped-def]
    mean,
    cov,
    log_det,
    features,
    widths,
    distribution,
    keys,
    rounds,
    purpose,
    available,
    expected,
    noise,
    unit,
    arms,
    rewards,
):
    """Score, draw, pick and learn in n rounds of B streams, stream by stream, to use the processor cache better.

    Row b·n + t of `features` (B·n, p) and of `expected` (B·n, K) is round t of stream b. `widths` are (B·n, K), or
    (B, K) if they are constant. `rounds` (B,) has the number of each stream's first round. The reward of an arm is its
    `expected` reward plus `noise` (B, n). The learner gets the reward divided by `unit`. The arms played and the
    rewards are written to `arms` (B, n) and `rewards` (B, n). Returns b·n + t of the first reward that the learner
    refused (see `learn_rewards`), or −1. If several rewards are refused, the first is the one in the earliest round
    and, within this round, in the stream with the lowest number. From this round on, the results are not complete.
    """
    streams, n = noise.shape
    products, gain = np.empty(cov.shape[2]), np.empty(mean.shape[2])
    scores, draws = np.empty((2, 1, mean.shape[1])), np.empty((1, mean.shape[1]))
    scratch = np.empty(mean.shape[1] + EXTRA)
    means, variances = scores[0], scores[1]
    constant = widths.shape[0] == streams
    refused, until = -1, n
    for b in range(streams):
        for t in range(until):
            at = b * n + t
            score_one(b, mean, cov, at, features, products, 0, means, variances)
            draw_one(b, keys, rounds[b] + t, purpose, np.bool_(True), scratch, 0, draws)
            a = pick_one(0, means, variances, draws, b if constant else at, widths, distribution, b, available)
            reward = expected[at, a] + noise[b, t]
            arms[b, t], rewards[b, t] = a, reward
            gained = learn_one(b, a, mean, cov, at, features, reward / unit, gain)
            if gained < 0.0:
                # The remaining streams are played only up to the round before this one: a later refusal would not be
                # the first.
                refused, until = at, t
                break
            log_det[b, a] += gained
    return refused
