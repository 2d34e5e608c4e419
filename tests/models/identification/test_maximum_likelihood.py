"""Tests of `hs.fit`: the maximum is reached, units do not matter, problems are reported, bad input is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.optimize
from reference import gaussian
from reference.peers import model_of

from halfseen.errors import HalfseenError, HalfseenWarning, InvalidInput
from halfseen.models.identification.em import em_windows
from halfseen.models.identification.lbfgs import PATIENCE
from halfseen.models.identification.maximum_likelihood import EM_ITERATIONS, NOISE_FLOOR, fit
from halfseen.models.linear_gaussian import LinearGaussianModel

pytestmark = pytest.mark.filterwarnings("ignore:.*is at its minimum:halfseen.HalfseenWarning")

SIZES = [(2, 1), (3, 1), (3, 2), (2, 2), (4, 2), (3, 3)]  # (d, k)


def series(seed, d, k, n=150):
    return gaussian.random_series(seed, d, k, n)[1]


@pytest.mark.parametrize(("d", "k"), SIZES)
@pytest.mark.parametrize("seed", [70, 71])
def test_fits_converge_and_the_log_likelihood_never_decreases(seed, d, k):
    result = fit(series(seed, d, k), latent=d)
    assert result.converged
    assert result.iterations > EM_ITERATIONS, "L-BFGS has run"
    assert np.diff(result.log_likelihoods).min() >= 0.0
    assert result.model.filter(series(seed, d, k)).log_likelihood == pytest.approx(result.log_likelihoods[-1], abs=1e-5)


@pytest.mark.filterwarnings("ignore:The fit is unstable:halfseen.HalfseenWarning")
@pytest.mark.parametrize(("d", "k"), [(1, 1), (2, 2), (3, 2)])
def test_the_result_is_a_maximum(d, k):
    """No improvement is found by a simplex search over all parameters, which uses no derivatives."""
    y = series(72, d, k, n=80)
    model = fit(y, latent=d, tolerance=1e-9).model
    D, Q, R, m0, P0 = model.arrays()
    L, floor = np.linalg.cholesky(Q), NOISE_FLOOR * y.var(axis=0)

    def log_likelihood(z):
        step_D, step_L, step_R, step_m = np.split(z, np.cumsum([d * d, d * d, k]))
        factor = L @ (np.eye(d) + step_L.reshape(d, d))
        changed = LinearGaussianModel(
            transition=D + step_D.reshape(d, d), process_cov=factor @ factor.T,
            observation_cov=np.maximum(np.diag(R) * np.exp(step_R), floor), initial_mean=m0 + step_m, initial_cov=P0,
        )  # fmt: skip
        return changed.filter(y).log_likelihood

    size = 2 * d * d + k + d
    simplex = np.vstack([np.zeros(size), 0.02 * np.eye(size)])
    found = scipy.optimize.minimize(
        lambda z: -log_likelihood(z), np.zeros(size), method="Nelder-Mead",
        options={"initial_simplex": simplex, "maxfev": 1500},
    )  # fmt: skip
    assert -found.fun <= log_likelihood(np.zeros(size)) + 0.005


@pytest.mark.parametrize(("d", "k"), [(2, 1), (3, 2), (2, 2)])
def test_the_fit_is_at_least_as_likely_as_many_iterations_of_em(d, k):
    y = series(73, d, k)
    start = LinearGaussianModel(
        transition=0.9 * np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0], process_cov=0.2,
        observation_cov=np.full(k, 0.1),
    )  # fmt: skip
    trace = em_windows(*(part[None] for part in start.arrays()), y[None], iterations=4000)[5][0]
    assert fit(y, latent=d, start=start).log_likelihoods[-1] >= np.nanmax(trace) - 0.01


def test_the_fit_is_at_least_as_likely_as_that_of_statsmodels():
    """AR(1) with noise, which statsmodels fits as ARMA(1, 1). Its x_0 is stationary, and ours is estimated."""
    from statsmodels.tsa.arima.model import ARIMA

    rng, x, ys = np.random.default_rng(74), 0.0, []
    for _ in range(200):
        x = 0.9 * x + rng.normal()
        ys.append([x + rng.normal()])
    peer = ARIMA(np.ravel(ys), order=(1, 0, 1), trend="n").fit().llf
    assert peer < fit(ys, latent=1).log_likelihoods[-1] < peer + 2.0


@pytest.mark.parametrize(("d", "k"), [(2, 2), (3, 2), pytest.param(4, 3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", [75, 76])
def test_a_full_covariance_is_at_least_as_likely_as_a_diagonal_one(seed, d, k):
    y = series(seed, d, k, n=100)
    full, diagonal = (fit(y, latent=d, observation_cov=kind) for kind in ("full", "diagonal"))
    assert full.log_likelihoods[-1] >= diagonal.log_likelihoods[-1]
    assert np.diff(full.log_likelihoods).min() >= 0.0
    correlated = LinearGaussianModel(transition=0.5 * np.eye(d), process_cov=0.5, observation_cov=0.5 * np.eye(k) + 0.5)
    full, diagonal = (fit(y, latent=d, observation_cov=kind, start=correlated) for kind in ("full", "diagonal"))
    assert full.log_likelihoods[-1] >= diagonal.log_likelihoods[-1]


def test_units_do_not_change_the_maximum():
    y = gaussian.random_series(77, 3, 2, 150, gaps={"share": 0.05})[1]
    units = np.array([1e-4, 3e5])
    original, rescaled = fit(y, latent=3, tolerance=1e-8), fit(y * units, latent=3, tolerance=1e-8)
    shift = -np.isfinite(y).sum(axis=0) @ np.log(units)
    assert rescaled.log_likelihoods[-1] == pytest.approx(original.log_likelihoods[-1] + shift, abs=1e-3)
    means = rescaled.model.filter(y * units).means[:, :2] / units
    np.testing.assert_allclose(means, original.model.filter(y).means[:, :2], atol=0.02)


def test_a_default_fit_that_has_not_converged_has_a_note(monkeypatch):
    monkeypatch.setattr("halfseen.models.identification.maximum_likelihood.MAX_ITERATIONS", 40)
    with pytest.warns(HalfseenWarning, match="The fit has not converged after 40 iterations."):
        result = fit(series(78, 3, 1), latent=3)
    assert not result.converged


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
    assert calls == list(zip(range(1, 6), first.log_likelihoods[1:], strict=True))
    assert not first.converged
    second = fit(y, latent=4, start=first.model, max_iterations=5)
    assert second.log_likelihoods[0] == pytest.approx(first.log_likelihoods[-1], rel=1e-12)
    assert second.log_likelihoods[-1] > first.log_likelihoods[-1]


@pytest.mark.filterwarnings("ignore::halfseen.HalfseenWarning")
def test_the_seed_changes_the_random_start():
    """The series is too short for subspace identification, whose result does not depend on the seed."""
    y = gaussian.random_series(57, 4, 2, 12)[1]
    first, second = (fit(y, latent=4, seed=seed, max_iterations=5) for seed in (3, 4))
    assert first.log_likelihoods[0] != second.log_likelihoods[0]


def test_a_larger_tolerance_stops_sooner():
    y = gaussian.random_series(57, 4, 2, 80)[1]
    start = fit(y, latent=4, max_iterations=5).model
    results = [fit(y, latent=4, start=start, tolerance=tolerance) for tolerance in (10.0, 1e-4, 1e-8)]
    assert [result.converged for result in results] == [True, True, True]
    assert results[0].iterations == 1 + PATIENCE, "one iteration of EM, and the shortest round of L-BFGS"
    assert results[0].iterations < results[1].iterations < results[2].iterations
    assert results[0].log_likelihoods[-1] < results[1].log_likelihoods[-1] <= results[2].log_likelihoods[-1]


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
