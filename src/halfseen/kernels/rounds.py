"""What a round needs again and again, in as few calls as it takes: entering compiled code costs more than most of it.

Each kernel here is others in a row, bit for bit.
"""

from __future__ import annotations

import numpy as np

from halfseen.compiler import njit
from halfseen.kernels.checks import EXCESSIVE, survey
from halfseen.kernels.choice import pick
from halfseen.kernels.linalg import KERNEL
from halfseen.kernels.regression import score_arms
from halfseen.randomness import draw

_KERNEL = KERNEL | {"fastmath": False}


@njit(**_KERNEL)
def begin_round(rows, observations, rounds, now):  # type: ignore[no-untyped-def]
    """`survey` of observations (n, k) and, unless that is EXCESSIVE, the next round of each row in `now` (n,)."""
    found = survey(observations)
    if found != EXCESSIVE:
        for i in range(rows.shape[0]):
            now[i] = rounds[rows[i]] + 1
        for i in range(rows.shape[0]):
            rounds[rows[i]] = now[i]
    return found


@njit(**_KERNEL)
def score_and_pick(  # type: ignore[no-untyped-def]
    rows, mean, cov, features, widths, law, keys, rounds, purpose, available, scores, winners
):
    """`score_arms`, the draws of (keys, rounds, purpose) and `pick`; `scores` (2, n, K) are means and variances."""
    means, variances = scores[0], scores[1]
    score_arms(rows, mean, cov, features, means, variances)
    noise = np.empty(means.shape)
    draw(keys, rounds, purpose, law >= 0, noise)  # normals; not a literal, for which `draw` would be compiled again
    pick(means, variances, widths, law, noise, available, winners)
