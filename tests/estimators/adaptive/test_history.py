"""The stored rounds of the adaptive agents, and the memory they use."""

import numpy as np
import pytest

import halfseen as hs
from halfseen.components import StreamBatch
from halfseen.errors import InvalidInput
from halfseen.estimators.adaptive.history import INITIAL_CAPACITY, History
from halfseen.kernels.random import stream_keys

WIDTH, ROUNDS = 4, 200


def make_history(streams=2):
    return History(StreamBatch(stream_keys(range(streams)), 3, 5), ROUNDS, WIDTH)


def store_rounds(history, rows, rounds):
    """Store rounds whose observations and features contain the number of the round and of the row."""
    rows = np.asarray(rows)
    for _ in range(rounds):
        history.make_room(rows)
        positions = history.stored_rounds[rows]
        number = history.dropped_rounds[rows] + positions + 1
        history.observations[rows, positions] = (1000 * rows + number)[:, None]
        history.features[rows, positions] = number[:, None]
        history.arms[rows, positions], history.rewards[rows, positions] = number % 5, number
        history.stored_rounds[rows] += 1


def test_the_capacity_grows_up_to_a_limit():
    history, lengths = make_history(), []
    for _ in range(5 * ROUNDS):
        store_rounds(history, [0], 1)
        lengths.append(history.arms.shape[1])
    assert lengths[0] == INITIAL_CAPACITY
    assert sorted(set(lengths)) == [64, 128, 256, 300]
    assert history.stored_rounds[0] + history.dropped_rounds[0] == 5 * ROUNDS
    count = history.stored_rounds[0]
    assert count >= ROUNDS
    np.testing.assert_array_equal(history.observations[0, :count, 0], history.dropped_rounds[0] + 1 + np.arange(count))
    assert history.stored_rounds[1] == 0
    assert np.isnan(history.observations[1]).all()


def test_the_state_contains_only_stored_rounds_and_can_be_continued():
    history = make_history()
    store_rounds(history, [0, 1], 70)
    store_rounds(history, [1], 20)
    state = history.state()
    assert state["observations"].shape == (2, 90, 3)
    other = make_history()
    other.check(state | {"rounds": np.array([70, 90])}, 2)
    other.restore(state)
    for one in (history, other):
        store_rounds(one, [0, 1], 400)
    for name, array in history.state().items():
        np.testing.assert_array_equal(array, other.state()[name])


@pytest.mark.parametrize("length", [89, 301])
def test_a_state_with_arrays_of_the_wrong_length_is_refused(length):
    history = make_history()
    store_rounds(history, [1], 90)
    state = dict(history.state())
    for name in history.fill_values:
        state[name] = np.resize(state[name], (2, length, *state[name].shape[2:]))
    with pytest.raises(InvalidInput, match="stored_rounds"):
        make_history().check(state | {"rounds": np.array([0, 90])}, 2)


def test_a_new_stream_uses_little_memory():
    agent = hs.make("adaptive", observed=10, arms=15, seed=1)
    agent.decide(np.zeros(10))
    nbytes = sum(array.nbytes for array in agent.state().values())
    assert nbytes < 300_000
    fleet = hs.Fleet("adaptive", observed=10, arms=15)
    fleet.add(8)
    fleet.decide(np.zeros((8, 10)))
    assert fleet.nbytes / 8 < 600_000
