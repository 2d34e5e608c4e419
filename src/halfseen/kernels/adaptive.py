"""The online updates of the agent `adaptive`: the filter, the arms, and rewards as observations of the context.

Streams differ in the dimension d of their model. The matrices of a stream are therefore packed: they are stored without
gaps at the beginning of its row of a two-dimensional array, and `sizes` (B,) holds the dimensions. Features are c = (1,
x + shift), an intercept and the context relative to an origin that is chosen per stream. So p = d + 1.

The packed arrays have these shapes per stream: D, Q, P and smooth_cov are (d, d), R is (k, k), x and shift are (d,),
mean is (K, p), cov is (K, p, p), slopes is (K, d) and moment is (p, p).
"""

from __future__ import annotations

import math

import numpy as np

from halfseen.kernels.compiling import AS_WRITTEN, kernel
from halfseen.kernels.kalman import covariance_step, predict, several_steps, within_limit
from halfseen.kernels.linalg import copy_into, subtract_outer
from halfseen.kernels.regression import MAX_REDUCTION, SAFE_REDUCTION

# The largest contribution of one round to `surprise`, a running mean with the expected value 1. One extreme round alone
# is therefore never detected as a change.
OUTLIER = 9.0
# If e² ≤ LIMIT·s, a prediction error e of variance s has the weight 1. Otherwise its weight is in proportion to the
# weight under a Student-t distribution, (FREEDOM + LIMIT)/(FREEDOM + e²/s). The error is used as if its variance were
# s/weight. Observed entries and rewards with a weight below WILD are counted as wild.
LIMIT, FREEDOM, WILD, LEAST_WEIGHT = 9.0, 4.0, 0.1, 1e-12
MAX_LEAD = 1e9  # the largest absolute value of the lead of the other origin (see `score_packed`)
VOTE = -2.0  # nats: while the lead of the other origin is above this, predictions under that origin are also used
BONUS = 1.4  # of the posteriors under the two origins, the one with the higher mean + BONUS·std scores an arm
# The largest absolute value of a context in scaled units. With rewards within ±1e100 all variances are then finite.
MAX_CONTEXT = 1e50
MAX_GAIN = 1e150  # the largest gain of the update of a context by a reward; the square of a larger gain overflows
MAX_SQUARED = 1e100  # the square of a larger variance may overflow when it is multiplied by moments of contexts
# At least this share of the noise of an arm is kept when the part due to errors of smoothed contexts is subtracted.
LEAST_NOISE = 0.1


@kernel()
def write_features(b, d, x, shift, features):  # type: ignore[no-untyped-def]
    """Write c = (1, x + shift) of stream b to `features`, with 0 after the first d + 1 entries."""
    features[0] = 1.0
    for i in range(features.shape[0] - 1):
        features[i + 1] = min(max(x[b, i] + shift[b, i], -MAX_CONTEXT), MAX_CONTEXT) if i < d else 0.0


@kernel()
def weight(error, variance):  # type: ignore[no-untyped-def]
    """Return the weight of a prediction error, which is exactly 1 within three standard deviations."""
    if not error * error > LIMIT * variance:
        return 1.0
    return max((FREEDOM + LIMIT) / (FREEDOM + error * error / max(variance, 1e-300)), LEAST_WEIGHT)


@kernel()
def kalman_step(b, d, D, Q, R, x, P, y, robust, weights):  # type: ignore[no-untyped-def]
    """Update x and P of stream b, of dimension d, with y (k,), and return the mean squared standardised innovation.

    The returned mean is NaN if nothing is seen. If a variance exceeds MAX_CONTEXT², because the dynamics are unstable
    and nothing was seen for long, P does not change, and x is predicted but not updated. If `robust` is true and the
    innovation of an entry has a weight below 1, the sensor noise of the entry is increased. The variance of the
    innovation then becomes its old value divided by the weight. The weights are written to `weights` (k,).
    """
    k = y.shape[0]
    seen, error, white = np.empty(k, np.bool_), np.empty(k), np.empty(k)
    transition = D[b, : d * d].reshape((d, d))
    state = x[b, :d]
    cov = P[b, : d * d].reshape((d, d))
    pred, filtered, gain, whitened = np.empty((d, d)), np.empty((d, d)), np.empty((d, k)), np.empty((k, k))
    work_dd, work_dk, work_kk = np.empty((d, d)), np.empty((2, d, k)), np.empty((3, k, k))
    for i in range(k):
        seen[i] = not math.isnan(y[i])
        weights[i] = 1.0
    noise = R[b, : k * k].reshape((k, k))
    process = Q[b, : d * d].reshape((d, d))
    covariance_step(
        transition, process, noise, cov, seen, pred, filtered, gain, whitened, work_dd, work_dk, work_kk
    )  # fmt: skip
    limited = within_limit(filtered, MAX_CONTEXT * MAX_CONTEXT)
    moved = np.empty(d)
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += transition[i, j] * state[j]
        moved[i] = total
    count = 0
    for i in range(k):
        error[i] = y[i] - moved[i] if seen[i] and limited else 0.0
        count += seen[i]
    squared = 0.0
    for i in range(k):
        white[i] = 0.0
        for j in range(i + 1):
            white[i] += whitened[i, j] * error[j]
        squared += white[i] * white[i]
    if robust and limited:
        smallest = 1.0
        for i in range(k):
            if seen[i]:
                weights[i] = weight(error[i], pred[i, i] + noise[i, i])
                smallest = min(smallest, weights[i])
        if smallest < 1.0:
            raised = noise.copy()
            for i in range(k):
                raised[i, i] += (pred[i, i] + noise[i, i]) * (1.0 / weights[i] - 1.0)
            covariance_step(
                transition, process, raised, cov, seen, pred, filtered, gain, whitened, work_dd, work_dk, work_kk
            )  # fmt: skip
            limited = within_limit(filtered, MAX_CONTEXT * MAX_CONTEXT)
    if limited:
        copy_into(cov, filtered)
    for i in range(d):
        total = moved[i]
        for j in range(k if limited else 0):
            total += gain[i, j] * error[j]
        state[i] = min(max(total, -MAX_CONTEXT), MAX_CONTEXT)
    if count == 0:
        return math.nan
    return squared / count if limited else 1.0


@kernel()
def predict_ahead(rows, steps, sizes, D, Q, x, P):  # type: ignore[no-untyped-def]
    """Predict contexts `steps` (n,) rounds ahead, without observations, for the streams in `rows` (n,)."""
    for s in range(rows.shape[0]):
        b, d = rows[s], sizes[rows[s]]
        D_n, Q_n, pred, moved = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.empty(d)
        work = np.empty((4, d, d))
        cov = P[b, : d * d].reshape((d, d))
        several_steps(D[b, : d * d].reshape((d, d)), Q[b, : d * d].reshape((d, d)), steps[s], D_n, Q_n, work)
        predict(D_n, Q_n, cov, work[0], pred)
        if within_limit(pred, MAX_CONTEXT * MAX_CONTEXT):
            copy_into(cov, pred)
        for i in range(d):
            moved[i] = 0.0
            for j in range(d):
                moved[i] += D_n[i, j] * x[b, j]
        for i in range(d):
            x[b, i] = min(max(moved[i], -MAX_CONTEXT), MAX_CONTEXT)


@kernel()
def filter_round(  # type: ignore[no-untyped-def]
    rows, observations, centre, scale, ys, reward, belief, count, sizes, D, Q, R, x, P, shift, surprise, memory,
    robust, wild, features,
):  # fmt: skip
    """Store the observations (n, k) of the streams in `rows` (n,), update their filters and write `features` (n, p).

    ys (B, H, k), reward (B, H) and belief (B, H, p) are the history, and count (B,) is the number of rounds in it.
    centre and scale (B, k) convert observations to the units of the model. surprise (B,) is the mean squared
    standardised innovation over about `memory` rounds in which something was seen. A round contributes at most OUTLIER,
    so that one wrong measurement is not taken for a change of the dynamics. robust (B,) says for which streams
    innovations are weighted, and wild (B,) counts the entries with a weight below WILD.
    """
    n, k = observations.shape
    y, weights = np.empty(k), np.empty(k)
    for s in range(n):
        b = rows[s]
        for i in range(k):
            ys[b, count[b], i] = observations[s, i]
            y[i] = (observations[s, i] - centre[b, i]) / scale[b, i]
            if abs(y[i]) > MAX_CONTEXT:
                y[i] = math.copysign(MAX_CONTEXT, y[i])
        reward[b, count[b]] = np.nan
        innovation = kalman_step(b, sizes[b], D, Q, R, x, P, y, robust[b], weights)
        for i in range(k):
            wild[b] += weights[i] < WILD
        if not math.isnan(innovation):
            surprise[b] += (min(innovation, OUTLIER) - surprise[b]) / memory
        write_features(b, sizes[b], x, shift, features[s])
        for i in range(features.shape[1]):
            belief[b, count[b], i] = features[s, i]
        count[b] += 1


@kernel()
def stored_features(rows, rounds, dropped, belief, features):  # type: ignore[no-untyped-def]
    """Write the features of past rounds (n,) from the history `belief` (B, H, p) to `features` (n, p).

    The features are NaN if the round is no longer in the history or has no features. dropped (B,) is the number of
    rounds that are no longer in the history.
    """
    for s in range(rows.shape[0]):
        b, at = rows[s], rounds[s] - 1 - dropped[rows[s]]
        known = at >= 0 and belief[b, max(at, 0), 0] != 0.0
        for i in range(features.shape[1]):
            features[s, i] = belief[b, at, i] if known else np.nan


@kernel()
def store_rewards(  # type: ignore[no-untyped-def]
    rows, rounds, arms, rewards, dropped, belief, arm, reward, received, discarded
):
    """Store arms and rewards (n,) of past rounds (n,) in the history, and count them in `received` (B,).

    Rewards of rounds without features in the history are counted in `discarded` (B,) instead.
    """
    for s in range(rows.shape[0]):
        b, at = rows[s], rounds[s] - 1 - dropped[rows[s]]
        if at < 0 or belief[b, at, 0] == 0.0:
            discarded[b] += 1
            continue
        received[b] += 1
        arm[b, at] = arms[s]
        reward[b, at] = rewards[s]


@kernel()
def refit_due(  # type: ignore[no-untyped-def]
    rows, dropped, stored, start, next_identification, received, next_arm_fit, surprise, threshold, identified, least,
    changed, due,
):  # fmt: skip
    """Set `changed` (n,) where a change of the dynamics is detected, and `due` (n,) where a refit is due.

    Returns the number of due refits. A change is detected if the surprise exceeds the threshold in a stream with a
    model and at least `least` stored rounds.
    """
    count = 0
    for s in range(rows.shape[0]):
        b = rows[s]
        changed[s] = surprise[b] > threshold and identified[b] and stored[b] >= least
        age = dropped[b] + stored[b] - start[b]
        due[s] = changed[s] or age >= next_identification[b] or received[b] >= next_arm_fit[b]
        count += due[s]
    return count


@kernel()
def predict_arm(b, a, p, mean, cov, c):  # type: ignore[no-untyped-def]
    """Return the predicted reward cᵀm_a of arm a of stream b for features c (p,), and its variance cᵀC_a c."""
    predicted, quadratic = 0.0, 0.0
    for i in range(p):
        predicted += mean[b, a * p + i] * c[i]
        image = 0.0
        at = (a * p + i) * p
        for j in range(p):
            image += cov[b, at + j] * c[j]
        quadratic += image * c[i]
    return predicted, max(quadratic, 0.0)


@kernel()
def score_packed(  # type: ignore[no-untyped-def]
    rows, sizes, mean, cov, other_mean, other_cov, lead, origin, features, means, variances
):
    """Write the predicted rewards and their parameter variances to `means` and `variances` (n, K).

    other_mean and other_cov are the posteriors of the arms under the other origin. lead (B,) is the logarithm of the
    likelihood ratio of the other origin to the origin in force. While the lead is above VOTE, each arm uses the one of
    its two posteriors with the higher mean + BONUS·std. The array origin (B,) is not an origin of contexts: it is the
    number that was subtracted from the rewards, and it is added to all means.
    """
    for s in range(rows.shape[0]):
        b = rows[s]
        p = sizes[b] + 1
        for a in range(means.shape[1]):
            predicted, variance = predict_arm(b, a, p, mean, cov, features[s])
            if lead[b] > VOTE:
                other, other_variance = predict_arm(b, a, p, other_mean, other_cov, features[s])
                score = other + BONUS * math.sqrt(other_variance)
                if predicted + BONUS * math.sqrt(variance) < score < math.inf:
                    predicted, variance = other, other_variance
            means[s, a] = predicted + origin[b]
            variances[s, a] = variance


@kernel()
def reuse_packed(rows, sizes, cov, moment, features, reuse):  # type: ignore[no-untyped-def]
    """Write the mean of (cᵀC_a c')²/(cᵀC_a c)² over past features c' to `reuse` (n, K), for features c (n, p).

    This mean measures how much a reward at c tells about the rewards of the arm at other contexts. It is computed as
    uᵀMu/(cᵀu)² with u = C_a c, where M = `moment` is the mean of c'c'ᵀ.
    """
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
            if here > MAX_SQUARED:
                for i in range(p):
                    image[i] /= here
                here = 1.0
            for i in range(p):
                total = 0.0
                for j in range(p):
                    total += moment[b, i * p + j] * image[j]
                elsewhere += total * image[i]
            reuse[s, a] = max(elsewhere, 0.0) / (here * here) if here > 0.0 else 0.0


@kernel()
def _noise(b, a, d, slopes, noise, smooth_cov, P):  # type: ignore[no-untyped-def]
    """Return the reward variance that is defined in `noise_packed`, for arm a of stream b."""
    present, smoothed = 0.0, 0.0
    for i in range(d):
        m = slopes[b, a * d + i]
        if m != 0.0:
            for j in range(d):
                weight = m * slopes[b, a * d + j]
                present += P[b, i * d + j] * weight
                smoothed += smooth_cov[b, i * d + j] * weight
    return max(noise[b, a] - smoothed, LEAST_NOISE * noise[b, a]) + max(present, 0.0)


@kernel()
def noise_packed(rows, sizes, slopes, noise, smooth_cov, P, variances):  # type: ignore[no-untyped-def]
    """Write the variance of a reward around cᵀθ_a, max(s_a − μᵀP̄μ, 0.1 s_a) + μᵀPμ, to `variances` (n, K).

    The noise variances s = `noise` (B, K) were estimated on smoothed contexts, so they include a part that comes from
    P̄ = `smooth_cov`, the covariance of those contexts. P is the covariance of the present context, and μ are the
    slopes of the last fit.
    """
    for s in range(rows.shape[0]):
        b = rows[s]
        for a in range(variances.shape[1]):
            variances[s, a] = _noise(b, a, sizes[b], slopes, noise, smooth_cov, P)


@kernel()
def noise_of_played(rows, arms, sizes, slopes, noise, smooth_cov, P, variances):  # type: ignore[no-untyped-def]
    """Write the reward variances that are defined in `noise_packed`, for the arms played (n,), to `variances` (n,)."""
    for s in range(rows.shape[0]):
        b = rows[s]
        variances[s] = _noise(b, arms[s], sizes[b], slopes, noise, smooth_cov, P)


@kernel()
def _fit_prediction(b, a, p, c, fit_mean, fit_var):  # type: ignore[no-untyped-def]
    """Return the prediction of the last fit for arm a, and its variance if parameters are treated as uncorrelated."""
    predicted, variance = 0.0, 0.0
    for i in range(p):
        predicted += fit_mean[b, a * p + i] * c[i]
        variance += fit_var[b, a * p + i] * c[i] * c[i]
    return predicted, variance


@kernel()
def _effective_noise(b, a, p, c, reward, v, fit_mean, fit_var):  # type: ignore[no-untyped-def]
    """Return the noise variance with which a reward is learnt, which is v unless the reward is far from its prediction.

    The prediction is that of the last fit, so that the order of the rewards since then does not matter.
    """
    predicted, variance = _fit_prediction(b, a, p, c, fit_mean, fit_var)
    share = weight(reward - predicted, v + variance)
    return v if share == 1.0 else v + (v + variance) * (1.0 / share - 1.0)


@kernel()
def _is_wild(b, a, p, c, reward, v, fit_mean, fit_var):  # type: ignore[no-untyped-def]
    """Return whether the weight of a reward is below WILD."""
    predicted, variance = _fit_prediction(b, a, p, c, fit_mean, fit_var)
    return weight(reward - predicted, v + variance) < WILD


@kernel()
def _noise_ratio(b, a, other_noise, noise):  # type: ignore[no-untyped-def]
    """Return the ratio of the noise variances of arm a under the other origin and under the origin in force."""
    return min(max(other_noise[b, a] / noise[b, a], 1e-6), 1e6)


@kernel()
def _add_to_lead(b, lead, change):  # type: ignore[no-untyped-def]
    if not math.isnan(change):
        lead[b] = min(max(lead[b] + change, -MAX_LEAD), MAX_LEAD)


@kernel()
def _learn(b, a, p, mean, cov, c, reward, v):  # type: ignore[no-untyped-def]
    """Update the posterior of arm a of stream b with a reward whose noise has variance v.

    Returns the log predictive density of the reward, up to a constant.

    If the features are so large that no digit of cᵀCc is right, the reward is ignored (see `learn_rewards`). Only the
    next fit learns from it.
    """
    m = mean[b, a * p : (a + 1) * p]
    C = cov[b, a * p * p : (a + 1) * p * p].reshape((p, p))
    gain = np.empty(p)
    quadratic, reach, error = 0.0, 0.0, reward
    for i in range(p):
        total = 0.0
        for j in range(p):
            total += C[i, j] * c[j]
        gain[i] = total
        quadratic += total * c[i]
        reach += C[i, i] * c[i] * c[i]
        error -= m[i] * c[i]
    variance = v + max(quadratic, 0.0)
    if not reach <= MAX_REDUCTION * variance:
        return 0.0
    root = 1.0 / math.sqrt(variance)
    for i in range(p):
        gain[i] *= root
    for i in range(p):
        m[i] += gain[i] * error * root
    subtract_outer(C, gain, 1.0, quadratic >= 0.0 and reach <= SAFE_REDUCTION * v)
    return -0.5 * (math.log(max(variance, 1e-300)) + error * root * error * root)


@kernel()
def learn_packed(  # type: ignore[no-untyped-def]
    rows, arms, features, rewards, sizes, mean, cov, fit_mean, fit_var, slopes, noise, smooth_cov, P, other_mean,
    other_cov, other_noise, has_other, lead, wild,
):  # fmt: skip
    """Update the posteriors of the arms played (n,) with rewards (n,) on features (n, p), row by row.

    A reward whose features are NaN is ignored, because its round is no longer in the history. fit_mean and fit_var are
    the means and variances of the parameters after the last fit. In streams where has_other (B,) is true, the
    posteriors under the other origin are updated too, with the noise variance times `other_noise`/`noise` (B, K).
    `lead` (B,) then changes by the difference of the log densities of the reward under the two origins. wild (B,)
    counts the rewards with a weight below WILD.
    """
    for s in range(rows.shape[0]):
        if math.isnan(features[s, 0]):
            continue
        b, a, c = rows[s], arms[s], features[s]
        p = sizes[b] + 1
        v = _noise(b, a, p - 1, slopes, noise, smooth_cov, P)
        used = _effective_noise(b, a, p, c, rewards[s], v, fit_mean, fit_var)
        wild[b] += used != v and _is_wild(b, a, p, c, rewards[s], v, fit_mean, fit_var)
        density = _learn(b, a, p, mean, cov, c, rewards[s], used)
        if has_other[b]:
            used *= _noise_ratio(b, a, other_noise, noise)
            _add_to_lead(b, lead, _learn(b, a, p, other_mean, other_cov, c, rewards[s], used) - density)


@kernel(AS_WRITTEN)
def _replace(b, a, p, mean, cov, c, old, old_v, new, new_v):  # type: ignore[no-untyped-def]
    """Replace a reward that arm a has learnt, and return the change of the log density of all rewards.

    An infinite variance stands for a reward that is not learnt. The order of the factors matters: in another order,
    products of extreme numbers would overflow.
    """
    image = np.empty(p)
    fitted, quadratic = 0.0, 0.0
    for i in range(p):
        total = 0.0
        at = (a * p + i) * p
        for j in range(p):
            total += cov[b, at + j] * c[j]
        image[i] = total
        quadratic += total * c[i]
        fitted += mean[b, a * p + i] * c[i]
    # The prediction of this reward from all others has precision 1/q − 1/v, where q is the variance of its prediction
    # from all rewards, including itself, and v is the noise variance.
    left = 1.0 - quadratic / old_v
    if not left > 1e-9:  # the other rewards say nothing about this one, so its effect cannot be removed
        return 0.0
    others = (fitted - quadratic * old / old_v) / left
    spread = max(quadratic, 0.0) / left
    if old_v == new_v:
        for i in range(p):
            mean[b, a * p + i] += image[i] * (1.0 / new_v) * (new - old)
    else:
        change = 1.0 / new_v - 1.0 / old_v
        remaining = 1.0 + change * quadratic
        for i in range(p):
            scaled = image[i] / remaining
            mean[b, a * p + i] += scaled / new_v * (new - fitted) - scaled / old_v * (old - fitted)
            for j in range(p):
                cov[b, (a * p + i) * p + j] -= scaled * change * image[j]
    before, after = old_v + spread, new_v + spread
    if math.isinf(before) or math.isinf(after):
        return 0.0
    return 0.5 * (math.log(before / after) + (old - others) * (old - others) / before
                  - (new - others) * (new - others) / after)  # fmt: skip


@kernel()
def replace_packed(  # type: ignore[no-untyped-def]
    rows, arms, features, old_rewards, rewards, variances, in_fit, sizes, mean, cov, fit_mean, fit_var, noise,
    other_mean, other_cov, other_noise, has_other, lead, wild,
):  # fmt: skip
    """Replace old_rewards (n,) by rewards (n,) in the posteriors of the arms played (n,).

    `variances` (n,) are the noise variances of the old rewards, without the increase for outliers. An infinite variance
    means that the reward was not learnt. in_fit (n,) says whether the last fit has learnt the reward. A fit leaves wild
    rewards out and gives all others the weight 1.
    """
    for s in range(rows.shape[0]):
        if math.isnan(features[s, 0]) or math.isinf(variances[s]):
            continue
        b, a, c = rows[s], arms[s], features[s]
        p, v = sizes[b] + 1, variances[s]
        was_wild = _is_wild(b, a, p, c, old_rewards[s], v, fit_mean, fit_var)
        is_wild = _is_wild(b, a, p, c, rewards[s], v, fit_mean, fit_var)
        wild[b] = max(wild[b] + is_wild - was_wild, 0)
        if in_fit[s]:
            old_v, new_v = math.inf if was_wild else v, math.inf if is_wild else v
        else:
            old_v = _effective_noise(b, a, p, c, old_rewards[s], v, fit_mean, fit_var)
            new_v = _effective_noise(b, a, p, c, rewards[s], v, fit_mean, fit_var)
        change = _replace(b, a, p, mean, cov, c, old_rewards[s], old_v, rewards[s], new_v)
        if has_other[b]:
            ratio = _noise_ratio(b, a, other_noise, noise)
            old_other, new_other = old_v * ratio, new_v * ratio
            other = _replace(b, a, p, other_mean, other_cov, c, old_rewards[s], old_other, rewards[s], new_other)
            _add_to_lead(b, lead, other - change)


@kernel()
def has_usable_reward(b, slot, reward, fitted, raw):  # type: ignore[no-untyped-def]
    """Return whether the reward at position `slot` of the history of stream b can update the context.

    A negative position or a reward of NaN means that there is no reward. A reward is usable if the arms of the stream
    are fitted (`fitted` is true) and its context is not the raw observation (`raw` is false).
    """
    return fitted[b] and not raw[b] and slot >= 0 and not math.isnan(reward[b, slot])


@kernel()
def context_gain(b, a, d, slopes, P, gain):  # type: ignore[no-untyped-def]
    """Write Pm, where m are the slopes of arm a, to `gain` (d,). Return mᵀPm, or NaN if Pm is too large."""
    spread, largest = 0.0, 0.0
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += P[b, i * d + j] * slopes[b, a * d + j]
        gain[i] = total
        largest += abs(total)
        spread += total * slopes[b, a * d + i]
    return spread if largest <= MAX_GAIN else np.nan


@kernel()
def move_context(b, d, x, P, gain, spread, error, variance, share):  # type: ignore[no-untyped-def]
    """Add gain·error/variance to x and subtract gain gainᵀ·share from P, which stays positive semi-definite.

    gain (d,) and spread are the results of `context_gain`.
    """
    share = min(share, 1.0 / max(spread, 1e-300))
    for i in range(d):
        x[b, i] = min(max(x[b, i] + gain[i] * error / variance, -MAX_CONTEXT), MAX_CONTEXT)
    subtract_outer(P[b, : d * d].reshape((d, d)), gain, share, spread * share <= 1.0 - 1.0 / SAFE_REDUCTION)


@kernel()
def update_context(  # type: ignore[no-untyped-def]
    rows, slots, arm, reward, origin, sizes, mean, cov, fit_mean, fit_var, slopes, noise, smooth_cov, x, P, shift,
    fitted, raw,
):  # fmt: skip
    """Update x and P of the streams in `rows` (n,) with rewards as observations of the context.

    slots (n,) are the positions of the rewards in the arrays arm and reward (B, H) of the history. Streams without a
    usable reward (see `has_usable_reward`) do not change. origin (B,) is subtracted from rewards.

    The arm has already learnt from the reward. Let e⁺ be the error and q⁺ the parameter variance of the prediction of
    this reward after learning. The updates x += Pm e⁺/v and P −= Pm mᵀP (v − q⁺)/v² equal the updates with the arm as
    it was before learning. m are the slopes of the arm, and v is the noise variance.
    """
    for s in range(rows.shape[0]):
        b = rows[s]
        if not has_usable_reward(b, slots[s], reward, fitted, raw):
            continue
        d, a = sizes[b], arm[b, slots[s]]
        feature, gain = np.empty(d + 1), np.empty(d)
        write_features(b, d, x, shift, feature)
        v = _noise(b, a, d, slopes, noise, smooth_cov, P)
        v = _effective_noise(b, a, d + 1, feature, reward[b, slots[s]] - origin[b], v, fit_mean, fit_var)
        predicted, quadratic = predict_arm(b, a, d + 1, mean, cov, feature)
        spread = context_gain(b, a, d, slopes, P, gain)
        if not quadratic < v or math.isnan(spread):  # if q⁺ ≥ v, the arm has not learnt from this reward yet
            continue
        error = reward[b, slots[s]] - origin[b] - predicted
        move_context(b, d, x, P, gain, spread, error, v, (1.0 - quadratic / v) / v)
