"""The data of an examination: missing rewards, and the memory layout of the arrays."""

import numpy as np
import pytest

from halfseen.diagnostics.examination_data import ExaminationData, ObservedRewards


def test_missing_rewards_are_left_out():
    data = ExaminationData.from_arrays(np.zeros((3, 1)), [0, 1, 0], [1.0, np.nan, 2.0], features=1)
    assert [part.tolist() for part in data.observed_rewards()] == [[0, 2], [0, 0], [1.0, 2.0]]
    every = ExaminationData.from_arrays(np.zeros((2, 1)), None, [[1.0, np.nan], [2.0, 3.0]], features=1)
    assert isinstance(every.observed_rewards(), ObservedRewards)
    assert [part.tolist() for part in every.observed_rewards()] == [[0, 1, 1], [0, 0, 1], [1.0, 2.0, 3.0]]


@pytest.mark.parametrize("every", [True, False])
def test_rewards_have_the_memory_layout_that_kernels_need(every):
    rng = np.random.default_rng(5)
    rewards = rng.normal(size=(60, 3) if every else 60)
    data = ExaminationData.from_arrays(rng.normal(size=(60, 2)), rng.integers(3, size=60), rewards, features=2)
    for observed in (data.observed_rewards(), data.rewards_of_played()):
        assert all(column.flags.carray for column in observed)
        assert [column.dtype for column in observed] == [np.int64, np.int64, np.float64]
