"""Draws are a pure function of (seed, stream, round, purpose) and have the right distribution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from halfseen.kernels import random as randomness
from halfseen.kernels.random import Purpose, normal_series, normals, stream_keys, uniforms

word = st.integers(0, 2**63 - 1)


@settings(max_examples=50, deadline=None)
@given(seed=word, stream=word, round_=word, purpose=st.integers(0, 1000))
def test_uniforms_equal_philox_of_numpy(seed, stream, round_, purpose):
    counter = np.array([0, round_, purpose, 0], dtype=np.uint64)
    # NumPy increments the counter before its first block, so its first four words belong to block 1.
    peer = np.random.Philox(counter=counter, key=np.array([seed, stream], dtype=np.uint64)).random_raw(8)
    got = uniforms(stream_keys(seed, stream), np.array([round_]), purpose, 12)[0]
    np.testing.assert_array_equal(got[4:], ((peer >> np.uint64(11)) + 0.5) / 2**53)


def test_normals_are_normally_distributed():
    draws = normal_series(stream_keys(range(5)), 1, 4000, Purpose.PROCESS_NOISE, 7)
    assert stats.kstest(draws.ravel(), "norm").pvalue > 1e-3
    correlation = np.corrcoef(draws.reshape(-1, 7), rowvar=False) - np.eye(7)
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)


def test_a_draw_does_not_depend_on_other_draws():
    keys, rounds = stream_keys([3, 8, 3], [0, 0, 1]), np.array([5, 5, 5])
    together = normals(keys, rounds, Purpose.CHOICE, 15)
    for i in range(3):
        np.testing.assert_array_equal(together[i : i + 1], normals(keys[i : i + 1], rounds[:1], Purpose.CHOICE, 15))
    assert len({row.tobytes() for row in together}) == 3
    np.testing.assert_array_equal(normals(keys, rounds, Purpose.CHOICE, 4), together[:, :4])
    series = normal_series(keys, 3, 4, Purpose.CHOICE, 15)
    np.testing.assert_array_equal(series[:, 2], together)


@pytest.mark.parametrize("other", [p for p in Purpose if p != Purpose.CHOICE])
def test_purposes_are_independent(other):
    keys, rounds = stream_keys(3), np.array([5])
    assert not np.isin(normals(keys, rounds, other, 8), normals(keys, rounds, Purpose.CHOICE, 8)).any()


def test_large_seeds_do_not_collide():
    seeds = [2**53, 2**53 + 1, 2**63, 2**63 + 1, 2**64 - 1]
    assert stream_keys(seeds)[:, 0].tolist() == seeds
    for seed in seeds:
        assert stream_keys(seed)[0, 0] == seed


def test_purpose_numbers_do_not_change():
    assert [(p.name, p.value) for p in randomness.Purpose][:9] == [
        ("TRANSITION", 1),
        ("ARM_PARAMETERS", 2),
        ("INITIAL_CONTEXT", 3),
        ("PROCESS_NOISE", 4),
        ("OBSERVATION_NOISE", 5),
        ("REWARD_NOISE", 6),
        ("CHOICE", 7),
        ("INITIAL_MODEL", 8),
        ("SECOND_TRANSITION", 9),
    ]
