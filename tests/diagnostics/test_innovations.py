"""Innovations: against a dense Gaussian and statsmodels, false alarms, detection of wrong models."""

import numpy as np
import pytest
from reference.gaussian import joint, random_series, random_system
from reference.peers import model_of
from scipy import stats

import halfseen as hs
from halfseen.diagnostics.innovations import (
    bias_test,
    innovations,
    nis_by_block,
    nis_test,
    whiteness_lags,
    whiteness_test,
)


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize("gaps", [True, False])
def test_standardised_innovations_follow_from_the_joint_gaussian(canonical, gaps):
    system, y = random_series(3, 4, 2, 30, gaps={} if gaps else None, canonical=canonical)
    x_mean, x_cov, H, noise = joint(*system, len(y))
    present = ~np.isnan(y.ravel())
    cov = (H @ x_cov @ H.T + noise)[np.ix_(present, present)]
    expected = np.full(y.size, np.nan)
    expected[present] = np.linalg.solve(np.linalg.cholesky(cov), y.ravel()[present] - (H @ x_mean)[present])
    found = innovations(model_of(*system), y)
    np.testing.assert_allclose(found.standardised, expected.reshape(y.shape), atol=1e-8)


def test_whiteness_test_of_one_feature_is_ljung_and_boxs():
    acorr_ljungbox = pytest.importorskip("statsmodels.stats.diagnostic").acorr_ljungbox
    z = np.random.default_rng(1).normal(size=(300, 1)) * 1.7
    z -= z.mean()
    z[1:] += 0.2 * z[:-1]
    z -= z.mean()
    found = whiteness_test(z, 7)
    theirs = acorr_ljungbox(z[:, 0], lags=[7])
    assert found.statistic == pytest.approx(theirs["lb_stat"].iloc[0], rel=1e-10)
    assert found.p_value == pytest.approx(theirs["lb_pvalue"].iloc[0], rel=1e-8)


def test_whiteness_test_of_several_features_is_hoskings():
    z = np.random.default_rng(2).normal(size=(200, 3)) @ np.array([[1.3, 0.4, 0], [0, 0.8, 0.2], [0, 0, 1.1]])
    n, total = len(z), 0.0
    inverse = np.linalg.inv(z.T @ z / n)
    for lag in range(1, 6):
        C = z[lag:].T @ z[:-lag] / n
        total += np.trace(C.T @ inverse @ C @ inverse) * n * n / (n - lag)
    found = whiteness_test(z, 5, fitted_parameters=4)
    assert found.statistic == pytest.approx(total * (1 + 2 / n), rel=1e-9)
    assert found.degrees_of_freedom == 5 * 9 - 4


def simulate_many(rng, D, Q, A, R, m0, P0, *, rounds, series):
    """Return the observations of many series, (series, rounds, k)."""
    d, k = len(D), len(R)
    x = m0 + rng.normal(size=(series, d)) @ np.linalg.cholesky(P0).T
    ys = np.empty((series, rounds, k))
    for t in range(rounds):
        x = x @ D.T + rng.normal(size=(series, d)) @ np.linalg.cholesky(Q).T
        ys[:, t] = x @ A.T + rng.normal(size=(series, k)) @ np.linalg.cholesky(R).T
    return ys


def test_p_values_are_uniform_for_a_correct_model():
    """400 series with a tenth of the entries missing."""
    rng = np.random.default_rng(10)
    system = random_system(rng, 3, 2)
    model, p_values, outside = model_of(*system), [], 0
    for y in simulate_many(rng, *system, rounds=300, series=400):
        y[rng.random(y.shape) < 0.1] = np.nan
        white = innovations(model, y).standardised
        tests = nis_test(white), bias_test(white, white), whiteness_test(white, whiteness_lags(model))
        p_values.append([test.p_value for test in tests])
        parts = nis_by_block(white)
        outside += bool(((parts.ratios < parts.low) | (parts.ratios > parts.high)).any())
    for column in np.array(p_values).T:
        assert stats.kstest(column, "uniform").pvalue > 0.005
        assert abs((column < 0.05).mean() - 0.05) < 3.3 * np.sqrt(0.05 * 0.95 / 400)
    assert abs(outside / 400 - 0.05) < 3.3 * np.sqrt(0.05 * 0.95 / 400)


@pytest.mark.filterwarnings("ignore:.*is at its minimum:halfseen.HalfseenWarning")
def test_fitted_parameters_reduce_the_degrees_of_freedom():
    """Without this correction, p-values would be too large."""
    rng = np.random.default_rng(12)
    system = random_system(rng, 2, 1, noise=0.4)
    counted, uncounted = [], []
    for y in simulate_many(rng, *system, rounds=400, series=60):
        model = hs.fit(y, latent=2, start=model_of(*system), max_iterations=60).model
        white = innovations(model, y).standardised
        counted.append(whiteness_test(white, whiteness_lags(model), 2 * 1 * 2).p_value)
        uncounted.append(whiteness_test(white, whiteness_lags(model)).p_value)
    assert 0.35 < np.mean(counted) < 0.62
    assert np.mean(uncounted) > np.mean(counted) + 0.1
    assert np.mean(np.array(counted) < 0.05) < 0.17


@pytest.fixture(scope="module")
def simulated():
    return random_series(5, 4, 2, 1500, radius=0.95)


def test_wrong_dynamics_make_innovations_autocorrelated(simulated):
    (D, Q, A, R, m0, P0), y = simulated
    white = innovations(model_of(0.5 * D, Q, A, R, m0, P0), y).standardised
    found = whiteness_test(white, 14)
    assert found.p_value < 1e-10
    assert found.predictable > 0.05


@pytest.mark.parametrize(("factor", "above"), [(0.25, True), (4.0, False)])
def test_wrong_noise_variances_change_the_size_of_innovations(simulated, factor, above):
    (D, Q, A, R, m0, P0), y = simulated
    found = nis_test(innovations(model_of(D, factor * Q, A, factor * R, m0, P0), y).standardised)
    assert found.p_value < 1e-10
    assert (found.ratio > found.high) if above else (found.ratio < found.low)
    assert found.ratio == pytest.approx(1 / factor, rel=0.1)


def test_an_offset_is_attributed_to_its_sensor(simulated):
    system, y = simulated
    errors = innovations(model_of(*system), y + np.array([0.0, 3.0]))
    found = bias_test(errors.standardised, errors.by_sensor)
    assert found.sensor == 1
    assert found.p_value < 1e-6


def test_a_change_is_located_by_blocks(simulated):
    system, y = simulated
    broken = y.copy()
    broken[1000:1100] *= 4.0
    parts = nis_by_block(innovations(model_of(*system), broken).standardised)
    out = parts.ratios > parts.high
    assert out.any()
    assert all(950 <= start <= 1110 for start in parts.starts[out])


def test_too_few_rounds_give_no_whiteness_test():
    assert whiteness_test(np.random.default_rng(0).normal(size=(30, 2)), 10) is None
    assert whiteness_test(np.full((300, 2), np.nan), 10) is None


@pytest.mark.parametrize(("rounds", "features", "missing"), [(400, 3, 0.8), (500, 10, 0.5), (400, 3, 0.0)])
def test_missing_entries_cause_few_false_alarms_of_the_whiteness_test(rounds, features, missing):
    rng, alarms = np.random.default_rng(11), 0
    for _ in range(150):
        white = rng.normal(size=(rounds, features))
        white[rng.random(white.shape) < missing] = np.nan
        found = whiteness_test(white, 12)
        alarms += found.p_value < 0.01
        assert found.predictable == 0.0 or found.p_value < 0.01
    assert alarms <= 7  # of 150 series; 1.5 alarms are expected


def test_a_bias_is_attributed_to_its_sensor_although_errors_are_correlated():
    rng = np.random.default_rng(5)
    noise = np.array([[1.0, 0.9], [0.9, 1.0]])
    model = hs.LinearGaussianModel(transition=np.zeros((2, 2)), process_cov=1e-6 * np.eye(2), observation_cov=noise)
    y = rng.multivariate_normal([0.5, 0.0], noise, size=800)
    errors = innovations(model, y)
    found = bias_test(errors.standardised, errors.by_sensor)
    assert found.sensor == 0
    assert found.largest == pytest.approx(0.5, abs=0.12)
    assert found.p_value < 1e-6


def test_entries_that_are_not_tested_do_not_count():
    """The other innovations are those of the marginal distribution of the tested entries."""
    rng = np.random.default_rng(12)
    system = random_system(rng, 3, 2)
    model, ys = model_of(*system), simulate_many(rng, *system, rounds=400, series=1)[0]
    ys[:, 1] = 5.0
    tested = np.column_stack([ys[:, 0], np.full(400, np.nan)])
    found = innovations(model, ys, tested)
    assert np.isnan(found.standardised[:, 1]).all()
    assert np.isnan(found.by_sensor[:, 1]).all()
    np.testing.assert_allclose(found.standardised[:, 0], found.by_sensor[:, 0])
    np.testing.assert_array_equal(found.contexts, innovations(model, ys).contexts)


def test_heavy_tails_cause_few_false_alarms_of_the_size():
    """Student's t distribution with 3 degrees of freedom, scaled to variance 1."""
    rng, alarms, blocks = np.random.default_rng(13), 0, 0
    for _ in range(200):
        white = rng.standard_t(3, size=(1500, 2)) / np.sqrt(3.0)
        test, parts = nis_test(white), nis_by_block(white)
        alarms += test.p_value < 0.01 and test.ratio > 1.08
        blocks += bool((parts.ratios / np.median(parts.ratios) > np.maximum(parts.limit, 1.5)).any())
    assert alarms <= 6
    assert blocks <= 6
