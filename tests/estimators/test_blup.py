"""The best linear prediction is E[x | y] of a dense Gaussian, when it is told the right covariances."""

import numpy as np
import pytest

import halfseen as hs

D, K = 5, 3
RNG = np.random.default_rng(6)
ROOT = RNG.normal(size=(D, D))
S = ROOT @ ROOT.T
NOISE = np.diag([0.3, 0.9, 0.6]) + 0.1


def regression(y, cov, A, noise):
    """E[x | y_seen] for x ~ N(0, cov), y = Ax + n, from the joint covariance of both."""
    joint = np.block([[cov, cov @ A.T], [A @ cov, A @ cov @ A.T + noise]])
    d, seen = len(cov), np.flatnonzero(~np.isnan(y))
    at = d + seen
    return joint[:d][:, at] @ np.linalg.solve(joint[np.ix_(at, at)], y[seen])


@pytest.mark.parametrize("general", [False, True])
def test_it_is_the_bayes_regression(general):
    A = RNG.normal(size=(K, D)) if general else np.eye(K, D)
    options = {"observation": A} if general else {}
    agent = hs.make("blup-ts", observed=K, arms=2, context_cov=S, observation_cov=NOISE, **options)
    for gone in [(), (1,), (0, 2), (0, 1, 2), ()]:
        y = RNG.normal(scale=2.0, size=K)
        y[list(gone)] = np.nan
        found = agent.decide(y).context
        np.testing.assert_allclose(found, regression(y, S, A, NOISE), atol=1e-12)
        information = A.T @ np.linalg.inv(NOISE) @ A + np.linalg.inv(S)
        if not gone:  # the form in which the paper has it
            np.testing.assert_allclose(found, np.linalg.solve(information, A.T @ np.linalg.inv(NOISE) @ y), atol=1e-10)


def test_without_noise_what_is_seen_is_certain():
    agent = hs.make("blup-ts", observed=K, arms=2, context_cov=S)
    y = RNG.normal(size=K)
    found = agent.decide(y).context
    np.testing.assert_allclose(found[:K], y, atol=1e-9)
    np.testing.assert_allclose(found[K:], S[K:, :K] @ np.linalg.solve(S[:K, :K], y), atol=1e-9)


def test_a_direction_that_never_moves():
    """Singular in the context and in the noise: still the limit of the regular case."""
    flat, silent = S.copy(), np.zeros((K, K))
    flat[0] = flat[:, 0] = 0.0
    agent = hs.make("blup-ts", observed=K, arms=2, context_cov=flat, observation_cov=silent)
    near = regression(np.array([0.0, 1.0, -2.0]), flat + 1e-9 * np.eye(D), np.eye(K, D), silent)
    np.testing.assert_allclose(agent.decide([0.0, 1.0, -2.0]).context, near, atol=1e-6)


def test_the_running_covariance_finds_the_regression():
    """Of the observed coordinates: in the long run what it would be told."""
    rng = np.random.default_rng(7)
    agent = hs.make("blup-ts", observed=K, arms=2, observation_cov=NOISE)
    xs = rng.multivariate_normal(np.zeros(K), S[:K, :K], size=4000)
    ys = xs + rng.multivariate_normal(np.zeros(K), NOISE, size=4000)
    ys[rng.uniform(size=ys.shape) < 0.2] = np.nan
    last = [agent.decide(y).context for y in ys][-50:]
    want = [regression(y, S[:K, :K], np.eye(K), NOISE) for y in ys[-50:]]
    np.testing.assert_allclose(last, want, atol=0.15)
    assert np.abs(np.nan_to_num(ys[-50:]) - want).max() > 0.4  # so that the test above asks for something


def test_running_where_the_world_would_tell():
    """An option given takes the place of a fact; the other facts still fit."""
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
    ("options", "line"),
    [
        ({"context_cov": "walking"}, "context_cov: expected a matrix or 'running, got 'walking''"),
        ({"context_cov": np.eye(2)}, "context_cov: expected a matrix of at least 3 × 3, got shape (2, 2)"),
        (
            {"context_cov": -np.eye(4)},
            "context_cov: expected a symmetric positive semi-definite matrix, got a matrix that is not one",
        ),
        ({"context_cov": np.eye(4), "observation": np.eye(3)}, "observation: expected shape (3, 4), got shape (3, 3)"),
        (
            {"observation": np.ones((3, 4))},
            "observation: expected [I 0], if context_cov is, got a matrix of shape (3, 4)",
        ),
        ({"observation_cov": "loud"}, "observation_cov: expected numbers of shape (3, 3), got 'loud'"),
    ],
)
def test_bad_options(options, line):
    with pytest.raises(hs.HalfseenError) as caught:
        hs.make("blup-ts", observed=K, arms=2, **options)
    assert str(caught.value).startswith(line)
