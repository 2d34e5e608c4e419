"""The probabilities of FlooredGreedy and StateSampling, compared with the frequencies of the arms."""

import numpy as np
import pytest

from halfseen.choosers.floored_greedy import FlooredGreedy
from halfseen.choosers.state_sampling import StateSampling
from halfseen.components import Choices, StreamBatch
from halfseen.kernels.random import stream_keys
from halfseen.learners.known import KnownByState

ARMS = 4


def make_choices(n, means, rounds, widths, available, features=None):
    return Choices(
        np.full(n, rounds),
        np.empty(n, dtype=np.int64),
        np.zeros((n, 1)) if features is None else features,
        np.tile(means, (n, 1)),
        np.zeros((n, ARMS)),
        widths,
        np.tile(np.array(available, dtype=bool), (n, 1)),
        None,
    )


def chooser_and_choices(means, *, minimum="decaying", rounds=64, available=(1, 1, 1, 1), n=1):
    streams = StreamBatch(stream_keys(np.arange(n)), 1, ARMS)
    chooser = FlooredGreedy(streams, 1, minimum_probability=minimum)

    class Learner:
        arms = ARMS

    widths = chooser.widths(np.arange(n), np.full(n, rounds), Learner())
    return chooser, make_choices(n, means, rounds, widths, available)


@pytest.mark.parametrize(
    ("means", "options", "want"),
    [
        ([1, 3, 2, 0], {"rounds": 64}, [0.25, 0.25, 0.25, 0.25]),  # 64^(−1/3) = 1/4
        ([1, 3, 2, 0], {"rounds": 1000}, [0.1, 0.7, 0.1, 0.1]),
        ([1, 3, 2, 0], {"rounds": 1}, [0.25, 0.25, 0.25, 0.25]),
        ([1, 3, 3, 0], {"rounds": 1000}, [0.1, 0.4, 0.4, 0.1]),
        ([1, 3, 2, 0], {"minimum": 0.06}, [0.06, 0.82, 0.06, 0.06]),
        ([1, 3, 2, 0], {"minimum": 0.06, "available": (1, 0, 1, 1)}, [0.06, 0, 0.88, 0.06]),
        ([1, 3, 2, 0], {"minimum": 0.4, "available": (1, 0, 1, 0)}, [0.4, 0, 0.6, 0]),
        ([1, 3, 2, 0], {"minimum": 0.9, "available": (1, 0, 1, 0)}, [0.5, 0, 0.5, 0]),
        ([1, 3, 2, 0], {"minimum": 0.4, "available": (0, 0, 0, 1)}, [0, 0, 0, 1]),
        ([1, np.nan, 2, 0], {"minimum": 0.1}, [0.1, 0.1, 0.7, 0.1]),
    ],
)
def test_probabilities(means, options, want):
    chooser, choices = chooser_and_choices(means, **options)
    np.testing.assert_allclose(chooser.probabilities(choices)[0], want, atol=1e-12)


@pytest.mark.parametrize("available", [(1, 1, 1, 1), (1, 0, 1, 1)])
def test_probabilities_equal_the_frequencies_of_the_arms(available):
    n = 20_000
    chooser, choices = chooser_and_choices([0.3, 0.9, 0.5, -1.0], rounds=300, available=available, n=n)
    chooser.pick(choices, stream_keys(np.arange(n)))
    want = chooser.probabilities(choices)[0]
    got = np.bincount(choices.arms, minlength=ARMS) / n
    assert (np.abs(got - want) <= 5 * np.sqrt(want * (1 - want) / n) + 1e-12).all()


def test_state_sampling_plays_the_best_arm_of_a_drawn_state():
    n, belief = 20_000, np.array([0.5, 0.3, 0.2])
    state_rewards = np.array([[1.0, 0.0, 2.0], [0.5, 3.0, 2.0], [0.0, 2.0, 0.0], [-1.0, -1.0, 9.0]])
    streams = StreamBatch(stream_keys(np.arange(n)), 1, ARMS)
    learner, chooser = KnownByState(streams, 3, state_rewards=state_rewards), StateSampling(streams, 3)
    widths = chooser.widths(np.arange(n), np.ones(n), learner)
    for available, want in [((1, 1, 1, 1), [0.5, 0.3, 0, 0.2]), ((1, 1, 1, 0), [0.6, 0.4, 0, 0])]:
        choices = make_choices(n, np.zeros(ARMS), 9, widths, available, np.tile(belief, (n, 1)))
        np.testing.assert_allclose(chooser.probabilities(choices), np.tile(want, (n, 1)), atol=1e-12)
        chooser.pick(choices, stream_keys(np.arange(n)))
        got = np.bincount(choices.arms, minlength=ARMS) / n
        assert (np.abs(got - want) <= 5 * np.sqrt(0.25 / n) * (np.array(want) > 0)).all()
