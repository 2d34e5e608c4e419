"""Streams that share a model and observe the same entries share covariance and gain."""

import numpy as np
import pytest
from settings import ARMS, OBSERVED, simulate_rounds, small_model

import halfseen as hs
from halfseen.agents.catalogue import CATALOG
from halfseen.components import StreamBatch
from halfseen.errors import HalfseenError
from halfseen.kernels.random import stream_keys
from halfseen.worlds import linear_gaussian


def make_policy(model):
    return CATALOG["kf-ts"].build(StreamBatch(stream_keys([1, 2, 3]), OBSERVED, ARMS), {"model": model})


def group_sizes(policy):
    """Return the number of streams in each group."""
    return np.unique(policy.estimator._bank.group, return_counts=True)[1].tolist()


def test_a_shared_model_is_one_group_and_gives_the_same_features():
    ys = np.stack([simulate_rounds(40, seed=s)[1] for s in range(3)], axis=1)
    shared, private = make_policy(small_model()), make_policy([small_model() for _ in range(3)])
    assert (group_sizes(shared), group_sizes(private)) == ([3], [1, 1, 1])
    for y in ys:
        np.testing.assert_array_equal(shared.decide(y).features, private.decide(y).features)
    assert group_sizes(shared) == [3]
    assert len(shared.estimator._bank.gain) == 1


def test_a_missing_entry_splits_the_group():
    ys = np.stack([simulate_rounds(40, seed=s)[1] for s in range(3)], axis=1)
    ys[20, 1, 2] = np.nan
    shared, private = make_policy(small_model()), make_policy([small_model() for _ in range(3)])
    for y in ys:
        np.testing.assert_array_equal(shared.decide(y).features, private.decide(y).features)
    assert sorted(group_sizes(shared)) == [1, 2]


def test_streams_of_a_world_with_one_model_share_it():
    model = small_model()
    facts = linear_gaussian(model=model, arm_params=np.eye(5)).begin([1, 2, 3]).facts()
    assert group_sizes(make_policy(facts["model"])) == [3]


def test_a_state_with_too_few_means_is_refused():
    policy = make_policy(small_model())
    state = policy.state()
    state["estimator.mean"] = state["estimator.mean"][:1]
    with pytest.raises(HalfseenError, match=r"state 'mean': expected float64 \(3, 5\), got float64 \(1, 5\)"):
        policy.restore(state)


def make_fleet(count):
    fleet = hs.Fleet("kf-ts", observed=OBSERVED, arms=ARMS, model=small_model())
    fleet.add(count)
    return fleet


def observations(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, OBSERVED))


def fleet_group_sizes(fleet):
    """Return the number of streams in each group in use, after checking the bookkeeping of the groups."""
    bank, rows = fleet._policy.estimator._bank, fleet._registry.rows
    np.testing.assert_array_equal(np.bincount(bank.group, minlength=len(bank.frozen)), bank._users)
    assert sorted(bank._unused) == np.flatnonzero(bank._users == 0).tolist()
    return sorted(np.unique(bank.group[rows], return_counts=True)[1].tolist())


def test_streams_without_missing_entries_converge_to_one_group():
    fleet = make_fleet(5)
    for _ in range(300):
        fleet.decide(observations(5))
    assert fleet_group_sizes(fleet) == [5]
    bank = fleet._policy.estimator._bank
    assert bank.frozen[bank.group[0]]
    fleet.add(3)
    fleet.decide(observations(2), streams=[5, 7])
    assert fleet_group_sizes(fleet) == [1, 2, 5]
    for _ in range(300):
        fleet.decide(observations(3), streams=[6, 5, 7])
    assert fleet_group_sizes(fleet) == [8]


def test_streams_with_the_same_missing_entries_stay_in_one_group():
    fleet, y = make_fleet(6), observations(6)
    y[[1, 4], 2] = np.nan
    y[3, 0] = np.nan
    fleet.decide(y)
    assert fleet_group_sizes(fleet) == [1, 2, 3]
    for _ in range(5):
        fleet.decide(observations(6))
    assert fleet_group_sizes(fleet) == [1, 2, 3]
    y = observations(2)
    y[0, 1] = np.nan
    fleet.decide(y, streams=[1, 4])
    assert fleet_group_sizes(fleet) == [1, 1, 1, 3]
    fleet.remove([1, 3, 4])
    assert fleet_group_sizes(fleet) == [3]
    fleet.add(3)
    assert fleet_group_sizes(fleet) == [3, 3]


def test_streams_with_different_numbers_of_rounds_filter_as_single_agents_do():
    fleet, singles = (
        make_fleet(3),
        [hs.make("kf-ts", observed=OBSERVED, arms=ARMS, model=small_model(), seed=s) for s in range(3)],
    )
    for t in range(30):
        some = [0, 2] if t % 4 == 0 else [2, 1, 0]
        y = observations(3, seed=t)
        fleet.decide(y[some], streams=some)
        for stream in some:
            singles[stream].decide(y[stream])
        assert fleet_group_sizes(fleet) == ([1, 2] if t < 10 else fleet_group_sizes(fleet))
    assert fleet_group_sizes(fleet) == [3]  # all have converged
    for stream, single in enumerate(singles):
        got, want = fleet.agent(stream).state(), single.state()
        for name in ("estimator.mean", "estimator.cov", "estimator.gain", "estimator.frozen"):
            np.testing.assert_array_equal(got[name], want[name])


def test_an_adopted_agent_joins_the_group_with_the_same_covariance():
    fleet = make_fleet(3)
    for t in range(7):
        fleet.decide(observations(3, seed=t))
    fleet.adopt(fleet.agent(1))
    assert fleet_group_sizes(fleet) == [4]
    y = observations(4)
    y[3, 0] = np.nan
    fleet.decide(y)
    fleet.adopt(fleet.agent(3))
    assert fleet_group_sizes(fleet) == [2, 3]


def test_an_agent_with_another_model_is_refused():
    other = hs.make("kf-ts", observed=OBSERVED, arms=ARMS, model=small_model(seed=3))
    with pytest.raises(hs.HalfseenError, match="agent: expected"):
        make_fleet(1).adopt(other)
