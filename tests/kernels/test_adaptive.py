"""The kernels of the agent `adaptive` against the filter of the model and the joint Gaussian of context and reward."""

import numpy as np
import pytest
from reference import gaussian

import halfseen as hs
from halfseen.kernels.adaptive import (
    VOTE,
    kalman_step,
    learn_packed,
    noise_of_played,
    noise_packed,
    reuse_packed,
    score_packed,
    update_context,
)

SIZES, K, ARMS, MOST = (2, 5, 3), 2, 3, 6


def packed(matrices, width):
    """Return matrices of different sizes packed into rows of one array. The unused entries must not matter."""
    rows = np.full((len(matrices), width), 1e3)
    for row, matrix in zip(rows, matrices, strict=True):
        row[: matrix.size] = matrix.ravel()
    return rows


def systems_of_all_sizes(seed=0):
    rng = np.random.default_rng([seed, 3])
    return [gaussian.random_system(rng, d, K) for d in SIZES]


@pytest.mark.parametrize("gaps", [False, True])
def test_a_step_equals_the_filter_of_the_model_of_the_stream(gaps):
    systems, rng = systems_of_all_sizes(), np.random.default_rng(6)
    series = [gaussian.simulate(rng, *system, 40)[1] for system in systems]
    if gaps:
        series = [gaussian.with_gaps(rng, y, share=0.3, blank=(0, 5, 6)) for y in series]
    D, Q, _, R, m0, P0 = (list(part) for part in zip(*systems, strict=True))
    D, Q, R, x, P = (packed(part, MOST * MOST) for part in (D, Q, R, m0, P0))
    logliks = np.zeros(3)
    for t in range(40):
        for row in (2, 0, 1):
            value = kalman_step(row, SIZES[row], D, Q, R, x, P, series[row][t], False, np.empty(K))
            (d_, q_, a_, r_, m_, p_), y = systems[row], series[row][: t + 1]
            model = hs.LinearGaussianModel(
                transition=d_, process_cov=q_, observation=a_, observation_cov=r_, initial_mean=m_, initial_cov=p_
            )
            got, d = model.filter(y), SIZES[row]
            np.testing.assert_allclose(x[row, :d], got.means[-1], rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(P[row, : d * d].reshape(d, d), got.covs[-1], rtol=1e-9, atol=1e-9)
            seen = np.isfinite(y[-1]).sum()
            before = model.filter(y[:-1]) if t else None
            mean = d_ @ (before.means[-1] if t else m_)
            cov = d_ @ (before.covs[-1] if t else p_) @ d_.T + q_
            observed = np.isfinite(y[-1])
            error, S = (y[-1] - mean[:K])[observed], (cov[:K, :K] + r_)[np.ix_(observed, observed)]
            expected = error @ np.linalg.solve(S, error) / seen if seen else np.nan
            assert value == pytest.approx(expected, rel=1e-8, nan_ok=True)
            logliks[row] = got.log_likelihood
    assert (x[0, SIZES[0] :] == 1e3).all()
    assert np.isfinite(logliks).all()


def arms_of(rng, d):
    p = d + 1
    roots = rng.normal(size=(ARMS, p, p))
    return rng.normal(size=(ARMS, p)), roots @ roots.transpose(0, 2, 1) / p + 0.1 * np.eye(p)


def beliefs(seed=1):
    rng = np.random.default_rng([seed, 5])
    pairs = [arms_of(rng, d) for d in SIZES]
    roots = [rng.normal(size=(d, d)) for d in SIZES]
    P = [root @ root.T / 4 + 0.05 * np.eye(len(root)) for root in roots]
    features = np.full((3, MOST + 1), 1e3)
    for row, d in enumerate(SIZES):
        features[row, 0], features[row, 1 : d + 1] = 1.0, rng.normal(size=d)
    return pairs, P, features


def test_scores_are_predictions_and_their_variances():
    pairs, _, features = beliefs()
    mean, cov = packed([m for m, _ in pairs], 40), packed([c for _, c in pairs], 200)
    rows, means, variances = np.array([1, 2]), np.empty((2, ARMS)), np.empty((2, ARMS))
    origin, lead = np.array([0.0, 5.0, -2.0]), np.array([0.0, VOTE, VOTE - 1.0])
    score_packed(rows, np.array(SIZES), mean, cov, mean, cov, lead, origin, features[rows], means, variances)
    for s, row in enumerate(rows):
        c = features[row, : SIZES[row] + 1]
        np.testing.assert_allclose(means[s], pairs[row][0] @ c + origin[row])
        np.testing.assert_allclose(variances[s], [c @ C @ c for C in pairs[row][1]])


def test_an_origin_with_a_vote_scores_the_arms_for_which_it_is_more_optimistic():
    (pairs, _, features), (others, _, _) = beliefs(), beliefs(seed=2)
    arrays = [packed([one[i] for one in both], (40, 200)[i]) for both in (pairs, others) for i in range(2)]
    rows, lead = np.arange(3), np.array([VOTE + 0.1, 50.0, VOTE])
    means, variances = np.empty((3, ARMS)), np.empty((3, ARMS))
    score_packed(rows, np.array(SIZES), *arrays, lead, np.zeros(3), features, means, variances)
    chosen = set()
    for row in rows:
        c = features[row, : SIZES[row] + 1]
        for a in range(ARMS):
            (m, v), (m_other, v_other) = ((both[row][0][a] @ c, c @ both[row][1][a] @ c) for both in (pairs, others))
            use_other = row < 2 and m_other + 1.4 * np.sqrt(v_other) > m + 1.4 * np.sqrt(v)
            chosen.add(bool(use_other))
            assert means[row, a] == pytest.approx(m_other if use_other else m)
            assert variances[row, a] == pytest.approx(v_other if use_other else v)
    assert chosen == {True, False}


def test_noise_includes_the_uncertainty_of_the_present_context():
    pairs, P, _ = beliefs()
    slopes, noise = packed([m[:, 1:] for m, _ in pairs], 40), np.array([[2.0, 0.01, 5.0]] * 3)
    smoothed = [0.3 * cov for cov in P]
    got = np.empty((3, ARMS))
    noise_packed(
        np.arange(3), np.array(SIZES), slopes, noise, packed(smoothed, 36), packed(P, 36), got
    )  # fmt: skip
    for row in range(3):
        for a in range(ARMS):
            m, s = pairs[row][0][a, 1:], noise[row, a]
            assert got[row, a] == pytest.approx(max(s - m @ smoothed[row] @ m, 0.1 * s) + m @ P[row] @ m)


def test_reuse_is_a_mean_over_past_contexts():
    pairs, _, features = beliefs()
    rng = np.random.default_rng(8)
    contexts = [rng.normal(size=(50, d + 1)) for d in SIZES]
    moments, got = packed([F.T @ F / len(F) for F in contexts], 49), np.empty((3, ARMS))
    reuse_packed(np.arange(3), np.array(SIZES), packed([c for _, c in pairs], 200), moments, features, got)
    for row, d in enumerate(SIZES):
        c = features[row, : d + 1]
        for a in range(ARMS):
            C = pairs[row][1][a]
            assert got[row, a] == pytest.approx(np.mean((contexts[row] @ C @ c) ** 2) / (c @ C @ c) ** 2)


def learn(rows, mean, cov, features, arms, rewards, variances, sizes=None):
    """Learn rewards one by one with the given noise variances, without weights and without another origin."""
    count, sizes = len(mean), np.array(SIZES) if sizes is None else sizes
    nothing, wide_var = np.zeros((count, 60)), np.full(mean.shape, 1e6)  # predictions of the last fit that tell nothing
    for s in range(len(rows)):
        noise = np.full((count, ARMS), variances[s])
        learn_packed(
            rows[s : s + 1], arms[s : s + 1], features[s : s + 1], rewards[s : s + 1], sizes, mean, cov,
            np.zeros_like(mean), wide_var, nothing, noise, nothing, nothing, mean, cov, noise,
            np.zeros(count, dtype=np.bool_), np.zeros(count), np.zeros(count, dtype=np.int64),
        )  # fmt: skip


def test_learning_is_bayesian_regression():
    pairs, _, features = beliefs()
    mean, cov = packed([m for m, _ in pairs], 40), packed([c for _, c in pairs], 200)
    rows, arms = np.array([1, 1, 0]), np.array([2, 2, 0])
    rewards, variances = np.array([0.7, -1.1, 2.0]), np.array([0.4, 0.9, 0.2])
    second = features[1] * 1.4
    second[0] = 1.0
    learn(rows, mean, cov, np.stack([features[1], second, features[0]]), arms, rewards, variances)
    d, p = SIZES[1], SIZES[1] + 1
    F = np.stack([features[1, :p], second[:p]])
    m, C = pairs[1][0][2], pairs[1][1][2]
    precision = np.linalg.inv(C) + F.T @ np.diag(1 / variances[:2]) @ F
    expected = np.linalg.solve(precision, np.linalg.solve(C, m) + F.T @ (rewards[:2] / variances[:2]))
    np.testing.assert_allclose(mean[1, 2 * p : 3 * p], expected, rtol=1e-9)
    np.testing.assert_allclose(cov[1, 2 * p * p : 3 * p * p].reshape(p, p), np.linalg.inv(precision), rtol=1e-8)
    np.testing.assert_array_equal(mean[1, : 2 * p], pairs[1][0][:2].ravel())  # other arms are unchanged
    assert (mean[1, 3 * p :] == 1e3).all()
    assert d == 5


def test_a_reward_of_a_forgotten_round_is_ignored():
    pairs, _, features = beliefs()
    mean, cov = packed([m for m, _ in pairs], 40), packed([c for _, c in pairs], 200)
    before = mean.copy(), cov.copy()
    one = np.array([1])
    learn(one, mean, cov, np.full((1, MOST + 1), np.nan), one, np.ones(1), np.ones(1))
    np.testing.assert_array_equal(mean, before[0])
    np.testing.assert_array_equal(cov, before[1])
    assert features.shape[1] == MOST + 1


@pytest.mark.parametrize("row", range(3))
def test_updating_the_context_conditions_the_joint_gaussian_of_context_and_reward(row):
    """The arm learns from the reward first, as in the agent, and the context is updated as if it had not."""
    pairs, P, features = beliefs()
    mean, cov, belief = packed([m for m, _ in pairs], 40), packed([c for _, c in pairs], 200), packed(P, 36)
    slopes, d, a, reward, noise_variance = packed([m[:, 1:] for m, _ in pairs], 40), SIZES[row], 1, 3.3, 0.8
    m, C, c = pairs[row][0][a], pairs[row][1][a], features[row, : d + 1]
    mu = m[1:]
    # r = cᵀθ + μᵀ(x − x̂) + noise, with independent θ ~ N(m, C) and x ~ N(x̂, P).
    var_r = c @ C @ c + mu @ P[row] @ mu + noise_variance
    gain = P[row] @ mu / var_r
    x = np.full((3, MOST), 0.3)
    expected_x, expected_P = x[row, :d] + gain * (reward - m @ c), P[row] - np.outer(gain, gain) * var_r
    rows, sizes, v = np.array([row]), np.array(SIZES), np.empty(1)
    noise, shift, smoothed = np.full((3, ARMS), noise_variance), np.full((3, MOST), -0.2), np.zeros((3, 36))
    x[row, :d] = c[1:] + 0.2  # c is (1, x + shift)
    expected_x += x[row, :d] - 0.3
    noise_of_played(rows, np.array([a]), sizes, slopes, noise, smoothed, belief, v)
    assert v[0] == pytest.approx(noise_variance + mu @ P[row] @ mu)
    fit_mean, fit_var = mean.copy(), np.full_like(mean, 1e6)
    learn(rows, mean, cov, features[rows], np.array([a]), np.array([reward]), v)
    arm, history, origin = np.full((3, 4), a), np.full((3, 4), np.nan), np.full(3, 50.0)
    history[row, 2] = reward + 50.0
    for slot in (-1, 1, 2):  # no round, a round without a reward, and the round with the reward
        update_context(
            rows,
            np.array([slot]),
            arm,
            history,
            origin,
            sizes,
            mean,
            cov,
            fit_mean,
            fit_var,
            slopes,
            noise,
            smoothed,
            x,
            belief,
            shift,
            np.ones(3, dtype=np.bool_),
            np.zeros(3, dtype=np.bool_),
        )
    np.testing.assert_allclose(x[row, :d], expected_x, rtol=1e-9)
    np.testing.assert_allclose(belief[row, : d * d].reshape(d, d), expected_P, rtol=1e-9, atol=1e-12)
    assert (x[row, d:] == 0.3).all()
    assert np.linalg.eigvalsh(belief[row, : d * d].reshape(d, d))[0] > 0


def test_arms_stay_finite_and_positive_semi_definite_when_features_grow():
    """Between fits, rewards on features that grow by orders of magnitude made covariances indefinite, then infinite."""
    rng, p, sizes = np.random.default_rng(4), 4, np.array([3])
    mean, cov = np.zeros((1, p)), 100.0 * np.eye(p).reshape(1, -1)
    rows, arms = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for t in range(200):
        features = np.concatenate([[1.0], rng.normal(size=3) * 3.0 ** (t % 40)])[None]
        learn(rows, mean, cov, features, arms, np.ones(1), np.full(1, 0.01), sizes=sizes)
        C = cov.reshape(p, p)
        assert np.isfinite(mean).all()
        assert np.linalg.eigvalsh(C / np.abs(C).max())[0] > -1e-12


def test_a_belief_under_unstable_dynamics_stays_finite_without_observations():
    D, Q, R = np.diag([3.0, 2.0]).reshape(1, -1), np.eye(2).reshape(1, -1), np.ones((1, 1))
    x, P = np.ones((1, 2)), np.eye(2).reshape(1, -1).copy()
    for _ in range(1_000):
        kalman_step(0, 2, D, Q, R, x, P, np.array([np.nan]), True, np.empty(1))
    assert x.tolist() == [[1e50, 1e50]]
    assert 1e95 < P[0, 0] <= 1e100
    kalman_step(0, 2, D, Q, R, x, P, np.zeros(1), True, np.empty(1))
    assert np.isfinite(x).all()
    assert P[0, 0] < 1e90  # the smallest noise that is used is 1e-13 of the predicted variance
