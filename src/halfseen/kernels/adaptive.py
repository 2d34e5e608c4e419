"""The online half of the adaptive agent: one step of the filter, of the arms and of the reward as a sensor.

Streams differ in the dimension d of their model. What belongs to a stream lies packed at the front of its row of a
flat array, so that a kernel sees contiguous matrices of the stream's own size and the state keeps one shape.
A feature is c = (1, x + shift): an intercept, then the context counted from the stream's origin.
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.compiling import kernel
from halfseen.kernels.kalman import covariance_step

OUTLIER = 20.0  # times as surprising as expected is the most that one round can be
LEAST_NOISE = 0.1  # share of an arm's noise that is not put down to the context's own uncertainty


@kernel()
def _features(b, d, x, shift, features):  # type: ignore[no-untyped-def]
    features[0] = 1.0
    for i in range(features.shape[0] - 1):
        features[i + 1] = x[b, i] + shift[b, i] if i < d else 0.0


@kernel()
def kalman_step(b, d, D, Q, R, x, P, y):  # type: ignore[no-untyped-def]
    """One Kalman step of stream b, which has d states, with y (k,) in the model's units; squared surprise per entry."""
    k = y.shape[0]
    seen, error, white = np.empty(k, np.bool_), np.empty(k), np.empty(k)
    transition = D[b, : d * d].reshape((d, d))
    state = x[b, :d]
    cov = P[b, : d * d].reshape((d, d))
    pred, gain, whitened = np.empty((d, d)), np.empty((d, k)), np.empty((k, k))
    for i in range(k):
        seen[i] = not math.isnan(y[i])
    noise = R[b, : k * k].reshape((k, k))
    covariance_step(
        transition, Q[b, : d * d].reshape((d, d)), noise, cov, seen, pred, cov, gain, whitened,
        np.empty((d, d)), np.empty((2, d, k)), np.empty((3, k, k)),
    )  # fmt: skip
    moved = np.empty(d)
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += transition[i, j] * state[j]
        moved[i] = total
    count = 0
    for i in range(k):
        error[i] = y[i] - moved[i] if seen[i] else 0.0
        count += seen[i]
    squared = 0.0
    for i in range(k):
        white[i] = 0.0
        for j in range(i + 1):
            white[i] += whitened[i, j] * error[j]
        squared += white[i] * white[i]
    for i in range(d):
        total = moved[i]
        for j in range(k):
            total += gain[i, j] * error[j]
        state[i] = total
    return squared / count if count > 0 else 1.0


@kernel()
def filter_round(  # type: ignore[no-untyped-def]
    rows, observations, centre, scale, ys, reward, belief, count, sizes, D, Q, R, x, P, shift, surprise, memory,
    features,
):  # fmt: skip
    """The next round of each row: y (n, k) into its slot of the history, one Kalman step, the feature (n, p) out.

    `surprise` is the mean of what a step gives, over about `memory` rounds, no round counting for more than OUTLIER:
    one broken reading is no change of the dynamics.
    """
    n, k = observations.shape
    y = np.empty(k)
    for s in range(n):
        b = rows[s]
        for i in range(k):
            ys[b, count[b], i] = observations[s, i]
            y[i] = (observations[s, i] - centre[b, i]) / scale[b, i]
        reward[b, count[b]] = np.nan
        fresh = kalman_step(b, sizes[b], D, Q, R, x, P, y)
        surprise[b] += (min(fresh, OUTLIER) - surprise[b]) / memory
        _features(b, sizes[b], x, shift, features[s])
        for i in range(features.shape[1]):
            belief[b, count[b], i] = features[s, i]
        count[b] += 1


@kernel()
def score_packed(rows, sizes, mean, cov, features, means, variances):  # type: ignore[no-untyped-def]
    """Of every arm the predicted reward cᵀm_a and its parameter variance cᵀC_a c; (n, K), in place."""
    for s in range(rows.shape[0]):
        b = rows[s]
        p = sizes[b] + 1
        for a in range(means.shape[1]):
            predicted, quadratic = 0.0, 0.0
            for i in range(p):
                predicted += mean[b, a * p + i] * features[s, i]
                image = 0.0
                at = (a * p + i) * p
                for j in range(p):
                    image += cov[b, at + j] * features[s, j]
                quadratic += image * features[s, i]
            means[s, a] = predicted
            variances[s, a] = max(quadratic, 0.0)


@kernel()
def reuse_packed(rows, sizes, cov, moment, features, reuse):  # type: ignore[no-untyped-def]
    """Of every arm uᵀMu/(cᵀu)² with u = C_a c and M = mean c'c'ᵀ: the mean of (cᵀC_a c')²/(cᵀC_a c)²; (n, K)."""
    for s in range(rows.shape[0]):
        b = rows[s]
        p = sizes[b] + 1
        image = np.empty(p)
        for a in range(reuse.shape[1]):
            here, elsewhere = 0.0, 0.0
            for i in range(p):
                total = 0.0
                at = (a * p + i) * p
                for j in range(p):
                    total += cov[b, at + j] * features[s, j]
                image[i] = total
                here += total * features[s, i]
            for i in range(p):
                total = 0.0
                for j in range(p):
                    total += moment[b, i * p + j] * image[j]
                elsewhere += total * image[i]
            reuse[s, a] = max(elsewhere, 0.0) / (here * here) if here > 0.0 else 0.0


@kernel()
def _noise(b, a, d, slopes, noise, smooth_cov, P):  # type: ignore[no-untyped-def]
    fresh, within = 0.0, 0.0
    for i in range(d):
        m = slopes[b, a * d + i]
        if m != 0.0:
            for j in range(d):
                weight = m * slopes[b, a * d + j]
                fresh += P[b, i * d + j] * weight
                within += smooth_cov[b, i * d + j] * weight
    return max(noise[b, a] - within, LEAST_NOISE * noise[b, a]) + max(fresh, 0.0)


@kernel()
def noise_packed(rows, sizes, slopes, noise, smooth_cov, P, variances):  # type: ignore[no-untyped-def]
    """Variance of a reward around cᵀθ_a: max(s_a − μᵀP̄μ, 0.1 s_a) + μᵀPμ, with μ the slopes at the last fit.

    s_a was found on smoothed contexts, whose own uncertainty P̄ it contains; a fresh belief has the uncertainty P.
    """
    for s in range(rows.shape[0]):
        b = rows[s]
        for a in range(variances.shape[1]):
            variances[s, a] = _noise(b, a, sizes[b], slopes, noise, smooth_cov, P)


@kernel()
def noise_of(rows, arms, sizes, slopes, noise, smooth_cov, P, variances):  # type: ignore[no-untyped-def]
    """The same of one arm a row, (n,)."""
    for s in range(rows.shape[0]):
        b = rows[s]
        variances[s] = _noise(b, arms[s], sizes[b], slopes, noise, smooth_cov, P)


@kernel()
def update_packed(rows, sizes, mean, cov, features, arms, rewards, variances):  # type: ignore[no-untyped-def]
    """Fold rewards (n,) with noise `variances` (n,) into the arms' posteriors, in the order given."""
    for s in range(rows.shape[0]):
        if math.isnan(features[s, 0]):
            continue
        b, a = rows[s], arms[s]
        p = sizes[b] + 1
        m = mean[b, a * p : (a + 1) * p]
        C = cov[b, a * p * p : (a + 1) * p * p].reshape((p, p))
        gain = np.empty(p)
        quadratic, error = 0.0, rewards[s]
        for i in range(p):
            total = 0.0
            for j in range(p):
                total += C[i, j] * features[s, j]
            gain[i] = total
            quadratic += total * features[s, i]
            error -= m[i] * features[s, i]
        root = 1.0 / math.sqrt(variances[s] + max(quadratic, 0.0))
        for i in range(p):
            gain[i] *= root
        for i in range(p):
            m[i] += gain[i] * error * root
            for j in range(p):
                C[i, j] -= gain[i] * gain[j]


@kernel()
def replace_packed(rows, sizes, mean, cov, features, arms, changes):  # type: ignore[no-untyped-def]
    """m_a += C_a c·change, for rewards learnt before that change by `changes` (n,) times their noise variance."""
    for s in range(rows.shape[0]):
        if math.isnan(features[s, 0]):
            continue
        b, a = rows[s], arms[s]
        p = sizes[b] + 1
        for i in range(p):
            image = 0.0
            at = (a * p + i) * p
            for j in range(p):
                image += cov[b, at + j] * features[s, j]
            mean[b, a * p + i] += image * changes[s]


@kernel()
def update_context(  # type: ignore[no-untyped-def]
    rows, slots, arm, reward, origin, sizes, mean, cov, slopes, noise, smooth_cov, x, P, shift
):
    """The reward in `slots` (n,), if one has come, as a measurement of the context now believed in: x and P given it.

    The arm has learnt from that reward already, so its error e⁺ and variance q⁺ after the fact are turned back:
    x += Pm e⁺/v and P −= Pm mᵀP (v − q⁺)/v², which is the update with what was believed before.
    """
    for s in range(rows.shape[0]):
        b = rows[s]
        if slots[s] < 0 or math.isnan(reward[b, slots[s]]):
            continue
        d, a = sizes[b], arm[b, slots[s]]
        p = d + 1
        feature = np.empty(p)
        _features(b, d, x, shift, feature)
        v = _noise(b, a, d, slopes, noise, smooth_cov, P)
        error, quadratic = reward[b, slots[s]] - origin[b], 0.0
        for i in range(p):
            error -= mean[b, a * p + i] * feature[i]
            image = 0.0
            at = (a * p + i) * p
            for j in range(p):
                image += cov[b, at + j] * feature[j]
            quadratic += image * feature[i]
        if not quadratic < v:  # the arm knows less than one reward tells: it cannot have learnt from this one yet
            continue
        gain = np.empty(d)
        spread = 0.0
        for i in range(d):
            total = 0.0
            for j in range(d):
                total += P[b, i * d + j] * slopes[b, a * d + j]
            gain[i] = total
            spread += total * slopes[b, a * d + i]
        share = min((v - quadratic) / (v * v), 1.0 / max(spread, 1e-300))
        for i in range(d):
            x[b, i] += gain[i] * error / v
            for j in range(d):
                P[b, i * d + j] -= gain[i] * gain[j] * share
