"""Costs and budgets of single agents and fleets: the formula of propensities, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from settings import state_bytes

import halfseen as hs
from halfseen.agents.catalogue import CATALOG
from halfseen.components import StreamBatch
from halfseen.kernels.random import stream_keys

NUMBERS = "costs: expected 2 numbers from 0 to 1e+100, one per arm, got "


def test_propensities_with_costs_follow_the_formula():
    """Two normal draws: P(draw_0 − cost_0 > draw_1 − cost_1) = Φ((m_0 − m_1 − cost_0 + cost_1)/√(s_0² + s_1²))."""
    rng, costs = np.random.default_rng(1), np.array([0.4, 0.1])

    def played():
        return CATALOG["ts-pco"].build(StreamBatch(stream_keys(np.arange(1)), 2, 2), {})

    free, paid = played(), played()
    for t in range(20):
        y = rng.normal(size=(1, 2))
        expected, choices = free.decide(y), paid.decide(y, costs=costs[None])
        means, spreads = expected.means[0], expected.widths * np.sqrt(expected.variances[0])
        gap = means[0] - means[1] - costs[0] + costs[1]
        first = ndtr(gap / np.linalg.norm(spreads))
        np.testing.assert_allclose(paid.propensities(choices)[0], [first, 1.0 - first], rtol=1e-9)
        for policy, made in ((free, expected), (paid, choices)):
            policy.learn(made.rounds, made.features, np.array([t % 2]), y[:, 0])


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ([-1.0, 0.0], NUMBERS + "a number that is negative, missing or too large"),
        ([np.nan, 0.0], NUMBERS + "a number that is negative, missing or too large"),
        ([1e101, 0.0], NUMBERS + "a number that is negative, missing or too large"),
        ([0.1], NUMBERS + "shape (1,)"),
        ("free", NUMBERS + "'free'"),
        (None, "costs: expected 2 numbers, one per arm, because the agent has a budget, got none"),
        ([5.0, 6.0], "costs: expected an available arm that costs at most 3, which is left of the budget, "),
    ],
)
def test_bad_costs_are_refused_in_one_line_and_change_nothing(costs, message):
    agent = hs.make("ts-pco", observed=2, arms=2, seed=1, budget=(3.0, 5))
    fleet = hs.Fleet("ts-pco", observed=2, arms=2, budget=(3.0, 5))
    fleet.add(2)
    before = state_bytes(agent)
    for decide in (lambda: agent.decide([0.1, 1.0], costs=costs), lambda: fleet.decide(np.ones((2, 2)), costs=costs)):
        with pytest.raises(hs.HalfseenError) as caught:
            decide()
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)
    assert state_bytes(agent) == before
    assert agent.decide([0.1, 1.0], costs=[0.1, 0.2]).index in (0, 1)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (0, "budget: expected an amount and a number of rounds"),
        ((0, 5), "budget, amount: expected a number from 1e-100"),
        ((-1, 5), "budget, amount: expected a number from 1e-100"),
        ((float("nan"), 5), "budget, amount: expected a number from 1e-100"),
        ((1, 0), "budget, rounds: expected an integer from 1"),
        ((1, 2.5), "budget, rounds: expected an integer from 1"),
        ([1], "budget: expected an amount and a number of rounds"),
    ],
)
def test_a_bad_budget_is_refused_in_one_line(budget, message):
    for build in (hs.make, hs.Fleet):
        with pytest.raises(hs.HalfseenError) as caught:
            build("ts-pco", observed=2, arms=2, budget=budget)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)
