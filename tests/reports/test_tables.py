"""The format of numbers, and the tables of rewards."""

from __future__ import annotations

import math

import numpy as np
import pytest

from halfseen.reports.tables import (
    arms_table,
    common_decimals,
    comparisons,
    count,
    interval,
    logged_arms_table,
    mean_and_error,
    number,
    percent,
    rewards_table,
    significant,
)


def test_numbers() -> None:
    values = (0.00012345, 12.345, 123456.0, 0.0, math.nan)
    assert [significant(value) for value in values] == ["0.000123", "12.3", "123,456", "0", "–"]
    assert [common_decimals([value]) for value in (0.1756, 8.58, 12345.0, 0.0)] == [4, 3, 0, 0]
    assert [number(value) for value in (-0.001, 99.994, 1234.4, None)] == ["0.00", "99.99", "1,234", "–"]
    assert mean_and_error(1234.4, 5.6) == "1,234 ± 6"
    assert mean_and_error(12.344, math.nan) == "12.34 ± –"
    assert [count(things, "process") for things in (1, 2, [1, 2, 3])] == ["1 process", "2 processes", "3 processes"]
    assert [percent(share, 1) for share in (0.1234, -0.2)] == ["12.3 %", "0.0 %"]


def test_intervals() -> None:
    assert interval({"value": 1.0, "low": -0.001, "high": 250.0}) == "1.00 [0.00, 250]"
    assert interval({"value": 1.0, "low": math.nan, "high": math.nan}, 1, "+") == "+1.0"
    assert interval(None) == "–"


def synthetic_world(**changes: float) -> dict[str, object]:
    less = {"value": 0.5, "t": 4.0, "p_holm": 0.001} | changes
    entry = {"reward_mean": 1.0, "reward_interval": {"low": 0.9, "high": 1.1}, "share_of_full_context": None}
    entry |= {"share_of_arms": [0.25, 0.75]}
    rewards = {
        "reference": "adaptive",
        "best_fixed_arm": "up",
        "reference_less_best_fixed_arm": {"value": -0.25, "t": -1.2},
        "agents": {
            "adaptive": entry | {"reference_less_this": None},
            "lag-ts": entry | {"reference_less_this": less},
        },
        "arms": {
            "up": {"reward_mean": 0.1, "reward_hac": {"t": 2.0}},
            "flat": {"reward_mean": 0, "reward_hac": {"t": math.nan}},
        },
    }
    return {"rewards": rewards, "microseconds_per_round": {"adaptive": 300.4, "lag-ts": 7.0}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "adaptive earned 0.500 per round more than lag-ts (t = 4.0, p = 0.001)."),
        ({"value": -0.5, "t": -4.0}, "adaptive earned 0.500 per round less than lag-ts (t = -4.0, p = 0.001)."),
        ({"p_holm": 0.06}, "adaptive and lag-ts do not differ significantly: 0.500 per round (t = 4.0, p = 0.060)."),
    ],
)
def test_a_difference_must_be_significant_after_the_correction(changes: dict[str, float], sentence: str) -> None:
    fixed, line = comparisons(synthetic_world(**changes))
    assert line == sentence
    assert fixed == (
        "adaptive earned 0.250 per round less than always playing 'up', the best arm in hindsight "
        "(t = -1.2, not significant)."
    )


def test_rewards_of_agents_and_arms() -> None:
    world = synthetic_world()
    assert rewards_table(world).rows[1] == {
        "agent": "lag-ts",
        "mean reward": "1.000",
        "95 % interval": "[0.900, 1.100]",
        "share of oracle-ts": "–",
        "adaptive minus this": "0.500",
        "HAC t": "4.0",
        "p (Holm)": "0.001",
        "µs/round": "7",
    }
    assert arms_table(world).rows[1] == {
        "arm": "flat",
        "mean reward if always played": "0.0000",
        "HAC t": "–",
        "adaptive": "75 %",
        "lag-ts": "75 %",
    }


def test_the_mean_propensity_of_arms_is_that_of_the_decisions_for_which_it_is_known():
    played, rewards = np.array([0, 1, 1, 0]), np.array([1.0, 2.0, 4.0, 3.0])
    propensity = np.array([0.2, 0.5, 0.7, 0.4])
    table = logged_arms_table(["a", "b", "c"], played, rewards, rewards > 1, propensity, None)
    assert table.columns == ["arm", "played", "mean propensity when played", "mean reward when played"]
    assert table.cells == [["a", "2", "0.3", "3"], ["b", "2", "0.6", "3"], ["c", "0", "–", "–"]]
    every = np.full((4, 3), [0.5, 0.3, 0.2])
    table = logged_arms_table(["a", "b", "c"], played, rewards, rewards > 1, propensity, every)
    assert [row["mean propensity"] for row in table.rows] == ["0.5", "0.3", "0.2"]
