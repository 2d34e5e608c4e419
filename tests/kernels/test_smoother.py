"""The smoother against the dense joint Gaussian and statsmodels, for singular systems and for batches."""

from __future__ import annotations

import numpy as np
import pytest
from reference import gaussian
from reference.peers import statsmodels_of

from halfseen.kernels.filter import filter_series
from halfseen.kernels.smoother import smooth_series


def smooth(system, ys):
    D, Q, _, R, m0, P0 = system
    x, _, rows, P_filt, P_pred, frozen = filter_series(D, Q, R, m0, P0, np.ascontiguousarray(ys))
    return (*smooth_series(D, Q, x, rows, P_filt, P_pred, frozen), rows, frozen)


def check_dense(system, y, tolerance):
    n, d = len(y), len(system[0])
    mean, cov, _ = gaussian.posterior(*system, y)
    x, rows, P, lag, _, _ = smooth(system, y[None])
    near = {"rtol": tolerance, "atol": tolerance}
    np.testing.assert_allclose(x[0], mean, **near)
    for t in range(n + 1):
        np.testing.assert_allclose(P[rows[0, t]], gaussian.block(cov, d, t, t), **near)
    for t in range(n):
        np.testing.assert_allclose(lag[rows[0, t]], gaussian.block(cov, d, t + 1, t), **near)


@pytest.mark.parametrize(("d", "k"), [(1, 1), (4, 2), (3, 3), (7, 1)])
@pytest.mark.parametrize("gaps", [False, True])
def test_the_smoother_equals_the_dense_gaussian(d, k, gaps):
    missing = {"share": 0.3, "blank": (0, 7, 14)} if gaps else None
    check_dense(*gaussian.random_series(200 * d + k, d, k, 15, gaps=missing), 1e-9)


@pytest.mark.parametrize("gaps", [False, True])
def test_the_converged_smoother_equals_the_dense_gaussian(gaps):
    system, y = gaussian.random_series(21, 3, 2, 200, radius=0.7)
    if gaps:
        y[100, 0] = np.nan
    _, rows, _, _, filter_rows, frozen = smooth(system, y[None])
    assert (filter_rows == frozen).mean() > 0.5
    assert rows.max() < 150 if gaps else rows.max() < 100
    check_dense(system, y, 1e-10)


@pytest.mark.parametrize("gaps", [False, True])
def test_the_smoother_equals_statsmodels(gaps):
    system, y = gaussian.random_series(22, 6, 2, 700, gaps={"share": 0.002, "blank": (350,)} if gaps else None)
    expected = statsmodels_of(*system, y).smooth()
    x, rows, P, lag, _, _ = smooth(system, y[None])
    np.testing.assert_allclose(x[0, 1:], expected.smoothed_state.T, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(P[rows[0, 1:]], np.moveaxis(expected.smoothed_state_cov, -1, 0), rtol=1e-8, atol=1e-9)
    # The autocovariance of statsmodels at t is Cov(x_{t+1}, x_t).
    pairs = np.moveaxis(expected.smoothed_state_autocov, -1, 0)[:-1]
    np.testing.assert_allclose(lag[rows[0, 1:-1]], pairs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("case", ["no process noise in one direction", "known start", "no observation noise"])
def test_near_singular_systems(case):
    rng = np.random.default_rng(23)
    D, Q, A, R, m0, P0 = gaussian.random_system(rng, 4, 2)
    if case == "no process noise in one direction":
        D, Q, P0 = (
            np.diag([0.9, 0.8, 0.7, 0.6]) + 0.05,
            np.diag([0.3, 0.2, 0.1, 0.0]),
            np.diag([0.5, 0.4, 0.3, 0.0]),
        )
    elif case == "known start":
        P0 = np.zeros((4, 4))
    else:
        R = 1e-9 * R
    y = gaussian.simulate(rng, D, Q, A, R, m0, P0, 12)[1]
    check_dense((D, Q, A, R, m0, P0), y, 1e-5 if case == "no observation noise" else 1e-8)
    _, rows, P, _, _, _ = smooth((D, Q, A, R, m0, P0), y[None])
    assert np.linalg.eigvalsh(P[: rows.max() + 1]).min() > -1e-14


def test_a_batch_equals_single_series_bit_for_bit():
    rng = np.random.default_rng(24)
    system = gaussian.random_system(rng, 8, 3)
    ys = np.stack([gaussian.simulate(rng, *system, 300)[1] for _ in range(4)])
    ys[2, 100] = ys[2, 4, 1] = np.nan
    x, rows, P, lag, _, _ = smooth(system, ys)
    for b in range(4):
        one = smooth(system, ys[b : b + 1].copy())
        np.testing.assert_array_equal(x[b], one[0][0])
        np.testing.assert_array_equal(P[rows[b]], one[2][one[1][0]])
        np.testing.assert_array_equal(lag[rows[b, :-1]], one[3][one[1][0, :-1]])


@pytest.mark.parametrize("gap", [3, 21, 40])
def test_missing_entries_of_one_series_do_not_change_another(gap):
    rng = np.random.default_rng(0)
    system = gaussian.random_system(rng, 4, 2)
    ys = np.stack([gaussian.simulate(rng, *system, 60)[1] for _ in range(3)])
    ys[1, gap] = np.nan
    for order in ([0, 1, 2], [1, 0, 2], [2, 1]):
        x = smooth(system, ys[order].copy())[0]
        for position, b in enumerate(order):
            np.testing.assert_array_equal(x[position], smooth(system, ys[b : b + 1].copy())[0][0])
