"""Observations, previews, forecasts and time stamps of the engine."""

from __future__ import annotations

import numpy as np
import pytest
from engine_tools import (
    assert_matches_journal,
    decide,
    expect_error,
    metric,
    observation,
    on_engine,
    restart_engine,
    reward,
    reward_from_id,
    spec,
    to_json_value,
)
from settings import OBSERVED, small_options, state_bytes

import halfseen as hs
from halfseen.journal import events
from halfseen.service.schemas import DecisionRequest, Limits, ObservationRequest


async def refused(call, message):
    assert message in await expect_error(call, "invalid", 422)


AGENTS = ["ts-pco", "kf-ts", "emkf-ts", "em-rts-ts", "hmm-ts", "mts", "adaptive"]


@pytest.mark.parametrize("name", AGENTS)
@on_engine()
async def test_folding_observations_gives_the_live_stream_bit_for_bit(engine, url, name):
    options = {key: to_json_value(value) for key, value in small_options(name).items()}
    await engine.create_stream(spec(agent=name, observed=OBSERVED, arms=4, options=options))
    for t in range(60):
        y = observation(t, OBSERVED)
        if t % 3 == 0:
            reply = await engine.observe("one", ObservationRequest(y, elapsed=1 + t % 4))
            assert reply.elapsed == 1 + t % 4
        steps = 150 if t == 30 else 1 + t % 2
        made = await engine.decide("one", DecisionRequest(y, elapsed=steps))
        if t % 2:
            await reward(engine, made.id, reward_from_id(made.id))
    view = await engine.stream("one")
    assert view.decisions == 60
    assert_matches_journal(engine, url)
    await engine.snapshot("one")
    async with restart_engine(engine, url) as engine:
        await engine.observe("one", ObservationRequest(observation(99, OBSERVED)))
        assert metric(engine, "loads_without_snapshot_total") == 0
        assert_matches_journal(engine, url)


@on_engine()
async def test_time_stamps_are_rounded_to_the_step(engine, url):
    await engine.create_stream(spec(agent="kf-ts", observed=OBSERVED, arms=4, options=_kalman(), step=60.0))
    y = observation(1, OBSERVED)
    assert (await engine.observe("one", ObservationRequest(y, time="2026-01-01T00:00:10Z"))).elapsed == 1
    assert (await engine.observe("one", ObservationRequest(y, time="2026-01-01T00:05:20+00:00"))).elapsed == 5
    assert (await engine.observe("one", ObservationRequest(y, elapsed=2))).elapsed == 2  # 00:07
    made = await engine.decide("one", DecisionRequest(y, time="2026-01-01T02:10:00+02:00", key="k"))
    assert (await engine.decide("one", DecisionRequest(y, time="2026-01-01T02:10:00+02:00", key="k"))).id == made.id
    await expect_error(
        engine.decide("one", DecisionRequest(y, time="2026-01-01T02:11:00+02:00", key="k")), "conflict", 409
    )
    elapsed = [event.content.elapsed for event in await engine.events("one") if hasattr(event.content, "elapsed")]
    assert elapsed == [1, 5, 2, 3]
    assert (await engine.observe("one", ObservationRequest(y, time="2026-01-01T00:10:29Z"))).elapsed == 0
    assert_matches_journal(engine, url)
    async with restart_engine(engine, url) as engine:
        assert (await engine.observe("one", ObservationRequest(y, time="2026-01-01T00:12:00Z"))).elapsed == 2
        assert_matches_journal(engine, url)


def _kalman():
    return {key: to_json_value(value) for key, value in small_options("kf-ts").items()}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"elapsed": -1}, "elapsed: expected"),
        ({"elapsed": 10**15}, "elapsed: expected"),
        ({"time": "2025-12-31T23:00:00Z"}, "time: expected a time that is not before the last one"),
        ({"time": "2026-01-01T00:00:00"}, "time: expected a time with a time zone"),
        ({"time": "soon"}, "time: expected a time with a time zone"),
        ({"time": "2026-01-01T00:00:00Z", "elapsed": 1}, "elapsed: expected either elapsed or time"),
    ],
)
@on_engine()
async def test_bad_times_are_refused_and_change_nothing(engine, url, fields, message):
    await engine.create_stream(spec(agent="kf-ts", observed=OBSERVED, arms=4, options=_kalman(), step=60.0))
    y = observation(1, OBSERVED)
    await engine.observe("one", ObservationRequest(y, time="2026-01-01T00:00:00Z"))
    before = state_bytes(await engine.agent("one"))
    for call in (
        engine.observe("one", ObservationRequest(y, **fields)),
        engine.decide("one", DecisionRequest(y, **fields)),
        engine.preview("one", DecisionRequest(y, **fields)),
    ):
        await refused(call, message)
    assert state_bytes(await engine.agent("one")) == before
    assert (await engine.stream("one")).version == 2
    assert_matches_journal(engine, url)


@on_engine()
async def test_time_stamps_need_a_step(engine, url):
    await engine.create_stream(spec())
    stamped = ObservationRequest(observation(1), time="2026-01-01T00:00:00Z")
    await refused(engine.observe("one", stamped), "time: expected nothing, because the stream has no step")
    for step in (0.0, -1.0, 1e12):
        await refused(engine.create_stream(spec(name="two", step=step)), "step: expected")


@on_engine()
async def test_a_retired_stream_takes_no_observations(engine, url):
    await engine.create_stream(spec())
    await engine.retire_stream("one")
    await expect_error(engine.observe("one", ObservationRequest(observation(1))), "conflict", 409)
    await expect_error(engine.preview("one", DecisionRequest(observation(1))), "conflict", 409)


@pytest.mark.parametrize("name", ["ts-pco", "adaptive"])
@on_engine()
async def test_a_preview_is_the_next_decision_and_changes_nothing(engine, url, name):
    await engine.create_stream(spec(agent=name))
    for t in range(5):
        await reward(engine, await decide(engine, observation(t)), 0.5)
    before, version = state_bytes(await engine.agent("one")), (await engine.stream("one")).version
    request = DecisionRequest(observation(9), available=["a", "b"], elapsed=2)
    preview = await engine.preview("one", request)
    assert state_bytes(await engine.agent("one")) == before
    assert (await engine.stream("one")).version == version
    made = await engine.decide("one", request)
    assert (preview.arm, preview.propensity, preview.propensities, preview.expected) == (
        made.arm, made.propensity, made.propensities, made.expected
    )  # fmt: skip
    await refused(engine.preview("one", DecisionRequest(observation(9), available=["x"])), "available")


@on_engine()
async def test_a_forecast_is_that_of_the_agent(engine, url):
    await engine.create_stream(spec(agent="kf-ts", observed=OBSERVED, arms=4, options=_kalman()))
    for t in range(20):
        await reward(engine, await decide(engine, observation(t, OBSERVED)), 0.5)
    expected, reply = (await engine.agent("one")).forecast(3), await engine.forecast("one", 3)
    np.testing.assert_array_equal(reply.expected, expected.expected)
    np.testing.assert_array_equal(reply.best_arm_probability, expected.best_arm_probability)
    assert reply.arms == [0, 1, 2, 3]
    assert reply.context_names == list(expected.context_names)
    for got, part in zip(
        (reply.context, reply.context_lower, reply.context_upper), expected.context_in_units(), strict=True
    ):
        np.testing.assert_array_equal(got, part)


@on_engine()
async def test_agents_without_a_model_cannot_forecast(engine, url):
    await engine.create_stream(spec())
    await refused(engine.forecast("one", 3), "'ts-pco' has no linear-Gaussian model")


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
@on_engine()
async def test_exports_contain_observations_and_times(engine, url, tmp_path, ending):
    await engine.create_stream(spec(agent="kf-ts", observed=OBSERVED, arms=4, options=_kalman(), step=60.0))
    for t in range(12):
        y = [None, *observation(t, OBSERVED)[1:]]
        await engine.observe("one", ObservationRequest(y, time=f"2026-01-01T00:{4 * t:02}:00Z"))
        made = await engine.decide("one", DecisionRequest(y, elapsed=t % 3))
        await reward(engine, made.id, 1.0)
    path = tmp_path / f"export.{ending}"
    await engine.export_streams(path)
    recorded = await engine.events("one")
    async with restart_engine(engine, f"{url}.copy" if "://" not in str(url) else url) as other:
        await other.import_streams(path, Limits())
        assert await other.events("one") == recorded
        await other.observe("one", ObservationRequest(y, time="2026-01-01T01:00:00Z"))
        assert_matches_journal(other, f"{url}.copy")


def test_impossible_times_of_an_import_are_refused():
    from halfseen.journal.events import Created, Event
    from halfseen.service.engine.imported_stream import Importer

    def imported(step, *contents):
        given = {"observed": 2, "arms": 2, "agent": "ts-pco", "seed": 1, "step": step}
        stream = Importer(Limits(), 0).open_stream("one", Created(given))
        stream.check(Event(1, 1, None, Created(given | {"name": "one"})))
        for seq, content in enumerate(contents, 2):
            stream.check(Event(seq, seq, None, content))

    fine = events.Observed([0.1, None], 1, 100)
    imported(60.0, fine, events.Observed([0.1, 0.2], 3, 103), events.Observed([0.1, 0.2], 0, 103))
    for step, second in (
        (None, fine),
        (60.0, events.Observed([0.1, 0.2], 3, 102)),
        (60.0, events.Observed([0.1, 0.2], -1, 99)),
        (60.0, events.Observed([0.1], 1, 101)),
        (60.0, events.Observed([0.1, 1e300], 1, 101)),
    ):
        with pytest.raises(hs.HalfseenError, match=r"^(tick|elapsed|observation): expected"):
            imported(step, *([] if step is None else [fine]), second)
