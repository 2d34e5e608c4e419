"""Smoothed moments against the dense joint Gaussian, with and without missing entries."""

from __future__ import annotations

import numpy as np
import pytest
from reference import gaussian

from halfseen.kernels.em import maximise, noise_moment, state_moments
from halfseen.kernels.filter import filter_series
from halfseen.kernels.linalg import raise_to_floor
from halfseen.kernels.smoother import smooth_series


def smoothed(system, y):
    D, Q, _, R, m0, P0 = system
    x, _, rows, P_filt, P_pred, frozen = filter_series(D, Q, R, m0, P0, y[None].copy())
    x, rows, P, lag = smooth_series(D, Q, x, rows, P_filt, P_pred, frozen)
    return x[0], rows[0], P, lag


def cases():
    rng = np.random.default_rng(31)
    system = gaussian.random_system(rng, 4, 3, radius=0.7)
    y = gaussian.simulate(rng, *system, 120)[1]
    yield "complete", system, y
    once = y.copy()
    once[60, 1] = np.nan
    yield "one gap", system, once
    yield "many gaps", system, gaussian.with_gaps(rng, y, share=0.3, blank=(0, 50, 119))
    D, Q, A, R, m0, P0 = system
    diagonal = D, Q, A, np.diag(np.diag(R)), m0, P0
    yield "gaps, diagonal", diagonal, gaussian.with_gaps(rng, y, share=0.3)
    yield "two rounds", system, y[:2].copy()


CASES = list(cases())


@pytest.mark.parametrize(("system", "y"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_moments_equal_the_dense_gaussian(system, y):
    n, d = len(y), 4
    mean, cov, _ = gaussian.posterior(*system, y)

    def second(t, s):
        return np.outer(mean[t], mean[s]) + gaussian.block(cov, d, t, s)

    x, rows, P, lag = smoothed(system, y)
    S11, S00, S10 = state_moments(x, rows, P, lag)
    near = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(S11, sum(second(t, t) for t in range(1, n + 1)), **near)
    np.testing.assert_allclose(S00, sum(second(t, t) for t in range(n)), **near)
    np.testing.assert_allclose(S10, sum(second(t, t - 1) for t in range(1, n + 1)), **near)
    R = system[3]
    np.testing.assert_allclose(noise_moment(y, R, x, rows, P), gaussian.noise_moment(*system, y), **near)


def test_a_missing_noise_counts_as_its_variance():
    rng = np.random.default_rng(32)
    D, Q, A, _, m0, P0 = gaussian.random_system(rng, 3, 2)
    R = np.diag([0.4, 0.7])
    y = np.full((5, 2), np.nan)
    y[:, 0] = rng.normal(size=5)
    x, rows, P, _ = smoothed((D, Q, A, R, m0, P0), y)
    total = noise_moment(y, R, x, rows, P)
    assert total[1, 1] == pytest.approx(5 * 0.7)
    assert total[0, 1] == 0.0


def test_maximise_returns_a_maximum():
    """−n log|Q| − tr Q⁻¹(S11 − DS10ᵀ − S10Dᵀ + DS00Dᵀ) is smaller for all matrices nearby."""
    rng = np.random.default_rng(33)
    system = gaussian.random_system(rng, 4, 3)
    y = gaussian.simulate(rng, *system, 50)[1]
    S11, S00, S10 = state_moments(*smoothed(system, y))

    def expected(D, Q):
        spread = S11 - D @ S10.T - S10 @ D.T + D @ S00 @ D.T
        return -50 * np.linalg.slogdet(Q)[1] - np.trace(np.linalg.solve(Q, spread))

    D, Q = maximise(S11, S00, S10, 50)
    best = expected(D, Q)
    for _ in range(20):
        step = rng.normal(size=(4, 4)) * 1e-3
        assert expected(D + step, Q) < best
        assert expected(D, Q + step @ Q + Q @ step.T) < best


def test_raise_to_floor_returns_the_maximum_above_the_floor():
    rng = np.random.default_rng(34)
    floor = np.array([0.5, 2.0, 0.1])
    root = rng.normal(size=(3, 1))
    C = root @ root.T + 0.05 * np.diag(floor)
    X = raise_to_floor(C, floor)
    assert np.linalg.eigvalsh(X - np.diag(floor)).min() > -1e-12

    def value(M):
        return -np.linalg.slogdet(M)[1] - np.trace(np.linalg.solve(M, C))

    for _ in range(200):
        step = rng.normal(size=(3, 3)) * 0.05
        other = X + step + step.T
        if np.linalg.eigvalsh(other - np.diag(floor)).min() >= 0:
            assert value(other) <= value(X) + 1e-12
    above = C + np.diag(floor)
    assert raise_to_floor(above, floor) is above
    assert raise_to_floor(C, np.zeros(3)) is C
