"""k-means: initial centres have the right distribution, and the result is a fixed point of Lloyd's algorithm."""

import numpy as np
import pytest
from scipy.cluster.vq import kmeans2

from halfseen.statistics.k_means import k_means


def cost(points, centres):
    return ((points[:, None] - centres) ** 2).sum(axis=2).min(axis=1).sum()


def test_second_centre_is_drawn_in_proportion_to_squared_distance():
    points = np.array([[0.0], [1.0], [3.0]])
    rng, counts = np.random.default_rng(0), np.zeros((3, 3))
    for _ in range(6000):
        centres, _ = k_means(points, rng.uniform(size=(1, 2)), 0)
        counts[
            int(np.flatnonzero(points[:, 0] == centres[0, 0])[0]), int(np.flatnonzero(points[:, 0] == centres[1, 0])[0])
        ] += 1
    expected = (points - points.T) ** 2
    expected = expected / expected.sum(axis=1, keepdims=True) / 3
    np.testing.assert_allclose(counts / 6000, expected, atol=5 * np.sqrt(0.25 / 6000))


def test_result_is_a_fixed_point_and_no_worse_than_scipys():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(400, 3)) + 3 * rng.normal(size=(6, 3))[rng.integers(6, size=400)]
    centres, labels = k_means(points, rng.uniform(size=(12, 6)), 100)
    nearest = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(labels, nearest)
    np.testing.assert_allclose(centres, [points[labels == c].mean(axis=0) for c in range(6)])
    theirs = [kmeans2(points, 6, iter=100, minit="++", seed=s)[0] for s in range(5)]
    assert cost(points, centres) <= np.mean([cost(points, one) for one in theirs]) + 1e-9


@pytest.mark.parametrize("points", [np.zeros((5, 2)), np.ones((1, 2)), np.array([[0.0, 0.0], [1e90, -1e90]])])
def test_fewer_points_than_centres(points):
    centres, labels = k_means(points, np.random.default_rng(2).uniform(size=(3, 4)), 10)
    assert np.isfinite(centres).all()
    np.testing.assert_allclose(centres[labels], points)
