"""The coordinates of L-BFGS and the gradient in them against finite differences, and a round of L-BFGS."""

from __future__ import annotations

import numpy as np
import pytest
from reference import gaussian

from halfseen.kernels.arrays import Parameters
from halfseen.models.identification.em import DIAGONAL, FIXED, FULL
from halfseen.models.identification.lbfgs import Coordinates, Freedom, lbfgs_round, score


def problem(update_R, update_initial, gaps, d=4, k=2, n=60):
    (D, Q, _, R, m0, P0), y = gaussian.random_series(95, d, k, n, gaps=gaps)
    R = np.diag(np.diag(R)) if update_R == DIAGONAL else R
    freedom = Freedom(update_R, update_initial, np.full(d, 1e-3), np.full(k, 1e-3))
    return Parameters(D, Q, R, m0, P0), y, freedom


@pytest.mark.parametrize("gaps", [None, {"share": 0.2}], ids=["complete", "missing entries"])
@pytest.mark.parametrize("update_initial", [True, False], ids=["x_0 free", "x_0 fixed"])
@pytest.mark.parametrize("update_R", [FIXED, DIAGONAL, FULL])
def test_the_gradient_equals_finite_differences(update_R, update_initial, gaps):
    centre, y, freedom = problem(update_R, update_initial, gaps)
    coordinates = Coordinates(centre, y, freedom)
    rng, step = np.random.default_rng(96), 1e-4
    z = 0.01 * rng.normal(size=coordinates.size)
    gradient = coordinates.gradient(z, score(coordinates.model(z), y)[1])
    for axis in np.eye(coordinates.size):
        values = [score(coordinates.model(z + multiple * step * axis), y)[0] for multiple in (-2, -1, 1, 2)]
        expected = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
        assert gradient @ axis == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("update_R", [FIXED, DIAGONAL, FULL])
def test_the_centre_is_at_0_and_covariances_stay_above_their_floors(update_R):
    centre, y, freedom = problem(update_R, True, None)
    coordinates = Coordinates(centre, y, freedom)
    for part, expected in zip(coordinates.model(np.zeros(coordinates.size)), centre, strict=True):
        np.testing.assert_allclose(part, expected, atol=1e-12)
    far = coordinates.model(3.0 * np.random.default_rng(97).normal(size=coordinates.size))
    assert np.linalg.eigvalsh(far.Q - np.diag(freedom.q_floor))[0] >= -1e-9
    if update_R == FIXED:
        np.testing.assert_array_equal(far.R, centre.R)
    else:
        assert np.linalg.eigvalsh(far.R - np.diag(freedom.r_floor))[0] >= -1e-9
    if update_R == DIAGONAL:
        np.testing.assert_array_equal(far.R, np.diag(np.diag(far.R)))


@pytest.mark.parametrize("update_initial", [True, False])
def test_a_round_increases_the_log_likelihood_and_leaves_fixed_parameters(update_initial):
    centre, y, freedom = problem(FIXED, update_initial, {"share": 0.1})
    trace = []
    model = lbfgs_round(centre, y, freedom, iterations=25, tolerance=0.0, on_iterate=trace.append)
    values = [score(centre, y)[0], *trace]
    assert 1 <= len(trace) <= 25
    assert np.diff(values).min() >= 0.0
    assert values[-1] > values[0] + 1.0
    assert score(model, y)[0] == pytest.approx(trace[-1], abs=1e-8)
    np.testing.assert_array_equal(model.R, centre.R)
    if not update_initial:
        np.testing.assert_array_equal(model.m0, centre.m0)
        np.testing.assert_array_equal(model.P0, centre.P0)
