"""Tests of EM against pykalman, and of its monotonicity and its windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pykalman import KalmanFilter
from reference import gaussian

from halfseen.kernels.filter import filter_series
from halfseen.models.identification.em import DIAGONAL, FIXED, FULL, em_windows


def windows(systems, ys, **options):
    D, Q, _, R, m0, P0 = (np.stack(part) for part in zip(*systems, strict=True))
    return em_windows(D, Q, R, m0, P0, np.ascontiguousarray(ys), **options)


@pytest.mark.parametrize(
    ("blank", "update_R"), [((), FULL), ((3, 20), FIXED)], ids=["complete", "missing rounds, Σ fixed"]
)
def test_em_equals_pykalman(blank, update_R):
    """The first state of pykalman belongs to the first observation, whereas x_0 of halfseen precedes it.

    The series for pykalman therefore starts with a missing observation.

    Σ is fixed when rounds are missing: pykalman averages the noise over observed rounds only, whereas the exact E-step
    includes the variance of a missing noise (tests/kernels/test_em.py compares it with the dense Gaussian).
    """
    rng = np.random.default_rng(51)
    truth = gaussian.random_system(rng, 4, 2)
    y = gaussian.simulate(rng, *truth, 60)[1]
    y[list(blank)] = np.nan
    D, Q, A, R, m0, P0 = start = gaussian.random_system(rng, 4, 2)
    learnt = ["transition_matrices", "transition_covariance", "initial_state_mean", "initial_state_covariance"]
    peer = KalmanFilter(
        transition_matrices=D, transition_covariance=Q, observation_matrices=A, observation_covariance=R,
        initial_state_mean=m0, initial_state_covariance=P0,
        transition_offsets=np.zeros(4), observation_offsets=np.zeros(2),
        em_vars=learnt + ["observation_covariance"] * (update_R == FULL),
    )  # fmt: skip
    peer.em(np.ma.masked_invalid(np.vstack([np.full((1, 2), np.nan), y])), n_iter=5)
    got = windows([start], y[None], iterations=5, update_R=update_R)
    near = {"rtol": 1e-7, "atol": 1e-8}
    np.testing.assert_allclose(got[0][0], peer.transition_matrices, **near)
    np.testing.assert_allclose(got[1][0], peer.transition_covariance, **near)
    np.testing.assert_allclose(got[2][0], peer.observation_covariance, **near)
    np.testing.assert_allclose(got[3][0], peer.initial_state_mean, **near)
    np.testing.assert_allclose(got[4][0], peer.initial_state_covariance, **near)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000), d=st.integers(1, 6), hidden=st.integers(0, 3), n=st.integers(2, 60),
    share=st.sampled_from([0.0, 0.0, 0.25]), update_R=st.sampled_from([FIXED, DIAGONAL, FULL]),
    initial=st.booleans(), noise=st.sampled_from([0.3, 1e-6]),
)  # fmt: skip
def test_the_log_likelihood_never_decreases(seed, d, hidden, n, share, update_R, initial, noise):
    rng = np.random.default_rng(seed)
    k = max(1, d - hidden)
    truth = gaussian.random_system(rng, d, k, noise=noise)
    y = gaussian.with_gaps(rng, gaussian.simulate(rng, *truth, n)[1], share=share, blank=())
    start = gaussian.random_system(rng, d, k, noise=noise)
    trace = windows([start], y[None], iterations=15, tolerance=-1.0, update_R=update_R, update_initial=initial)[5][0]
    assert np.isfinite(trace).all(), "EM must not stop early, because that would hide a decrease"
    assert np.diff(trace).min() >= -1e-8 * n


def test_windows_are_independent_and_end_where_the_filter_ends():
    rng = np.random.default_rng(52)
    systems = [gaussian.random_system(rng, 6, 3) for _ in range(3)]
    ys = np.stack([gaussian.simulate(rng, *system, 80)[1] for system in systems])
    ys[1, 40, 0] = np.nan
    options = {"iterations": 4, "update_R": DIAGONAL}
    together = windows(systems, ys, **options)
    for b in range(3):
        alone = windows(systems[b : b + 1], ys[b : b + 1], **options)
        for part, one in zip(together, alone, strict=True):
            np.testing.assert_array_equal(part[b], one[0])
        D, Q, R, m0, P0, trace, x_end, P_end = (part[b] for part in together)
        x, loglik, rows, P_filt, _, _ = filter_series(D, Q, R, m0, P0, ys[b : b + 1].copy())
        np.testing.assert_array_equal(x_end, x[0, -1])
        np.testing.assert_array_equal(P_end, P_filt[rows[0, -1]])
        assert trace[-1] == loglik[0]
        np.testing.assert_array_equal(R, np.diag(np.diag(R)))


def test_the_tolerance_is_per_round():
    rng = np.random.default_rng(61)
    system = gaussian.random_system(rng, 4, 2)
    y = gaussian.simulate(rng, *gaussian.random_system(rng, 4, 2), 80)[1]
    whole = windows([system], y[None], iterations=12, tolerance=0.0)[5][0]
    tolerance = 0.5 * (np.diff(whole)[5] + np.diff(whole)[6]) / 80
    trace = windows([system], y[None], iterations=12, tolerance=tolerance)[5][0]
    np.testing.assert_array_equal(trace[:8], whole[:8])
    assert np.isnan(trace[8:]).all()


def test_windows_change_neither_their_inputs_nor_fixed_parameters():
    rng = np.random.default_rng(53)
    system = gaussian.random_system(rng, 4, 2)
    before = [part.copy() for part in system]
    y = gaussian.simulate(rng, *system, 40)[1]
    result = windows([system], y[None], iterations=3, update_R=FIXED, update_initial=False)
    for part, copy in zip(system, before, strict=True):
        np.testing.assert_array_equal(part, copy)
    np.testing.assert_array_equal(result[2][0], system[3])
    np.testing.assert_array_equal(result[3][0], system[4])
    np.testing.assert_array_equal(result[4][0], system[5])
