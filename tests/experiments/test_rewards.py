"""The summary of rewards on recorded data."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.synthetic import ROLES, recorded_columns

import halfseen as hs
from halfseen.agents.catalogue import agent_spec
from halfseen.errors import HalfseenError
from halfseen.experiments.leaderboard import leaderboard_plan
from halfseen.experiments.rewards import reference_agent
from halfseen.statistics.time_series import hac_mean
from halfseen.worlds import recorded


@pytest.fixture(scope="module")
def result():
    agents = ["oracle-ts", "lag-ts", "adaptive", "random"]
    return hs.run(agents, world=recorded(recorded_columns(), **ROLES, name="mine & yours"), seeds=3)


def test_the_summary_agrees_with_the_rewards(result):
    found = result.summary["worlds"]["mine & yours"]["rewards"]
    earned = {agent: result.tracks["mine & yours", agent].reward for agent in result.agents}
    assert found["reference"] == "adaptive"
    for agent, entry in found["agents"].items():
        assert entry["reward_mean"] == pytest.approx(earned[agent].mean())
        assert entry["reward_interval"]["low"] < entry["reward_mean"] < entry["reward_interval"]["high"]
        assert entry["reward_by_seed"] == pytest.approx(earned[agent].mean(axis=1).tolist())
        assert sum(entry["share_of_arms"]) == pytest.approx(1.0)
        share = entry["share_of_full_context"]
        assert share["value"] == pytest.approx(earned[agent].mean() / earned["oracle-ts"].mean())
        if agent == "adaptive":
            assert entry["reference_less_this"] is None
        else:
            wanted = hac_mean(earned["adaptive"].mean(axis=0) - earned[agent].mean(axis=0))
            assert entry["reference_less_this"]["t"] == pytest.approx(wanted.t)
            assert entry["reference_less_this"]["p_holm"] >= wanted.p_value
    world = result.plan.worlds[0]
    assert found["arms"]["up <b>"]["reward_mean"] == pytest.approx(world.rewards[:, 0].mean())
    best = int(np.argmax(world.rewards.mean(axis=0)))
    assert found["best_fixed_arm"] == world.arm_names[best]


def test_agents_earn_the_rewards_of_their_arms(result):
    world = result.plan.worlds[0]
    for track in result.tracks.values():
        for arms, rewards in zip(track.arm, track.reward, strict=True):
            np.testing.assert_array_equal(rewards, world.rewards[np.arange(world.length), arms])


def test_no_share_if_the_full_context_earns_nothing():
    result = hs.run(["oracle-ts", "ts-pco"], world=recorded(recorded_columns(useful=0.0), **ROLES), seeds=2)
    entries = result.summary["worlds"]["recorded"]["rewards"]["agents"]
    assert [entry["share_of_full_context"] for entry in entries.values()] == [None, None]
    assert {row["share of oracle-ts"] for row in result.table().rows} == {"–"}


def test_choice_of_the_reference_agent():
    def reference(*labels):
        return reference_agent([agent_spec(label) for label in labels])

    assert reference("oracle-ts", "ts-pco", "adaptive") == "adaptive"
    assert reference("oracle-ts", "random", "ts-pco", "lag-ts") == "ts-pco"
    assert reference("oracle-ts:delta=0.2", "ts-pco") == "ts-pco"
    assert reference("oracle-ts") == "oracle-ts"


def test_the_leaderboard_has_no_recorded_worlds_by_default():
    plan = leaderboard_plan(None, None, 100, 2)
    assert not any(world.recorded for world in plan.worlds)
    line = "^agents: expected agents that do not require model, which is unknown for recorded data, got 'kf-ts' in"
    with pytest.raises(HalfseenError, match=line):
        leaderboard_plan(["ts-pco"], "voltrade", 100, 2)
