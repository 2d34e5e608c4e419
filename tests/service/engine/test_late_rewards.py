"""Late rewards that replace default rewards, on both databases and over HTTP."""

from __future__ import annotations

import json
import time

import httpx
import numpy as np
import pytest
from engine_tools import (
    assert_matches_journal,
    decide,
    decide_all,
    expect_error,
    fold_from_journal,
    loaded_stream,
    metric,
    observation,
    on_engine,
    restart_engine,
    reward,
    reward_from_id,
    spec,
    to_json_value,
    wait_until,
)
from service.served import serving
from settings import OBSERVED, small_options

import halfseen as hs
from halfseen.agents.catalogue import CATALOG, CatalogueEntry
from halfseen.choosers.thompson import Thompson
from halfseen.estimators.observed import Observed
from halfseen.journal import events
from halfseen.learners.ridge import Ridge
from halfseen.service.dashboard.window import DecisionWindow
from halfseen.service.engine import store
from halfseen.service.schemas import GuardrailSettings, RewardRequest

FOLD = {"reward_wait": 60.0, "default_reward": -0.5, "late_rewards": "fold"}
MINUTE = 61_000_000_000  # nanoseconds; a little more than the reward wait


@on_engine(sweep_seconds=60)
async def test_a_late_reward_replaces_the_default_reward(engine, database, clock):
    await engine.create_stream(spec(**FOLD))
    made = [await decide(engine, t) for t in range(3)]
    await reward(engine, made[1], 1.0)
    clock[0] += MINUTE
    last = await decide(engine, 3)
    contents = [event.content for event in await engine.events("one")]
    assert contents[5:7] == [events.Rewarded(made[t].id, t + 1, -0.5, "default", True) for t in (0, 2)]
    assert (await engine.stream("one")).rewards == 1
    late = await reward(engine, made[0], 2.0)
    assert (late.value, late.how, late.folded, late.repeated) == (2.0, "late", True, False)
    assert (await engine.events("one"))[-1].content == events.Rewarded(made[0].id, 1, 2.0, "late", True)
    again = await reward(engine, made[0], 2.0)
    assert (again.how, again.folded, again.repeated) == ("late", True, True)
    await expect_error(reward(engine, made[0], 3.0), "conflict", 409)
    view = await engine.stream("one")
    assert (view.decisions, view.rewards) == (4, 2)

    agent = hs.make("ts-pco", observed=3, arms=["a", "b", "c"], seed=5)
    for t, decision in enumerate([*made, last]):
        agent.replay(np.array(observation(t), dtype=float), decision.arm)
    for number, value in ((2, 1.0), (1, 2.0), (3, -0.5)):
        agent.learn(number, value)
    reply = await decide(engine, 9)
    np.testing.assert_allclose(reply.expected, agent.decide(observation(9)).expected, rtol=1e-9, atol=1e-12)
    assert_matches_journal(engine, database)
    facts = (await engine.health("one")).facts
    assert (facts["rewards"], facts["provisional rewards"], facts["decisions dropped"]) == (3, 1, 0)
    window = DecisionWindow(view, [event for event in await engine.events("one") if event.seq <= view.version])
    rewards = [(row.reward, row.how) for row in window.decisions.values()]
    assert rewards == [(2.0, "late"), (1.0, "given"), (-0.5, "default"), (None, None)]
    await engine.snapshot("one")
    async with restart_engine(engine, database, sweep_seconds=60) as engine:
        late = await reward(engine, made[2], 0.25)
        assert (late.how, late.folded) == ("late", True)
        assert metric(engine, "loads_without_snapshot_total") == 0
        assert_matches_journal(engine, database)
        assert (await reward(engine, made[0], 2.0)).repeated


@on_engine(sweep_seconds=60)
async def test_a_default_and_a_late_reward_in_one_transaction(engine, database, clock):
    """The request with the late rewards is the first since the reward wait ended, so it also adds the defaults."""
    await engine.create_stream(spec(**FOLD))
    made = await decide_all(engine, range(3))
    clock[0] += MINUTE
    requests = [
        RewardRequest(made[1].id, 1.0),
        RewardRequest(made[0].id, 0.5),
        RewardRequest(made[1].id, 1.0),
        RewardRequest(made[0].id, 0.75),
    ]
    first, second, again, refused = await engine.reward_all("one", requests)
    assert [(one.how, one.folded) for one in (first, second, again)] == [("late", True)] * 3
    assert again.repeated
    assert (refused.status, refused.code) == (409, "conflict")
    kinds = [event.content.how for event in await engine.events("one") if event.kind == "rewarded"]
    assert kinds == ["default"] * 3 + ["late"] * 2
    assert loaded_stream(engine).agent.pending == (3,)
    assert_matches_journal(engine, database)


@pytest.mark.parametrize("options", [FOLD, FOLD | {"late_rewards": "record"}, FOLD | {"default_reward": None}])
@on_engine(sweep_seconds=60)
async def test_many_overdue_decisions_expire_in_several_transactions(engine, database, clock, monkeypatch, options):
    monkeypatch.setattr(store, "_MAX_EXPIRED", 5)
    await engine.create_stream(spec(**options))
    made = await decide_all(engine, range(12))
    clock[0] += MINUTE
    await decide(engine, 12)
    assert list(loaded_stream(engine).open_decisions)[:-1] == [one.id for one in made[5:]]
    late, again = await engine.reward_all("one", [RewardRequest(made[11].id, 1.0)] * 2)  # this one has not expired yet
    assert (late.how, late.folded) == ("late", options["late_rewards"] == "fold")
    assert again.repeated
    ended = [event for event in await engine.events("one") if event.kind in ("rewarded", "expired")]
    assert [event.id for event in ended] == [one.id for one in [*made[:10], made[11], made[11]]]
    assert [one.id for one in made[10:11]] == list(loaded_stream(engine).open_decisions)[:-1]
    assert_matches_journal(engine, database)


@on_engine(sweep_seconds=0.7)
async def test_the_sweep_continues_at_once_with_small_transactions(engine, clock, monkeypatch):
    monkeypatch.setattr(store, "_MAX_EXPIRED", 5)
    parts, names = [], ("one", "two", "three")
    for name in names:
        await engine.create_stream(spec(name, **FOLD))
        await decide_all(engine, range(20), name)
    append = engine._store._journal.append
    monkeypatch.setattr(
        engine._store._journal, "append", lambda rows, entries: (parts.append(len(entries)), append(rows, entries))
    )
    clock[0] += MINUTE
    await wait_until(lambda: sum(parts) >= 60, seconds=5)
    assert parts == [5] * 12
    for name in names:
        assert loaded_stream(engine, name).next_expiry == 0


@pytest.mark.parametrize("name", [name for name, entry in hs.catalog().items() if not entry.reveals_context])
@on_engine(sweep_seconds=60)
async def test_folding_the_journal_gives_the_live_stream_bit_for_bit(engine, url, name, clock):
    options = {key: to_json_value(value) for key, value in small_options(name).items()}
    late = []
    await engine.create_stream(spec(agent=name, observed=OBSERVED, arms=4, options=options, **FOLD))
    for t in range(60):
        made = await decide(engine, observation(t, OBSERVED))
        if t % 3 == 0:
            await reward(engine, made, reward_from_id(made.id))
        elif t % 3 == 1:
            late.append(made.id)
        clock[0] += 7_000_000_000
        if t % 10 == 9:
            for decision_id in (late.pop(0), late.pop(1)):
                assert (await reward(engine, decision_id, reward_from_id(decision_id))).how in ("given", "late")
        if t in (10, 50):
            await engine.set_guardrails("one", GuardrailSettings(0.05, 0.005 * t))
        if t == 30:
            await engine.retire_arm("one", 1)
            await engine.snapshot("one")
    assert len(loaded_stream(engine).agent.state()["pending.provisional"]) > 10
    assert_matches_journal(engine, url)
    async with restart_engine(engine, url, sweep_seconds=60) as engine:
        for decision_id in late:
            reply = await reward(engine, decision_id, reward_from_id(decision_id))
            assert reply.folded
        assert metric(engine, "loads_without_snapshot_total") == 0
        assert_matches_journal(engine, url)


@on_engine(sweep_seconds=60)
async def test_rewards_of_forgotten_decisions_are_recorded_but_not_learnt(engine, url, clock):
    await engine.create_stream(spec(**FOLD, options={"max_pending": 5}))
    empty = loaded_stream(engine).nbytes
    made = await decide_all(engine, range(4))
    clock[0] += MINUTE
    made += await decide_all(engine, range(4, 7))
    assert loaded_stream(engine).agent.pending == (3, 4, 5, 6, 7)
    assert loaded_stream(engine).nbytes - empty > 700 * 5
    before = loaded_stream(engine).agent.state()["learner.mean"]
    late = await reward(engine, made[0], 9.0)
    assert (late.how, late.folded) == ("late", False)
    np.testing.assert_array_equal(loaded_stream(engine).agent.state()["learner.mean"], before)
    remembered = await reward(engine, made[2], 9.0)
    assert (remembered.how, remembered.folded) == ("late", True)
    facts = (await engine.health("one")).facts
    assert (facts["decisions dropped"], facts["decisions waiting"], facts["provisional rewards"]) == (0, 3, 1)
    assert_matches_journal(engine, url)


@on_engine(sweep_seconds=60)
async def test_a_context_that_cannot_be_learnt_from(engine, url, clock):
    await engine.create_stream(spec(**FOLD))
    made = await decide(engine, [1e100, -1e100, None])
    clock[0] += MINUTE
    late = await reward(engine, made, 1.0)
    assert (late.how, late.folded) == ("late", False)
    contents = [event.content for event in await engine.events("one") if event.kind == "rewarded"]
    assert [(content.how, content.folded) for content in contents] == [("default", False), ("late", False)]
    assert loaded_stream(engine).agent.pending == ()
    assert_matches_journal(engine, url)


@on_engine(identify=True)
async def test_folding_is_exact_if_models_are_identified_before_late_rewards(engine, database, clock):
    """Models are fitted to default rewards, which late rewards then replace in the fit."""
    await engine.create_stream(
        spec(agent="adaptive", observed=2, options={"latent": 2, "history": 300}, **FOLD | {"reward_wait": 10.0})
    )
    draw, late = np.random.default_rng(3), {}
    for t in range(60):
        x = draw.normal(size=2)
        made = await decide(engine, x.tolist())
        if t % 4:
            late[made.id] = float(x[0] if made.arm == "a" else -x[1])
        else:
            await reward(engine, made, 1.0 + float(x[0]))
        clock[0] += 2_000_000_000
        await wait_until(lambda: not loaded_stream(engine).agent.refit_due, seconds=120)
    agent = loaded_stream(engine).agent
    assert agent.policy.learner.rewards_at_fit[0] >= 30
    before = agent.policy.learner.mean.copy()
    overdue = [decision_id for decision_id in late if decision_id not in loaded_stream(engine).open_decisions]
    for decision_id in overdue[::2]:
        reply = await reward(engine, decision_id, late[decision_id])
        assert (reply.how, reply.folded) == ("late", True)
    assert not np.array_equal(agent.policy.learner.mean, before)
    assert_matches_journal(engine, database)


class IrreversibleRidge(Ridge):
    """A learner that cannot replace a reward that it has learnt."""

    def learn(self, rows, features, arms, rewards):
        super().learn(rows, features, arms, np.tanh(rewards))


@on_engine()
async def test_an_agent_that_cannot_replace_a_default_reward_is_refused(engine, monkeypatch):
    entry = CatalogueEntry("irreversible", Observed, IrreversibleRidge, Thompson, "", "")
    monkeypatch.setitem(CATALOG._entries, "irreversible", entry)
    message = await expect_error(engine.create_stream(spec(agent="irreversible", **FOLD)), "invalid", 422)
    assert message == (
        "late_rewards: expected 'record' or no default_reward, because 'irreversible' cannot replace a reward that it "
        "has learnt, got 'fold' with a default_reward"
    )
    assert await engine.streams() == []
    await engine.create_stream(spec(agent="irreversible", **FOLD | {"default_reward": None}))
    await engine.create_stream(spec("two", agent="irreversible", **FOLD | {"late_rewards": "record"}))


def test_late_rewards_over_http_before_and_after_a_restart(tmp_path):
    body = {"name": "web", "observed": 3, "arms": ["a", "b", "c"], "agent": "ts-pco", "seed": 5}
    with serving(tmp_path) as service, httpx.Client(base_url=service.url, timeout=30) as http:
        made = http.post("/v1/streams", json=body | FOLD | {"reward_wait": 0.2})
        assert made.status_code == 201, made.text
        ids = [
            http.post("/v1/streams/web/decisions", json={"observation": observation(t)}).json()["id"] for t in range(2)
        ]
        deadline = time.monotonic() + 30
        while http.get("/v1/streams/web").json()["version"] < 5:  # created, two decisions, two defaults
            assert time.monotonic() < deadline
            time.sleep(0.05)
        late = http.post("/v1/streams/web/rewards", json={"decision": ids[0], "value": 2.5})
        assert late.json() == {"decision": ids[0], "value": 2.5, "how": "late", "folded": True, "repeated": False}
        assert http.post("/v1/streams/web/rewards", json={"decision": ids[0], "value": 2.5}).json()["repeated"] is True
        refused = http.post("/v1/streams/web/rewards", json={"decision": ids[0], "value": 2.0})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    with serving(tmp_path) as service, httpx.Client(base_url=service.url, timeout=30) as http:
        late = http.post("/v1/streams/web/rewards", json={"decision": ids[1], "value": -1.5}).json()
        assert (late["how"], late["folded"]) == ("late", True)
        last = http.post("/v1/streams/web/decisions", json={"observation": observation(7)}).json()
        decided = [line for line in http.get("/v1/streams/web/journal").text.splitlines() if '"decided"' in line]
    stream = fold_from_journal(str(tmp_path / "halfseen.db"), "web")
    assert stream.version in (8, 9)  # the last decision may have got its default reward already
    agent = hs.make("ts-pco", observed=3, arms=["a", "b", "c"], seed=5)
    for t, line in enumerate(decided[:2]):
        agent.replay(np.array(observation(t), dtype=float), json.loads(line)["arm"])
    agent.learn(1, 2.5)
    agent.learn(2, -1.5)
    np.testing.assert_allclose(last["expected"], agent.decide(observation(7)).expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("agent", ["ts-pco", "glm-ucb", "adaptive"])
@pytest.mark.parametrize("family", ["binary", "count"])
@on_engine(sweep_seconds=60)
async def test_clicks_and_counts_are_folded_bit_for_bit(engine, database, clock, agent, family):
    """Decisions, default rewards and late rewards of a family, folded again from the journal."""
    given = {"reward_wait": 60.0, "default_reward": 0.0, "late_rewards": "fold"}
    await engine.create_stream(spec(agent=agent, options={"reward_family": family}, **given))
    made = [await decide(engine, t) for t in range(20)]
    for t, one in enumerate(made[:15]):
        await reward(engine, one, float(t % 2))
    clock[0] += MINUTE
    await decide(engine, 20)
    late = await reward(engine, made[16], 1.0)
    assert (late.how, late.folded) == ("late", True)
    await expect_error(reward(engine, made[17], -1.0), "invalid", 422)
    assert_matches_journal(engine, database)
