"""Out of one database and into another: the same events, and the same state."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial

import pytest
from engine_tools import fold_journal, observation, reward_of, same_state, spec, with_engine

from halfseen.cli.app import run_app
from halfseen.errors import HalfseenError, InvalidInput
from halfseen.journal import transfer
from halfseen.journal.events import JournalError
from halfseen.journal.journal import open_journal
from halfseen.journal.transfer import export, import_streams, read_events, select_streams
from halfseen.service.engine.loaded_stream import fold_imported_stream, pack_model
from halfseen.service.engine.transaction import Operation, StreamTransaction
from halfseen.service.errors import ServiceError
from halfseen.service.schemas import DecisionRequest, RewardRequest


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> str:
    """Two streams with all kinds of events."""
    url = str(tmp_path_factory.mktemp("played") / "j.db")

    async def scenario(engine):
        await engine.create_stream(spec("names", observed=["x", "y", "z"], reward_wait=0.001, default_reward=0.5))
        await engine.create_stream(spec("numbers", arms=3, agent="adaptive", options={"latent": 3}))
        for name in ("names", "numbers"):
            made = [await engine.decide(name, DecisionRequest(observation(t), key=f"k{t}")) for t in range(12)]
            for decision in made[:10]:
                await engine.reward(name, RewardRequest(decision.id, reward_of(decision.id)))
        await engine.add_arm("names", "d")
        await engine.retire_arm("names", "a")
        await engine.decide("names", DecisionRequest(observation(20), ["b", "d"]))
        await engine.retire_stream("names")
        agent = await engine.agent("numbers")
        agent.refit()
        accept = partial(StreamTransaction.accept_model, model=pack_model(agent.model()), seen=5, after=0)
        future = asyncio.get_running_loop().create_future()
        (accepted,) = await engine._queue.submit(Operation.single("numbers", accept, future))
        assert accepted is True
        await engine.decide("numbers", DecisionRequest(observation(21)))

    with_engine(url, scenario)
    return url


def record_of(url: str) -> dict:
    journal = open_journal(url)
    try:
        return {row.name: (row.arms, row.decisions, row.rewards, row.version, row.created, row.updated, row.retired,
                           list(journal.all_events(row.id))) for row in journal.streams()}  # fmt: skip
    finally:
        journal.close()


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_a_clock_that_was_ahead_travels_too(tmp_path, ending, monkeypatch):
    clock, urls = [time.time_ns()], [str(tmp_path / f"{place}.db") for place in range(2)]
    monkeypatch.setattr(time, "time_ns", lambda: clock[0])

    async def scenario(engine):
        await engine.create_stream(spec(reward_wait=60.0))
        for hours in (5, -5, 0):
            clock[0] += hours * 3_600_000_000_000
            await engine.decide("one", DecisionRequest(observation(1)))

    with_engine(urls[0], scenario)
    source, target = map(open_journal, urls)
    export(source, tmp_path / f"out.{ending}")
    import_streams(target, read_events(tmp_path / f"out.{ending}"), fold_imported_stream)
    source.close(), target.close()
    assert record_of(urls[0]) == record_of(urls[1])
    assert {one.waiting_since for one in fold_journal(urls[1], "one").open_decisions.values()} == {clock[0] // 1000}
    assert same_state(fold_journal(urls[0], "one"), fold_journal(urls[1], "one"))


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_there_and_back(played, database, tmp_path, ending):
    file = tmp_path / f"out.{ending}"
    source, target = open_journal(played), open_journal(database)
    assert export(source, file) == 2
    found = import_streams(target, read_events(file), fold_imported_stream)
    source.close()
    assert found == {name: part[3] for name, part in record_of(played).items()}
    assert record_of(database) == record_of(played)
    kinds = {event.kind for part in record_of(played).values() for event in part[-1]}
    assert kinds >= {"created", "decided", "rewarded", "arm_added", "arm_retired", "retired", "model_accepted"}
    for name in ("names", "numbers"):
        assert same_state(fold_journal(played, name), fold_journal(database, name))
        assert target.snapshot(target.stream(name).id)[0] == found[name]
    with pytest.raises(JournalError, match="there is one of that name"):
        import_streams(target, read_events(file), fold_imported_stream)
    target.close()


def test_a_parquet_file_is_a_table_of_decisions(played, tmp_path):
    pandas_free = pytest.importorskip("pyarrow.parquet")
    journal = open_journal(played)
    export(journal, tmp_path / "names.parquet", ["names"])
    journal.close()
    rows = pandas_free.read_table(tmp_path / "names.parquet").to_pylist()
    record = record_of(played)["names"][-1]
    decided = [event for event in record if event.kind == "decided"]
    assert [row["id"] for row in rows] == [event.id for event in decided]
    assert rows[3]["observation"] == decided[3].content.observation
    assert rows[3]["propensities"] == decided[3].content.propensities
    assert rows[0]["how"] == "late"
    assert rows[0]["reward"] == reward_of(rows[0]["id"])


def damaged(lines: list[dict], how: str) -> list[dict]:
    if how == "a gap":
        return [line for line in lines if line["seq"] != 3]
    if how == "no beginning":
        return lines[1:]
    decided = [line for line in lines if line["kind"] == "decided"]
    if how == "an arm that never was":
        decided[2]["arm"] = "nobody"
    if how == "time goes back":
        lines[4]["time"] = "2001-01-01T00:00:00Z"
    if how == "a name that is none":
        return [line | {"stream": "../etc"} for line in lines]
    if how == "an agent that is none":
        lines[0]["spec"]["agent"] = "nobody"
    if how == "no specification":
        lines[0]["spec"] = {"arms": 3}
    if how == "a kind that is none":
        lines[4]["kind"] = "guessed"
    if how == "numbers that are none":
        decided[2]["propensity"] = "much"
    return lines


@pytest.mark.parametrize(
    "how",
    ["a gap", "no beginning", "an arm that never was", "time goes back", "a name that is none", "an agent that is none",
     "no specification", "a kind that is none", "numbers that are none"],
)  # fmt: skip
def test_a_damaged_record_is_refused_and_leaves_nothing(played, tmp_path, how):
    source, target = open_journal(played), open_journal(tmp_path / "target.db")
    export(source, tmp_path / "out.ndjson", ["names"])
    source.close()
    lines = [json.loads(line) for line in (tmp_path / "out.ndjson").read_text().splitlines()]
    (tmp_path / "bad.ndjson").write_text("\n".join(map(json.dumps, damaged(lines, how))))
    with pytest.raises(HalfseenError) as refused:
        import_streams(target, read_events(tmp_path / "bad.ndjson"), fold_imported_stream)
    assert "\n" not in str(refused.value)
    assert target.count_streams() == 0
    target.close()


class Cut(Exception):
    pass


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_an_export_that_is_interrupted_leaves_the_one_before(played, tmp_path, ending, monkeypatch):
    file, journal = tmp_path / f"out.{ending}", open_journal(played)
    export(journal, file)
    before, whole = file.read_bytes(), journal.all_events
    readings = iter(range(4))
    last = {"ndjson": 1, "parquet": 3}[ending]  # of two streams: the second is read once, or twice

    def interrupted(stream_id, after=0):
        number = next(readings)
        for event in whole(stream_id, after):
            if number == last and event.seq == 5:
                raise Cut
            yield event

    monkeypatch.setattr(journal, "all_events", interrupted)
    with pytest.raises(Cut):
        export(journal, file)
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [file.name]
    journal.close()


@pytest.mark.parametrize(
    ("left", "message"),
    [(lambda lines: lines[:-1], "expected all, got ends after event .* of stream 'numbers'"),
     (lambda lines: [line for line in lines if b'"stream":"names"' in line], "expected all, got has 1 of 2 streams")],
    ids=["a line", "a stream"],
)  # fmt: skip
def test_a_file_whose_end_is_missing_is_refused_and_leaves_nothing(played, tmp_path, left, message):
    source, target = open_journal(played), open_journal(tmp_path / "target.db")
    export(source, tmp_path / "out.ndjson")
    source.close()
    lines = (tmp_path / "out.ndjson").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut.ndjson").write_bytes(b"".join(left(lines)))
    with pytest.raises(JournalError, match=message):
        import_streams(target, read_events(tmp_path / "cut.ndjson"), fold_imported_stream)
    assert target.count_streams() == 0
    of_before = [json.loads(line) for line in left(lines)]
    for line in of_before:
        line.pop("exported", None)
    (tmp_path / "before.ndjson").write_text("\n".join(map(json.dumps, of_before)))
    import_streams(target, read_events(tmp_path / "before.ndjson"), fold_imported_stream)
    assert target.count_streams() == len({line["stream"] for line in of_before})
    target.close()


def test_files_that_are_something_else(played, tmp_path):
    journal = open_journal(played)
    with pytest.raises(InvalidInput, match="ends in"):
        export(journal, tmp_path / "out.csv")
    with pytest.raises(InvalidInput, match="stream: got 'none'"):
        export(journal, tmp_path / "out.ndjson", ["none"])
    journal.close()
    (tmp_path / "bad.ndjson").write_text("{not json\n")
    (tmp_path / "bad.parquet").write_text("no table")
    for name in ("bad.ndjson", "bad.parquet"):
        with pytest.raises(HalfseenError):
            list(read_events(tmp_path / name))


def test_the_commands(played, tmp_path, capsys):
    file, target = str(tmp_path / "out.ndjson"), str(tmp_path / "new.db")
    assert run_app(["export", file, "--database", played]) == 0
    assert "2 streams written" in capsys.readouterr().out
    assert run_app(["import", file, "--database", target]) == 0
    assert "names: " in capsys.readouterr().out
    assert record_of(target) == record_of(played)
    assert run_app(["import", file, "--database", target]) == 2
    assert "there is one of that name" in capsys.readouterr().err
    assert run_app(["export", file, "--database", str(tmp_path / "none.db")]) == 2
    assert not (tmp_path / "none.db").exists()


def test_the_engine_exports_and_brings_in(played, tmp_path):
    async def out(engine):
        assert await engine.export_streams(tmp_path / "out.parquet", ["numbers"]) == 1

    async def back(engine):
        found = await engine.import_streams(tmp_path / "out.parquet")
        assert found == {"numbers": record_of(played)["numbers"][3]}
        assert (await engine.decide("numbers", DecisionRequest(observation(1), key="k3"))).repeated
        with pytest.raises(ServiceError) as raised:
            await engine.import_streams(tmp_path / "out.parquet")
        assert raised.value.status == 409

    with_engine(played, out)
    with_engine(str(tmp_path / "new.db"), back)


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
def test_a_stream_that_goes_on_while_it_is_read(tmp_path, ending, monkeypatch):
    """What is chosen is read up to where it was chosen: later rewards, and later decisions, are left to the next."""
    url = str(tmp_path / "j.db")

    async def scenario(engine):
        await engine.create_stream(spec("busy"))
        made = await engine.decide_all("busy", [DecisionRequest(observation(t)) for t in range(4)])
        journal = open_journal(url)
        rows = select_streams(journal, ["busy"])
        await engine.decide("busy", DecisionRequest(observation(5)))
        await engine.reward("busy", RewardRequest(made[0].id, 1.0))
        monkeypatch.setattr(transfer, "select_streams", lambda *_: rows)
        export(journal, tmp_path / f"out.{ending}")
        monkeypatch.undo()
        journal.close()

    with_engine(url, scenario)
    other = open_journal(str(tmp_path / "other.db"))
    import_streams(other, read_events(tmp_path / f"out.{ending}"), fold_imported_stream)
    (row,) = select_streams(other, ["busy"])
    assert [event.content.__class__.__name__ for event in other.all_events(row.id)] == ["Created"] + 4 * ["Decided"]
    other.close()
