"""Decisions, rewards and streams, on both databases."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from engine_tools import held, observation, opened, pay, plain, refolded, same, spec, with_engine
from settings import OBSERVED, told

import halfseen as hs
from halfseen.journal import events
from halfseen.service.engine import engine as engine_module
from halfseen.service.errors import ServiceError
from halfseen.service.schemas import DecisionRequest, RewardRequest, StreamSpec


async def refused(doing, code: str, status: int) -> str:
    with pytest.raises(ServiceError) as raised:
        await doing
    assert (raised.value.code, raised.value.status) == (code, status)
    assert "\n" not in raised.value.message
    return raised.value.message


def test_the_decisions_are_those_of_the_agent(database):
    async def scenario(engine):
        await engine.create_stream(spec())
        agent = hs.make("ts-pco", observed=3, arms=["a", "b", "c"], seed=5)
        for t in range(30):
            y = observation(t)
            available = ["a", "c"] if t % 4 == 0 else None
            mine = agent.decide(y, available=available)
            theirs = await engine.decide("one", DecisionRequest(y, available))
            assert (theirs.arm, theirs.propensity) == (mine.arm, mine.propensity)
            assert theirs.propensities == mine.propensities.tolist()
            assert theirs.expected == mine.expected.tolist()
            assert not theirs.repeated
            if t % 3:
                rewarded = await engine.reward("one", RewardRequest(theirs.id, t / 7))
                assert (rewarded.how, rewarded.folded, rewarded.repeated) == ("given", True, False)
                agent.learn(mine.id, t / 7)
        view = await engine.stream("one")
        assert (view.decisions, view.rewards, view.version) == (30, 20, 51)

    with_engine(database, scenario)


@pytest.mark.parametrize("name", [name for name, entry in hs.catalog().items() if not entry.reveals_context])
def test_a_stream_folded_again_is_bit_for_bit_the_live_one(tmp_path, name):
    """Every agent, with gaps, late and missing rewards, arms that come and go, and some arms not available."""
    options = {key: plain(value) for key, value in told(name).items()}
    url = str(tmp_path / "j.db")

    async def scenario(engine):
        await engine.create_stream(spec(agent=name, observed=OBSERVED, arms=4, options=options))
        waiting = []
        for t in range(70):
            available = [0, 2, 3] if t % 5 == 0 else None
            waiting.append((await engine.decide("one", DecisionRequest(observation(t, OBSERVED), available))).id)
            if t % 3 == 2:
                for identity in reversed(waiting[:-1]):
                    await engine.reward("one", RewardRequest(identity, pay(identity)))
                del waiting[:]
            if t == 40:
                await engine.retire_arm("one", 1)
            if t == 50 and name not in ("bayes", "mts"):
                await engine.add_arm("one")
        assert same(held(engine, "one"), refolded(url, "one"))
        await engine.snapshot("one")

    with_engine(url, scenario)

    async def again(engine):
        await engine.decide("one", DecisionRequest(observation(99, OBSERVED)))
        assert engine.measurements()["counts"].get("loads_without_snapshot", 0) == 0
        assert same(held(engine, "one"), refolded(url, "one"))

    with_engine(url, again)


def test_a_key_gives_the_same_decision_for_ever(database):
    async def scenario(engine):
        await engine.create_stream(spec())
        first = await engine.decide("one", DecisionRequest(observation(1), key="order 17"))
        again = await engine.decide("one", DecisionRequest(observation(2), key="order 17"))
        assert again.repeated
        assert again.id == first.id
        assert (again.arm, again.propensities, again.expected) == (first.arm, first.propensities, first.expected)
        batch = await engine.decide_all(
            "one", [DecisionRequest(observation(3), key=key) for key in ("x", "y", "x", "order 17")]
        )
        assert batch[0].id == batch[2].id != batch[1].id
        assert [one.repeated for one in batch] == [False, False, True, True]
        assert (await engine.stream("one")).decisions == 3
        for key in ("", "k" * 201, "nul\x00", "new\nline"):
            await refused(engine.decide("one", DecisionRequest(observation(1), key=key)), "invalid", 422)
        return first

    first = with_engine(database, scenario)

    async def later(engine):
        return await engine.decide("one", DecisionRequest(observation(4), key="order 17"))

    assert with_engine(database, later).id == first.id


def test_rewards_repeated_conflicting_unknown_and_reordered(database):
    async def scenario(engine):
        await engine.create_stream(spec())
        await engine.create_stream(spec("two"))
        made = [await engine.decide("one", DecisionRequest(observation(t))) for t in range(6)]
        for decision in reversed(made):
            await engine.reward("one", RewardRequest(decision.id, 0.25))
        again = await engine.reward("one", RewardRequest(made[2].id, 0.25))
        assert again.repeated
        assert again.folded
        message = await refused(engine.reward("one", RewardRequest(made[2].id, 0.5)), "conflict", 409)
        assert "0.25" in message
        for strange in (
            "nothing",
            "x" * 5000,
            "\x00",
            made[0].id.upper() + "0",
            "0198c0de-0000-7000-8000-000000000000",
        ):
            await refused(engine.reward("one", RewardRequest(strange, 1.0)), "not_found", 404)
        await refused(engine.reward("two", RewardRequest(made[0].id, 0.25)), "not_found", 404)
        for value in (float("nan"), float("inf"), 1e101, 10**400, True, "1.5"):
            await refused(engine.reward("one", RewardRequest(made[0].id, value)), "invalid", 422)
        assert (await engine.stream("one")).rewards == 6
        assert same(held(engine, "one"), refolded(database, "one"))

    with_engine(database, scenario)


def test_one_bad_row_does_not_fail_its_batch(database):
    async def scenario(engine):
        await engine.create_stream(spec())
        asks = [
            DecisionRequest(observation(1)),
            DecisionRequest([1.0]),
            DecisionRequest([1e301, 0.0, 0.0]),
            DecisionRequest(observation(1), ["nobody"]),
            DecisionRequest(["1", 2, 3]),
            DecisionRequest({"a": 1.0}),
            DecisionRequest(observation(1), []),
            DecisionRequest([True, 1.0, 2.0]),
            DecisionRequest([10**400, 1, 1]),
            DecisionRequest(observation(2)),
        ]
        answers = await engine.decide_all("one", asks)
        assert [getattr(answer, "code", "fine") for answer in answers] == ["fine", *["invalid"] * 8, "fine"]
        told_all = [
            RewardRequest(answers[0].id, 1.0),
            RewardRequest("none", 1.0),
            RewardRequest(answers[0].id, 2.0),
            RewardRequest(answers[9].id, 2.0),
        ]
        rewards = await engine.reward_all("one", told_all)
        assert [getattr(one, "code", "fine") for one in rewards] == ["fine", "not_found", "conflict", "fine"]
        agent = hs.make("ts-pco", observed=3, arms=["a", "b", "c"], seed=5)
        assert [agent.decide(observation(1)).arm, agent.decide(observation(2)).arm] == [answers[0].arm, answers[9].arm]
        assert (await engine.stream("one")).version == 5
        assert same(held(engine, "one"), refolded(database, "one"))
        assert await engine.decide_all("one", []) == []

    with_engine(database, scenario)


def test_concurrent_callers_share_commits_and_a_failure_of_one_stream_is_its_own(database, monkeypatch):
    async def scenario(engine):
        for name in ("one", "two", "three"):
            await engine.create_stream(spec(name))
        commits = engine.measurements()["counts"]["commits"]
        asking = [engine.decide(("one", "two", "three")[t % 3], DecisionRequest(observation(t))) for t in range(60)]
        decisions = await asyncio.gather(*asking)
        assert len({decision.id for decision in decisions}) == 60
        assert engine.measurements()["counts"]["commits"] - commits <= 4
        before = held(engine, "two").version

        def broken(*_, **__):
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(held(engine, "two").agent, "decide", broken)
        answers = await asyncio.gather(
            *[engine.decide(name, DecisionRequest(observation(1))) for name in ("one", "two", "three")],
            return_exceptions=True,
        )
        assert [getattr(answer, "code", "fine") for answer in answers] == ["fine", "internal", "fine"]
        await engine.decide("two", DecisionRequest(observation(1)))  # folded anew, without the bug
        assert held(engine, "two").version == before + 1
        for name in ("one", "two", "three"):
            assert same(held(engine, name), refolded(database, name))

    with_engine(database, scenario)


@pytest.mark.parametrize("agent", ["ts-pco", "adaptive", "pco-greedy"])
def test_numbers_at_the_edge_do_not_spoil_the_record(tmp_path, agent, monkeypatch):
    url, clock = str(tmp_path / "j.db"), [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])

    async def scenario(engine):
        await engine.create_stream(spec(agent=agent, reward_wait=60.0, default_reward=0.5))
        for value in (1e100, -1e100, 1e-300, 0.0):
            made = await engine.decide("one", DecisionRequest([value, -value, None], key=str(value)))
            rewarded = await engine.reward("one", RewardRequest(made.id, value))
            assert rewarded.folded == (agent == "adaptive" or abs(value) < 1)  # recorded all the same
        last = await engine.decide("one", DecisionRequest([1e100, 1.0, 1.0]))
        clock[0] += 61_000_000_000
        await engine.decide("one", DecisionRequest([1.0, 1.0, 1.0]))
        assert (await engine.reward("one", RewardRequest(last.id, 0.25))).how == "late"
        assert same(held(engine, "one"), refolded(url, "one"))
        assert (await engine.decide("one", DecisionRequest(observation(1), key="0.0"))).repeated

    with_engine(url, scenario)


def test_the_reward_wait_with_a_default(database, monkeypatch):
    clock = [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])

    async def scenario(engine):
        await engine.create_stream(spec(reward_wait=60.0, default_reward=-0.5))
        first = await engine.decide("one", DecisionRequest(observation(1)))
        second = await engine.decide("one", DecisionRequest(observation(2)))
        await engine.reward("one", RewardRequest(second.id, 1.0))
        clock[0] += 59_000_000_000
        await asyncio.sleep(0.2)
        assert (await engine.stream("one")).version == 4
        clock[0] += 1_000_000_000
        await _until_version(engine, "one", 5)  # without any caller
        contents = [event.content for event in await engine.events("one")]
        assert contents[-1] == events.Rewarded(first.id, 1, -0.5, "default", True)
        late = await engine.reward("one", RewardRequest(first.id, 2.0))
        assert (late.how, late.folded, late.repeated) == ("late", False, False)
        assert (await engine.reward("one", RewardRequest(first.id, 2.0))).repeated
        await refused(engine.reward("one", RewardRequest(first.id, 3.0)), "conflict", 409)
        agent = hs.make("ts-pco", observed=3, arms=["a", "b", "c"], seed=5)
        agent.decide(observation(1)), agent.decide(observation(2))
        agent.learn(2, 1.0), agent.learn(1, -0.5)
        expected = agent.decide(observation(3)).expected.tolist()
        assert (await engine.decide("one", DecisionRequest(observation(3)))).expected == expected
        assert same(held(engine, "one"), refolded(database, "one"))

    with_engine(database, scenario)


def test_a_default_comes_in_time_to_a_stream_that_nobody_has_touched_since_the_start(database, monkeypatch):
    clock = [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])

    async def before(engine):
        await engine.create_stream(spec(reward_wait=60.0, default_reward=-0.5))
        await engine.create_stream(spec("other", reward_wait=6000.0, default_reward=-0.5))
        for name in ("one", "other"):
            await engine.decide(name, DecisionRequest(observation(1)))

    async def after(engine):
        await _until_version(engine, "one", 3)
        assert [event.kind for event in await engine.events("one")] == ["created", "decided", "rewarded"]
        assert (await engine.stream("other")).version == 2
        assert list(engine._store.loaded) == ["one"]
        assert await engine._read(lambda reader: reader.due(2**62, 10)) == ["other"]  # the first waits no more

    with_engine(database, before)
    clock[0] += 61_000_000_000
    with_engine(database, after)


@pytest.mark.parametrize("late_rewards", ["record", "fold"])
def test_the_reward_wait_without_a_default(tmp_path, late_rewards, monkeypatch):
    url, clock = str(tmp_path / "j.db"), [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])

    async def scenario(engine):
        await engine.create_stream(spec(reward_wait=60.0, late_rewards=late_rewards))
        decision = await engine.decide("one", DecisionRequest(observation(1)))
        clock[0] += 61_000_000_000
        late = await engine.reward(
            "one", RewardRequest(decision.id, 2.0)
        )  # expires in the transaction of the reward itself
        assert (late.how, late.folded) == ("late", late_rewards == "fold")
        assert [event.kind for event in await engine.events("one")] == ["created", "decided", "expired", "rewarded"]
        assert held(engine, "one").agent.health().facts["rewards"] == (late_rewards == "fold")
        assert same(held(engine, "one"), refolded(url, "one"))

    with_engine(url, scenario, sweep_seconds=60)


def test_more_decisions_waiting_than_the_agent_keeps(tmp_path):
    url = str(tmp_path / "j.db")

    async def scenario(engine):
        await engine.create_stream(spec(options={"max_pending": 3}))
        made = [await engine.decide("one", DecisionRequest(observation(t))) for t in range(5)]
        first = await engine.reward("one", RewardRequest(made[0].id, 1.0))
        last = await engine.reward("one", RewardRequest(made[4].id, 1.0))
        assert (first.how, first.folded) == ("given", False)
        assert (last.how, last.folded) == ("given", True)
        assert (await engine.reward("one", RewardRequest(made[0].id, 1.0))).repeated
        assert same(held(engine, "one"), refolded(url, "one"))

    with_engine(url, scenario)


@pytest.mark.parametrize("late_rewards", ["record", "fold"])
def test_the_agent_keeps_only_decisions_it_may_still_learn_from(tmp_path, late_rewards, monkeypatch):
    url, clock = str(tmp_path / "j.db"), [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])

    async def scenario(engine):
        await engine.create_stream(spec(reward_wait=60.0, late_rewards=late_rewards))
        empty = held(engine, "one").nbytes
        for _ in range(3):
            made = await engine.decide_all("one", [DecisionRequest(observation(t)) for t in range(20)])
            await engine.reward("one", RewardRequest(made[3].id, 1.0))
            clock[0] += 61_000_000_000
        await engine.decide("one", DecisionRequest(observation(1)))
        here, kept = held(engine, "one"), 3 * 19 * (late_rewards == "fold")
        assert (len(here.open_decisions), len(here.agent.pending), here.agent.unrewarded) == (1, 1 + kept, 1 + kept)
        assert here.nbytes - empty > 700 * (1 + kept)
        assert (await engine.reward("one", RewardRequest(made[5].id, 1.0))).folded == (late_rewards == "fold")
        health = await engine.health("one")
        assert health.facts["decisions dropped"] == 0
        assert health.facts.get("decisions given up", 0) == 57 - kept
        assert not [note for note in health.notes if "no longer" in note]
        assert same(held(engine, "one"), refolded(url, "one"))
        await engine.snapshot("one")

    async def again(engine):
        await engine.decide("one", DecisionRequest(observation(1)))
        assert same(held(engine, "one"), refolded(url, "one"))
        assert "loads_without_snapshot" not in engine.measurements()["counts"]

    with_engine(url, scenario, sweep_seconds=60)
    with_engine(url, again, sweep_seconds=60)


def test_what_cannot_be_learnt_is_not_kept(tmp_path):
    url = str(tmp_path / "j.db")

    async def scenario(engine):
        await engine.create_stream(spec())
        made = await engine.decide("one", DecisionRequest([1e100, -1e100, None]))
        assert not (await engine.reward("one", RewardRequest(made.id, 1e100))).folded
        assert held(engine, "one").agent.pending == ()
        assert same(held(engine, "one"), refolded(url, "one"))

    with_engine(url, scenario)


@pytest.mark.parametrize("default", [None, -0.5])
def test_the_wait_is_over_also_for_more_decisions_than_the_agent_keeps(tmp_path, default, monkeypatch):
    url, clock = str(tmp_path / "j.db"), [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])

    async def scenario(engine):
        await engine.create_stream(spec(reward_wait=60.0, default_reward=default, options={"max_pending": 5}))
        made = await engine.decide_all("one", [DecisionRequest(observation(t)) for t in range(8)])
        early = await engine.reward("one", RewardRequest(made[1].id, 1.0))
        assert (early.how, early.folded) == ("given", False)
        clock[0] += 61_000_000_000
        late = await engine.reward("one", RewardRequest(made[0].id, 1.0))
        assert (late.how, late.folded) == ("late", False)
        over = [event.content for event in await engine.events("one") if event.kind in ("rewarded", "expired")][1:-1]
        assert [content.decision for content in over] == [made[0].id, *[one.id for one in made[2:]]]
        if default is not None:
            assert [content.folded for content in over] == [False, False, *[True] * 5]
        assert same(held(engine, "one"), refolded(url, "one"))

    with_engine(url, scenario, sweep_seconds=60)


def test_a_reward_in_the_batch_whose_decisions_push_its_own_out(database):
    async def scenario(engine):
        await engine.create_stream(spec(options={"max_pending": 5}))
        made = await engine.decide_all("one", [DecisionRequest(observation(t)) for t in range(5)])
        commits = engine.measurements()["counts"]["commits"]
        *_, newest, oldest = await asyncio.gather(
            *[engine.decide("one", DecisionRequest(observation(t))) for t in range(5, 8)],
            engine.reward("one", RewardRequest(made[4].id, 1.0)),
            engine.reward("one", RewardRequest(made[0].id, 2.0)),
        )
        assert engine.measurements()["counts"]["commits"] == commits + 1
        assert (newest.how, newest.folded) == ("given", True)
        assert (oldest.how, oldest.folded, oldest.repeated) == ("given", False, False)
        assert (await engine.reward("one", RewardRequest(made[0].id, 2.0))).repeated
        assert (await engine.stream("one")).rewards == 2
        assert same(held(engine, "one"), refolded(database, "one"))

    with_engine(database, scenario, sweep_seconds=60)


def test_streams_are_made_once(database):
    async def scenario(engine):
        view = await engine.create_stream(spec(seed=None, observed=["x", "y"], options={"width": 0.5}))
        assert isinstance(view.spec.seed, int)
        assert (view.version, view.arms, view.active) == (1, ["a", "b", "c"], ["a", "b", "c"])
        assert await engine.create_stream(view.spec) == view
        assert await engine.create_stream(spec(seed=None, observed=["x", "y"], options={"width": 0.5})) == view
        for other in ({"seed": 6}, {"arms": 3}, {"agent": "pco-scaled"}, {"options": {}}, {"observed": 2}):
            changed = {"seed": None, "observed": ["x", "y"], "options": {"width": 0.5}} | other
            await refused(engine.create_stream(spec(**changed)), "conflict", 409)
        many = await asyncio.gather(*[engine.create_stream(spec("same", seed=None)) for _ in range(5)])
        assert len({one.spec.seed for one in many}) == 1
        assert [one.name for one in await engine.streams()] == ["one", "same"]
        await refused(engine.stream("none"), "not_found", 404)
        await refused(engine.stream("\x00"), "not_found", 404)
        await refused(engine.decide("none", DecisionRequest([1.0])), "not_found", 404)
        await refused(engine.decide("\x00", DecisionRequest([1.0])), "not_found", 404)
        named = await engine.decide("one", DecisionRequest({"y": 2.0}))
        assert (await engine.events("one"))[-1].content.observation == [None, 2.0]
        assert named.arm in view.arms
        await refused(engine.decide("one", DecisionRequest({"z": 2.0})), "invalid", 422)

    with_engine(database, scenario)


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
        {"options": {"max_pending": "many"}},
    ],
)  # fmt: skip
def test_a_stream_that_cannot_be_is_refused(tmp_path, wrong):
    async def scenario(engine):
        await refused(engine.create_stream(spec(**wrong)), "invalid", 422)
        assert await engine.streams() == []

    with_engine(str(tmp_path / "j.db"), scenario)


def test_waits_beyond_all_times_of_streams_made_before_they_were_refused(database, monkeypatch):
    """A billion seconds is the most; what a database may hold from before is decided all the same, as are others."""
    names = {"long": 1e9, "longer": 1e13, "longest": 1e308, "short": 60.0}

    async def scenario(engine):
        with monkeypatch.context() as before:
            before.setattr(StreamSpec, "check", lambda self: None)
            for name, wait in names.items():
                await engine.create_stream(spec(name, reward_wait=wait))
        made = await asyncio.gather(*[engine.decide(name, DecisionRequest(observation(1))) for name in names])
        for name, decision in zip(names, made, strict=True):
            assert (await engine.reward(name, RewardRequest(decision.id, 1.0))).how == "given"
            assert same(held(engine, name), refolded(database, name))

    with_engine(database, scenario)


def test_there_are_only_so_many_streams(database):
    async def scenario(engine):
        await asyncio.gather(engine.create_stream(spec("a")), engine.create_stream(spec("b")))
        await refused(engine.create_stream(spec("c")), "too_large", 413)
        await engine.create_stream(spec("b"))  # which is there

    with_engine(database, scenario, max_streams=2)


def test_arms_come_and_go_and_a_stream_ends(database):
    async def scenario(engine):
        await engine.create_stream(spec())
        decision = await engine.decide("one", DecisionRequest(observation(0)))
        assert (await engine.add_arm("one", "d")).arms == ["a", "b", "c", "d"]
        assert (await engine.add_arm("one", "d")).version == 3  # again: nothing
        assert (await engine.retire_arm("one", "a")).active == ["b", "c", "d"]
        assert (await engine.retire_arm("one", "a")).version == 4
        await refused(engine.add_arm("one", "a"), "conflict", 409)
        await refused(engine.add_arm("one", 4), "invalid", 422)
        await refused(engine.add_arm("one"), "invalid", 422)
        await refused(engine.retire_arm("one", "z"), "not_found", 404)
        await engine.retire_arm("one", "b")
        await engine.retire_arm("one", "c")
        await refused(engine.retire_arm("one", "d"), "invalid", 422)
        await refused(engine.decide("one", DecisionRequest(observation(1), ["a"])), "invalid", 422)
        last = await engine.decide("one", DecisionRequest(observation(1)))
        assert last.arm == "d"
        assert last.propensities == pytest.approx([0.0, 0.0, 0.0, 1.0])
        await engine.create_stream(spec("numbers", arms=2))
        assert (await engine.add_arm("numbers")).arms == [0, 1, 2]
        assert (await engine.add_arm("numbers", 3)).arms == [0, 1, 2, 3]
        await refused(engine.add_arm("numbers", 7), "invalid", 422)
        assert (await engine.retire_stream("one")).retired
        assert (await engine.retire_stream("one")).version == (await engine.stream("one")).version
        await refused(engine.decide("one", DecisionRequest(observation(1))), "conflict", 409)
        await refused(engine.add_arm("one", "e"), "conflict", 409)
        assert (await engine.reward("one", RewardRequest(decision.id, 1.0))).folded
        assert same(held(engine, "one"), refolded(database, "one"))

    with_engine(database, scenario)


def test_a_full_queue_is_refused_at_once_and_comes_back(tmp_path):
    async def scenario(engine):
        await engine.create_stream(spec())
        asking = [asyncio.create_task(engine.decide("one", DecisionRequest(observation(t)))) for t in range(50)]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        codes = [getattr(answer, "code", "fine") for answer in answers]
        assert codes.count("busy") == 50 - 8
        assert codes.count("fine") == 8
        await refused(engine.decide_all("one", [DecisionRequest(observation(1))] * 9), "too_large", 413)
        await engine.decide("one", DecisionRequest(observation(1)))
        assert (await engine.stream("one")).decisions == 9
        assert engine.measurements()["waiting_rows"] == 0

    with_engine(str(tmp_path / "j.db"), scenario, queue_rows=8)


def test_a_clock_that_goes_backwards(database, monkeypatch):
    async def scenario(engine):
        await engine.create_stream(spec())
        clock = time.time_ns()
        for step in (0, -3_600, -7_200, 5, -1):
            monkeypatch.setattr(time, "time_ns", lambda step=step: clock + step * 1_000_000_000)
            made = await engine.decide_all("one", [DecisionRequest(observation(1)), DecisionRequest(observation(2))])
            await engine.reward("one", RewardRequest(made[0].id, 1.0))
        record = await engine.events("one")
        times = [event.time for event in record]
        ids = [event.id for event in record if event.kind == "decided"]
        assert times == sorted(times)
        assert ids == sorted(set(ids))
        assert len(ids) == 10

    with_engine(database, scenario)


@pytest.mark.parametrize("default", [None, -0.5])
def test_waits_end_although_the_clock_was_a_day_ahead_for_a_moment(database, default, monkeypatch):
    clock, day = [time.time_ns()], 86_400_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])

    async def scenario(engine):
        await engine.create_stream(spec(reward_wait=60.0, default_reward=default))
        clock[0] += day
        made = [await engine.decide("one", DecisionRequest(observation(1)))]
        clock[0] -= day
        made += [await engine.decide("one", DecisionRequest(observation(2)))]
        clock[0] += 30_000_000_000
        made += [await engine.decide("one", DecisionRequest(observation(3)))]
        assert (await engine.reward("one", RewardRequest(made[1].id, 1.0))).how == "given"
        clock[0] += 29_000_000_000
        await asyncio.sleep(0.2)
        assert (await engine.stream("one")).version == 5
        clock[0] += 2_000_000_000
        await _until_version(engine, "one", 6)  # a minute after the clock was right again
        clock[0] += 28_000_000_000
        assert (await engine.reward("one", RewardRequest(made[2].id, 1.0))).how == "given"  # in time
        record = await engine.events("one")
        assert record[5].id == made[0].id
        assert [event.time for event in record] == sorted(event.time for event in record)
        clock[0] += day
        await engine.decide("one", DecisionRequest(observation(4)))
        contents = [event.content for event in await engine.events("one") if event.kind == "decided"]
        assert [content.clock is None for content in contents] == [True, False, False, True]
        assert same(held(engine, "one"), refolded(database, "one"))
        await engine.snapshot("one")

    async def again(engine):
        await engine.decide("one", DecisionRequest(observation(5)))
        assert same(held(engine, "one"), refolded(database, "one"))

    with_engine(database, scenario)
    with_engine(database, again)


def test_clocks_that_differ_a_little_leave_no_trace(tmp_path, monkeypatch):
    clock = [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])

    async def scenario(engine):
        await engine.create_stream(spec(reward_wait=60.0))
        for step in (0, -900_000_000, 1_000_000, 0):
            clock[0] += step
            await engine.decide("one", DecisionRequest(observation(1)))
        record = (await engine.events("one"))[1:]
        assert [event.content.clock for event in record] == [None] * 4
        assert [one.time for one in held(engine, "one").open_decisions.values()] == [event.time for event in record]

    with_engine(str(tmp_path / "j.db"), scenario)


def test_agents_that_do_not_fit_into_memory_come_back_from_the_journal(tmp_path):
    url = str(tmp_path / "j.db")
    names = [f"s{i}" for i in range(4)]

    async def scenario(engine):
        for name in names:
            await engine.create_stream(spec(name))
        for t in range(26):
            for name in names:
                made = await engine.decide(name, DecisionRequest(observation(t)))
                await engine.reward(name, RewardRequest(made.id, pay(made.id)))
        assert engine.measurements()["resident_streams"] <= 3
        assert engine.measurements()["counts"]["snapshots"] >= 4
        assert engine.measurements()["resident_bytes"] <= 70_000
        assert engine.measurements()["counts"]["evictions"] > 20
        for name in names:
            await engine.decide(name, DecisionRequest(observation(50)))
            assert same(held(engine, name), refolded(url, name))

    with_engine(url, scenario, resident_bytes=70_000)


def test_looking_at_streams_makes_room_too(tmp_path):
    url, names = str(tmp_path / "j.db"), [f"s{i}" for i in range(6)]

    async def made(engine):
        for name in names:
            await engine.create_stream(spec(name))

    async def looked_at(engine):
        for look in (engine.agent, engine.health, engine.snapshot):
            for name in names:
                await look(name)
                assert list(engine._store.loaded)[-1] == name
                assert engine.measurements()["resident_bytes"] <= 70_000

    with_engine(url, made)
    with_engine(url, looked_at, resident_bytes=70_000, sweep_seconds=60)


def test_the_memory_of_a_stream_is_told_as_it_grows(tmp_path):
    async def scenario(engine):
        await engine.create_stream(spec(agent="adaptive", arms=4))
        await engine.create_stream(spec("arms", arms=4))
        said = []
        for _ in range(8):
            made = await engine.decide_all("one", [DecisionRequest(observation(t)) for t in range(250)])
            await engine.reward_all("one", [RewardRequest(one.id, 1.0) for one in made])
            arrays = sum(array.nbytes for array in held(engine, "one").agent.policy.state().values())
            said.append(engine._store._sizes["one"])
            assert 0.9 * arrays < said[-1] < 1.1 * arrays + 25_000
        assert said[-1] > 2 * said[0]
        before = engine._store._sizes["arms"]
        await engine.add_arm("arms")
        assert engine._store._sizes["arms"] > before
        assert engine.measurements()["resident_bytes"] == sum(engine._store._sizes.values())

    with_engine(str(tmp_path / "j.db"), scenario, sweep_seconds=60)


def test_a_stream_that_cannot_be_kept_is_let_go_and_nobody_else_hears_of_it(database, caplog):
    async def scenario(engine):
        for name in ("bad", "one", "two"):
            await engine.create_stream(spec(name))
        await engine.decide_all("bad", [DecisionRequest(observation(t)) for t in range(60)])
        await engine._on_store_thread(lambda: engine._store.in_transaction(_from_the_future))
        for t in range(30):
            for name in ("one", "two"):
                made = await engine.decide_all(
                    name, [DecisionRequest(observation(t), key=f"{t} {place}") for place in range(10)]
                )
                assert [one.repeated for one in made] == [False] * 10
        assert "bad" not in engine._store.loaded
        assert engine.measurements()["counts"]["snapshot_errors"] == 1
        assert (await engine.stream("one")).decisions == 300
        await refused(engine.decide("bad", DecisionRequest(observation(1))), "internal", 500)

    with_engine(database, scenario, resident_bytes=70_000, sweep_seconds=60)
    assert len([record for record in caplog.records if "'bad'" in record.getMessage()]) == 1


def test_waits_of_other_streams_end_although_one_cannot_be_read(tmp_path, monkeypatch):
    clock = [time.time_ns()]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])
    monkeypatch.setattr(engine_module, "_SWEEP_STREAMS", 1)

    async def scenario(engine):
        for name in ("bad", "one", "two"):
            await engine.create_stream(spec(name, reward_wait=60.0))
            await engine.decide(name, DecisionRequest(observation(1)))
            clock[0] += 1_000_000
        await engine._on_store_thread(lambda: engine._store.in_transaction(_from_the_future))
        clock[0] += 61_000_000_000
        for name in ("one", "two"):
            await _until_version(engine, name, 3)
        assert engine.measurements()["counts"]["sweep_errors"] > 0

    with_engine(str(tmp_path / "j.db"), scenario)


def _from_the_future(journal) -> None:
    """Give a stream an event that this version does not know."""
    row = journal.stream("bad")
    sql = "INSERT INTO events (stream_id, seq, time, kind, payload) VALUES (?, ?, ?, 'newer', '{}') RETURNING seq"
    journal._rows(sql, (row.id, row.version + 1, row.updated))
    journal._rows("UPDATE streams SET version = version + 1 WHERE id = ? RETURNING id", (row.id,))


def test_snapshots_are_rarer_where_many_decisions_wait(tmp_path):
    async def scenario(engine):
        await engine.create_stream(spec())
        store, counts = engine._store, []
        for _ in range(60):
            await engine.decide_all("one", [DecisionRequest(observation(1))] * 10)
            for name in await engine._on_store_thread(store.snapshots_due):
                await engine.snapshot(name)
            counts.append(store.counts["snapshots"])
        assert counts[0] == 1
        assert 5 <= counts[-1] <= 12  # of 60
        assert store.loaded["one"].snapshot_version > 300

    with_engine(str(tmp_path / "j.db"), scenario, snapshot_every=10, sweep_seconds=60)


def test_health_and_measurements(tmp_path):
    async def scenario(engine):
        await engine.create_stream(spec())
        made = await engine.decide("one", DecisionRequest(observation(1)))
        await engine.reward("one", RewardRequest(made.id, 1.0))
        health = await engine.health("one")
        assert health.facts["rounds"] == health.facts["rewards"] == 1
        await refused(engine.health("none"), "not_found", 404)
        await refused(engine.events("none"), "not_found", 404)
        await refused(engine.snapshot("none"), "not_found", 404)
        found = engine.measurements()
        assert found["counts"]["decides"] == found["counts"]["rewards"] == 1
        assert found["latencies"]["decide"]["count"] == 1
        assert found["latencies"]["decide"]["p99"] > 0
        assert engine.ready()
        return engine

    engine = with_engine(str(tmp_path / "j.db"), scenario)
    assert not engine.ready()


def test_nobody_waits_for_a_copy_of_an_agent_to_be_unpacked(tmp_path, monkeypatch):
    unpacking, may_end = threading.Event(), threading.Event()
    from_bytes = engine_module.from_bytes

    def slowly(*arguments):
        unpacking.set()
        assert may_end.wait(10)
        return from_bytes(*arguments)

    monkeypatch.setattr(engine_module, "from_bytes", slowly)

    async def scenario(engine):
        await engine.create_stream(spec())
        await engine.create_stream(spec("other"))
        await engine.decide("one", DecisionRequest(observation(1)))
        looking = asyncio.create_task(engine.health("one"))
        try:
            assert await asyncio.to_thread(unpacking.wait, 10)
            await asyncio.wait_for(engine.decide("other", DecisionRequest(observation(1))), 5)
            await asyncio.wait_for(engine.decide("one", DecisionRequest(observation(2))), 5)
            assert not looking.done()
        finally:
            may_end.set()
        assert (await looking).facts["rounds"] == 1

    with_engine(str(tmp_path / "j.db"), scenario, sweep_seconds=60)


def test_closing_answers_what_waits_and_refuses_the_rest(tmp_path):
    async def scenario():
        async with opened(str(tmp_path / "j.db")) as engine:
            await engine.create_stream(spec())
            asking = [asyncio.create_task(engine.decide("one", DecisionRequest(observation(t)))) for t in range(20)]
            await asyncio.sleep(0)
            await engine.close()
            assert len({decision.id for decision in await asyncio.gather(*asking)}) == 20
            await refused(engine.decide("one", DecisionRequest(observation(1))), "unavailable", 503)

    asyncio.run(scenario())


async def _until_version(engine, name: str, version: int, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while (await engine.stream(name)).version != version:
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
