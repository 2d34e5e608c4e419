"""Streams that share a model share its gain, until something sets them apart."""

import numpy as np
import pytest
from settings import ARMS, OBSERVED, simulate_rounds, small_model

import halfseen as hs
from halfseen.agents.catalogue import CATALOG
from halfseen.components import StreamBatch
from halfseen.errors import HalfseenError
from halfseen.kernels.random import stream_keys
from halfseen.worlds import linear_gaussian


def policy(model):
    return CATALOG["kf-ts"].build(StreamBatch(stream_keys([1, 2, 3]), OBSERVED, ARMS), {"model": model})


def groups(agent):
    """How many streams are in each group of covariances."""
    return np.unique(agent.estimator._bank.group, return_counts=True)[1].tolist()


def test_one_model_is_one_group_and_changes_no_number():
    ys = np.stack([simulate_rounds(40, seed=s)[1] for s in range(3)], axis=1)
    shared, private = policy(small_model()), policy([small_model() for _ in range(3)])
    assert (groups(shared), groups(private)) == ([3], [1, 1, 1])
    for y in ys:
        np.testing.assert_array_equal(shared.decide(y).features, private.decide(y).features)
    assert groups(shared) == [3]
    assert len(shared.estimator._bank.gain) == 1


def test_a_missing_entry_sets_streams_apart():
    ys = np.stack([simulate_rounds(40, seed=s)[1] for s in range(3)], axis=1)
    ys[20, 1, 2] = np.nan
    shared, private = policy(small_model()), policy([small_model() for _ in range(3)])
    for y in ys:
        np.testing.assert_array_equal(shared.decide(y).features, private.decide(y).features)
    assert sorted(groups(shared)) == [1, 2]


def test_a_world_of_one_model_tells_it_once():
    model = small_model()
    facts = linear_gaussian(model=model, arm_params=np.eye(5)).begin([1, 2, 3]).facts()
    assert groups(policy(facts["model"])) == [3]


def test_the_means_of_a_batch_are_one_a_stream():
    agent = policy(small_model())
    state = agent.state()
    state["estimator.mean"] = state["estimator.mean"][:1]
    with pytest.raises(HalfseenError, match="state 'mean': got float64"):
        agent.restore(state)


def fleet_of(count):
    fleet = hs.Fleet("kf-ts", observed=OBSERVED, arms=ARMS, model=small_model())
    fleet.add(count)
    return fleet


def ys(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, OBSERVED))


def users(fleet):
    """How many streams are in each group that has some."""
    bank, rows = fleet._policy.estimator._bank, fleet._registry.rows
    np.testing.assert_array_equal(np.bincount(bank.group, minlength=len(bank.frozen)), bank._users)
    assert sorted(bank._unused) == np.flatnonzero(bank._users == 0).tolist()
    return sorted(np.unique(bank.group[rows], return_counts=True)[1].tolist())


def test_streams_that_see_everything_end_up_in_one_group():
    fleet = fleet_of(5)
    for _ in range(300):
        fleet.decide(ys(5))
    assert users(fleet) == [5]
    bank = fleet._policy.estimator._bank
    assert bank.frozen[bank.group[0]]
    fleet.add(3)
    fleet.decide(ys(2), streams=[5, 7])
    assert users(fleet) == [1, 2, 5]
    for _ in range(300):
        fleet.decide(ys(3), streams=[6, 5, 7])
    assert users(fleet) == [8]


def test_streams_part_at_a_missing_entry_and_those_that_miss_the_same_stay_together():
    fleet, y = fleet_of(6), ys(6)
    y[[1, 4], 2] = np.nan
    y[3, 0] = np.nan
    fleet.decide(y)
    assert users(fleet) == [1, 2, 3]
    for _ in range(5):
        fleet.decide(ys(6))
    assert users(fleet) == [1, 2, 3]
    y = ys(2)
    y[0, 1] = np.nan
    fleet.decide(y, streams=[1, 4])
    assert users(fleet) == [1, 1, 1, 3]
    fleet.remove([1, 3, 4])
    assert users(fleet) == [3]
    fleet.add(3)
    assert users(fleet) == [3, 3]


def test_streams_at_their_own_pace_filter_as_single_agents_do():
    fleet, singles = (
        fleet_of(3),
        [hs.make("kf-ts", observed=OBSERVED, arms=ARMS, model=small_model(), seed=s) for s in range(3)],
    )
    for t in range(30):
        some = [0, 2] if t % 4 == 0 else [2, 1, 0]
        y = ys(3, seed=t)
        fleet.decide(y[some], streams=some)
        for stream in some:
            singles[stream].decide(y[stream])
        assert users(fleet) == ([1, 2] if t < 10 else users(fleet))
    assert users(fleet) == [3]  # all have converged
    for stream, single in enumerate(singles):
        got, want = fleet.agent(stream).state(), single.state()
        for name in ("estimator.mean", "estimator.cov", "estimator.gain", "estimator.frozen"):
            np.testing.assert_array_equal(got[name], want[name])


def test_an_agent_that_comes_back_finds_its_group():
    fleet = fleet_of(3)
    for t in range(7):
        fleet.decide(ys(3, seed=t))
    fleet.adopt(fleet.agent(1))
    assert users(fleet) == [4]
    y = ys(4)
    y[3, 0] = np.nan
    fleet.decide(y)
    fleet.adopt(fleet.agent(3))
    assert users(fleet) == [2, 3]


def test_an_agent_of_another_model_is_refused():
    other = hs.make("kf-ts", observed=OBSERVED, arms=ARMS, model=small_model(seed=3))
    with pytest.raises(hs.HalfseenError, match="agent: got"):
        fleet_of(1).adopt(other)
