"""Costs of arms in experiments."""

import numpy as np
import pytest

import halfseen as hs

COSTS = [0.0, 0.1, 0.2, 0.5, 1.0, 2.0]


def test_regret_counts_reward_minus_cost():
    world, rounds, seeds = hs.worlds.named("keyhole", costs=COSTS), 60, [3, 4]
    result = hs.run(["ts-pco:control=[2,1.0]", "ts-pco"], world=world, rounds=rounds, seeds=seeds)
    net = hs.worlds.named("keyhole").begin(seeds).advance(rounds).expected - np.array(COSTS)
    expected = (net.max(axis=2) - net[:, :, 2]).sum(axis=0)
    np.testing.assert_allclose(result.total_regret(world.name, "ts-pco:control=[2, 1.0]"), expected, rtol=1e-12)
    assert result.summary["worlds"][world.name]["settings"]["costs"] == COSTS


def test_a_budget_in_an_experiment():
    world = hs.worlds.named("keyhole", costs=COSTS)
    result = hs.run(["random:budget=[10,100]"], world=world, rounds=100, seeds=3)
    ((_, track),) = result.tracks.items()
    assert (np.array(COSTS)[track.arm].sum(axis=1) <= 10.0).all()


def test_bad_costs_and_budgets_are_refused():
    with pytest.raises(hs.HalfseenError, match="costs: expected 6 numbers"):
        hs.worlds.named("keyhole", costs=[1.0, 2.0])
    with pytest.raises(hs.HalfseenError, match="because the agent has a budget"):
        hs.run(["random:budget=[10,100]"], world="keyhole", rounds=20, seeds=2)
