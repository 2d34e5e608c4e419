"""The quantities of Theorem 1, and the largest eigenvalues of many matrices."""

import numpy as np
import pytest

from halfseen.experiments.theory import bound_shape, largest_eigenvalues, theorem_quantities
from halfseen.kernels.linalg import all_below


def posteriors(rng, batch, arms, size, plays):
    """Return (I + Σ ccᵀ)⁻¹ for each arm, with the sum over a random number (at most `plays`) of random vectors c."""
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
def test_the_largest_eigenvalue_equals_that_of_lapack(plays, scale):
    """With up to 5 plays, all arms have an eigenvalue of 1, and rounding errors decide which is the largest."""
    matrices = scale * posteriors(np.random.default_rng(plays), 9, 6, 7, plays)
    np.testing.assert_array_equal(
        largest_eigenvalues(packed(matrices), 7), np.linalg.eigvalsh(matrices)[..., -1].max(axis=1)
    )


@pytest.mark.parametrize("plays", [0, 5, 10, 40])
def test_an_upper_limit_allows_a_tolerance(plays):
    matrices = posteriors(np.random.default_rng(plays), 9, 6, 7, plays) / 3.0
    found = largest_eigenvalues(packed(matrices), 7, 1.0 / 3.0)
    np.testing.assert_allclose(found, np.linalg.eigvalsh(matrices)[..., -1].max(axis=1), rtol=1e-9)
    exact = largest_eigenvalues(packed(matrices), 7)
    np.testing.assert_array_equal(found[exact < 0.333], exact[exact < 0.333])


def test_the_largest_trace_need_not_have_the_largest_eigenvalue():
    matrices = np.stack([0.5 * np.eye(4), np.diag([0.9, 0.1, 0.1, 0.1])])[None]
    assert largest_eigenvalues(packed(matrices), 4).tolist() == [0.9]


def test_all_below_compares_with_the_largest_eigenvalue():
    matrices = posteriors(np.random.default_rng(3), 5, 4, 6, 30)
    values = np.linalg.eigvalsh(matrices)[..., -1]
    for factor in (1.0 - 1e-9, 1.0 + 1e-9):
        for arm in range(4):
            below = np.empty((5, 4), dtype=np.bool_)
            ceilings = factor * values[:, arm]
            all_below(packed(matrices), 6, ceilings, below)
            np.testing.assert_array_equal(below, values < ceilings[:, None])


def test_nan_is_not_below():
    below = np.empty((1, 1), dtype=np.bool_)
    all_below(np.full((1, 1, 3), np.nan), 2, np.ones(1), below)
    assert not below[0, 0]


def test_bound_shape_equals_the_formula_of_the_appendix():
    at, error = np.array([50, 400]), np.array([3.0, 20.0])
    d, arms, delta = 6, 9, 0.2
    expected = [
        d * np.sqrt(t) * min(np.sqrt(d), np.sqrt(np.log(arms))) * (np.log(t) + np.sqrt(np.log(t) * np.log(1 / delta)))
        + np.sqrt(d * np.log(t)) * e
        for t, e in zip(at, error, strict=True)
    ]
    np.testing.assert_allclose(bound_shape(at, error, latent=d, arms=arms, delta=delta), expected)


def test_theorem_quantities_of_synthetic_data():
    t = np.arange(1, 2001)
    ones = np.ones((3, 2000))
    got = theorem_quantities(
        regret=0.5 * ones,
        error=ones * t**-0.5,
        context_norm=ones * np.sqrt(t),
        arm_norm=np.array([1.0, 4.0, 2.0]),
        checkpoints=np.array([200, 600, 2000]),
        gram=np.outer(np.ones(3), [1.0, 3.0, 10.0]),
        latent=4,
        arms=3,
    )
    assert got["A1 largest arm norm"] == 4
    assert got["A2 largest context norm"] == pytest.approx(np.sqrt(2000))
    assert got["A2 growth of the largest context norm"]["value"] == pytest.approx(0.5)
    assert got["A3 growth of t·|B⁻¹(t)|"]["value"] == pytest.approx(1, abs=1e-6)
    assert got["growth of the regret"]["value"] == pytest.approx(1)
    assert got["growth of the summed estimation error"]["value"] == pytest.approx(0.5, abs=0.02)
    assert got["summed estimation error"]["value"] == pytest.approx((t**-0.5).sum())
    assert got["regret"]["value"] == pytest.approx(1000)
