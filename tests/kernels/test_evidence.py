"""Evidence and posterior of the arms against the dense Gaussian of the rewards."""

import numpy as np
import pytest
from scipy import stats

from halfseen.kernels import evidence as kernel
from halfseen.kernels.evidence import arm_sums, first_hyperparameters, fit_arms
from halfseen.learners.calibrated import fit_rewards

ARMS, WIDTH, SILENT = 5, 4, 3  # arm 3 never has a reward


def problem(seed=0, n=70, noise=0.6):
    """Return features (n, p) with an intercept, arms and rewards, some of which are missing."""
    rng = np.random.default_rng([seed, 9])
    features = np.hstack([np.ones((n, 1)), rng.normal(size=(n, WIDTH - 1)) * [0.4, 1.0, 2.5]])
    arms = rng.choice([a for a in range(ARMS) if a != SILENT], size=n)
    theta = 1.3 * rng.normal(size=(ARMS, WIDTH)) + [4.0, 0, 0, 0]
    rewards = (features * theta[arms]).sum(axis=1) + noise * rng.normal(size=n)
    rewards[rng.uniform(size=n) < 0.15] = np.nan
    return features, arms, rewards


def sums(features, arms, rewards, count=ARMS):
    G, h = np.zeros((count, WIDTH, WIDTH)), np.zeros((count, WIDTH))
    squares, counts = np.zeros(count), np.zeros(count)
    arm_sums(features, arms, rewards, G, h, squares, counts)
    return G, h, squares, counts


def fitted(features, arms, rewards, noise, prior, baseline, iterations):
    """Return mean, cov, noise, prior, evidence and baseline after `iterations` from the given hyperparameters."""
    noise, prior = noise.copy(), prior.copy()
    mean, cov = np.empty((ARMS, WIDTH)), np.empty((ARMS, WIDTH, WIDTH))
    evidence, baseline, _ = fit_arms(
        *sums(features, arms, rewards), noise, prior, baseline, mean, cov, iterations, 0.0
    )  # fmt: skip
    return mean, cov, noise, prior, evidence, baseline


def hyperparameters():
    root = np.random.default_rng(4).normal(size=(WIDTH - 1, WIDTH - 1))
    prior = np.zeros((WIDTH, WIDTH))
    prior[0, 0], prior[1:, 1:] = 2.7, root @ root.T + 0.3 * np.eye(WIDTH - 1)
    return np.array([0.3, 0.9, 1.7, 0.5, 0.6]), prior, 3.2


def dense(features, arms, rewards, noise, prior, baseline):
    """Return the posterior of every arm and the log density of the rewards from the joint Gaussian of (θ_a, r_a)."""
    start = np.array([baseline] + [0.0] * (WIDTH - 1))
    means, covs, evidence = [], [], 0.0
    for a in range(ARMS):
        of_arm = (arms == a) & ~np.isnan(rewards)
        F, r = features[of_arm], rewards[of_arm]
        if not len(r):
            means.append(start)
            covs.append(prior)
            continue
        S = F @ prior @ F.T + noise[a] * np.eye(len(r))
        gain = np.linalg.solve(S, F @ prior).T
        means.append(start + gain @ (r - F @ start))
        covs.append(prior - gain @ F @ prior)
        evidence += stats.multivariate_normal(F @ start, S).logpdf(r)
    return np.array(means), np.array(covs), evidence


def test_sums_include_the_rounds_with_a_reward():
    features, arms, rewards = problem()
    G, h, squares, counts = sums(features, arms, rewards)
    for a in range(ARMS):
        of_arm = (arms == a) & ~np.isnan(rewards)
        np.testing.assert_allclose(G[a], features[of_arm].T @ features[of_arm], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(h[a], features[of_arm].T @ rewards[of_arm], rtol=1e-12, atol=1e-12)
        assert squares[a] == pytest.approx((rewards[of_arm] ** 2).sum())
        assert counts[a] == of_arm.sum()
    assert counts[SILENT] == 0
    assert np.isnan(rewards).any()


@pytest.mark.parametrize("iterations", [0, 1, 7])
def test_posterior_and_evidence_equal_the_dense_gaussian(iterations):
    """Mean, covariance and evidence are those of the final hyperparameters."""
    data = problem()
    mean, cov, noise, prior, evidence, baseline = fitted(*data, *hyperparameters(), iterations)
    expected_mean, expected_cov, expected_evidence = dense(*data, noise, prior, baseline)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(cov, expected_cov, rtol=1e-8, atol=1e-9)
    assert evidence == pytest.approx(expected_evidence, abs=1e-7)
    assert (noise == hyperparameters()[0]).all() == (iterations == 0)


def test_one_iteration_equals_its_formulas():
    features, arms, rewards = problem()
    noise, prior, baseline = hyperparameters()
    _, _, got_noise, got_prior, _, got_baseline = fitted(features, arms, rewards, noise, prior, baseline, 1)
    mean, cov, _ = dense(features, arms, rewards, noise, prior, baseline)
    rewarded = ~np.isnan(rewards)
    F, r, a = features[rewarded], rewards[rewarded], arms[rewarded]
    error = (r - (F * mean[a]).sum(axis=1)) ** 2
    uncertainty = np.einsum("ti,tij,tj->t", F, cov[a], F)
    power = ((r - baseline) ** 2).sum()
    spare = max(len(r) - (uncertainty / noise[a]).sum(), kernel.LEAST_FREEDOM * len(r))
    pooled = (error.sum() + kernel.NOISE_DOUBT * power / len(r)) / spare
    per_arm = np.bincount(a, error + uncertainty, minlength=ARMS) + kernel.NOISE_WEIGHT * pooled
    np.testing.assert_allclose(got_noise, per_arm / (np.bincount(a, minlength=ARMS) + kernel.NOISE_WEIGHT), rtol=1e-9)
    played = [arm for arm in range(ARMS) if arm != SILENT]
    assert got_baseline == pytest.approx(mean[played, 0].mean())
    distance = mean[played] - [got_baseline, 0, 0, 0]
    moment = cov[played].sum(axis=0) + distance.T @ distance
    spread = (F[:, 1:] ** 2).sum()
    scale = max(np.trace(moment[1:, 1:]) / (len(played) * (WIDTH - 1)), kernel.SLOPE_SHARE * power / spread)
    slopes = (moment[1:, 1:] + kernel.PRIOR_WEIGHT * scale * np.eye(WIDTH - 1)) / (kernel.PRIOR_WEIGHT + len(played))
    np.testing.assert_allclose(got_prior[1:, 1:], slopes, rtol=1e-8)
    u = np.linalg.eigh(np.cov(F[:, 1:].T, bias=True))[1][:, -1]
    along = u @ moment[1:, 1:] @ u  # α of the given prior is 0
    slope_weights = u * (u @ moment[1:, 0]) / (along + kernel.ALPHA_WEIGHT * along / len(played))
    unexplained = moment[0, 0] - 2 * slope_weights @ moment[1:, 0] + slope_weights @ moment[1:, 1:] @ slope_weights
    least = kernel.INTERCEPT_WEIGHT * kernel.INTERCEPT_SHARE * power / len(r)
    per_arm = (unexplained + least) / (kernel.INTERCEPT_WEIGHT + len(played))
    np.testing.assert_allclose(got_prior[0, 1:], slopes @ slope_weights, rtol=1e-6)
    assert got_prior[0, 0] == pytest.approx(per_arm + slope_weights @ slopes @ slope_weights)


@pytest.mark.parametrize("distance", [0.0, 1.5])
def test_the_context_at_which_all_arms_pay_the_same_is_found(distance):
    """All arms pay the same at o, r = baseline + θ_aᵀ(x − o), so the intercepts of arms depend on their slopes."""
    rng, arms_, n = np.random.default_rng(3), 12, 400
    main, theta = np.array([2.0, -1.0, 0.5]), rng.normal(size=(arms_, 3))
    x, arms = rng.normal(size=(n, 3)) + rng.normal(size=(n, 1)) * main, rng.integers(arms_, size=n)
    o = distance * main
    rewards = 2.0 + (theta[arms] * (x - o)).sum(axis=1) + 0.3 * rng.normal(size=n)
    fit = fit_rewards(np.hstack([np.ones((n, 1)), x]), arms, rewards, arms_)
    alpha = np.linalg.solve(fit.prior[1:, 1:], fit.prior[1:, 0])
    np.testing.assert_allclose(alpha, -o * arms_ / (arms_ + kernel.ALPHA_WEIGHT), atol=0.15)
    unexplained = fit.prior[0, 0] - alpha @ fit.prior[1:, 0]
    assert unexplained < (0.1 if distance else 1.0) * fit.prior[0, 0]
    assert fit.baseline + fit.origin == pytest.approx(2.0, abs=0.5)


@pytest.mark.parametrize("seed", range(4))
def test_the_evidence_increases_and_hardly_ever_decreases(seed):
    features, arms, rewards = problem(seed)
    noise, prior = np.empty(ARMS), np.empty((WIDTH, WIDTH))
    baseline = first_hyperparameters(*sums(features, arms, rewards), noise, prior)
    path = [fitted(features, arms, rewards, noise, prior, baseline, i)[4] for i in range(40)]
    assert path[-1] > path[0] + 5
    assert np.diff(path).min() > -0.5
    assert path[-1] > max(path) - 1.0


def test_the_noise_and_the_baseline_are_found():
    features, arms, rewards = problem(seed=5, n=1500, noise=0.6)
    fit = fit_rewards(features, arms, rewards, ARMS)
    played = [a for a in range(ARMS) if a != SILENT]
    np.testing.assert_allclose(np.sqrt(fit.noise[played]), 0.6, rtol=0.1)
    assert fit.baseline + fit.origin == pytest.approx(4.0, abs=2.0)
    assert fit.pooled == pytest.approx(0.36, rel=0.2)


@pytest.mark.parametrize("n", [9, 25, 70])
@pytest.mark.parametrize("seed", range(3))
def test_arms_without_a_reward_have_no_influence(seed, n):
    """Such arms do not change the iteration at which the search for hyperparameters stops, either."""
    features, arms, rewards = problem(seed, n)
    arms = np.where(arms > SILENT, SILENT, arms)
    few, many = (fit_rewards(features, arms, rewards, count) for count in (ARMS - 1, ARMS + 6))
    for name in ("mean", "cov", "noise"):
        np.testing.assert_array_equal(getattr(few, name), getattr(many, name)[: ARMS - 1], err_msg=name)
    np.testing.assert_array_equal(few.prior, many.prior)
    assert (few.evidence, few.baseline, few.pooled) == (many.evidence, many.baseline, many.pooled)
    np.testing.assert_array_equal(many.cov[-1], many.prior)
    np.testing.assert_array_equal(many.mean[-1], [many.baseline, 0, 0, 0])
    np.testing.assert_array_equal(many.noise[ARMS:], many.pooled)


@pytest.mark.parametrize(("factor", "shift"), [(1e-3, 0.0), (1e4, -3e6), (7.0, 1e4)])
def test_the_units_of_rewards_do_not_matter(factor, shift):
    features, arms, rewards = problem()
    one, other = (fit_rewards(features, arms, r, ARMS) for r in (rewards, factor * rewards + shift))
    np.testing.assert_allclose(other.mean, factor * one.mean, rtol=1e-6, atol=1e-7 * factor)
    np.testing.assert_allclose(other.cov, factor**2 * one.cov, rtol=1e-6, atol=1e-9 * factor**2)
    np.testing.assert_allclose(other.noise, factor**2 * one.noise, rtol=1e-6)
    rewarded = np.isfinite(rewards).sum()
    assert other.evidence == pytest.approx(one.evidence - rewarded * np.log(factor), abs=1e-5)
    assert other.origin == pytest.approx(factor * one.origin + shift)


def test_a_warm_start_continues_from_the_last_fit():
    features, arms, rewards = problem(n=300)
    first = fit_rewards(features, arms, rewards, ARMS)
    warm = fit_rewards(features[1:], arms[1:], rewards[1:], ARMS, start=first)  # with another origin
    cold = fit_rewards(features[1:], arms[1:], rewards[1:], ARMS)
    assert warm.origin != first.origin
    np.testing.assert_allclose(warm.mean, cold.mean, atol=0.05)
    np.testing.assert_allclose(warm.noise, cold.noise, rtol=0.1)


@pytest.mark.parametrize("rewards", [[2.5] * 12, [0.0] * 12, [3.0] + [np.nan] * 11, [np.nan] * 12])
def test_uninformative_rewards_give_finite_arms(rewards):
    features = problem()[0][:12]
    fit = fit_rewards(features, np.arange(12) % 3, np.array(rewards), ARMS)
    for value in fit:
        assert np.isfinite(value).all()
    assert (fit.noise > 0).all()


@pytest.mark.parametrize("correlation", [-0.6, -0.1, 0.3])
def test_the_signs_of_features_do_not_matter(correlation):
    rng, arms_, n = np.random.default_rng(7), 6, 120
    x = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], size=n)
    theta, arms = rng.normal(size=(arms_, 2)), rng.integers(arms_, size=n)
    rewards = (theta[arms] * (x - [1.0, -1.0])).sum(axis=1) + 0.5 * rng.normal(size=n)
    one, other = (
        fit_rewards(np.column_stack([np.ones(n), x * sign]), arms, rewards, arms_) for sign in ([1, 1], [-1, 1])
    )
    assert other.evidence == pytest.approx(one.evidence, abs=1e-9)
    np.testing.assert_allclose(other.mean * [1, -1, 1], one.mean, rtol=1e-9, atol=1e-9)


def test_without_iterations_the_prior_does_not_change():
    features, arms, rewards = problem()
    noise, prior, baseline = hyperparameters()
    prior[0, 1:] = prior[1:, 0] = 0.4 * prior[1:, 1:] @ [1.0, -2.0, 0.5]
    prior[0, 0] += 0.16 * np.array([1.0, -2.0, 0.5]) @ prior[1:, 1:] @ [1.0, -2.0, 0.5]
    mean, _, _, after, evidence, _ = fitted(features, arms, rewards, noise, prior, baseline, 0)
    np.testing.assert_array_equal(after, prior)
    expected, _, density = dense(features, arms, rewards, noise, prior, baseline)
    np.testing.assert_allclose(mean, expected, rtol=1e-8, atol=1e-9)
    assert evidence == pytest.approx(density, abs=1e-7)
