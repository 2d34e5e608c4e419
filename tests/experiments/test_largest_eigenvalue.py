"""The largest eigenvalue of a batch is that of the matrix that has it, to the last bit."""

import numpy as np
import pytest

from halfseen.experiments.largest_eigenvalue import largest_eigenvalues
from halfseen.kernels.linalg import all_below


def posteriors(rng, batch, arms, size, plays):
    """(I + Σ ccᵀ)⁻¹ of so many random c an arm, at most."""
    found = np.empty((batch, arms, size, size))
    for b, a in np.ndindex(batch, arms):
        c = rng.normal(size=(rng.integers(0, plays + 1), size))
        inverse = np.linalg.inv(np.eye(size) + c.T @ c)
        found[b, a] = 0.5 * (inverse + inverse.T)
    return found


def packed(matrices):
    rows, columns = np.triu_indices(matrices.shape[-1])
    return np.ascontiguousarray(matrices[..., rows, columns])


@pytest.mark.parametrize("plays", [0, 5, 40, 400])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 3e150])
def test_it_is_the_largest_of_all(plays, scale):
    """Up to 5 plays leave an eigenvalue of 1 to every arm: which is the largest is decided by rounding alone."""
    matrices = scale * posteriors(np.random.default_rng(plays), 9, 6, 7, plays)
    np.testing.assert_array_equal(
        largest_eigenvalues(packed(matrices), 7), np.linalg.eigvalsh(matrices)[..., -1].max(axis=1)
    )


@pytest.mark.parametrize("plays", [0, 5, 10, 40])
def test_what_is_at_the_most_there_can_be_is_looked_at_no_further(plays):
    matrices = posteriors(np.random.default_rng(plays), 9, 6, 7, plays) / 3.0
    found = largest_eigenvalues(packed(matrices), 7, 1.0 / 3.0)
    np.testing.assert_allclose(found, np.linalg.eigvalsh(matrices)[..., -1].max(axis=1), rtol=1e-9)
    exact = largest_eigenvalues(packed(matrices), 7)
    np.testing.assert_array_equal(found[exact < 0.333], exact[exact < 0.333])


def test_a_flat_matrix_of_large_trace_does_not_hide_a_steep_one():
    matrices = np.stack([0.5 * np.eye(4), np.diag([0.9, 0.1, 0.1, 0.1])])[None]
    assert largest_eigenvalues(packed(matrices), 4).tolist() == [0.9]


def test_below_is_below_every_eigenvalue_and_nothing_else():
    matrices = posteriors(np.random.default_rng(3), 5, 4, 6, 30)
    values = np.linalg.eigvalsh(matrices)[..., -1]
    for factor in (1.0 - 1e-9, 1.0 + 1e-9):
        for arm in range(4):
            below = np.empty((5, 4), dtype=np.bool_)
            ceilings = factor * values[:, arm]
            all_below(packed(matrices), 6, ceilings, below)
            np.testing.assert_array_equal(below, values < ceilings[:, None])


def test_what_is_not_a_number_is_below_nothing():
    below = np.empty((1, 1), dtype=np.bool_)
    all_below(np.full((1, 1, 3), np.nan), 2, np.ones(1), below)
    assert not below[0, 0]
