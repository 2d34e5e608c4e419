"""The two formats of an exported journal give the same log."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import halfseen as hs
from halfseen.evaluation import policies
from halfseen.evaluation.log import StepKind
from halfseen.evaluation.readers import read_log
from halfseen.service.engine.engine import Engine
from halfseen.service.schemas import DecisionRequest, EngineSettings, RewardRequest, StreamSpec

REWARDS = {"a": 1.0, "b": 0.5, "c": 2.0, "d": 1.5}


async def write_exports(folder) -> None:
    engine = await Engine.open(str(folder / "streams.db"), EngineSettings(identify=False, sweep_seconds=3600))
    draw = np.random.default_rng(0)
    spec = {"observed": 2, "arms": ["a", "b", "c"], "agent": "ts-pco", "seed": 1}
    await engine.create_stream(StreamSpec(name="offered", **spec))
    await engine.create_stream(StreamSpec(name="late", **spec, reward_wait=0.01, default_reward=0.0))
    fold = StreamSpec(name="fold", **spec, reward_wait=0.01, default_reward=0.0, late_rewards="fold")
    await engine.create_stream(fold)
    for turn in range(30):
        if turn == 10:
            await engine.retire_arm("offered", "c")
        if turn == 20:
            await engine.add_arm("offered", "d")
        available = ["a", "b"] if turn % 3 == 0 else None
        requests = [DecisionRequest(draw.normal(size=2).tolist(), available=available) for _ in range(4)]
        for decision in await engine.decide_all("offered", requests):
            reward = REWARDS[decision.arm] + 0.1 * draw.normal()
            await engine.reward("offered", RewardRequest(decision.id, reward))
    for _ in range(6):
        decided = {}
        for name in ("late", "fold"):
            requests = [DecisionRequest(y) for y in draw.normal(size=(5, 2)).tolist()]
            decided[name] = await engine.decide_all(name, requests)
        await asyncio.sleep(0.03)
        for name, decisions in decided.items():
            await engine.decide(name, DecisionRequest([0.1, 0.2]))  # this also adds the default rewards
            for one in decisions[1:]:
                await engine.reward(name, RewardRequest(one.id, REWARDS[one.arm]))
    for ending in ("ndjson", "parquet"):
        await engine.export_streams(folder / f"journal.{ending}")
    await engine.close()


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    asyncio.run(write_exports(folder))
    return folder


@pytest.mark.parametrize("stream", ["offered", "late", "fold"])
def test_both_formats_give_the_same_log(exports, stream):
    lines, rows = (read_log(exports / f"journal.{ending}", stream=stream) for ending in ("ndjson", "parquet"))
    assert rows.arms == lines.arms
    assert rows.first_arms == lines.first_arms
    assert [(*step[:2], step.provisional) for step in rows.steps] == [
        (*step[:2], step.provisional) for step in lines.steps
    ]
    assert rows.defaults == lines.defaults
    for name in ("observations", "played", "propensity", "propensities", "possible", "rewards"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(lines, name))


def test_policies_play_only_available_arms(exports):
    log = read_log(exports / "journal.parquet", stream="offered")
    assert not log.possible[40:, 2].any()  # retired
    assert not log.possible[:80, 3].any()  # added later
    assert not log.possible[0, 2]  # not available
    found = {
        ending: hs.evaluate(exports / f"journal.{ending}", ["uniform", "lag-ts"], stream="offered")
        for ending in ("ndjson", "parquet")
    }
    for label in ("uniform", "lag-ts"):
        one, other = (result.policies[label].values for result in found.values())
        assert one == other


def test_a_table_of_the_exported_columns_contains_available_arms_and_learnt_rewards(exports):
    from pyarrow import parquet

    table = parquet.read_table(exports / "journal.parquet").replace_schema_metadata()
    log = read_log(table, stream="late")
    whole = read_log(exports / "journal.ndjson", stream="late")
    np.testing.assert_array_equal(log.rewards, whole.rewards)
    late = [step for step in log.steps if step.kind == 1]
    assert len(late) == whole.defaults >= 6  # late rewards were not learnt
    assert (
        read_log(table, stream="offered", arms=["a", "b", "c", "d"]).possible[0] == [True, True, False, False]
    ).all()


def test_a_late_reward_that_replaced_a_default_counts_once(exports):
    log = read_log(exports / "journal.parquet", stream="fold")
    steps = [step for step in log.steps if step.kind is StepKind.REWARDED]
    assert [step.provisional for step in steps].count(True) == 6 * 4
    assert len({step.at for step in steps}) == len(steps) - 6 * 4
    late = [at for at in range(36) if at % 6 in (1, 2, 3, 4)]
    assert log.rewards[late].tolist() == [REWARDS[log.arms[log.played[at]]] for at in late]
    assert log.defaults == np.isfinite(log.rewards).sum() - len(late)
    probabilities, agent = policies.by_agent(log, "ts-pco", {})
    np.testing.assert_allclose(probabilities, log.propensities, atol=1e-9)  # the replay equals the stream
    assert "provisional rewards" not in agent.health().facts
