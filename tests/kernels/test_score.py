"""The score against finite differences of the log-likelihood of the joint Gaussian, and near singular covariances."""

from __future__ import annotations

import numpy as np
import pytest
from reference import gaussian

from halfseen.kernels.arrays import Parameters
from halfseen.kernels.em import noise_moment, state_moments
from halfseen.kernels.filter import filter_series
from halfseen.kernels.score import score_series
from halfseen.kernels.smoother import smooth_series


def score_of(model, y):
    x, loglik, rows, P_filt, P_pred, frozen = filter_series(*model, y[None])
    return loglik[0], Parameters(*score_series(model.D, model.R, y, x[0], rows[0], P_filt, P_pred, frozen))


def system_and_series(seed, d, k, n, gaps=None):
    (D, Q, _, R, m0, P0), y = gaussian.random_series(seed, d, k, n, gaps=gaps)
    return Parameters(D, Q, R, m0, P0), y


@pytest.mark.parametrize(
    ("d", "k", "gaps"), [(1, 1, None), (4, 2, None), (4, 2, {"share": 0.3}), (3, 3, {"share": 0.3}), (5, 1, None)]
)
def test_equals_finite_differences_of_the_joint_gaussian(d, k, gaps):
    model, y = system_and_series(90, d, k, 12, gaps)
    rng, step = np.random.default_rng(91), 1e-4
    _, gradient = score_of(model, y)

    def log_likelihood(changed):
        D, Q, R, m0, P0 = changed
        return gaussian.posterior(D, Q, np.eye(k, d), R, m0, P0, y)[2]

    for name in Parameters._fields:
        direction = rng.normal(size=getattr(model, name).shape)
        if name in ("Q", "R", "P0"):
            direction = direction + direction.T
        values = [
            log_likelihood(model._replace(**{name: getattr(model, name) + multiple * step * direction}))
            for multiple in (-2, -1, 1, 2)
        ]
        expected = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
        assert (getattr(gradient, name) * direction).sum() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("gaps", [None, {"share": 0.02}])
def test_equals_fishers_identity_with_converged_covariances(gaps):
    """∂/∂D = Q⁻¹(S10 − D S00), ∂/∂Q = ½Q⁻¹(S11 − D S10ᵀ − S10 Dᵀ + D S00 Dᵀ − nQ)Q⁻¹ and similar for Σ."""
    model, y = system_and_series(92, 4, 2, 700, gaps)
    D, Q, R, m0, P0 = model
    n = len(y)
    x, _, rows, P_filt, P_pred, frozen = filter_series(*model, y[None])
    assert frozen > 0
    gradient = score_of(model, y)[1]
    x, rows, P_smooth, lag = smooth_series(D, Q, x, rows, P_filt, P_pred, frozen)
    S11, S00, S10 = state_moments(x[0], rows[0], P_smooth, lag)
    inverse, inverse_R, inverse_P0 = np.linalg.inv(Q), np.linalg.inv(R), np.linalg.inv(P0)
    noise = noise_moment(y, R, x[0], rows[0], P_smooth)
    initial = np.outer(x[0, 0] - m0, x[0, 0] - m0) + P_smooth[rows[0, 0]]
    near = {"rtol": 1e-7, "atol": 1e-6}
    np.testing.assert_allclose(gradient.D, inverse @ (S10 - D @ S00), **near)
    residual = S11 - D @ S10.T - S10 @ D.T + D @ S00 @ D.T
    np.testing.assert_allclose(gradient.Q, 0.5 * inverse @ (residual - n * Q) @ inverse, **near)
    np.testing.assert_allclose(gradient.R, 0.5 * inverse_R @ (noise - n * R) @ inverse_R, **near)
    np.testing.assert_allclose(gradient.m0, inverse_P0 @ (x[0, 0] - m0), **near)
    np.testing.assert_allclose(gradient.P0, 0.5 * inverse_P0 @ (initial - P0) @ inverse_P0, **near)


def test_is_accurate_with_singular_covariances():
    """With Q and P_0 of rank 1 and no observation noise, the derivatives in D are still exact."""
    model, y = system_and_series(93, 3, 1, 60)
    direction = np.array([[1.0], [0.4], [-0.3]])
    model = model._replace(Q=direction @ direction.T, P0=np.zeros((3, 3)), R=np.array([[1e-6]]))
    step, axis = 1e-6, np.random.default_rng(94).normal(size=(3, 3))
    values = [score_of(model._replace(D=model.D + sign * step * axis), y)[0] for sign in (-1, 1)]
    expected = (values[1] - values[0]) / (2 * step)
    assert (score_of(model, y)[1].D * axis).sum() == pytest.approx(expected, rel=1e-5)
