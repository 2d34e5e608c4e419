"""Decisions in arrays against a dictionary that does the same."""

import numpy as np
import pytest

from halfseen.agents.fleet.waiting import Waiting
from halfseen.kernels.waiting import FOUND, TWICE, UNKNOWN


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_any_story_of_opening_closing_and_forgetting(most):
    rng = np.random.default_rng(most)
    streams = 12
    waiting, wanted = Waiting(most, 2), {row: {} for row in range(streams)}
    waiting.make_rows(streams)
    rounds, rewarded = np.zeros(streams, dtype=np.int64), np.zeros((streams, 2), dtype=np.int64)
    counts = np.zeros(streams, dtype=int)
    for _ in range(400):
        rows = rng.permutation(streams)[: rng.integers(1, streams + 1)]
        rounds[rows] += 1
        ids = (rows.astype(np.int64) << 32) | rounds[rows]
        arms, features = rng.integers(5, size=len(rows)), rng.normal(size=(len(rows), 2))
        waiting.open(ids, rows, arms, features)
        for i, row in enumerate(rows):
            wanted[row][int(ids[i])] = (arms[i], tuple(features[i]))
            while len(wanted[row]) > most:
                del wanted[row][next(iter(wanted[row]))]
        known = [number for entries in wanted.values() for number in entries]
        chosen = rng.permutation(known)[: rng.integers(0, len(known) + 1) if rng.uniform() < 0.5 else 0].astype(
            np.int64
        )
        places, found, _ = waiting.find(chosen)
        assert found == FOUND
        for place, number in zip(places, chosen, strict=True):
            row = int(number >> 32)
            arm, feature = wanted[row].pop(int(number))
            assert (waiting.streams[place], waiting.arms[place]) == (row, arm)
            assert tuple(waiting.features[place]) == feature
            counts[row] += 1
        waiting.close(places, rounds, rewarded)
        if rng.uniform() < 0.05:
            gone = rng.permutation(streams)[:2]
            waiting.forget(gone)
            for row in gone:
                wanted[row].clear()
        assert len(waiting) == sum(map(len, wanted.values()))
        for row in range(streams):
            assert waiting.ids[waiting.of(np.array([row]))].tolist() == list(wanted[row])
    assert rewarded[:, 0].tolist() == counts.tolist()


def test_what_is_not_there_and_what_is_there_twice():
    waiting = Waiting(10, 1)
    waiting.make_rows(1)
    ids = np.array([5, 6, 7])
    waiting.open(ids, np.zeros(3, dtype=np.int64), ids, np.zeros((3, 1)))
    assert waiting.find(np.array([5, 9, 9]))[1:] == (UNKNOWN, 1)
    assert waiting.find(np.array([5, 7, 5]))[1:] == (TWICE, 2)
    assert waiting.find(np.array([-1]))[1:] == (UNKNOWN, 0)
    assert waiting.find(np.array([7, 5, 6]))[1] == FOUND  # nothing is left marked
