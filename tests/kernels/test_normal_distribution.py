"""The normal distribution of the quadrature against SciPy, including the tails."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import erf

from halfseen.kernels.normal_distribution import CUTOFF, normals


def values(half, z, inverse=1.0):
    density, lower = np.empty((1, len(z))), np.empty((1, len(z)))
    normals(0.0, np.ascontiguousarray(z), inverse, half, 0, density, lower)
    return density[0], lower[0]


def test_the_normal_distribution_is_accurate_up_to_the_cutoff():
    z = np.linspace(-CUTOFF, CUTOFF, 20_001)[1:-1]
    density, lower = values(False, z)
    np.testing.assert_allclose(density, stats.norm.pdf(z), rtol=5e-14)
    np.testing.assert_allclose(lower, stats.norm.cdf(z), rtol=5e-14)


def test_the_half_normal_distribution_is_accurate_near_0_and_up_to_the_cutoff():
    z = np.concatenate([np.geomspace(1e-300, 0.7, 5_000), np.linspace(0.3, CUTOFF, 10_001)[:-1]])
    density, lower = values(True, z)
    np.testing.assert_allclose(density, 2 * stats.norm.pdf(z), rtol=5e-14)
    np.testing.assert_allclose(lower, erf(z / np.sqrt(2)), rtol=5e-14)


@pytest.mark.parametrize("half", [False, True])
def test_the_upper_tail_is_0_beyond_the_cutoff(half):
    density, lower = values(half, np.array([CUTOFF, 10.0, 1e8, 1e300, np.inf]))
    np.testing.assert_array_equal(density, 0)
    np.testing.assert_array_equal(lower, 1)


def test_the_lower_tail_is_0_beyond_the_cutoff():
    density, lower = values(False, np.array([-CUTOFF, -10.0, -1e8, -np.inf]))
    np.testing.assert_array_equal(density, 0)
    np.testing.assert_array_equal(lower, 0)


@pytest.mark.parametrize("half", [False, True])
def test_the_scale_applies_to_points_and_density(half):
    z = np.linspace(0.1, 5, 50)
    density, lower = values(half, z)
    scaled, same = values(half, 1e-7 * z, 1e7)
    np.testing.assert_allclose(scaled, 1e7 * density, rtol=1e-13)
    np.testing.assert_allclose(same, lower, rtol=1e-13)
