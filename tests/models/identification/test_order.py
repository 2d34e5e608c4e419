"""Tests of the selection of the dimension, of the gauge and of subspace identification."""

import numpy as np
import pytest
from reference import gaussian

import halfseen as hs
from halfseen.kernels.arrays import Parameters
from halfseen.models.identification.gauge import gauge
from halfseen.models.identification.order import aicc, candidate_dimensions, free_parameters, search_dimension
from halfseen.models.identification.selection import centre_and_scale
from halfseen.models.identification.subspace import subspace_start
from halfseen.models.linear_gaussian import change_basis


def rotating(seed, rounds, latent=5, observed=3):
    """A rotating system of which some coordinates are observed."""
    rng = np.random.default_rng([seed, 40])
    D = 0.97 * np.linalg.qr(rng.normal(size=(latent, latent)))[0]
    system = (
        D,
        0.1 * np.eye(latent),
        np.eye(observed, latent),
        0.05 * np.eye(observed),
        np.zeros(latent),
        np.eye(latent),
    )
    return system, gaussian.simulate(rng, *system, rounds)


@pytest.mark.filterwarnings("ignore::halfseen.HalfseenWarning")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_fit_finds_enough_dimensions(seed):
    found = hs.fit(rotating(seed, 800)[1][1], latent="auto", max_iterations=60)
    assert 5 <= found.model.latent <= 7


@pytest.mark.filterwarnings("ignore::halfseen.HalfseenWarning")
@pytest.mark.parametrize("memory", [0.0, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_fit_finds_no_hidden_coordinates_where_there_are_none(memory, seed):
    rng, x, ys = np.random.default_rng([seed, 8]), np.zeros(3), []
    for _ in range(800):
        x = memory * x + rng.normal(size=3)
        ys.append(x)
    found = hs.fit(ys, latent="auto", max_iterations=60)
    assert found.model.latent == 3


def test_auto_returns_the_candidate_with_the_best_aicc(recwarn):
    ys = rotating(1, 200, latent=3, observed=2)[1][1]
    got = hs.fit(ys, latent="auto", max_iterations=30)
    fits = {d: hs.fit(ys, latent=d, max_iterations=30) for d in candidate_dimensions(2)[:7]}
    scores = {d: aicc(fit.log_likelihoods[-1], d, 2, 400) for d, fit in fits.items()}
    assert got.model.latent == max(scores, key=scores.get)
    np.testing.assert_array_equal(got.model.transition, fits[got.model.latent].model.transition)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latent": "all"}, "latent: expected 'auto' or an integer of at least 2, the number of features, got 'all'"),
        (
            {
                "latent": "auto",
                "start": hs.LinearGaussianModel(transition=np.eye(2), process_cov=1.0, observation_cov=[1, 1]),
            },
            "start: expected None with latent='auto', which fits several dimensions, got a model",
        ),
    ],
)
def test_bad_input_is_refused(options, message):
    with pytest.raises(hs.HalfseenError) as caught:
        hs.fit(np.random.default_rng(0).normal(size=(20, 2)), **options)
    assert str(caught.value) == message


def test_aicc():
    assert candidate_dimensions(4)[:4] == (4, 5, 6, 7)
    assert free_parameters(5, 3) == 2 * 3 * 5 + 6
    assert aicc(-100.0, 5, 3, 300) == pytest.approx(-100.0 - 36 * 300 / (300 - 36 - 1))
    assert aicc(-100.0, 5, 3, 37) == -np.inf
    assert aicc(-100.0, 5, 3, 38) > -np.inf


def test_the_search_stops_without_improvement():
    fitted_dimensions = []

    def fit(dimension):
        fitted_dimensions.append(dimension)
        return dimension

    assert search_dimension(range(2, 20), fit, lambda fitted, _: -20.0 * (fitted - 4) ** 2) == 4
    assert fitted_dimensions == [2, 3, 4, 5, 6, 7]
    assert search_dimension(range(3), fit, lambda *_: -np.inf) is None


@pytest.mark.parametrize(("latent", "observed"), [(5, 3), (4, 1), (3, 3)])
def test_the_gauge_changes_neither_observations_nor_predictions(latent, observed):
    rng = np.random.default_rng(latent)
    system, (_, y) = rotating(2, 60, latent, observed)
    model = Parameters(system[0], system[1], *system[3:])
    before = _model(model).filter(y)
    slopes = rng.normal(size=latent)
    for _ in range(3):
        root = rng.normal(size=(latent, latent))
        T = gauge(root @ root.T, observed)
        after = _model(change_basis(model, T)).filter(y)
        np.testing.assert_allclose(after.means, before.means @ T.T, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(after.means @ np.linalg.solve(T.T, slopes), before.means @ slopes, atol=1e-8)
        assert after.log_likelihood == pytest.approx(before.log_likelihood, rel=1e-9)
        np.testing.assert_array_equal(T[:observed], np.eye(observed, latent))


def _model(p):
    return hs.LinearGaussianModel(
        transition=p.D, process_cov=p.Q, observation_cov=p.R, initial_mean=p.m0, initial_cov=p.P0
    )


def test_the_gauge_whitens_hidden_coordinates():
    root = np.random.default_rng(3).normal(size=(6, 6))
    moment, k = root @ root.T, 2
    T = gauge(moment, k)
    got = T @ moment @ T.T
    expected = np.zeros((6, 6))
    expected[:k, :k] = moment[:k, :k]
    expected[k:, k:] = np.trace(moment[:k, :k]) / k * np.eye(4)
    np.testing.assert_allclose(got, expected, atol=1e-8)


def test_centre_and_scale_use_observed_entries():
    y = np.array([[1e6 + 1, 2.0, np.nan, 7.0], [1e6 + 3, np.nan, np.nan, 7.0], [1e6 + 5, 6.0, np.nan, 7.0]])
    centre, scale = centre_and_scale(y)
    np.testing.assert_allclose(centre, [1e6 + 3, 4.0, 0.0, 7.0])
    np.testing.assert_allclose(scale, [np.sqrt(8 / 3), 2.0, 1.0, 1.0])


def test_the_subspace_start_predicts():
    """The start predicts a rotating system, and is None for a short series."""
    _, (_, y) = rotating(5, 400)
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    start = subspace_start(y, 5)
    assert np.abs(np.linalg.eigvals(start.D)).max() < 1
    noise = hs.LinearGaussianModel(
        transition=np.zeros((3, 3)), process_cov=0.5 * np.eye(3), observation_cov=0.5 * np.eye(3)
    )
    assert _model(start).filter(y).log_likelihood > noise.filter(y).log_likelihood + 100
    assert subspace_start(y[:8], 5) is None
