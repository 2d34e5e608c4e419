"""The update from one reward of a family against scipy, and its behaviour at extreme linear predictors."""

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from halfseen.kernels.generalised_linear import (
    BINARY,
    COUNT,
    GAUSSIAN,
    base_rate,
    curvature,
    expected_reward,
    inverse_link,
    learn_family_packed,
    posterior_mode,
    update_context_from_family,
)

FAMILIES = (GAUSSIAN, BINARY, COUNT)


def rewards_of(family):
    return {GAUSSIAN: (-3.0, 0.0, 7.5), BINARY: (0.0, 0.3, 1.0), COUNT: (0.0, 1.0, 2.5, 400.0)}[family]


def derivative(family, reward, predictor, variance, z):
    """The derivative of −log p(z | r), by functions of scipy."""
    expected = {GAUSSIAN: lambda z: z, BINARY: special.expit, COUNT: np.exp}[family](z)
    return (z - predictor) / variance + expected - reward


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("variance", [1e-6, 0.03, 1.0, 50.0, 1e6])
@pytest.mark.parametrize("predictor", [-40.0, -5.0, -0.2, 0.0, 1.7, 12.0])
def test_the_mode_is_that_of_scipy(family, variance, predictor):
    for reward in rewards_of(family):
        found = posterior_mode(family, reward, predictor, variance)
        low, high = min(predictor, reward) - 1.0, max(predictor, reward) + 1.0
        while derivative(family, reward, predictor, variance, low) > 0:
            low = 2.0 * low - high
        while derivative(family, reward, predictor, variance, high) < 0:
            high = 2.0 * high - low
        expected = optimize.brentq(
            lambda z, r=reward: derivative(family, r, predictor, variance, z), low, high, xtol=1e-13, rtol=1e-14
        )
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)  # both searches end within 1e-13 of the mode


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("predictor", [-1e6, -800.0, 800.0, 1e6])
@pytest.mark.parametrize("variance", [0.0, 1e-12, 1.0, 1e12])
def test_extreme_predictors_stay_finite(family, predictor, variance):
    for reward in (*rewards_of(family), *([1e100] if family == COUNT else [])):
        z = posterior_mode(family, reward, predictor, variance)
        numbers = [z, inverse_link(family, z), curvature(family, z), expected_reward(family, predictor, variance)]
        assert np.isfinite(numbers).all()
        # The mode lies between the prior mean and the predictor at which the reward is expected.
        toward = np.sign(reward - inverse_link(family, predictor))
        assert (z - predictor) * toward >= 0.0


@pytest.mark.parametrize("family", [BINARY, COUNT])
@pytest.mark.parametrize("predictor", [-8.0, -0.5, 1.0])
@pytest.mark.parametrize("variance", [0.01, 0.5, 3.0, 90.0, 399.0, 401.0])
def test_expected_rewards_are_integrals(family, predictor, variance):
    std = np.sqrt(variance)
    link = special.expit if family == BINARY else np.exp
    centre = predictor if family == BINARY else predictor + variance  # where the integrand of a count is largest
    integral, _ = integrate.quad(
        lambda eta: link(eta) * stats.norm.pdf(eta, predictor, std),
        *(centre - 12.0 * std, centre + 12.0 * std),
        points=[centre, 0.0] if family == BINARY else [centre],
        epsabs=0.0,
        epsrel=1e-11,
        limit=500,
    )
    error = 4e-3 if family == BINARY and variance > 400.0 else 1e-8
    assert expected_reward(family, predictor, variance) == pytest.approx(integral, rel=error)


@pytest.mark.parametrize("family", [BINARY, COUNT])
@pytest.mark.parametrize("prior_var", [0.0, 2.0])
def test_the_base_rate_gives_the_mean_reward(family, prior_var):
    first = 0.5 if family == BINARY else 1.0
    for total, count in ((0.0, 0.0), (3.0, 40.0), (40.0, 40.0), (0.0, 1000.0)):
        mean = (total + first) / (count + 1.0)
        found = expected_reward(family, base_rate(family, prior_var, total, count), prior_var)
        assert found == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("family", [BINARY, COUNT])
def test_a_reward_moves_the_context_as_if_the_arm_had_not_learnt_it(family):
    """The update of the context from the arm after learning, against the formulas with the arm before learning."""
    rng = np.random.default_rng(4)
    d, p = 3, 4
    root = rng.normal(size=(p, p))
    C, m = 0.1 * root @ root.T, rng.normal(size=p) * 0.5
    root = rng.normal(size=(d, d))
    P, x, slopes = 0.2 * root @ root.T, rng.normal(size=d), m[1:].copy()
    c = np.append(1.0, x)
    for reward in rewards_of(family)[:3]:
        q = c @ C @ c + slopes @ P @ slopes
        z = posterior_mode(family, reward, c @ m, q)
        step, w = reward - inverse_link(family, z), curvature(family, z)
        expected_x = x + P @ slopes * step
        expected_P = P - w / (1.0 + w * q) * np.outer(P @ slopes, P @ slopes)
        mean, cov, belief, belief_cov = m[None].copy(), C.reshape(1, -1).copy(), x[None].copy(), P.reshape(1, -1).copy()
        rows, sizes = np.array([0]), np.array([d])
        learn_family_packed(
            family, rows, sizes, mean, cov, slopes[None].copy(), belief_cov, np.zeros((1, d * d)),
            np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1, 3)), c[None].copy(), rows, np.array([reward]),
        )  # fmt: skip
        np.testing.assert_allclose(mean[0], m + C @ c * step, rtol=1e-9)
        np.testing.assert_allclose(cov[0].reshape(p, p), C - w / (1 + w * q) * np.outer(C @ c, C @ c), atol=1e-12)
        update_context_from_family(
            family, rows, np.array([0]), np.zeros((1, 1), dtype=np.int64), np.array([[reward]]), sizes, mean, cov,
            slopes[None].copy(), belief, belief_cov, np.zeros((1, d)), np.ones(1, dtype=np.bool_),
            np.zeros(1, dtype=np.bool_),
        )  # fmt: skip
        np.testing.assert_allclose(belief[0], expected_x, rtol=1e-8)  # rounding
        np.testing.assert_allclose(belief_cov[0].reshape(d, d), expected_P, rtol=1e-7, atol=1e-10)
