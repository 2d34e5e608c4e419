"""Decisions, rewards and streams of the engine, on both databases."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial

import numpy as np
import pytest
from engine_tools import (
    assert_matches_journal,
    decide,
    decide_all,
    expect_error,
    loaded_stream,
    metric,
    observation,
    on_engine,
    open_engine,
    restart_engine,
    reward,
    reward_from_id,
    spec,
    to_json_value,
)
from settings import OBSERVED, small_options

import halfseen as hs
from halfseen.agents import saving
from halfseen.journal import events
from halfseen.service.engine import engine as engine_module
from halfseen.service.engine.loaded_stream import LoadedStream, pack_model
from halfseen.service.engine.stream_limits import check_stream
from halfseen.service.engine.transaction import Operation, StreamTransaction
from halfseen.service.schemas import DecisionRequest, GuardrailSettings, Limits, RewardRequest, StreamSpec


@on_engine()
async def test_the_engine_decides_like_its_agent(engine, database):
    await engine.create_stream(spec())
    agent = hs.make("ts-pco", observed=3, arms=["a", "b", "c"], seed=5)
    for t in range(30):
        y = observation(t)
        available = ["a", "c"] if t % 4 == 0 else None
        decision = agent.decide(y, available=available)
        reply = await decide(engine, y, available)
        assert (reply.arm, reply.propensity) == (decision.arm, decision.propensity)
        assert reply.propensities == decision.propensities.tolist()
        assert reply.expected == decision.expected.tolist()
        assert not reply.repeated
        if t % 3:
            rewarded = await reward(engine, reply, t / 7)
            assert (rewarded.how, rewarded.folded, rewarded.repeated) == ("given", True, False)
            agent.learn(decision.id, t / 7)
    view = await engine.stream("one")
    assert (view.decisions, view.rewards, view.version) == (30, 20, 51)


@pytest.mark.parametrize("name", [name for name, entry in hs.catalog().items() if not entry.reveals_context])
@on_engine()
async def test_folding_the_journal_gives_the_live_stream_bit_for_bit(engine, url, name):
    """For every agent, with missing values, missing rewards, guardrails, added and retired arms, unavailable arms."""
    options = {key: to_json_value(value) for key, value in small_options(name).items()}
    await engine.create_stream(spec(agent=name, observed=OBSERVED, arms=4, options=options))
    waiting = []
    for t in range(70):
        available = [0, 2, 3] if t % 5 == 0 else None
        waiting.append((await decide(engine, observation(t, OBSERVED), available)).id)
        if t % 3 == 2:
            for decision_id in reversed(waiting[:-1]):
                await reward(engine, decision_id, reward_from_id(decision_id))
            del waiting[:]
        if t in (15, 60):
            await engine.set_guardrails("one", GuardrailSettings(0.02, 0.1, (2, 0.001 * t)))
        if t == 40:
            await engine.retire_arm("one", 1)
        if t == 50 and name not in ("bayes", "mts"):
            await engine.add_arm("one")
    assert_matches_journal(engine, url)
    await engine.snapshot("one")
    async with restart_engine(engine, url) as engine:
        await decide(engine, observation(99, OBSERVED))
        assert metric(engine, "loads_without_snapshot_total") == 0
        assert_matches_journal(engine, url)


@pytest.mark.parametrize("name", ["ts-pco", "kf-ts", "adaptive"])
@on_engine()
async def test_folding_decisions_with_costs_gives_the_live_stream(engine, url, name):
    options = {key: to_json_value(value) for key, value in small_options(name).items()} | {"budget": [20.0, 60]}
    await engine.create_stream(spec(agent=name, observed=OBSERVED, arms=["a", "b", "c"], options=options))
    for t in range(70):
        costs = [0.0, 0.2, 0.01 * t] if t % 2 else {"c": 1.0, "b": 0.5, "a": 0.0}
        made = await engine.decide("one", DecisionRequest(observation(t, OBSERVED), key=f"k{t}", costs=costs))
        if t % 3:
            await reward(engine, made.id, reward_from_id(made.id))
    facts = (await engine.agent("one")).health().facts
    assert 0.0 < facts["spent"] <= facts["budget"]
    assert_matches_journal(engine, url)
    await engine.snapshot("one")
    async with restart_engine(engine, url) as engine:
        again = await engine.decide(
            "one", DecisionRequest(observation(69, OBSERVED), key="k69", costs=[0.0, 0.2, 0.01 * 69])
        )
        assert again.repeated
        assert_matches_journal(engine, url)


@on_engine()
async def test_models_of_an_older_save_version_are_skipped(engine, url, monkeypatch):
    with monkeypatch.context() as older:
        version = saving.OLDEST - 1  # that cannot be read any more
        older.setattr(saving, "VERSION", version)
        older.setattr(saving, "OLDEST", version)
        await engine.create_stream(spec(agent="adaptive", options={"latent": 3}))
        for t in range(30):
            made = await decide(engine, t)
            await reward(engine, made, reward_from_id(made.id))
        agent = await engine.agent("one")
        agent.refit()
        accept = partial(StreamTransaction.accept_model, model=pack_model(agent.model()), seen=60, after=0)
        future = asyncio.get_running_loop().create_future()
        assert await engine._queue.submit(Operation.single("one", accept, future)) == [True]
        await decide(engine, 31)
        await engine.snapshot("one")
        await engine.close()
    async with open_engine(url) as engine:
        await decide(engine, 32)
        assert metric(engine, "loads_without_snapshot_total") == metric(engine, "models_skipped_total") == 1
        stream = loaded_stream(engine)
        assert (stream.decisions, stream.rewards) == (32, 30)
        assert stream.agent.health().facts["identifications"] == 0
        assert stream.agent.refit_due
        assert_matches_journal(engine, url)
        await engine.snapshot("one")
    async with open_engine(url) as engine:
        await decide(engine, 33)
        assert metric(engine, "loads_without_snapshot_total") == metric(engine, "models_skipped_total") == 0


@on_engine()
async def test_a_repeated_key_gives_the_same_decision(engine, database):
    await engine.create_stream(spec())
    first = await decide(engine, 1, key="order 17")
    again = await decide(engine, 1, key="order 17")
    assert again.repeated
    assert again.id == first.id
    assert (again.arm, again.propensities, again.expected) == (first.arm, first.propensities, first.expected)
    batch = await engine.decide_all(
        "one", [DecisionRequest(observation(1), key=key) for key in ("x", "y", "x", "order 17")]
    )
    assert batch[0].id == batch[2].id != batch[1].id
    assert [one.repeated for one in batch] == [False, False, True, True]
    assert (await engine.stream("one")).decisions == 3
    for key in ("", "k" * 201, "nul\x00", "new\nline"):
        await expect_error(decide(engine, 1, key=key), "invalid", 422)
    async with restart_engine(engine, database) as engine:
        assert (await decide(engine, 1, key="order 17")).id == first.id


@on_engine()
async def test_a_key_that_is_reused_for_another_request_is_a_conflict(engine, database):
    await engine.create_stream(spec(observed=["x", "y", "z"]))
    first = await decide(engine, [0.1, None, -3], ["a", "b"], "k")
    plain = await decide(engine, [0.1, None, -3], None, "all arms")

    async def repeat(engine):
        for same in ([0.1, None, -3.0], {"x": 0.1, "z": -3}):
            for available in (["a", "b"], ["b", "a", "b"]):
                assert (await decide(engine, same, available, "k")).id == first.id
            assert (await decide(engine, same, None, "all arms")).id == plain.id
        for other in ([0.1, None, -2], [0.1, 0, -3], [0.1, None, None], [None, None, -3]):
            message = await expect_error(decide(engine, other, ["a", "b"], "k"), "conflict", 409)
            assert message == "key: expected a new key, got 'k', which was used with another observation"
        for available, key in ((None, "k"), (["a"], "k"), (["a", "b", "c"], "k"), (["a", "b", "c"], "all arms")):
            message = await expect_error(decide(engine, [0.1, None, -3], available, key), "conflict", 409)
            assert message == f"key: expected a new key, got '{key}', which was used with other available arms"
        assert (await engine.stream("one")).decisions == 2

    await repeat(engine)
    rows = [DecisionRequest([value, 1, 1], key="same batch") for value in (1, 1, 2)]
    one, two, three = await engine.decide_all("one", rows)
    assert (two.id, two.repeated, three.code) == (one.id, True, "conflict")
    async with restart_engine(engine, database) as engine:
        assert (await decide(engine, [1, 1, 1], key="same batch")).id == one.id
        await expect_error(decide(engine, [2, 1, 1], key="same batch"), "conflict", 409)
        assert (await decide(engine, [0.1, None, -3], ["b", "a"], "k")).id == first.id
        await expect_error(decide(engine, [0.1, 0, -3], ["b", "a"], "k"), "conflict", 409)
        await expect_error(decide(engine, [0.1, None, -3], None, "k"), "conflict", 409)


@on_engine()
async def test_repeated_conflicting_unknown_and_reordered_rewards(engine, database):
    await engine.create_stream(spec())
    await engine.create_stream(spec("two"))
    made = [await decide(engine, t) for t in range(6)]
    for decision in reversed(made):
        await reward(engine, decision, 0.25)
    again = await reward(engine, made[2], 0.25)
    assert again.repeated
    assert again.folded
    message = await expect_error(reward(engine, made[2], 0.5), "conflict", 409)
    assert "0.25" in message
    for unknown in (
        "nothing",
        "x" * 5000,
        "\x00",
        made[0].id.upper() + "0",
        "0198c0de-0000-7000-8000-000000000000",
    ):
        await expect_error(reward(engine, unknown, 1.0), "not_found", 404)
    await expect_error(reward(engine, made[0], 0.25, name="two"), "not_found", 404)
    for value in (float("nan"), float("inf"), 1e101, 10**400, True, "1.5"):
        await expect_error(reward(engine, made[0], value), "invalid", 422)
    assert (await engine.stream("one")).rewards == 6
    assert_matches_journal(engine, database)


@on_engine()
async def test_a_bad_row_does_not_affect_the_other_rows_of_its_batch(engine, database):
    await engine.create_stream(spec())
    y = observation(1)
    bad = [([1.0],), ([1e301, 0.0, 0.0],), (y, ["nobody"]), (["1", 2, 3],), ({"a": 1.0},), (y, []), ([True, 1.0, 2.0],)]
    rows = [(y,), *bad, ([10**400, 1, 1],), (observation(2),)]
    replies = await engine.decide_all("one", [DecisionRequest(*row) for row in rows])
    assert [getattr(reply, "code", "ok") for reply in replies] == ["ok", *["invalid"] * 8, "ok"]
    values = [(replies[0].id, 1.0), ("none", 1.0), (replies[0].id, 2.0), (replies[9].id, 2.0)]
    rewards = await engine.reward_all("one", [RewardRequest(*row) for row in values])
    assert [getattr(reply, "code", "ok") for reply in rewards] == ["ok", "not_found", "conflict", "ok"]
    agent = hs.make("ts-pco", observed=3, arms=["a", "b", "c"], seed=5)
    assert [agent.decide(observation(1)).arm, agent.decide(observation(2)).arm] == [replies[0].arm, replies[9].arm]
    assert (await engine.stream("one")).version == 5
    assert_matches_journal(engine, database)
    assert await engine.decide_all("one", []) == []


@on_engine()
async def test_concurrent_requests_share_commits_but_not_the_failure_of_a_stream(engine, database, monkeypatch):
    for name in ("one", "two", "three"):
        await engine.create_stream(spec(name))
    commits = metric(engine, "commits_total")
    requests = [decide(engine, t, name=("one", "two", "three")[t % 3]) for t in range(60)]
    decisions = await asyncio.gather(*requests)
    assert len({decision.id for decision in decisions}) == 60
    assert metric(engine, "commits_total") - commits <= 4
    before = loaded_stream(engine, "two").version

    def broken(*_, **__):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(loaded_stream(engine, "two").agent, "decide", broken)
    replies = await asyncio.gather(
        *[decide(engine, 1, name=name) for name in ("one", "two", "three")],
        return_exceptions=True,
    )
    assert [getattr(reply, "code", "ok") for reply in replies] == ["ok", "internal", "ok"]
    await decide(engine, 1, name="two")  # the stream is loaded again, and now the bug is gone
    assert loaded_stream(engine, "two").version == before + 1
    for name in ("one", "two", "three"):
        assert_matches_journal(engine, database, name)


@pytest.mark.parametrize("agent", ["ts-pco", "adaptive", "pco-greedy"])
@on_engine()
async def test_extreme_numbers_do_not_damage_the_journal(engine, url, agent, clock):
    await engine.create_stream(spec(agent=agent, reward_wait=60.0, default_reward=0.5))
    for value in (1e100, -1e100, 1e-300, 0.0):
        made = await decide(engine, [value, -value, None], key=str(value))
        rewarded = await reward(engine, made, value)
        assert rewarded.folded == (agent == "adaptive" or abs(value) < 1)  # the reward is recorded in any case
    last = await decide(engine, [1e100, 1.0, 1.0])
    clock[0] += 61_000_000_000
    await decide(engine, [1.0, 1.0, 1.0])
    assert (await reward(engine, last, 0.25)).how == "late"
    assert_matches_journal(engine, url)
    for value in (1e100, -1e100, 1e-300, 0.0):
        assert (await decide(engine, [value, -value, None], key=str(value))).repeated


@on_engine()
async def test_a_decision_gets_the_default_reward_after_the_reward_wait(engine, database, clock):
    await engine.create_stream(spec(reward_wait=60.0, default_reward=-0.5))
    first = await decide(engine, 1)
    second = await decide(engine, 2)
    await reward(engine, second, 1.0)
    clock[0] += 59_000_000_000
    await asyncio.sleep(0.2)
    assert (await engine.stream("one")).version == 4
    clock[0] += 1_000_000_000
    await until_version(engine, "one", 5)  # without a request
    contents = [event.content for event in await engine.events("one")]
    assert contents[-1] == events.Rewarded(first.id, 1, -0.5, "default", True)
    late = await reward(engine, first, 2.0)
    assert (late.how, late.folded, late.repeated) == ("late", False, False)
    assert (await reward(engine, first, 2.0)).repeated
    await expect_error(reward(engine, first, 3.0), "conflict", 409)
    agent = hs.make("ts-pco", observed=3, arms=["a", "b", "c"], seed=5)
    agent.decide(observation(1)), agent.decide(observation(2))
    agent.learn(2, 1.0), agent.learn(1, -0.5)
    expected = agent.decide(observation(3)).expected.tolist()
    assert (await decide(engine, 3)).expected == expected
    assert_matches_journal(engine, database)


@on_engine()
async def test_streams_that_are_not_loaded_get_default_rewards_too(engine, database, clock):
    await engine.create_stream(spec(reward_wait=60.0, default_reward=-0.5))
    await engine.create_stream(spec("other", reward_wait=6000.0, default_reward=-0.5))
    for name in ("one", "other"):
        await decide(engine, 1, name=name)
    clock[0] += 61_000_000_000
    async with restart_engine(engine, database) as engine:
        await until_version(engine, "one", 3)
        assert [event.kind for event in await engine.events("one")] == ["created", "decided", "rewarded"]
        assert (await engine.stream("other")).version == 2
        assert list(engine._store.loaded) == ["one"]
        assert await engine._read(lambda reader: reader.overdue_streams(2**62, 10)) == ["other"]


@pytest.mark.parametrize("late_rewards", ["record", "fold"])
@on_engine(sweep_seconds=60)
async def test_a_decision_expires_after_the_reward_wait_without_a_default(engine, url, late_rewards, clock):
    await engine.create_stream(spec(reward_wait=60.0, late_rewards=late_rewards))
    decision = await decide(engine, 1)
    clock[0] += 61_000_000_000
    late = await reward(engine, decision, 2.0)  # the transaction of this request expires the decision first
    assert (late.how, late.folded) == ("late", late_rewards == "fold")
    assert [event.kind for event in await engine.events("one")] == ["created", "decided", "expired", "rewarded"]
    assert loaded_stream(engine).agent.health().facts["rewards"] == (late_rewards == "fold")
    assert_matches_journal(engine, url)


@on_engine()
async def test_more_open_decisions_than_the_agent_remembers(engine, url):
    await engine.create_stream(spec(options={"max_pending": 3}))
    made = [await decide(engine, t) for t in range(5)]
    first = await reward(engine, made[0], 1.0)
    last = await reward(engine, made[4], 1.0)
    assert (first.how, first.folded) == ("given", False)
    assert (last.how, last.folded) == ("given", True)
    assert (await reward(engine, made[0], 1.0)).repeated
    assert_matches_journal(engine, url)


def test_a_decision_takes_no_longer_once_older_decisions_are_dropped():
    stream, seconds = LoadedStream(spec(options={"max_pending": 30_000})), []
    for part in range(6):
        began = time.thread_time()
        for number in range(15_000 * part + 1, 15_000 * (part + 1) + 1):
            content = events.Decided(number, [], "a", 1.0, [], [])
            stream.advance(events.Event(number, number, str(number), content))
        seconds.append(time.thread_time() - began)
    assert len(stream.open_decisions) == 30_000
    assert max(seconds[2:]) < 10 * max(seconds[:2])


@pytest.mark.parametrize("late_rewards", ["record", "fold"])
@on_engine(sweep_seconds=60)
async def test_the_agent_remembers_only_decisions_from_which_it_may_still_learn(engine, url, late_rewards, clock):
    await engine.create_stream(spec(reward_wait=60.0, late_rewards=late_rewards))
    empty = loaded_stream(engine).nbytes
    for _ in range(3):
        made = await decide_all(engine, range(20))
        await reward(engine, made[3], 1.0)
        clock[0] += 61_000_000_000
    await decide(engine, 1)
    stream = loaded_stream(engine)
    may_be_late = 3 * 19 * (late_rewards == "fold")  # expired decisions that the agent may still learn from
    remembered = 1 + may_be_late
    assert (len(stream.open_decisions), len(stream.agent.pending)) == (1, remembered)
    assert stream.agent.unrewarded == remembered
    assert stream.nbytes - empty > 700 * remembered
    assert (await reward(engine, made[5], 1.0)).folded == (late_rewards == "fold")
    health = await engine.health("one")
    assert health.facts["decisions dropped"] == 0
    assert health.facts.get("decisions given up", 0) == 57 - may_be_late
    assert not [note for note in health.notes if "no longer" in note]
    assert_matches_journal(engine, url)
    await engine.snapshot("one")
    async with restart_engine(engine, url, sweep_seconds=60) as engine:
        await decide(engine, 1)
        assert_matches_journal(engine, url)
        assert metric(engine, "loads_without_snapshot_total") == 0


@on_engine()
async def test_the_agent_forgets_a_decision_from_which_it_cannot_learn(engine, url):
    await engine.create_stream(spec())
    made = await decide(engine, [1e100, -1e100, None])
    assert not (await reward(engine, made, 1e100)).folded
    assert loaded_stream(engine).agent.pending == ()
    assert_matches_journal(engine, url)


@pytest.mark.parametrize("default", [None, -0.5])
@on_engine(sweep_seconds=60)
async def test_decisions_that_the_agent_has_forgotten_expire_too(engine, url, default, clock):
    await engine.create_stream(spec(reward_wait=60.0, default_reward=default, options={"max_pending": 5}))
    made = await decide_all(engine, range(8))
    early = await reward(engine, made[1], 1.0)
    assert (early.how, early.folded) == ("given", False)
    clock[0] += 61_000_000_000
    late = await reward(engine, made[0], 1.0)
    assert (late.how, late.folded) == ("late", False)
    expired = [event.content for event in await engine.events("one") if event.kind in ("rewarded", "expired")][1:-1]
    assert [content.decision for content in expired] == [made[0].id, *[one.id for one in made[2:]]]
    if default is not None:
        assert [content.folded for content in expired] == [False, False, *[True] * 5]
    assert_matches_journal(engine, url)


@on_engine(sweep_seconds=60)
async def test_a_reward_whose_decision_is_displaced_by_decisions_of_the_same_batch(engine, database):
    await engine.create_stream(spec(options={"max_pending": 5}))
    made = await decide_all(engine, range(5))
    commits = metric(engine, "commits_total")
    *_, newest, oldest = await asyncio.gather(
        *[decide(engine, t) for t in range(5, 8)],
        reward(engine, made[4], 1.0),
        reward(engine, made[0], 2.0),
    )
    assert metric(engine, "commits_total") == commits + 1
    assert (newest.how, newest.folded) == ("given", True)
    assert (oldest.how, oldest.folded, oldest.repeated) == ("given", False, False)
    assert (await reward(engine, made[0], 2.0)).repeated
    assert (await engine.stream("one")).rewards == 2
    assert_matches_journal(engine, database)


@on_engine()
async def test_creating_a_stream_twice(engine, database):
    view = await engine.create_stream(spec(seed=None, observed=["x", "y"], options={"width": 0.5}))
    assert isinstance(view.spec.seed, int)
    assert (view.version, view.arms, view.active) == (1, ["a", "b", "c"], ["a", "b", "c"])
    assert await engine.create_stream(view.spec) == view
    assert await engine.create_stream(spec(seed=None, observed=["x", "y"], options={"width": 0.5})) == view
    for other in ({"seed": 6}, {"arms": 3}, {"agent": "pco-scaled"}, {"options": {}}, {"observed": 2}):
        changed = {"seed": None, "observed": ["x", "y"], "options": {"width": 0.5}} | other
        await expect_error(engine.create_stream(spec(**changed)), "conflict", 409)
    many = await asyncio.gather(*[engine.create_stream(spec("same", seed=None)) for _ in range(5)])
    assert len({one.spec.seed for one in many}) == 1
    assert [one.name for one in await engine.streams()] == ["one", "same"]
    await expect_error(engine.stream("none"), "not_found", 404)
    await expect_error(engine.stream("\x00"), "not_found", 404)
    await expect_error(decide(engine, [1.0], name="none"), "not_found", 404)
    await expect_error(decide(engine, [1.0], name="\x00"), "not_found", 404)
    named = await decide(engine, {"y": 2.0})
    assert (await engine.events("one"))[-1].content.observation == [None, 2.0]
    assert named.arm in view.arms
    await expect_error(decide(engine, {"z": 2.0}), "invalid", 422)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "no/slash"}, {"name": ""}, {"name": "a" * 101}, {"observed": 0}, {"observed": []},
        {"observed": ["x", "x"]}, {"arms": 0}, {"arms": ["a", "a"]}, {"agent": "nobody"}, {"agent": "oracle-ts"},
        {"options": {"nothing": 1}}, {"options": {"refit": "inline"}}, {"options": {"width": "wide"}},
        {"options": {"seed": 1}}, {"agent": "kf-ts"}, {"agent": "kf-ts", "options": {"model": {"D": [[1]]}}},
        {"agent": "kf-ts", "options": {"model": {"transition": [[1]], "process_cov": [[1]]}}},
        {"seed": -1}, {"seed": 2**64}, {"reward_wait": 0.0}, {"reward_wait": float("nan")}, {"default_reward": 1.0},
        {"reward_wait": 1.1e9}, {"reward_wait": float("inf")},
        {"reward_wait": 1.0, "default_reward": float("inf")}, {"reward_wait": 1.0, "default_reward": 1e101},
        {"options": {"max_pending": "many"}}, {"observed": -1}, {"reward_wait": -1}, {"late_rewards": "fold"},
    ],
)  # fmt: skip
@on_engine()
async def test_an_invalid_specification_is_refused(engine, wrong):
    await expect_error(engine.create_stream(spec(**wrong)), "invalid", 422)
    assert await engine.streams() == []


@on_engine()
async def test_streams_with_too_long_reward_waits_in_old_databases(engine, database, monkeypatch):
    """New streams may wait a billion seconds at most, but older databases may contain streams with longer waits."""
    names = {"long": 1e9, "longer": 1e13, "longest": 1e308, "short": 60.0}
    with monkeypatch.context() as before:
        before.setattr(StreamSpec, "check", lambda self: None)
        for name, wait in names.items():
            await engine.create_stream(spec(name, reward_wait=wait))
    made = await asyncio.gather(*[decide(engine, 1, name=name) for name in names])
    for name, decision in zip(names, made, strict=True):
        assert (await reward(engine, decision, 1.0, name=name)).how == "given"
        assert_matches_journal(engine, database, name)


@on_engine(limits=Limits(streams=2))
async def test_the_number_of_streams_is_limited(engine, database):
    await asyncio.gather(engine.create_stream(spec("a")), engine.create_stream(spec("b")))
    await expect_error(engine.create_stream(spec("c")), "too_large", 413)
    await engine.create_stream(spec("b"))  # it exists already


@on_engine()
async def test_adding_and_retiring_arms_and_retiring_a_stream(engine, database):
    await engine.create_stream(spec())
    decision = await decide(engine, 0)
    assert (await engine.add_arm("one", "d")).arms == ["a", "b", "c", "d"]
    assert (await engine.add_arm("one", "d")).version == 3  # adding the arm again changes nothing
    assert (await engine.retire_arm("one", "a")).active == ["b", "c", "d"]
    assert (await engine.retire_arm("one", "a")).version == 4
    await expect_error(engine.add_arm("one", "a"), "conflict", 409)
    await expect_error(engine.add_arm("one", 4), "invalid", 422)
    await expect_error(engine.add_arm("one"), "invalid", 422)
    await expect_error(engine.retire_arm("one", "z"), "not_found", 404)
    await engine.retire_arm("one", "b")
    await engine.retire_arm("one", "c")
    await expect_error(engine.retire_arm("one", "d"), "invalid", 422)
    await expect_error(decide(engine, 1, ["a"]), "invalid", 422)
    last = await decide(engine, 1)
    assert last.arm == "d"
    assert last.propensities == pytest.approx([0.0, 0.0, 0.0, 1.0])
    await engine.create_stream(spec("numbers", arms=2))
    assert (await engine.add_arm("numbers")).arms == [0, 1, 2]
    assert (await engine.add_arm("numbers", 3)).arms == [0, 1, 2, 3]
    await expect_error(engine.add_arm("numbers", 7), "invalid", 422)
    assert (await engine.retire_stream("one")).retired
    assert (await engine.retire_stream("one")).version == (await engine.stream("one")).version
    await expect_error(decide(engine, 1), "conflict", 409)
    await expect_error(engine.add_arm("one", "e"), "conflict", 409)
    assert (await reward(engine, decision, 1.0)).folded
    assert_matches_journal(engine, database)


@on_engine(limits=Limits(arms=4))
async def test_concurrent_requests_do_not_exceed_the_limit_of_arms(engine, database):
    await engine.create_stream(spec())
    added = await asyncio.gather(*[engine.add_arm("one", name) for name in "def"], return_exceptions=True)
    assert [getattr(one, "code", "ok") for one in added] == ["ok", "too_large", "too_large"]
    assert str(added[1]) == "arms: expected at most 4, got 5"
    assert (await engine.add_arm("one", "d")).arms == ["a", "b", "c", "d"]  # it exists already
    assert_matches_journal(engine, database)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent": "hmm-ts", "options": {"restarts": 10**15}}, "restarts: expected an integer between 0 and 10, got"),
        (
            {"agent": "em-rts-ts", "options": {"latent": 3, "iterations": 10**12}},
            "iterations: expected an integer between 1 and 1000, got 1000000000000",
        ),
        ({"agent": "emkf-ts", "options": {"latent": 10_000}}, "latent: expected an integer between 1 and 1000, got"),
        ({"observed": 1_000, "arms": 1_000}, "stream_bytes: expected at most 1.07e+09, got an estimate of 4.9"),
        ({"options": {"max_pending": 10**8}}, "stream_bytes: expected at most 1.07e+09, got an estimate of 8.24e+10"),
        ({"agent": "lag-ts", "observed": 100, "options": {"lags": 1_000}}, "stream_bytes: expected"),
        ({"agent": "hmm-ts", "options": {"warm_up": 100_000, "restarts": 10}}, "stream_bytes: expected"),
        ({"agent": "mts", "options": {"memory": 10**6, "state_transition": np.eye(3).tolist(),
                                      "state_rewards": np.ones((3, 3)).tolist()}}, "decision_operations: expected"),
        ({"agent": "em-rts-ts", "options": {"latent": 300}}, "decision_operations: expected at most 5e+09, got"),
        ({"agent": "hmm-ts", "options": {"states": 200, "restarts": 0}}, "decision_operations: expected"),
        ({"agent": "blup-ts", "observed": 900}, "decision_operations: expected"),
        ({"agent": "adaptive", "observed": 100, "arms": 250}, "identification_operations: expected"),
        ({"agent": "adaptive", "observed": 400}, "decision_operations: expected"),
        ({"agent": "kf-ts", "options": {"model": {"transition": [[0.0] * 1001] * 1001, "process_cov": 1.0,
                                                  "observation_cov": 1.0}}},
         "options.model.transition: expected at most 1000 rows and columns"),
    ],
)  # fmt: skip
@on_engine()
async def test_a_stream_that_needs_too_much_is_refused_before_it_is_made(engine, url, changes, message):
    began = time.monotonic()
    assert message in await expect_error(engine.create_stream(spec(**changes)), "invalid", 422)
    assert time.monotonic() - began < 5.0
    await engine.create_stream(spec("small"))  # the engine goes on


@on_engine(limits=Limits(stream_bytes=600_000))
async def test_added_arms_count_in_the_memory_of_a_stream(engine, database):
    await engine.create_stream(spec(observed=40, arms=10, options={"max_pending": 100}))
    added = await asyncio.gather(*[engine.add_arm("one") for _ in range(100)], return_exceptions=True)
    assert "stream_bytes: expected at most 6e+05, got an estimate of" in str(added[-1])
    arms = (await engine.stream("one")).arms
    assert 40 < len(arms) < 80
    assert len((await decide(engine, [1.0] * 40)).propensities) == len(arms)


@pytest.mark.parametrize("name", [name for name, entry in hs.catalog().items() if not entry.reveals_context])
def test_streams_of_usual_size_are_within_the_limits(name):
    for observed, arms in ((1, 2), (20, 15), (50, 100)):
        required = {
            "model": {"transition": np.eye(observed).tolist(), "process_cov": 1.0, "observation_cov": [1.0] * observed},
            "latent": observed,
            "arm_params": np.ones((arms, observed)).tolist(),
            "state_rewards": np.ones((arms, 5)).tolist(),
            "state_transition": np.eye(5).tolist(),
        }
        options = {option: required[option] for option in hs.catalog()[name].required}
        check_stream(spec(agent=name, observed=observed, arms=arms, options=options), Limits())


@on_engine(queue_rows=8)
async def test_a_full_queue_refuses_requests_until_there_is_space(engine):
    await engine.create_stream(spec())
    requests = [asyncio.create_task(decide(engine, t)) for t in range(50)]
    replies = await asyncio.gather(*requests, return_exceptions=True)
    codes = [getattr(reply, "code", "ok") for reply in replies]
    assert codes.count("busy") == 50 - 8
    assert codes.count("ok") == 8
    await expect_error(decide_all(engine, [1] * 9), "too_large", 413)
    await decide(engine, 1)
    assert (await engine.stream("one")).decisions == 9
    assert metric(engine, "waiting_rows") == 0


@on_engine()
async def test_times_and_ids_are_sorted_even_if_the_clock_is_set_back(engine, database, monkeypatch):
    await engine.create_stream(spec())
    clock = time.time_ns()
    for step in (0, -3_600, -7_200, 5, -1):
        monkeypatch.setattr(time, "time_ns", lambda step=step: clock + step * 1_000_000_000)
        made = await decide_all(engine, (1, 2))
        await reward(engine, made[0], 1.0)
    recorded = await engine.events("one")
    times = [event.time for event in recorded]
    ids = [event.id for event in recorded if event.kind == "decided"]
    assert times == sorted(times)
    assert ids == sorted(set(ids))
    assert len(ids) == 10


@pytest.mark.parametrize("default", [None, -0.5])
@on_engine()
async def test_reward_waits_end_in_time_after_the_clock_was_ahead(engine, database, default, monkeypatch):
    clock, day = [time.time_ns()], 86_400_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])
    await engine.create_stream(spec(reward_wait=60.0, default_reward=default))
    clock[0] += day
    made = [await decide(engine, 1)]
    clock[0] -= day
    made += [await decide(engine, 2)]
    clock[0] += 30_000_000_000
    made += [await decide(engine, 3)]
    assert (await reward(engine, made[1], 1.0)).how == "given"
    clock[0] += 29_000_000_000
    await asyncio.sleep(0.2)
    assert (await engine.stream("one")).version == 5
    clock[0] += 2_000_000_000
    await until_version(engine, "one", 6)  # a minute after the clock was corrected
    clock[0] += 28_000_000_000
    assert (await reward(engine, made[2], 1.0)).how == "given"
    recorded = await engine.events("one")
    assert recorded[5].id == made[0].id
    assert [event.time for event in recorded] == sorted(event.time for event in recorded)
    clock[0] += day
    await decide(engine, 4)
    contents = [event.content for event in await engine.events("one") if event.kind == "decided"]
    assert [content.clock is None for content in contents] == [True, False, False, True]
    assert_matches_journal(engine, database)
    await engine.snapshot("one")
    async with restart_engine(engine, database) as engine:
        await decide(engine, 5)
        assert_matches_journal(engine, database)


@on_engine()
async def test_small_differences_between_clocks_are_not_recorded(engine, clock):
    await engine.create_stream(spec(reward_wait=60.0))
    for step in (0, -900_000_000, 1_000_000, 0):
        clock[0] += step
        await decide(engine, 1)
    recorded = (await engine.events("one"))[1:]
    assert [event.content.clock for event in recorded] == [None] * 4
    assert [one.waiting_since for one in loaded_stream(engine).open_decisions.values()] == [
        event.time for event in recorded
    ]


@on_engine(max_loaded_bytes=70_000)
async def test_streams_that_do_not_fit_into_memory_are_loaded_from_the_journal(engine, url):
    names = [f"s{i}" for i in range(4)]
    for name in names:
        await engine.create_stream(spec(name))
    for t in range(26):
        for name in names:
            made = await decide(engine, t, name=name)
            await reward(engine, made, reward_from_id(made.id), name)
    assert metric(engine, "resident_streams") <= 3
    assert metric(engine, "snapshots_total") >= 4
    assert metric(engine, "resident_bytes") <= 70_000
    assert metric(engine, "evictions_total") > 20
    for name in names:
        await decide(engine, 50, name=name)
        assert_matches_journal(engine, url, name)


@on_engine()
async def test_reading_streams_unloads_others_too(engine, url):
    names = [f"s{i}" for i in range(6)]
    for name in names:
        await engine.create_stream(spec(name))
    async with restart_engine(engine, url, max_loaded_bytes=70_000, sweep_seconds=60) as engine:
        for read in (engine.agent, engine.health, engine.snapshot):
            for name in names:
                await read(name)
                assert list(engine._store.loaded)[-1] == name
                assert metric(engine, "resident_bytes") <= 70_000


@on_engine(sweep_seconds=60)
async def test_the_memory_of_a_stream_is_measured_as_it_grows(engine):
    await engine.create_stream(spec(agent="adaptive", arms=4))
    await engine.create_stream(spec("arms", arms=4))
    sizes = []
    for _ in range(8):
        made = await decide_all(engine, range(250))
        await engine.reward_all("one", [RewardRequest(one.id, 1.0) for one in made])
        arrays = sum(array.nbytes for array in loaded_stream(engine).agent.policy.state().values())
        sizes.append(engine._store._sizes["one"])
        assert 0.9 * arrays < sizes[-1] < 1.1 * arrays + 25_000
    assert sizes[-1] > 2 * sizes[0]
    before = engine._store._sizes["arms"]
    await engine.add_arm("arms")
    assert engine._store._sizes["arms"] > before
    assert metric(engine, "resident_bytes") == sum(engine._store._sizes.values())


@on_engine(max_loaded_bytes=70_000, sweep_seconds=60)
async def test_a_stream_whose_snapshot_fails_is_unloaded_without_affecting_others(engine, database, caplog):
    for name in ("bad", "one", "two"):
        await engine.create_stream(spec(name))
    await decide_all(engine, range(60), "bad")
    await engine._on_store_thread(lambda: engine._store.in_transaction(_add_unknown_event))
    for t in range(30):
        for name in ("one", "two"):
            made = await engine.decide_all(
                name, [DecisionRequest(observation(t), key=f"{t} {number}") for number in range(10)]
            )
            assert [one.repeated for one in made] == [False] * 10
    assert "bad" not in engine._store.loaded
    assert metric(engine, "snapshot_errors_total") == 1
    assert (await engine.stream("one")).decisions == 300
    await expect_error(decide(engine, 1, name="bad"), "internal", 500)
    assert len([record for record in caplog.records if "'bad'" in record.getMessage()]) == 1


@on_engine()
async def test_a_stream_that_cannot_be_read_does_not_keep_others_from_expiring(engine, clock, monkeypatch):
    monkeypatch.setattr(engine_module, "_SWEEP_STREAMS", 1)
    for name in ("bad", "one", "two"):
        await engine.create_stream(spec(name, reward_wait=60.0))
        await decide(engine, 1, name=name)
        clock[0] += 1_000_000
    await engine._on_store_thread(lambda: engine._store.in_transaction(_add_unknown_event))
    clock[0] += 61_000_000_000
    for name in ("one", "two"):
        await until_version(engine, name, 3)
    assert metric(engine, "sweep_errors_total") > 0


def _add_unknown_event(journal) -> None:
    """Add an event of a kind that this version of the package does not know."""
    row = journal.stream("bad")
    sql = "INSERT INTO events (stream_id, seq, time, kind, payload) VALUES (?, ?, ?, 'newer', '{}') RETURNING seq"
    journal._rows(sql, (row.id, row.version + 1, row.updated))
    journal._rows("UPDATE streams SET version = version + 1 WHERE id = ? RETURNING id", (row.id,))


@on_engine(snapshot_every=10, sweep_seconds=60)
async def test_a_stream_with_many_open_decisions_gets_snapshots_less_often(engine):
    await engine.create_stream(spec())
    store, counts = engine._store, []
    for _ in range(60):
        await decide_all(engine, [1] * 10)
        for name in await engine._on_store_thread(store.snapshots_due):
            await engine.snapshot(name)
        counts.append(metric(engine, "snapshots_total"))
    assert counts[0] == 1
    assert 5 <= counts[-1] <= 12  # after 60 batches
    assert store.loaded["one"].snapshot_version > 300


@on_engine()
async def test_health_and_metrics(engine):
    await engine.create_stream(spec())
    made = await decide(engine, 1)
    await reward(engine, made, 1.0)
    health = await engine.health("one")
    assert health.facts["rounds"] == health.facts["rewards"] == 1
    await expect_error(engine.health("none"), "not_found", 404)
    await expect_error(engine.events("none"), "not_found", 404)
    await expect_error(engine.snapshot("none"), "not_found", 404)
    assert metric(engine, "decides_total") == metric(engine, "rewards_total") == 1
    assert metric(engine, "decide_seconds_count") == metric(engine, "reward_seconds_count") == 1
    latencies = engine.metrics.latencies["decide"].summary()
    assert latencies["count"] == 1
    assert latencies["p99"] > 0
    assert metric(engine, "decide_seconds_sum") == latencies["sum"]


@on_engine(sweep_seconds=60)
async def test_loading_a_copy_of_an_agent_does_not_delay_decisions(engine, monkeypatch):
    started, may_end = threading.Event(), threading.Event()
    from_bytes = engine_module.from_bytes

    def slow_from_bytes(*arguments):
        started.set()
        assert may_end.wait(10)
        return from_bytes(*arguments)

    monkeypatch.setattr(engine_module, "from_bytes", slow_from_bytes)
    await engine.create_stream(spec())
    await engine.create_stream(spec("other"))
    await decide(engine, 1)
    health = asyncio.create_task(engine.health("one"))
    try:
        assert await asyncio.to_thread(started.wait, 10)
        await asyncio.wait_for(decide(engine, 1, name="other"), 5)
        await asyncio.wait_for(decide(engine, 2), 5)
        assert not health.done()
    finally:
        may_end.set()
    assert (await health).facts["rounds"] == 1


@on_engine()
async def test_closing_answers_waiting_requests_and_refuses_new_ones(engine):
    await engine.create_stream(spec())
    requests = [asyncio.create_task(decide(engine, t)) for t in range(20)]
    await asyncio.sleep(0)
    assert engine.ready()
    await engine.close()
    assert not engine.ready()
    assert len({decision.id for decision in await asyncio.gather(*requests)}) == 20
    await expect_error(decide(engine, 1), "unavailable", 503)


async def until_version(engine, name: str, version: int) -> None:
    async with asyncio.timeout(20):
        while (await engine.stream(name)).version != version:
            await asyncio.sleep(0.01)
