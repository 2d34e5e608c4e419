"""Hidden variance explained by the history: against a dense Gaussian, and in any basis."""

import numpy as np
import pytest
from reference.gaussian import joint, random_system

import halfseen as hs
from halfseen.diagnostics.innovations import innovations
from halfseen.diagnostics.observability import hidden_variance_explained, marginal_covariance


def shares(D, Q, R, P0, rounds):
    model = hs.LinearGaussianModel(transition=D, process_cov=Q, observation_cov=R, initial_cov=P0)
    ys = np.zeros((rounds, len(R)))
    return hidden_variance_explained(model, innovations(model, ys).end_cov, rounds)


def test_marginal_covariance_equals_the_recursion():
    D, Q, _, _, _, P0 = random_system(np.random.default_rng(1), 4, 2, radius=1.02)
    for rounds in (0, 1, 2, 7, 64, 101):
        P = P0
        for _ in range(rounds):
            P = D @ P @ D.T + Q
        np.testing.assert_allclose(marginal_covariance(D, Q, P0, rounds), P, rtol=1e-10)


def test_shares_follow_from_the_joint_gaussian():
    rng = np.random.default_rng(4)
    D, Q, A, R, m0, P0 = random_system(rng, 5, 2)
    n, d, k = 12, 5, 2
    _, cov, H, noise = joint(D, Q, A, R, m0, P0, n)
    now = np.arange(n * d, n * d + d)
    o, u = now[:k], now[k:]
    # The covariances of u given o_n, and given o_n and all observations.
    before = cov[np.ix_(u, u)] - cov[np.ix_(u, o)] @ np.linalg.solve(cov[np.ix_(o, o)], cov[np.ix_(o, u)])
    F = np.vstack([H, np.eye(len(cov))[o]])
    S = F @ cov @ F.T
    S[: n * k, : n * k] += noise
    cross = cov[u] @ F.T
    after = cov[np.ix_(u, u)] - cross @ np.linalg.solve(S, cross.T)
    expected = np.sort(1.0 - np.linalg.eigvals(np.linalg.solve(before, after)).real)[::-1]
    np.testing.assert_allclose(shares(D, Q, R, P0, n), expected, atol=1e-7)


def test_shares_do_not_depend_on_the_basis_of_the_hidden_block():
    rng = np.random.default_rng(6)
    D, Q, _, R, _, P0 = random_system(rng, 5, 2)
    T = np.eye(5)
    T[2:, :2], T[2:, 2:] = rng.normal(size=(3, 2)), rng.normal(size=(3, 3)) * 20.0
    back = np.linalg.inv(T)
    moved = shares(T @ D @ back, T @ Q @ T.T, R, T @ P0 @ T.T, 200)
    np.testing.assert_allclose(moved, shares(D, Q, R, P0, 200), atol=1e-6)


def test_a_hidden_coordinate_without_effect_on_observations_is_not_explained():
    D = np.array([[0.9, 0.3, 0.0], [0.0, 0.97, 0.0], [0.0, 0.0, 0.95]])  # the last coordinate affects no other
    found = shares(D, np.diag([0.001, 0.2, 0.2]), 0.001 * np.eye(1), np.eye(3), 400)
    assert found[0] > 0.5
    assert found[1] == pytest.approx(0.0, abs=1e-9)


def test_a_model_without_hidden_coordinates_has_no_shares():
    assert shares(0.9 * np.eye(2), np.eye(2), np.eye(2), np.eye(2), 50).shape == (0,)


def test_an_unstable_model_can_be_examined():
    rng = np.random.default_rng(3)
    model = hs.LinearGaussianModel(
        transition=[[0.5, 0.3], [0.0, 1.3]], process_cov=0.1 * np.eye(2), observation_cov=[[0.2]]
    )
    found = hs.examine(model=model, observations=rng.normal(size=(2000, 1)))
    assert next(f for f in found.findings if f.name == "spectral radius").verdict == "bad"
