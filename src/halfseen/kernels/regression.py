"""Bayesian linear regression, separate for every stream and arm (docs/mathematics.md, "The arms").

The posterior of an arm is its mean m_a and covariance C_a = B_a⁻¹. A rank-one update of both costs O(p²). Means are (B,
K, p). Only the upper triangle of the symmetric C_a is stored, row by row, in `cov` (B, K, p(p + 1)/2), because scoring
takes about as long as reading the covariances. Results are written to arrays of the caller, because allocating arrays
takes longer than the arithmetic of a small problem.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.compiling import FUSED, kernel
from halfseen.kernels.linalg import raise_pivots

MAX_REDUCTION = 1e12  # the largest factor by which one reward may reduce the variance along c
SAFE_REDUCTION = 1e3  # if a variance is reduced by less than this factor, rounding errors leave C positive definite


@kernel()
def score_one(b, mean, cov, i, features, products, o, means, variances):  # type: ignore[no-untyped-def]
    """Call `score_arms` for stream b and features[i], with results in row o. `products` (p(p + 1)/2,) is scratch."""
    p, at, feature = mean.shape[2], 0, features[i]
    for j in range(p):
        c, rest, row = feature[j], feature[j:], products[at : at + p - j]
        for q in range(row.shape[0]):
            row[q] = 2.0 * c * rest[q]
        row[0] = c * c
        at += p - j
    for a in range(mean.shape[1]):
        # cᵀCc = ⟨C, ccᵀ⟩, one long dot product per arm, which vectorises better than p short ones.
        m, C = mean[b, a], cov[b, a]
        quadratic = 0.0
        for q in range(C.shape[0]):
            quadratic += C[q] * products[q]
        predicted = 0.0
        for q in range(p):
            predicted += m[q] * feature[q]
        means[o, a] = predicted
        variances[o, a] = max(quadratic, 0.0)


@kernel()
def score_arms(rows, mean, cov, features, means, variances):  # type: ignore[no-untyped-def]
    """Write the predicted reward cᵀm_a and its parameter variance cᵀC_a c to `means` and `variances` (n, K).

    The rows of `features` (n, p) are the features c of the streams in `rows` (n,).
    """
    products = np.empty(cov.shape[2])
    for i in range(rows.shape[0]):
        score_one(rows[i], mean, cov, i, features, products, i, means, variances)


@kernel()
def score_known(rows, mean, features, means):  # type: ignore[no-untyped-def]
    """Write cᵀμ_a to `means` (n, K), for known arm parameters μ = mean (B, K, p) and features (n, p)."""
    n, arms, p = rows.shape[0], mean.shape[1], mean.shape[2]
    for i in range(n):
        for a in range(arms):
            predicted = 0.0
            m, c = mean[rows[i], a], features[i]
            for j in range(p):
                predicted += m[j] * c[j]
            means[i, a] = predicted


@kernel(FUSED)
def covariance_times_feature(C, feature, gain):  # type: ignore[no-untyped-def]
    """Compute gain = Cc (p,) for a packed C, with the sums in the order written.

    Rows are processed four at a time, so that their sums do not depend on each other and the gain is stored less often.
    Sums start from 0, because in a·b + c·d the compiler could choose which product it rounds before the addition.
    """
    p, row = gain.shape[0], 0  # entry l of a row is at row + l
    for j in range(p):
        gain[j] = 0.0
    whole = p - p % 4
    for j in range(0, whole, 4):
        row_1 = row + p - j - 1
        row_2 = row_1 + p - j - 2
        row_3 = row_2 + p - j - 3
        j_1, j_2, j_3 = j + 1, j + 2, j + 3
        c, c_1, c_2, c_3 = feature[j], feature[j_1], feature[j_2], feature[j_3]
        along, along_1, along_2, along_3 = 0.0, 0.0, 0.0, 0.0
        along += C[row + j] * c
        along += C[row + j_1] * c_1
        along += C[row + j_2] * c_2
        along += C[row + j_3] * c_3
        along_1 += C[row_1 + j_1] * c_1
        along_1 += C[row_1 + j_2] * c_2
        along_1 += C[row_1 + j_3] * c_3
        along_2 += C[row_2 + j_2] * c_2
        along_2 += C[row_2 + j_3] * c_3
        along_3 += C[row_3 + j_3] * c_3
        gain[j_1] += C[row + j_1] * c
        gain[j_2] += C[row + j_2] * c
        gain[j_2] += C[row_1 + j_2] * c_1
        gain[j_3] += C[row + j_3] * c
        gain[j_3] += C[row_1 + j_3] * c_1
        gain[j_3] += C[row_2 + j_3] * c_2
        # The loop uses views, because the compiler vectorises it only if it knows that no index is negative.
        entries, images = feature[j + 4 :], gain[j + 4 :]
        C_0, C_1 = C[row + j + 4 : row + p], C[row_1 + j + 4 : row_1 + p]
        C_2, C_3 = C[row_2 + j + 4 : row_2 + p], C[row_3 + j + 4 : row_3 + p]
        for q in range(entries.shape[0]):
            entry = entries[q]
            along += C_0[q] * entry
            along_1 += C_1[q] * entry
            along_2 += C_2[q] * entry
            along_3 += C_3[q] * entry
        for q in range(entries.shape[0]):
            total = images[q]
            total += C_0[q] * c
            total += C_1[q] * c_1
            total += C_2[q] * c_2
            total += C_3[q] * c_3
            images[q] = total
        gain[j] += along
        gain[j_1] += along_1
        gain[j_2] += along_2
        gain[j_3] += along_3
        row = row_3 + p - j - 4
    for j in range(whole, p):
        c, along = feature[j], 0.0
        for l in range(j, p):  # noqa: E741
            along += C[row + l] * feature[l]
        for l in range(j + 1, p):  # noqa: E741
            gain[l] += C[row + l] * c
        gain[j] += along
        row += p - j - 1


@kernel(FUSED)
def variance_without_correlation(C, feature):  # type: ignore[no-untyped-def]
    """Return Σ_j C_jj c_j² for a packed C. The rounding error of cᵀCc is proportional to this sum."""
    p, at, total = feature.shape[0], 0, 0.0
    for j in range(p):
        total += C[at] * feature[j] * feature[j]
        at += p - j
    return total


@kernel(FUSED)
def keep_definite(C, change):  # type: ignore[no-untyped-def]
    """Call `raise_pivots` for a packed C, from which the outer product of `change` (p,) was subtracted."""
    p = change.shape[0]
    full, scale, at = np.zeros((p, p)), np.empty(p), 0
    for j in range(p):
        scale[j] = C[at] + change[j] * change[j]
        for q in range(j, p):
            full[j, q] = C[at + q - j]
        at += p - j
    raise_pivots(full, scale)
    at = 0
    for j in range(p):
        C[at] = full[j, j]
        at += p - j


@kernel()
def learn_one(b, a, mean, cov, i, features, reward, gain):  # type: ignore[no-untyped-def]
    """Update arm a of stream b with one reward on features[i], as in `learn_rewards`. `gain` (p,) is scratch.

    Returns the increase of log|B_a|, or −1 if the reward was refused.
    """
    m, C, feature = mean[b, a], cov[b, a], features[i]
    covariance_times_feature(C, feature, gain)
    predicted = 0.0
    quadratic = 0.0
    for q in range(gain.shape[0]):
        predicted += m[q] * feature[q]
        quadratic += gain[q] * feature[q]
    reach = variance_without_correlation(C, feature)
    if not (quadratic <= MAX_REDUCTION and reach <= MAX_REDUCTION * (1.0 + max(quadratic, 0.0))):
        return -1.0
    denominator = 1.0 + max(quadratic, 0.0)
    step = (reward - predicted) / denominator
    root = 1.0 / math.sqrt(denominator)
    for q in range(gain.shape[0]):
        m[q] += gain[q] * step
        gain[q] *= root
    p, at = gain.shape[0], 0
    for j in range(p):
        first, rest, row = gain[j], gain[j:], C[at : at + p - j]
        for q in range(row.shape[0]):
            row[q] -= first * rest[q]
        at += p - j
    if not (quadratic >= 0.0 and reach <= SAFE_REDUCTION):
        keep_definite(C, gain)
    return math.log(denominator)


@kernel()
def replace_rewards(rows, mean, cov, features, arms, changes):  # type: ignore[no-untyped-def]
    """Add C_a c·change to m_a, as if rewards learnt earlier on features (n, p) had been higher by changes (n,)."""
    gain = np.empty(mean.shape[2])
    for i in range(rows.shape[0]):
        m = mean[rows[i], arms[i]]
        covariance_times_feature(cov[rows[i], arms[i]], features[i], gain)
        for q in range(gain.shape[0]):
            m[q] += gain[q] * changes[i]


@kernel()
def learn_rewards(rows, mean, cov, log_det, features, arms, rewards):  # type: ignore[no-untyped-def]
    """Update the posteriors of the arms played (n,) with rewards (n,) on features (n, p), row by row.

    Algorithm 1 of the paper has the updates B_a += ccᵀ and f_a += rc. With C = B_a⁻¹, m = C f_a and q = cᵀCc, they
    become C −= Cc(Cc)ᵀ/(1 + q), m += Cc(r − cᵀm)/(1 + q) and log|B_a| += log(1 + q).

    A reward that would reduce the variance along c by a factor of more than MAX_REDUCTION is refused, because the
    result would have hardly any correct digits. A reward is also refused if q has hardly any correct digits, because c
    is large and C is nearly singular. Returns the index of the first reward that was refused, or −1.
    """
    gain = np.empty(mean.shape[2])
    refused = -1
    for i in range(rows.shape[0]):
        b, a = rows[i], arms[i]
        increase = learn_one(b, a, mean, cov, i, features, rewards[i], gain)
        if increase >= 0.0:
            log_det[b, a] += increase
        elif refused < 0:
            refused = i
    return refused
