"""Tests of the check of input values."""

import numpy as np
import pytest

from halfseen.kernels.checks import COMPLETE, EXCESSIVE, MISSING, classify_values


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, COMPLETE),
        ({(1, 0): np.nan}, MISSING),
        ({(2, 2): np.inf}, EXCESSIVE),
        ({(2, 2): -1.1e100}, EXCESSIVE),
        ({(2, 2): 1e100}, COMPLETE),
        ({(0, 0): np.nan, (2, 1): -np.inf}, EXCESSIVE),
    ],
)
def test_values_are_classified(changes, expected):
    values = np.arange(9.0).reshape(3, 3)
    for position, value in changes.items():
        values[position] = value
    assert classify_values(values) == expected
