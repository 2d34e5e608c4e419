"""What a round needs again and again, in as few calls as it takes: entering compiled code costs more than most of it.

Each kernel here is others in a row, bit for bit.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.checks import EXCESSIVE, classify_values
from halfseen.kernels.choice import pick, pick_one
from halfseen.kernels.compiling import AS_WRITTEN, kernel
from halfseen.kernels.random import SPARE, draw, draw_one
from halfseen.kernels.regression import learn_one, score_arms, score_one


@kernel(AS_WRITTEN)
def begin_round(rows, observations, rounds, now):  # type: ignore[no-untyped-def]
    """`classify_values` of observations (n, k) and, unless EXCESSIVE, the next round of each row in `now` (n,)."""
    found = classify_values(observations)
    if found != EXCESSIVE:
        for i in range(rows.shape[0]):
            now[i] = rounds[rows[i]] + 1
        for i in range(rows.shape[0]):
            rounds[rows[i]] = now[i]
    return found


@kernel(AS_WRITTEN)
def score_and_pick(  # type: ignore[no-untyped-def]
    rows, mean, cov, features, widths, distribution, keys, rounds, purpose, available, scores, winners
):
    """`score_arms`, the draws of (keys, rounds, purpose) and `pick`; `scores` (2, n, K) are means and variances."""
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
    """Score, draw, pick and learn in n rounds of B streams, all of one stream before the next: its arms stay close.

    Row b·n + t of the features (B·n, p) and of what each arm pays in the mean, `expected` (B·n, K), is round t of
    stream b; of the widths too, unless they are (B, K) for all rounds. `rounds` (B,) are the first. With the noise
    (B, n) an arm pays what `rewards` (B, n) get, and the learner hears that divided by the unit. Returns the row of the
    first round, and in it of the first stream, whose reward was left out (`learn_rewards`), or −1.
    """
    streams, n = noise.shape
    products, gain = np.empty(cov.shape[2]), np.empty(mean.shape[2])
    scores, draws = np.empty((2, 1, mean.shape[1])), np.empty((1, mean.shape[1]))
    scratch = np.empty(mean.shape[1] + SPARE)
    means, variances = scores[0], scores[1]
    fixed = widths.shape[0] == streams
    refused, until = -1, n
    for b in range(streams):
        for t in range(until):
            at = b * n + t
            score_one(b, mean, cov, at, features, products, 0, means, variances)
            draw_one(b, keys, rounds[b] + t, purpose, np.bool_(True), scratch, 0, draws)
            a = pick_one(0, means, variances, draws, b if fixed else at, widths, distribution, b, available)
            paid = expected[at, a] + noise[b, t]
            arms[b, t], rewards[b, t] = a, paid
            gained = learn_one(b, a, mean, cov, at, features, paid / unit, gain)
            if gained < 0.0:
                refused, until = at, t  # later streams: only rounds before this one
                break
            log_det[b, a] += gained
    return refused
