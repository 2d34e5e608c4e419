"""Streams with the same past of seen and not seen share a covariance."""

import numpy as np
import pytest
from settings import ARMS, OBSERVED, small_model

import halfseen as hs
from halfseen.agents.fleet import lanes


def fleet_of(count, **options):
    fleet = hs.Fleet("kf-ts", observed=OBSERVED, arms=ARMS, model=small_model(), **options)
    fleet.add(count)
    return fleet


def bank_of(fleet):
    return fleet._engine.estimator.bank


def ys(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, OBSERVED))


def users(fleet):
    """How many streams are in each lane that has some."""
    bank = bank_of(fleet)
    counts = np.bincount(bank.lane[fleet._roll.rows], minlength=len(bank.users))
    np.testing.assert_array_equal(counts, bank.users)
    return sorted(counts[counts > 0].tolist())


def test_streams_that_see_everything_are_in_the_lane_of_their_age():
    fleet = fleet_of(5)
    for _ in range(300):
        fleet.decide(ys(5))
    assert users(fleet) == [5]
    assert bank_of(fleet).frozen[bank_of(fleet).lane[0]]
    ages = bank_of(fleet).count
    fleet.add(3)
    fleet.decide(ys(2), streams=[5, 7])
    assert users(fleet) == [1, 2, 5]
    for _ in range(300):
        fleet.decide(ys(3), streams=[6, 5, 7])
    assert users(fleet) == [8]
    assert bank_of(fleet).count == ages  # nothing was computed twice


def test_streams_part_at_a_missing_entry_and_those_that_miss_the_same_stay_together():
    fleet, y = fleet_of(6), ys(6)
    y[[1, 4], 2] = np.nan
    y[3, 0] = np.nan
    fleet.decide(y)
    assert users(fleet) == [1, 2, 3]
    count = bank_of(fleet).count
    for _ in range(5):
        fleet.decide(ys(6))
    assert users(fleet) == [1, 2, 3]
    assert bank_of(fleet).count == count + 5  # the ages of those that saw everything; the others stepped in place
    y = ys(2)
    y[0, 1] = np.nan
    fleet.decide(y, streams=[1, 4])
    assert users(fleet) == [1, 1, 1, 3]
    fleet.remove([1, 3, 4])
    assert users(fleet) == [3]
    assert bank_of(fleet).count == np.count_nonzero(bank_of(fleet).of_age)


def test_lanes_of_ages_are_kept_up_to_a_number(monkeypatch):
    monkeypatch.setattr(lanes, "AGES", 4)
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
    assert np.count_nonzero(bank_of(fleet).of_age) == 4
    assert bank_of(fleet).count <= 4 + 3
    for stream, single in enumerate(singles):
        got, want = fleet.agent(stream).state(), single.state()
        for name in ("estimator.mean", "estimator.cov", "estimator.gain", "estimator.frozen"):
            np.testing.assert_array_equal(got[name], want[name])


@pytest.mark.parametrize("packed", [False, True])
def test_an_agent_that_comes_back_finds_its_lane(packed):
    fleet = fleet_of(3, packed=packed)
    for t in range(7):
        fleet.decide(ys(3, seed=t))
    fleet.adopt(fleet.agent(1))
    assert users(fleet) == [4]
    y = ys(4)
    y[3, 0] = np.nan
    fleet.decide(y)
    fleet.adopt(fleet.agent(3))
    assert users(fleet) == [1, 1, 3]


def test_an_agent_of_another_model_is_refused():
    other = hs.make("kf-ts", observed=OBSERVED, arms=ARMS, model=small_model(seed=3))
    with pytest.raises(hs.HalfseenError, match="agent: got"):
        fleet_of(1).adopt(other)
