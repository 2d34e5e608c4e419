"""The update from one reward of a family against scipy, and its behaviour at extreme linear predictors."""

import numpy as np
import pytest
from scipy import optimize, special

from halfseen.kernels.generalised_linear import (
    BINARY,
    COUNT,
    GAUSSIAN,
    base_rate,
    curvature,
    expected_reward,
    inverse_link,
    posterior_mode,
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
@pytest.mark.parametrize("predictor", [-4.0, -0.5, 1.0])
@pytest.mark.parametrize("variance", [0.01, 0.5, 3.0])
def test_expected_rewards_are_integrals(family, predictor, variance):
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    points = predictor + np.sqrt(variance) * nodes
    values = special.expit(points) if family == BINARY else np.exp(points)
    integral = float(weights @ values / weights.sum())
    # MacKay's approximation is within 0.02 of the logistic-normal integral. The lognormal mean is exact.
    error = 0.02 if family == BINARY else 1e-9 * integral
    assert abs(expected_reward(family, predictor, variance) - integral) <= error


@pytest.mark.parametrize("family", [BINARY, COUNT])
@pytest.mark.parametrize("prior_var", [0.0, 2.0])
def test_the_base_rate_gives_the_mean_reward(family, prior_var):
    first = 0.5 if family == BINARY else 1.0
    for total, count in ((0.0, 0.0), (3.0, 40.0), (40.0, 40.0), (0.0, 1000.0)):
        mean = (total + first) / (count + 1.0)
        found = expected_reward(family, base_rate(family, prior_var, total, count), prior_var)
        assert found == pytest.approx(mean, rel=1e-12)
