"""Streams that share a model share its gain, until something sets them apart."""

import numpy as np
import pytest
from settings import ARMS, OBSERVED, small_model, story

from halfseen.agents.catalogue import CATALOG
from halfseen.components import Streams
from halfseen.errors import HalfseenError
from halfseen.kernels.random import stream_keys
from halfseen.worlds import linear_gaussian


def policy(model):
    return CATALOG["kf-ts"].build(Streams(stream_keys([1, 2, 3]), OBSERVED, ARMS), {"model": model})


def lanes(agent):
    return len(agent.estimator._bank.gain)


def test_one_model_is_one_lane_and_changes_no_number():
    ys = np.stack([story(40, seed=s)[1] for s in range(3)], axis=1)
    shared, private = policy(small_model()), policy([small_model() for _ in range(3)])
    assert (lanes(shared), lanes(private)) == (1, 3)
    for y in ys:
        np.testing.assert_array_equal(shared.decide(y).features, private.decide(y).features)
    assert lanes(shared) == 1


def test_a_missing_entry_sets_streams_apart():
    ys = np.stack([story(40, seed=s)[1] for s in range(3)], axis=1)
    ys[20, 1, 2] = np.nan
    shared, private = policy(small_model()), policy([small_model() for _ in range(3)])
    for y in ys:
        np.testing.assert_array_equal(shared.decide(y).features, private.decide(y).features)
    assert lanes(shared) == 3


def test_a_world_of_one_model_tells_it_once():
    model = small_model()
    facts = linear_gaussian(model=model, arm_params=np.eye(5)).begin([1, 2, 3]).facts()
    assert lanes(policy(facts["model"])) == 1


def test_the_means_of_a_batch_are_one_a_stream():
    agent = policy(small_model())
    state = agent.state()
    state["estimator.mean"] = state["estimator.mean"][:1]
    with pytest.raises(HalfseenError, match="state 'mean': got float64"):
        agent.restore(state)
