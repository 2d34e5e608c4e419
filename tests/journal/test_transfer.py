"""Export from one database and import into another give the same events and the same state."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial

import pytest
from engine_tools import fold_from_journal, observation, reward_from_id, same_state, spec, with_engine

from halfseen.cli.app import run_app
from halfseen.errors import HalfseenError, InvalidInput
from halfseen.journal import transfer
from halfseen.journal.events import JournalError
from halfseen.journal.journal import open_journal
from halfseen.journal.transfer import export, import_streams, read_events, select_streams
from halfseen.service.engine.imported_stream import Importer
from halfseen.service.engine.loaded_stream import pack_model
from halfseen.service.engine.transaction import Operation, StreamTransaction
from halfseen.service.errors import ServiceError
from halfseen.service.schemas import DecisionRequest, GuardrailSettings, Limits, RewardRequest


def open_stream(name, created):
    return Importer(Limits(), 0).open_stream(name, created)


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> str:
    """Return a database with two streams and all kinds of events."""
    url = str(tmp_path_factory.mktemp("played") / "j.db")

    async def scenario(engine):
        await engine.create_stream(spec("names", observed=["x", "y", "z"], reward_wait=0.001, default_reward=0.5))
        await engine.create_stream(spec("numbers", arms=3, agent="adaptive", options={"latent": 3}))
        for name in ("names", "numbers"):
            decisions = [await engine.decide(name, DecisionRequest(observation(t), key=f"k{t}")) for t in range(12)]
            for decision in decisions[:10]:
                await engine.reward(name, RewardRequest(decision.id, reward_from_id(decision.id)))
        await engine.add_arm("names", "d")
        await engine.retire_arm("names", "a")
        await engine.set_guardrails("names", GuardrailSettings(0.1, 0.2, ("b", 0.3)))
        made = await engine.decide("names", DecisionRequest(observation(20), ["b", "d"]))
        await engine.reward("names", RewardRequest(made.id, 1.0))
        await engine.set_guardrails("numbers", GuardrailSettings(holdback=0.5))
        await engine.retire_stream("names")
        agent = await engine.agent("numbers")
        agent.refit()
        accept = partial(StreamTransaction.accept_model, model=pack_model(agent.model()), seen=5, after=0)
        future = asyncio.get_running_loop().create_future()
        (accepted,) = await engine._queue.submit(Operation.single("numbers", accept, future))
        assert accepted is True
        await engine.decide("numbers", DecisionRequest(observation(21), costs=[0.0, 0.25, 1.0]))

    with_engine(url, scenario)
    return url


def streams_and_events(url: str) -> dict:
    """Return the columns and the events of every stream of a database."""
    journal = open_journal(url)
    try:
        return {row.name: (row.arms, row.decisions, row.rewards, row.version, row.created, row.updated, row.retired,
                           list(journal.all_events(row.id))) for row in journal.streams()}  # fmt: skip
    finally:
        journal.close()


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_the_time_by_the_clock_is_exported(tmp_path, ending, monkeypatch):
    clock, urls = [time.time_ns()], [str(tmp_path / f"{i}.db") for i in range(2)]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])

    async def scenario(engine):
        await engine.create_stream(spec(reward_wait=60.0))
        for hours in (5, -5, 0):
            clock[0] += hours * 3_600_000_000_000
            await engine.decide("one", DecisionRequest(observation(1)))

    with_engine(urls[0], scenario)
    source, target = map(open_journal, urls)
    export(source, tmp_path / f"out.{ending}")
    import_streams(target, read_events(tmp_path / f"out.{ending}"), open_stream)
    source.close(), target.close()
    assert streams_and_events(urls[0]) == streams_and_events(urls[1])
    assert {one.waiting_since for one in fold_from_journal(urls[1], "one").open_decisions.values()} == {
        clock[0] // 1000
    }
    assert same_state(fold_from_journal(urls[0], "one"), fold_from_journal(urls[1], "one"))


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_an_import_gives_the_same_events_and_the_same_state(played, database, tmp_path, ending):
    file = tmp_path / f"out.{ending}"
    source, target = open_journal(played), open_journal(database)
    assert export(source, file) == 2
    imported = import_streams(target, read_events(file), open_stream)
    source.close()
    assert imported == {name: part[3] for name, part in streams_and_events(played).items()}
    assert streams_and_events(database) == streams_and_events(played)
    kinds = {event.kind for part in streams_and_events(played).values() for event in part[-1]}
    assert kinds >= {"created", "decided", "rewarded", "arm_added", "arm_retired", "retired", "model_accepted"} | {
        "guardrails_set"
    }
    for name in ("names", "numbers"):
        assert same_state(fold_from_journal(played, name), fold_from_journal(database, name))
        assert target.snapshot(target.stream(name).id)[0] == imported[name]
    with pytest.raises(JournalError, match="Stream 'names' exists already"):
        import_streams(target, read_events(file), open_stream)
    target.close()


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_a_stream_with_a_budget_and_guardrails_is_imported(tmp_path, ending):
    """Most decisions leave out arms that the budget does not pay for, whose propensity is 0 in spite of the floor."""
    url, file = str(tmp_path / "paid.db"), tmp_path / f"paid.{ending}"

    async def scenario(engine):
        await engine.create_stream(
            spec("paid", options={"budget": [3.0, 30]}, guardrails=GuardrailSettings(0.05, 0.2, ("a", 0.2)))
        )
        for t in range(30):
            made = await engine.decide("paid", DecisionRequest(observation(t), costs=[0.0, 0.5, 2.0]))
            await engine.reward("paid", RewardRequest(made.id, reward_from_id(made.id)))

    with_engine(url, scenario)
    source, target = open_journal(url), open_journal(str(tmp_path / "imported.db"))
    export(source, file)
    decided = [event.content for event in source.all_events(source.stream("paid").id) if event.kind == "decided"]
    assert any(content.propensities[2] == 0.0 for content in decided)
    import_streams(target, read_events(file), open_stream)
    assert streams_and_events(str(tmp_path / "imported.db")) == streams_and_events(url)
    source.close()
    target.close()


def test_an_import_that_spends_more_than_the_budget_is_refused(tmp_path):
    url = str(tmp_path / "paid.db")

    async def scenario(engine):
        await engine.create_stream(spec("paid", options={"budget": [3.0, 3]}))
        await engine.decide("paid", DecisionRequest(observation(1), available=["b"], costs=[0.0, 1.0, 2.0]))

    with_engine(url, scenario)
    journal, target = open_journal(url), open_journal(str(tmp_path / "imported.db"))
    export(journal, tmp_path / "paid.ndjson")
    text = (tmp_path / "paid.ndjson").read_text()
    (tmp_path / "paid.ndjson").write_text(text.replace("[0.0,1.0,2.0]", "[0.0,4.0,2.0]"))
    with pytest.raises(JournalError, match="line 2: costs: expected an available arm that costs at most 3"):
        import_streams(target, read_events(tmp_path / "paid.ndjson"), open_stream)
    journal.close()
    target.close()


def test_a_parquet_file_is_a_table_of_decisions(played, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    journal = open_journal(played)
    export(journal, tmp_path / "names.parquet", ["names"])
    journal.close()
    rows = parquet.read_table(tmp_path / "names.parquet").to_pylist()
    stored = streams_and_events(played)["names"][-1]
    decided = [event for event in stored if event.kind == "decided"]
    assert [row["id"] for row in rows] == [event.id for event in decided]
    assert rows[3]["observation"] == decided[3].content.observation
    assert rows[3]["propensities"] == decided[3].content.propensities
    assert rows[0]["how"] == "late"
    assert rows[0]["reward"] == reward_from_id(rows[0]["id"])


def damage(lines: list[dict], kind: str) -> list[dict]:
    if kind == "missing event":
        return [line for line in lines if line["seq"] != 3]
    if kind == "missing first event":
        return lines[1:]
    decided = [line for line in lines if line["kind"] == "decided"]
    if kind == "unknown arm":
        decided[2]["arm"] = "nobody"
    if kind == "decreasing time":
        lines[4]["time"] = "2001-01-01T00:00:00Z"
    if kind == "invalid stream name":
        return [line | {"stream": "../etc"} for line in lines]
    if kind == "unknown agent":
        lines[0]["spec"]["agent"] = "nobody"
    if kind == "incomplete specification":
        lines[0]["spec"] = {"arms": 3}
    if kind == "unknown kind":
        lines[4]["kind"] = "guessed"
    if kind == "text instead of a number":
        decided[2]["propensity"] = "much"
    return lines


@pytest.mark.parametrize(
    "kind",
    ["missing event", "missing first event", "unknown arm", "decreasing time", "invalid stream name", "unknown agent",
     "incomplete specification", "unknown kind", "text instead of a number"],
)  # fmt: skip
def test_a_damaged_export_is_refused_and_nothing_is_imported(played, tmp_path, kind):
    source, target = open_journal(played), open_journal(tmp_path / "target.db")
    export(source, tmp_path / "out.ndjson", ["names"])
    source.close()
    lines = [json.loads(line) for line in (tmp_path / "out.ndjson").read_text().splitlines()]
    (tmp_path / "bad.ndjson").write_text("\n".join(map(json.dumps, damage(lines, kind))))
    with pytest.raises(HalfseenError) as refused:
        import_streams(target, read_events(tmp_path / "bad.ndjson"), open_stream)
    assert "\n" not in str(refused.value)
    assert target.count_streams() == 0
    target.close()


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_an_interrupted_export_leaves_the_old_file(played, tmp_path, ending, monkeypatch):
    file, journal = tmp_path / f"out.{ending}", open_journal(played)
    export(journal, file)
    before, all_events = file.read_bytes(), journal.all_events
    calls = iter(range(4))
    last_call = {"ndjson": 1, "parquet": 3}[
        ending
    ]  # each of the two streams is read once for NDJSON, twice for Parquet

    def interrupted_events(stream_id, after=0):
        call = next(calls)
        for event in all_events(stream_id, after):
            if call == last_call and event.seq == 5:
                raise Interrupted
            yield event

    monkeypatch.setattr(journal, "all_events", interrupted_events)
    with pytest.raises(Interrupted):
        export(journal, file)
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [file.name]
    journal.close()


@pytest.mark.parametrize(
    ("truncate", "message"),
    [
        (lambda lines: lines[:-1], "expected all .* events of stream 'numbers', got .*, which ends after event"),
        (
            lambda lines: [line for line in lines if b'"stream":"names"' in line],
            "expected all 2 exported streams, got .*, which contains 1",
        ),
    ],
    ids=["without the last line", "without the last stream"],
)
def test_a_truncated_export_is_refused_and_nothing_is_imported(played, tmp_path, truncate, message):
    source, target = open_journal(played), open_journal(tmp_path / "target.db")
    export(source, tmp_path / "out.ndjson")
    source.close()
    lines = (tmp_path / "out.ndjson").read_bytes().splitlines(keepends=True)
    (tmp_path / "truncated.ndjson").write_bytes(b"".join(truncate(lines)))
    with pytest.raises(JournalError, match=message):
        import_streams(target, read_events(tmp_path / "truncated.ndjson"), open_stream)
    assert target.count_streams() == 0
    without_extent = [json.loads(line) for line in truncate(lines)]
    for line in without_extent:
        line.pop("exported", None)
    (tmp_path / "without_extent.ndjson").write_text("\n".join(map(json.dumps, without_extent)))
    import_streams(target, read_events(tmp_path / "without_extent.ndjson"), open_stream)
    assert target.count_streams() == len({line["stream"] for line in without_extent})
    target.close()


def test_other_files_are_refused(played, tmp_path):
    journal = open_journal(played)
    with pytest.raises(InvalidInput, match="file: expected a name that ends in"):
        export(journal, tmp_path / "out.csv")
    with pytest.raises(InvalidInput, match="stream: expected the name of a stream in this database, got 'none'"):
        export(journal, tmp_path / "out.ndjson", ["none"])
    journal.close()
    (tmp_path / "bad.ndjson").write_text("{not json\n")
    (tmp_path / "bad.parquet").write_text("no table")
    for name in ("bad.ndjson", "bad.parquet"):
        with pytest.raises(HalfseenError):
            list(read_events(tmp_path / name))


def test_the_commands_export_and_import(played, tmp_path, capsys):
    file, target = str(tmp_path / "out.ndjson"), str(tmp_path / "new.db")
    assert run_app(["export", file, "--database", played]) == 0
    assert "2 streams written" in capsys.readouterr().out
    assert run_app(["import", file, "--database", target]) == 0
    assert "names: " in capsys.readouterr().out
    assert streams_and_events(target) == streams_and_events(played)
    assert run_app(["import", file, "--database", target]) == 2
    assert "Stream 'names' exists already" in capsys.readouterr().err
    assert run_app(["export", file, "--database", str(tmp_path / "none.db")]) == 2
    assert not (tmp_path / "none.db").exists()


def test_the_engine_exports_and_imports(played, tmp_path):
    async def export_scenario(engine):
        assert await engine.export_streams(tmp_path / "out.parquet", ["numbers"]) == 1

    async def import_scenario(engine):
        imported = await engine.import_streams(tmp_path / "out.parquet")
        assert imported == {"numbers": streams_and_events(played)["numbers"][3]}
        assert (await engine.decide("numbers", DecisionRequest(observation(3), key="k3"))).repeated
        with pytest.raises(ServiceError) as raised:
            await engine.import_streams(tmp_path / "out.parquet")
        assert raised.value.status == 409

    with_engine(played, export_scenario)
    with_engine(str(tmp_path / "new.db"), import_scenario)


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_events_added_during_an_export_are_not_exported(tmp_path, ending, monkeypatch):
    url = str(tmp_path / "j.db")

    async def scenario(engine):
        await engine.create_stream(spec("busy"))
        decisions = await engine.decide_all("busy", [DecisionRequest(observation(t)) for t in range(4)])
        journal = open_journal(url)
        rows = select_streams(journal, ["busy"])
        await engine.decide("busy", DecisionRequest(observation(5)))
        await engine.reward("busy", RewardRequest(decisions[0].id, 1.0))
        monkeypatch.setattr(transfer, "select_streams", lambda *_: rows)
        export(journal, tmp_path / f"out.{ending}")
        monkeypatch.undo()
        journal.close()

    with_engine(url, scenario)
    other = open_journal(str(tmp_path / "other.db"))
    import_streams(other, read_events(tmp_path / f"out.{ending}"), open_stream)
    (row,) = select_streams(other, ["busy"])
    assert [event.content.__class__.__name__ for event in other.all_events(row.id)] == ["Created"] + 4 * ["Decided"]
    other.close()
