"""The best linear prediction equals E[x | y] of a dense Gaussian with the same covariances."""

import numpy as np
import pytest

import halfseen as hs

D, K = 5, 3
RNG = np.random.default_rng(6)
ROOT = RNG.normal(size=(D, D))
S = ROOT @ ROOT.T
NOISE = np.diag([0.3, 0.9, 0.6]) + 0.1


def regression(y, cov, A, noise):
    """Return E[x | observed entries of y] for x ~ N(0, cov) and y = Ax + noise, from their joint covariance."""
    joint = np.block([[cov, cov @ A.T], [A @ cov, A @ cov @ A.T + noise]])
    d, seen = len(cov), np.flatnonzero(~np.isnan(y))
    at = d + seen
    return joint[:d][:, at] @ np.linalg.solve(joint[np.ix_(at, at)], y[seen])


@pytest.mark.parametrize("general", [False, True])
def test_prediction_is_the_conditional_mean(general):
    A = RNG.normal(size=(K, D)) if general else np.eye(K, D)
    options = {"observation": A} if general else {}
    agent = hs.make("blup-ts", observed=K, arms=2, context_cov=S, observation_cov=NOISE, **options)
    for missing in [(), (1,), (0, 2), (0, 1, 2), ()]:
        y = RNG.normal(scale=2.0, size=K)
        y[list(missing)] = np.nan
        found = agent.decide(y).context
        np.testing.assert_allclose(found, regression(y, S, A, NOISE), atol=1e-12)
        information = A.T @ np.linalg.inv(NOISE) @ A + np.linalg.inv(S)
        if not missing:  # the formula of the paper
            np.testing.assert_allclose(found, np.linalg.solve(information, A.T @ np.linalg.inv(NOISE) @ y), atol=1e-10)


def test_without_noise_observed_coordinates_are_exact():
    agent = hs.make("blup-ts", observed=K, arms=2, context_cov=S)
    y = RNG.normal(size=K)
    found = agent.decide(y).context
    np.testing.assert_allclose(found[:K], y, atol=1e-9)
    np.testing.assert_allclose(found[K:], S[K:, :K] @ np.linalg.solve(S[:K, :K], y), atol=1e-9)


def test_singular_covariances_are_the_limit_of_regular_ones():
    singular, no_noise = S.copy(), np.zeros((K, K))
    singular[0] = singular[:, 0] = 0.0
    agent = hs.make("blup-ts", observed=K, arms=2, context_cov=singular, observation_cov=no_noise)
    near = regression(np.array([0.0, 1.0, -2.0]), singular + 1e-9 * np.eye(D), np.eye(K, D), no_noise)
    np.testing.assert_allclose(agent.decide([0.0, 1.0, -2.0]).context, near, atol=1e-6)


def test_the_running_covariance_converges():
    """After many rounds, the observed coordinates are predicted as with the true covariance."""
    rng = np.random.default_rng(7)
    agent = hs.make("blup-ts", observed=K, arms=2, observation_cov=NOISE)
    xs = rng.multivariate_normal(np.zeros(K), S[:K, :K], size=4000)
    ys = xs + rng.multivariate_normal(np.zeros(K), NOISE, size=4000)
    ys[rng.uniform(size=ys.shape) < 0.2] = np.nan
    last = [agent.decide(y).context for y in ys][-50:]
    want = [regression(y, S[:K, :K], np.eye(K), NOISE) for y in ys[-50:]]
    np.testing.assert_allclose(last, want, atol=0.15)
    assert np.abs(np.nan_to_num(ys[-50:]) - want).max() > 0.4  # so the assertion above is not trivial


def test_the_option_running_overrides_the_covariance_of_the_world():
    result = hs.run(["blup-ts", "blup-ts:context_cov=running"], world="orbit", rounds=40, seeds=2)
    assert result.tracks["orbit", "blup-ts:context_cov=running"].error.min() > 0


def test_the_running_covariance_after_one_round():
    y = np.array([0.7, -1.3, 2.2])
    agent = hs.make("blup-ts", observed=K, arms=2, observation_cov=NOISE)
    cov = (np.outer(y, y) + NOISE + np.eye(K)) / 2 - NOISE
    values, vectors = np.linalg.eigh(cov)
    cov = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T
    np.testing.assert_allclose(agent.decide(y).context, cov @ np.linalg.solve(cov + NOISE, y), atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context_cov": "walking"}, "context_cov: expected a matrix or 'running', got 'walking'"),
        ({"context_cov": np.eye(2)}, "context_cov: expected a matrix of at least 3 × 3, got shape (2, 2)"),
        (
            {"context_cov": -np.eye(4)},
            "context_cov: expected a symmetric positive semi-definite matrix, got a matrix of another kind",
        ),
        ({"context_cov": np.eye(4), "observation": np.eye(3)}, "observation: expected shape (3, 4), got shape (3, 3)"),
        (
            {"observation": np.ones((3, 4))},
            "observation: expected [I 0], if context_cov is 'running', got a matrix of shape (3, 4)",
        ),
        ({"observation_cov": "loud"}, "observation_cov: expected numbers of shape (3, 3), got 'loud'"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(hs.HalfseenError) as caught:
        hs.make("blup-ts", observed=K, arms=2, **options)
    assert str(caught.value).startswith(message)
