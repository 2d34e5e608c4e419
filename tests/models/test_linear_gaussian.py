"""Tests of LinearGaussianModel: input checks, canonical form, and filter and smoother for a general A."""

from __future__ import annotations

import numpy as np
import pytest
from reference import gaussian
from reference.peers import model_of

from halfseen.errors import HalfseenError, InvalidInput
from halfseen.models.linear_gaussian import LinearGaussianModel


@pytest.fixture(params=[True, False], ids=["canonical", "general A"])
def system(request):
    return gaussian.random_system(np.random.default_rng(41), 5, 2, canonical=request.param)


def observations_with_gaps(system, n, seed=42):
    rng = np.random.default_rng(seed)
    return gaussian.with_gaps(rng, gaussian.simulate(rng, *system, n)[1], share=0.2)


def test_defaults_and_shorthands():
    model = LinearGaussianModel(transition=0.9 * np.eye(3), process_cov=0.2, observation_cov=[0.3, 0.4])
    assert (model.latent, model.observed) == (3, 2)
    assert model.spectral_radius == pytest.approx(0.9)
    np.testing.assert_array_equal(model.process_cov, 0.2 * np.eye(3))
    np.testing.assert_array_equal(model.observation_cov, np.diag([0.3, 0.4]))
    np.testing.assert_array_equal(model.observation, [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(model.initial_mean, np.zeros(3))
    np.testing.assert_array_equal(model.initial_cov, np.eye(3))
    assert repr(model) == "LinearGaussianModel(latent=3, observed=2, spectral_radius=0.9)"
    general = LinearGaussianModel(
        transition=0.9 * np.eye(3),
        process_cov=[0.1, 0.2, 0.3],
        observation_cov=0.5,
        observation=[[1.0, 2.0, 0.0]],
    )
    np.testing.assert_array_equal(general.observation_cov, [[0.5]])


def test_a_model_is_immutable_and_copies_its_inputs():
    D = 0.9 * np.eye(2)
    model = LinearGaussianModel(transition=D, process_cov=0.2, observation_cov=[0.3])
    D[0, 0] = 7.0
    assert model.transition[0, 0] == 0.9
    with pytest.raises(ValueError, match="read-only"):
        model.transition[0, 0] = 7.0
    with pytest.raises(AttributeError):
        model.transition = D


GOOD = {"transition": 0.9 * np.eye(2), "process_cov": 0.2, "observation_cov": [0.3]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transition": np.ones((2, 3))}, "transition: expected a square matrix (d, d), got shape (2, 3)"),
        ({"transition": 0.9}, "transition: expected a square matrix (d, d), got shape ()"),
        ({"transition": [["a", "b"]]}, "transition: expected an array of real numbers, got list"),
        ({"transition": [["0.5"]]}, "transition: expected an array of real numbers, got list"),
        ({"transition": 1j * np.eye(2)}, "transition: expected an array of real numbers, got ndarray"),
        ({"transition": [[1.0, np.nan], [0.0, 1.0]]}, "transition: expected finite numbers, got nan at [0, 1]"),
        (
            {"process_cov": np.eye(3)},
            "process_cov: expected shape (2, 2), its diagonal (2,) or a number, got shape (3, 3)",
        ),
        ({"process_cov": -0.2}, "process_cov: expected a positive semi-definite matrix, got an eigenvalue of -0.2"),
        (
            {"process_cov": [[1.0, 0.5], [0.2, 1.0]]},
            "process_cov: expected a symmetric matrix, got a matrix that is not symmetric",
        ),
        ({"process_cov": [np.inf, 1.0]}, "process_cov: expected finite numbers, got inf at [0]"),
        (
            {"observation_cov": 0.3},
            "observation_cov: expected shape (k, k) or (k,), because `observation` is not given, got a number",
        ),
        (
            {"observation_cov": np.eye(3)},
            "observation_cov: expected between 1 and 2 features, the size of transition, got shape (3, 3)",
        ),
        (
            {"observation_cov": np.zeros((0, 0))},
            "observation_cov: expected between 1 and 2 features, the size of transition, got shape (0, 0)",
        ),
        ({"observation": np.ones((1, 3))}, "observation: expected shape (k, 2) with 1 <= k <= 2, got shape (1, 3)"),
        (
            {"observation": np.ones((2, 2)), "observation_cov": 0.3},
            "observation: expected full rank 2, got rank 1",
        ),
        (
            {"observation": np.eye(2)},
            "observation_cov: expected shape (2, 2), its diagonal (2,) or a number, got shape (1,)",
        ),
        ({"initial_mean": [0.0]}, "initial_mean: expected shape (2,), got shape (1,)"),
        (
            {"initial_cov": [0.1, -0.1]},
            "initial_cov: expected a positive semi-definite matrix, got an eigenvalue of -0.1",
        ),
    ],
)
def test_bad_parameters_are_refused(change, message):
    with pytest.raises(InvalidInput) as caught:
        LinearGaussianModel(**(GOOD | change))
    assert str(caught.value) == message


SHAPES = "shape (rounds, 1) or (series, rounds, 1) without a 0"


@pytest.mark.parametrize("method", ["filter", "smooth"])
@pytest.mark.parametrize(
    ("ys", "message"),
    [
        (np.ones(5), f"ys: expected {SHAPES}, got shape (5,)"),
        (np.ones((5, 2)), f"ys: expected {SHAPES}, got shape (5, 2)"),
        (np.ones((0, 1)), f"ys: expected {SHAPES}, got shape (0, 1)"),
        ([[1.0], [-np.inf]], "ys: expected finite numbers, or NaN where missing, got -inf at [1, 0]"),
        ([["x"]], "ys: expected an array of real numbers, got list"),
    ],
)
def test_bad_observations_are_refused(method, ys, message):
    with pytest.raises(InvalidInput) as caught:
        getattr(LinearGaussianModel(**GOOD), method)(ys)
    assert str(caught.value) == message


def test_filter_equals_a_dense_filter_for_any_observation_matrix(system):
    ys = observations_with_gaps(system, 60)
    result = model_of(*system).filter(ys)
    means, covs, loglik = gaussian.exact_filter(*system, ys)
    D, Q = system[:2]
    np.testing.assert_allclose(result.means, means, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(result.covs, covs, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(result.predicted_means[1:], means[:-1] @ D.T, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(result.predicted_means[0], D @ system[4], rtol=1e-8)
    np.testing.assert_allclose(result.predicted_covs[1:], D @ covs[:-1] @ D.T + Q, rtol=1e-8, atol=1e-9)
    assert isinstance(result.log_likelihood, float)
    assert result.log_likelihood == pytest.approx(loglik, rel=1e-10)


def test_smoother_equals_the_dense_gaussian_for_any_observation_matrix(system):
    ys = observations_with_gaps(system, 25)
    result = model_of(*system).smooth(ys)
    mean, cov, loglik = gaussian.posterior(*system, ys)
    near = {"rtol": 1e-8, "atol": 1e-9}
    np.testing.assert_allclose(result.means, mean[1:], **near)
    np.testing.assert_allclose(result.initial.mean, mean[0], **near)
    np.testing.assert_allclose(result.initial.cov, gaussian.block(cov, 5, 0, 0), **near)
    for t in range(25):
        np.testing.assert_allclose(result.covs[t], gaussian.block(cov, 5, t + 1, t + 1), **near)
        np.testing.assert_allclose(result.lag_one_covs[t], gaussian.block(cov, 5, t + 1, t), **near)
    assert result.log_likelihood == pytest.approx(loglik, rel=1e-10)


def test_a_batch_equals_single_series(system):
    ys = np.stack([observations_with_gaps(system, 30, seed) for seed in (1, 2, 3)])
    model = model_of(*system)
    filtered, smoothed = model.filter(ys), model.smooth(ys)
    assert filtered.log_likelihood.shape == (3,)
    for b in range(3):
        one_filtered, one_smoothed = model.filter(ys[b]), model.smooth(ys[b])
        for name in ("means", "covs", "predicted_means", "predicted_covs", "log_likelihood"):
            np.testing.assert_array_equal(getattr(filtered, name)[b], getattr(one_filtered, name))
        for name in ("means", "covs", "lag_one_covs", "log_likelihood"):
            np.testing.assert_array_equal(getattr(smoothed, name)[b], getattr(one_smoothed, name))
        np.testing.assert_array_equal(smoothed.initial.mean[b], one_smoothed.initial.mean)
        np.testing.assert_array_equal(smoothed.initial.cov[b], one_smoothed.initial.cov)


def test_read_only_and_fortran_ordered_observations_are_accepted(system):
    ys = observations_with_gaps(system, 30)
    other = np.asfortranarray(ys)
    other.setflags(write=False)
    np.testing.assert_array_equal(model_of(*system).filter(other).means, model_of(*system).filter(ys).means)


@pytest.mark.parametrize("blank", [np.ma.masked, None])
def test_masked_entries_and_none_are_missing(system, blank):
    ys = observations_with_gaps(system, 30)
    if blank is None:
        other = [[None if np.isnan(value) else value for value in row] for row in ys]
    else:
        other = np.ma.masked_invalid(ys)
    np.testing.assert_array_equal(model_of(*system).filter(other).means, model_of(*system).filter(ys).means)


def test_canonical_form_gives_the_same_observations_and_rewards():
    """Both systems have the same observations and rewards if they get the same noise."""
    rng = np.random.default_rng(43)
    system = gaussian.random_system(rng, 5, 2, canonical=False)
    D, Q, A, _, m0, P0 = system
    form = model_of(*system).canonical()
    arms = rng.normal(size=(4, 5))
    x = rng.multivariate_normal(m0, P0)
    x_tilde = form.contexts_to_canonical(x)
    arms_tilde = form.arms_to_canonical(arms)
    for _ in range(20):
        noise = rng.multivariate_normal(np.zeros(5), Q)
        x = D @ x + noise
        x_tilde = form.model.transition @ x_tilde + form.to_canonical @ noise
        np.testing.assert_allclose(x_tilde[:2], A @ x, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(arms_tilde @ x_tilde, arms @ x, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(form.model.observation, np.eye(2, 5))
    np.testing.assert_allclose(form.contexts_to_original(x_tilde), x, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(form.arms_to_original(arms_tilde), arms, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(form.to_canonical[:2], A)
    # The hidden rows are orthonormal, and orthogonal to the observed ones.
    hidden = form.to_canonical[2:]
    np.testing.assert_allclose(hidden @ hidden.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(hidden @ A.T, 0.0, atol=1e-12)


def test_canonical_form_has_the_same_likelihood_and_belief():
    system = gaussian.random_system(np.random.default_rng(44), 5, 2, canonical=False)
    model, ys = model_of(*system), observations_with_gaps(system, 40)
    form = model.canonical()
    original, canonical = model.filter(ys), form.model.filter(ys)
    assert original.log_likelihood == pytest.approx(canonical.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(form.contexts_to_original(canonical.means), original.means, rtol=1e-10, atol=1e-10)


def test_a_canonical_model_is_its_own_canonical_form():
    model = LinearGaussianModel(**GOOD)
    form = model.canonical()
    assert form.model is model
    np.testing.assert_array_equal(form.to_canonical, np.eye(2))
    np.testing.assert_array_equal(form.to_original, np.eye(2))


def test_the_rank_of_the_observation_matrix_does_not_depend_on_units():
    common = {"transition": 0.5 * np.eye(2), "process_cov": 1.0, "observation_cov": [1.0, 1.0]}
    LinearGaussianModel(observation=np.diag([1e6, 1e-6]), **common)
    with pytest.raises(HalfseenError, match="observation: expected full rank 2, got rank 1"):
        LinearGaussianModel(observation=[[1e6, 0.0], [1.0, 1e-9]], **common)
