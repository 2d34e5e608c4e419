"""What is written down of rounds, against NumPy."""

import numpy as np
import pytest

from halfseen.kernels.record import distances, regrets


@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 16, 20, 31, 128])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_distances_are_norms_to_the_last_bit(d, share):
    rng, p = np.random.default_rng(d), int(share * d)
    x, y = rng.normal(size=(300, d)), rng.normal(size=(300, p))
    padded = np.zeros((300, d))
    padded[:, :p] = y
    np.testing.assert_array_equal(distances(x, y), np.linalg.norm(x - padded, axis=1))


def test_regret_is_to_the_best_arm():
    rng = np.random.default_rng(0)
    expected, arms = rng.normal(size=(50, 4)), rng.integers(0, 4, size=50)
    expected[7, 2] = np.nan
    out = regrets(expected, arms)
    np.testing.assert_array_equal(out, expected.max(axis=1) - expected[np.arange(50), arms])
    assert np.isnan(out[7])
    assert (out == 0).any()
