"""Every catalogued agent survives extreme inputs and options, and the checks of the soak find what is wrong."""

from collections import Counter

import numpy as np
import pytest
from contracts.numerical_soak import Fault, attempt, check_choices, check_covariance, draw_case, soak

import halfseen as hs
from halfseen.components import Choices


@pytest.mark.parametrize("name", list(hs.catalog()))
def test_no_case_has_a_fault(name):
    """The numbers are those of small cases, so that this test takes seconds."""
    refused = Counter()
    played = [attempt(name, seed=0, number=number, refused=refused, most=1_000) for number in range(3)]
    assert sum(played) >= 900


@pytest.mark.slow
def test_a_million_rounds_have_no_fault():
    results = list(soak(1e6, seed=3))
    assert not any(result.faults for result in results), "\n".join(map(str, results))
    assert {result.agent for result in results} == set(hs.catalog())
    assert sum(result.rounds for result in results) >= 1e6


def test_a_case_follows_from_seed_agent_and_number():
    one, other = draw_case("kf-ts", 1, 5), draw_case("kf-ts", 1, 5)
    np.testing.assert_array_equal(one.observations, other.observations)
    assert repr(one) == repr(other)
    assert repr(draw_case("kf-ts", 1, 6)) != repr(one)


@pytest.mark.parametrize(
    ("matrix", "line"),
    [
        ([[1.0, np.nan], [np.nan, 1.0]], "not finite"),
        ([[1.0, 0.5], [0.4, 1.0]], "not symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "eigenvalue of -0.5"),
        ([[1e-200, 2e-200], [2e-200, 1e-200]], "eigenvalue of -0.5"),
    ],
)
def test_a_matrix_that_is_no_covariance_is_a_fault(matrix, line):
    check_covariance("cov", np.array([np.eye(2), np.zeros((2, 2))]), "round 1")
    with pytest.raises(Fault, match=line):
        check_covariance("cov", np.array([np.eye(2), matrix]), "round 1")


@pytest.mark.parametrize(
    ("changes", "propensities", "line"),
    [
        ({}, [0.5, 0.5 + 1e-8], "sum to"),
        ({}, [1.5, -0.5], "not probabilities"),
        ({}, [0.0, 1.0], "propensity 0"),
        ({}, [np.nan, 0.5], "not probabilities"),
        ({"means": np.array([[np.inf, 0.0]])}, [0.5, 0.5], "means are not finite"),
        ({"variances": np.array([[-1.0, 0.0]])}, [0.5, 0.5], "negative"),
        ({"available": np.array([[False, True]])}, [0.5, 0.5], "not available"),
    ],
)
def test_an_invalid_decision_is_a_fault(changes, propensities, line):
    arrays = {"rounds": np.array([1]), "arms": np.array([0]), "features": np.zeros((1, 1)), "noise_variances": None}
    arrays |= {name: np.zeros((1, 2)) for name in ("means", "variances", "widths")}
    arrays["available"] = np.ones((1, 2), dtype=bool)
    check_choices(Choices(**arrays), np.array([[0.5, 0.5]]), "round 1")
    with pytest.raises(Fault, match=line):
        check_choices(Choices(**arrays | changes), np.array([propensities]), "round 1")
