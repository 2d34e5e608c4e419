"""The kept rounds: as much memory as they need, never more than is allowed."""

import numpy as np
import pytest

import halfseen as hs
from halfseen.components import StreamBatch
from halfseen.errors import InvalidInput
from halfseen.estimators.adaptive.history import INITIAL_CAPACITY, History
from halfseen.kernels.random import stream_keys

WIDTH, ROUNDS = 4, 200


def history(streams=2):
    return History(StreamBatch(stream_keys(range(streams)), 3, 5), ROUNDS, WIDTH)


def live(part, rows, rounds):
    """Rounds in which y and the belief say which round of which row it was."""
    rows = np.asarray(rows)
    for _ in range(rounds):
        part.make_room(rows)
        slots = part.stored_rounds[rows]
        number = part.dropped_rounds[rows] + slots + 1
        part.observations[rows, slots] = (1000 * rows + number)[:, None]
        part.features[rows, slots] = number[:, None]
        part.arms[rows, slots], part.rewards[rows, slots] = number % 5, number
        part.stored_rounds[rows] += 1


def test_slots_grow_with_the_rounds_up_to_a_limit():
    part, lengths = history(), []
    for _ in range(5 * ROUNDS):
        live(part, [0], 1)
        lengths.append(part.arms.shape[1])
    assert lengths[0] == INITIAL_CAPACITY
    assert sorted(set(lengths)) == [64, 128, 256, 300]
    assert part.stored_rounds[0] + part.dropped_rounds[0] == 5 * ROUNDS
    count = part.stored_rounds[0]
    assert count >= ROUNDS
    np.testing.assert_array_equal(part.observations[0, :count, 0], part.dropped_rounds[0] + 1 + np.arange(count))
    assert part.stored_rounds[1] == 0
    assert np.isnan(part.observations[1]).all()


def test_state_holds_only_what_was_lived_and_goes_on():
    part = history()
    live(part, [0, 1], 70)
    live(part, [1], 20)
    state = part.state()
    assert state["observations"].shape == (2, 90, 3)
    other = history()
    other.check(state, 2)
    other.restore(state)
    for one in (part, other):
        live(one, [0, 1], 400)
    for name, array in part.state().items():
        np.testing.assert_array_equal(array, other.state()[name])


@pytest.mark.parametrize("slots", [89, 301])
def test_a_state_that_contradicts_itself_is_refused(slots):
    part = history()
    live(part, [1], 90)
    state = dict(part.state())
    for name in part.fill_values:
        state[name] = np.resize(state[name], (2, slots, *state[name].shape[2:]))
    with pytest.raises(InvalidInput, match="stored_rounds"):
        history().check(state, 2)


def test_a_young_stream_is_small():
    agent = hs.make("adaptive", observed=10, arms=15, seed=1)
    agent.decide(np.zeros(10))
    carried = sum(array.nbytes for array in agent.state().values())
    assert carried < 300_000
    fleet = hs.Fleet("adaptive", observed=10, arms=15)
    fleet.add(8)
    fleet.decide(np.zeros((8, 10)))
    assert fleet.nbytes / 8 < 600_000
