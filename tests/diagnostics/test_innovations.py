"""Surprises: against a dense Gaussian, against another library, false alarms, planted faults."""

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
def test_standardised_innovations_are_those_of_the_joint_gaussian(canonical, gaps):
    system, y = random_series(3, 4, 2, 30, gaps={} if gaps else None, canonical=canonical)
    x_mean, x_cov, H, noise = joint(*system, len(y))
    seen = ~np.isnan(y.ravel())
    cov = (H @ x_cov @ H.T + noise)[np.ix_(seen, seen)]
    wanted = np.full(y.size, np.nan)
    wanted[seen] = np.linalg.solve(np.linalg.cholesky(cov), y.ravel()[seen] - (H @ x_mean)[seen])
    found = innovations(model_of(*system), y)
    np.testing.assert_allclose(found.standardised, wanted.reshape(y.shape), atol=1e-8)


def test_one_feature_is_ljung_and_box():
    acorr_ljungbox = pytest.importorskip("statsmodels.stats.diagnostic").acorr_ljungbox
    z = np.random.default_rng(1).normal(size=(300, 1)) * 1.7
    z -= z.mean()
    z[1:] += 0.2 * z[:-1]
    z -= z.mean()
    found = whiteness_test(z, 7)
    theirs = acorr_ljungbox(z[:, 0], lags=[7])
    assert found.statistic == pytest.approx(theirs["lb_stat"].iloc[0], rel=1e-10)
    assert found.p_value == pytest.approx(theirs["lb_pvalue"].iloc[0], rel=1e-8)


def test_several_features_are_hosking():
    z = np.random.default_rng(2).normal(size=(200, 3)) @ np.array([[1.3, 0.4, 0], [0, 0.8, 0.2], [0, 0, 1.1]])
    n, total = len(z), 0.0
    inverse = np.linalg.inv(z.T @ z / n)
    for lag in range(1, 6):
        C = z[lag:].T @ z[:-lag] / n
        total += np.trace(C.T @ inverse @ C @ inverse) * n * n / (n - lag)
    found = whiteness_test(z, 5, fitted_parameters=4)
    assert found.statistic == pytest.approx(total * (1 + 2 / n), rel=1e-9)
    assert found.degrees_of_freedom == 5 * 9 - 4


def many(rng, D, Q, A, R, m0, P0, *, rounds, series):
    """Observations of many series at once, (series, rounds, k)."""
    d, k = len(D), len(R)
    x = m0 + rng.normal(size=(series, d)) @ np.linalg.cholesky(P0).T
    ys = np.empty((series, rounds, k))
    for t in range(rounds):
        x = x @ D.T + rng.normal(size=(series, d)) @ np.linalg.cholesky(Q).T
        ys[:, t] = x @ A.T + rng.normal(size=(series, k)) @ np.linalg.cholesky(R).T
    return ys


def test_right_models_raise_few_alarms():
    """400 series of a right model, a tenth of the entries missing: p-values are uniform."""
    rng = np.random.default_rng(10)
    system = random_system(rng, 3, 2)
    model, p_values, outside = model_of(*system), [], 0
    for y in many(rng, *system, rounds=300, series=400):
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


def test_a_fit_takes_degrees_of_freedom():
    """Counting what was fitted keeps alarms near their rate; not counting it would make them far too rare."""
    rng = np.random.default_rng(12)
    system = random_system(rng, 2, 1, noise=0.4)
    counted, uncounted = [], []
    for y in many(rng, *system, rounds=400, series=60):
        model = hs.fit(y, latent=2, start=model_of(*system), max_iterations=60).model
        white = innovations(model, y).standardised
        counted.append(whiteness_test(white, whiteness_lags(model), 2 * 1 * 2).p_value)
        uncounted.append(whiteness_test(white, whiteness_lags(model)).p_value)
    assert 0.35 < np.mean(counted) < 0.62
    assert np.mean(uncounted) > np.mean(counted) + 0.1
    assert np.mean(np.array(counted) < 0.05) < 0.17


@pytest.fixture(scope="module")
def story():
    return random_series(5, 4, 2, 1500, radius=0.95)


def test_wrong_dynamics_leave_memory(story):
    (D, Q, A, R, m0, P0), y = story
    white = innovations(model_of(0.5 * D, Q, A, R, m0, P0), y).standardised
    found = whiteness_test(white, 14)
    assert found.p_value < 1e-10
    assert found.predictable > 0.05


@pytest.mark.parametrize(("factor", "above"), [(0.25, True), (4.0, False)])
def test_noise_of_the_wrong_size_is_a_surprise_of_the_wrong_size(story, factor, above):
    (D, Q, A, R, m0, P0), y = story
    found = nis_test(innovations(model_of(D, factor * Q, A, factor * R, m0, P0), y).standardised)
    assert found.p_value < 1e-10
    assert (found.ratio > found.high) if above else (found.ratio < found.low)
    assert found.ratio == pytest.approx(1 / factor, rel=0.1)


def test_an_offset_is_found_at_its_sensor(story):
    system, y = story
    seen = innovations(model_of(*system), y + np.array([0.0, 3.0]))
    found = bias_test(seen.standardised, seen.by_sensor)
    assert found.sensor == 1
    assert found.p_value < 1e-6


def test_a_change_shows_in_its_nis_by_block(story):
    system, y = story
    broken = y.copy()
    broken[1000:1100] *= 4.0
    parts = nis_by_block(innovations(model_of(*system), broken).standardised)
    out = parts.ratios > parts.high
    assert out.any()
    assert all(950 <= start <= 1110 for start in parts.starts[out])


def test_too_few_rounds_are_not_tested():
    assert whiteness_test(np.random.default_rng(0).normal(size=(30, 2)), 10) is None
    assert whiteness_test(np.full((300, 2), np.nan), 10) is None


@pytest.mark.parametrize(("rounds", "features", "missing"), [(400, 3, 0.8), (500, 10, 0.5), (400, 3, 0.0)])
def test_gaps_are_no_memory(rounds, features, missing):
    """Independent standard normals with many gaps: at the 1 % level about 1 in 100 is called rare."""
    rng, alarms = np.random.default_rng(11), 0
    for _ in range(150):
        white = rng.normal(size=(rounds, features))
        white[rng.random(white.shape) < missing] = np.nan
        found = whiteness_test(white, 12)
        alarms += found.p_value < 0.01
        assert found.predictable == 0.0 or found.p_value < 0.01
    assert alarms <= 7  # of 150; 1.5 expected


def test_a_bias_is_named_after_its_sensor_even_where_errors_go_together():
    rng = np.random.default_rng(5)
    noise = np.array([[1.0, 0.9], [0.9, 1.0]])
    model = hs.LinearGaussianModel(transition=np.zeros((2, 2)), process_cov=1e-6 * np.eye(2), observation_cov=noise)
    y = rng.multivariate_normal([0.5, 0.0], noise, size=800)
    seen = innovations(model, y)
    found = bias_test(seen.standardised, seen.by_sensor)
    assert found.sensor == 0
    assert found.largest == pytest.approx(0.5, abs=0.12)
    assert found.p_value < 1e-6
