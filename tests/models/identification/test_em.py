"""Tests of EM against pykalman, and of the properties of `fit`: monotonicity, independence of units, notes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pykalman import KalmanFilter
from reference import gaussian
from reference.peers import model_of

from halfseen.errors import HalfseenError, HalfseenWarning, InvalidInput
from halfseen.kernels.filter import filter_series
from halfseen.models.identification.em import DIAGONAL, FIXED, FULL, em_windows, fit
from halfseen.models.linear_gaussian import LinearGaussianModel


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
    start = LinearGaussianModel(
        transition=system[0], process_cov=system[1], observation_cov=np.diag(np.diag(system[3]))
    )
    gains = np.diff(fit(y, latent=4, start=start, max_iterations=12).log_likelihoods)
    result = fit(y, latent=4, start=start, tolerance=0.5 * (gains[5] + gains[6]) / 80)
    assert (result.iterations, result.converged) == (7, True)


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


def test_noise_free_observations():
    """With Σ fixed at 0, as in the paper, EM learns D and Q, and the likelihood increases."""
    rng = np.random.default_rng(54)
    D, Q, A, R, m0, P0 = gaussian.random_system(rng, 5, 2)
    y = gaussian.simulate(rng, D, Q, A, 0.0 * R, m0, P0, 300)[1]
    result = fit(y, latent=5, observation_cov=np.zeros((2, 2)), max_iterations=40)
    assert np.diff(result.log_likelihoods).min() >= -1e-8 * 300
    truth = LinearGaussianModel(transition=D, process_cov=Q, observation_cov=0.0 * R, initial_mean=m0, initial_cov=P0)
    assert result.log_likelihoods[-1] > truth.filter(y).log_likelihood - 5
    np.testing.assert_array_equal(result.model.observation_cov, np.zeros((2, 2)))


@pytest.mark.parametrize("gaps", [False, True])
def test_a_fit_is_as_likely_as_the_truth(gaps):
    truth, y = gaussian.random_series(55, 4, 2, 600, gaps={"share": 0.1} if gaps else None)
    result = fit(y, latent=4, observation_cov="full", max_iterations=150)
    assert result.log_likelihoods[-1] > model_of(*truth).filter(y).log_likelihood
    assert result.model.filter(y).log_likelihood == pytest.approx(result.log_likelihoods[-1], rel=1e-9)
    assert len(result.log_likelihoods) == result.iterations + 1
    assert result.notes == ()


def test_fit_of_rescaled_data_is_the_rescaled_fit():
    rng = np.random.default_rng(56)
    y = gaussian.simulate(rng, *gaussian.random_system(rng, 4, 2), 100)[1]
    units = np.array([1e-3, 40.0])
    original, rescaled = fit(y, latent=3, max_iterations=10), fit(y * units, latent=3, max_iterations=10)
    shift = -100 * np.log(units).sum()
    np.testing.assert_allclose(rescaled.log_likelihoods, original.log_likelihoods + shift, rtol=1e-7)


def test_seed_start_and_progress():
    rng = np.random.default_rng(57)
    y = gaussian.simulate(rng, *gaussian.random_system(rng, 4, 2), 80)[1]
    calls = []
    first = fit(y, latent=4, seed=3, max_iterations=5, progress=lambda *call: calls.append(call))
    np.testing.assert_array_equal(first.model.transition, fit(y, latent=4, seed=3, max_iterations=5).model.transition)
    assert first.log_likelihoods[0] != fit(y, latent=4, seed=4, max_iterations=5).log_likelihoods[0]
    assert calls == list(zip(range(1, 6), first.log_likelihoods[1:], strict=True))
    assert not first.converged
    second = fit(y, latent=4, start=first.model, max_iterations=5)
    assert second.log_likelihoods[0] == pytest.approx(first.log_likelihoods[-1], rel=1e-12)
    assert second.log_likelihoods[-1] > first.log_likelihoods[-1]
    easy = fit(y, latent=4, start=first.model, tolerance=10.0)
    assert easy.converged
    assert easy.iterations == 1


def test_the_observation_matrix_of_the_start_is_kept():
    rng = np.random.default_rng(58)
    D, Q, A, R, m0, P0 = system = gaussian.random_system(rng, 4, 2, canonical=False)
    y = gaussian.simulate(rng, *system, 120)[1]
    start = LinearGaussianModel(
        transition=0.8 * D, process_cov=Q, observation_cov=R, observation=A, initial_mean=m0, initial_cov=P0
    )
    general, canonical = (
        fit(y, latent=4, observation_cov="full", start=model, max_iterations=8)
        for model in (start, start.canonical().model)
    )
    np.testing.assert_array_equal(general.model.observation, A)
    np.testing.assert_allclose(general.log_likelihoods, canonical.log_likelihoods, rtol=1e-9)
    assert general.model.filter(y).log_likelihood == pytest.approx(general.log_likelihoods[-1], rel=1e-9)


def test_a_start_that_cannot_be_beaten_is_returned():
    """The start is exact and has no process noise. With the least process noise of EM, the data are less likely."""
    start = LinearGaussianModel(
        transition=[[0.5]], process_cov=0.0, observation_cov=[1e-30], initial_mean=[64.0], initial_cov=0.0
    )
    y = 64.0 * 0.5 ** np.arange(1, 7)[:, None]
    with pytest.warns(HalfseenWarning):
        result = fit(y, latent=1, start=start, observation_cov=[1e-30], max_iterations=3)
    np.testing.assert_array_equal(result.model.transition, start.transition)
    np.testing.assert_array_equal(result.model.process_cov, start.process_cov)
    assert result.iterations == 0
    assert "No iteration improved the start, which is returned unchanged." in result.notes


def explosive(rng):
    y = 1.05 ** np.arange(150)[:, None] * np.array([1.0, -2.0]) + 0.1 * rng.normal(size=(150, 2))
    return y, {}, "The fit is unstable: spectral radius"


def constant(rng):
    y = rng.normal(size=(50, 2))
    y[:, 1] = 3.0
    return y, {}, "Constant feature(s) 1: the data say nothing about their dynamics."


def unobserved(rng):
    y = rng.normal(size=(50, 2))
    y[:, 0] = np.nan
    return y, {}, "Feature(s) 0 never observed"


def noiseless(rng):
    """EM converges to Σ = 0 slowly, so it starts there."""
    D, Q = np.array([[0.9, 0.3], [-0.3, 0.9]]), 0.2 * np.eye(2)
    y = gaussian.simulate(rng, D, Q, np.eye(2), np.zeros((2, 2)), np.zeros(2), np.eye(2), 400)[1]
    start = LinearGaussianModel(transition=D, process_cov=Q, observation_cov=[1e-9, 1e-9])
    return y, {"start": start}, "The observation noise of feature(s) 0, 1 is at its minimum"


@pytest.mark.parametrize("case", [explosive, constant, unobserved, noiseless])
def test_problems_of_a_fit_are_reported(case):
    y, options, message = case(np.random.default_rng(59))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit(y, latent=2, max_iterations=60, **options)
    assert any(note.startswith(message) for note in result.notes)
    assert [str(w.message) for w in caught] == list(result.notes)
    assert all(w.category is HalfseenWarning for w in caught)
    assert np.isfinite(result.log_likelihoods).all()


Y = np.random.default_rng(60).normal(size=(20, 2))
LATENT = "'auto' or an integer of at least 2, the number of features"
INFINITE = Y.copy()
INFINITE[3, 1] = np.inf


@pytest.mark.parametrize(
    ("ys", "options", "message"),
    [
        (Y, {"latent": "all"}, f"latent: expected {LATENT}, got 'all'"),
        (Y, {"latent": 1}, f"latent: expected {LATENT}, got 1"),
        (Y, {"latent": 2.0}, f"latent: expected {LATENT}, got 2.0"),
        (Y, {"latent": True}, f"latent: expected {LATENT}, got True"),
        (Y[:1], {"latent": 2}, "ys: expected at least 2 rounds, got 1"),
        (Y[:, 0], {"latent": 2}, "ys: expected shape (rounds, features), got shape (20,)"),
        (INFINITE, {"latent": 2}, "ys: expected finite numbers, or NaN where missing, got inf at [3, 1]"),
        (np.full((5, 2), np.nan), {"latent": 2}, "ys: expected at least one observed entry, got only NaN"),
        ([["a", "b"], ["c", "d"]], {"latent": 2}, "ys: expected an array of real numbers, got list"),
        (
            Y,
            {"latent": 2, "observation_cov": "round"},
            "observation_cov: expected 'diagonal', 'full' or a covariance, got 'round'",
        ),
        (
            Y,
            {"latent": 2, "observation_cov": np.eye(3)},
            "observation_cov: expected shape (2, 2), its diagonal (2,) or a number, got shape (3, 3)",
        ),
        (Y, {"latent": 2, "max_iterations": 0}, "max_iterations: expected an integer of at least 1, got 0"),
        (Y, {"latent": 2, "seed": -1}, "seed: expected an integer of at least 0, got -1"),
        (Y, {"latent": 2, "tolerance": np.nan}, "tolerance: expected a number of at least 0, got nan"),
        (
            Y,
            {
                "latent": 3,
                "start": LinearGaussianModel(transition=[[0.5]], process_cov=0.3, observation_cov=[0.2]),
            },
            "start: expected a model with latent=3, observed=2, "
            "got LinearGaussianModel(latent=1, observed=1, spectral_radius=0.5)",
        ),
    ],
)
def test_bad_input_is_refused(ys, options, message):
    with pytest.raises(InvalidInput) as caught:
        fit(ys, **options)
    assert str(caught.value) == message


def test_a_diagonal_fit_from_a_full_start_is_diagonal_and_does_not_stop():
    rng = np.random.default_rng(77)
    truth = gaussian.random_system(rng, 3, 2)
    y = gaussian.simulate(rng, *truth, 200)[1]
    D, Q = truth[:2]
    start = LinearGaussianModel(transition=D, process_cov=Q, observation_cov=[[1.0, 0.95], [0.95, 1.0]])
    result = fit(y, latent=3, start=start, max_iterations=10)
    assert result.iterations == 10
    assert result.model.observation_cov[0, 1] == 0
    assert np.diff(result.log_likelihoods).min() >= 0


@pytest.mark.parametrize("power", [5, 30])
def test_a_fit_does_not_depend_on_the_units_of_features(power):
    """Features of very different units give the same fit in their units."""
    rng = np.random.default_rng(78)
    y = gaussian.simulate(rng, *gaussian.random_system(rng, 4, 3), 150)[1]
    units = np.array([10.0**-power, 1.0, 10.0**power])
    plain, mixed = (fit(data, latent=4, max_iterations=15) for data in (y, y * units))
    np.testing.assert_allclose(mixed.log_likelihoods, plain.log_likelihoods - 150 * np.log(units).sum(), atol=1e-5)
    np.testing.assert_allclose(
        mixed.model.filter(y * units).means[:, :3] / units, plain.model.filter(y).means[:, :3], atol=1e-6
    )


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_numbers_whose_squares_overflow_are_refused(size):
    with pytest.raises(
        HalfseenError, match=r"^ys: expected a largest absolute value between 1e-100 and 1e\+100, got .*"
    ):
        fit(size * np.random.default_rng(0).normal(size=(30, 2)), latent=2)
