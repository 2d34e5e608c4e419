"""Both databases keep the same promises."""

from __future__ import annotations

import sqlite3

import pytest

from halfseen.errors import InvalidInput
from halfseen.journal import events, schema
from halfseen.journal.decision_ids import next_ids
from halfseen.journal.events import Event, JournalError, JournalUnavailable
from halfseen.journal.journal import Journal, StreamRow, Token, open_journal


@pytest.fixture
def journal(database):
    opened = open_journal(database, lock_seconds=1.0)
    yield opened
    opened.close()


def new_row(name: str = "one") -> StreamRow:
    return StreamRow(0, name, "{}", [("up", True), ("down", False)], 0, 0, 0, 10, 10)


def decided(seq: int, identity: str, key: str | None = None) -> Event:
    content = events.Decided(
        round=seq, observation=[0.1 + 0.2, None, -1e300], arm="up", propensity=1 / 3, propensities=[1 / 3, 2 / 3],
        expected=[5e-324, -0.0], available=["up"], key=key,
    )  # fmt: skip
    return Event(seq, 1000 + seq, identity, content)


def written(journal: Journal, row: StreamRow, record: list[Event]) -> None:
    with journal.transaction():
        if row.id == 0:
            assert journal.create_stream(row)
        (locked,) = journal.lock_streams([row.name]).values()
        locked.version = record[-1].seq
        journal.append([locked], [(row.id, event) for event in record])


def test_events_come_back_exactly(journal):
    row, identity = new_row(), next_ids(1, None, 1)[0]
    record = [
        Event(1, 1001, None, events.Created({"name": "one", "observed": 3})),
        decided(2, identity, key="k"),
        Event(3, 1003, identity, events.Rewarded(identity, 2, 0.1, "given", True)),
        Event(4, 1004, None, events.ArmAdded("left")),
        Event(5, 1005, None, events.ArmRetired("left")),
        Event(6, 1006, None, events.ModelAccepted(5), b"\x00\xffbytes"),
        Event(7, 1007, identity, events.Expired(identity)),
        Event(8, 1008, None, events.Retired()),
    ]
    written(journal, row, record)
    assert journal.events(row.id) == record
    assert journal.events(row.id, after=6, limit=1) == record[6:7]
    assert list(journal.all_events(row.id, after=2)) == record[2:]
    assert journal.decisions_with_keys(row.id, ["k", "other"]) == [record[1]]
    assert journal.events_of_decisions(row.id, [identity]) == [record[1], record[2], record[6]]
    assert journal.events_of_decisions(row.id + 1, [identity]) == []
    assert journal.stream("one").version == 8
    assert journal.stream("one").arms == [("up", True), ("down", False)]


@pytest.mark.parametrize("word", ['a\\\\b"c', "{1,NULL}", "NULL", "null", "'; --", "%s ? $1", "ünï…", "\\\\x41", " "])
def test_words_come_back_whatever_they_are(journal, word):
    row, identity = new_row(), next_ids(1, None, 1)[0]
    row.arms = [(word, True), ("down", False)]
    record = [
        Event(1, 1001, None, events.ArmAdded(word), word.encode()),
        decided(2, identity, key=word),
        decided(3, next_ids(2, None, 1)[0]),
    ]
    written(journal, row, record)
    assert journal.events(row.id) == record
    assert journal.decisions_with_keys(row.id, [word]) == [record[1]]
    assert journal.stream("one").arms == [(word, True), ("down", False)]


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 1_000, 2_001])
def test_any_number_of_events_is_written_at_once(journal, count):
    row = new_row()
    record = [decided(seq, identity) for seq, identity in enumerate(next_ids(1, None, count), 1)]
    written(journal, row, record)
    assert journal.events(row.id) == record
    assert journal.stream("one").version == count


def test_what_was_appended_is_read_in_the_same_transaction(journal):
    row = new_row()
    with journal.transaction():
        assert journal.create_stream(row)
        row.version = 1
        journal.append([row], [(row.id, record := decided(1, next_ids(1, None, 1)[0]))])
        assert journal.events(row.id) == [record]
        assert journal.stream("one").version == 1


def test_lines_come_back_exactly():
    identity = next_ids(5, None, 1)[0]
    for event in (decided(2, identity, "key"), Event(3, 7, None, events.ModelAccepted(2), b"\x00\x01")):
        assert events.from_line(events.to_line("one", event)) == ("one", event, None)


def test_a_decision_and_a_key_are_there_once(journal):
    row, identity = new_row(), next_ids(1, None, 1)[0]
    written(journal, row, [decided(1, identity, "k")])
    for again in (decided(2, identity), decided(2, next_ids(2, None, 1)[0], "k"), decided(1, next_ids(3, None, 1)[0])):
        with pytest.raises(JournalError):
            written(journal, row, [again])
    assert [event.seq for event in journal.events(row.id)] == [1]


def test_what_is_not_committed_has_not_happened(journal, database):
    with pytest.raises(JournalError):
        written(journal, new_row(), [decided(1, next_ids(1, None, 1)[0])] * 2)
    assert journal.streams() == []
    other = open_journal(database)
    journal.begin()
    journal.create_stream(new_row("later"))
    assert other.streams() == []
    journal.commit()
    assert [row.name for row in other.streams()] == ["later"]
    other.close()


def test_streams_are_listed_by_name_and_made_once(journal):
    for name in ("b", "a", "c"):
        with journal.transaction():
            assert journal.create_stream(new_row(name))
    with journal.transaction():
        assert not journal.create_stream(new_row("b"))
    assert [row.name for row in journal.streams(limit=2)] == ["a", "b"]
    assert [row.name for row in journal.streams(after="b")] == ["c"]
    assert journal.count_streams() == 3
    assert journal.stream("d") is None


def test_a_locked_stream_is_waited_for_and_then_given_up(journal, database):
    with journal.transaction():
        journal.create_stream(new_row())
    other = open_journal(database, lock_seconds=0.2)
    journal.begin()
    journal.lock_streams(["one"])
    with pytest.raises(JournalUnavailable), other.transaction():
        other.lock_streams(["one"])
    journal.commit()
    with other.transaction():
        assert "one" in other.lock_streams(["one"])
    other.close()


def test_a_claim_is_for_one_and_ends(journal):
    row = new_row()
    with journal.transaction():
        journal.create_stream(row)
    with journal.transaction():
        assert journal.claim_identification(row.id, now=100, until=200)
        assert not journal.claim_identification(row.id, now=199, until=300)
        assert journal.claim_identification(row.id, now=200, until=300)


def test_snapshots_are_replaced_by_later_ones_only(journal):
    row = new_row()
    with journal.transaction():
        journal.create_stream(row)
        journal.save_snapshot(row.id, 5, b"five")
        journal.save_snapshot(row.id, 4, b"four")
    assert journal.snapshot(row.id) == (5, b"five")
    with journal.transaction():
        journal._rows("UPDATE snapshots SET state = ? RETURNING seq", (b"fivE",))
    assert journal.snapshot(row.id) is None
    with journal.transaction():
        journal.save_snapshot(row.id, 5, b"again")
    assert journal.snapshot(row.id) == (5, b"again")


def test_tokens(journal):
    token = Token("a", "for tests", b"\x01" * 32, ["read", "decide"], ["one"], 5, expires=9)
    with journal.transaction():
        journal.add_token(token)
        journal.add_token(Token("b", "all", b"\x02" * 32, ["admin"], None, 6))
    assert journal.tokens()[0] == token
    assert journal.tokens()[1].streams is None
    with journal.transaction():
        assert journal.revoke_token("a", 7)
        assert not journal.revoke_token("a", 8)
        assert not journal.revoke_token("c", 8)
    assert journal.tokens()[0].revoked == 7


def test_a_database_of_a_newer_version_is_refused_in_one_line(database, monkeypatch):
    newer = (*schema.MIGRATIONS, ("CREATE TABLE more (id {integer})",))
    for module in ("schema", "sqlite", "postgres"):
        monkeypatch.setattr(f"halfseen.journal.{module}.MIGRATIONS", newer)
    open_journal(database).close()
    monkeypatch.undo()
    with pytest.raises(JournalError, match="version 3; this halfseen knows versions up to 2") as refused:
        open_journal(database)
    assert "\n" not in str(refused.value)


def test_an_older_database_is_brought_up_to_date_and_keeps_what_it_has(database, monkeypatch):
    journal = open_journal(database)
    written(journal, row := new_row(), [decided(1, next_ids(1, None, 1)[0])])
    journal.close()
    newer = (*schema.MIGRATIONS, ("CREATE TABLE more (id {integer}, state {bytes})",))
    for module in ("schema", "sqlite", "postgres"):
        monkeypatch.setattr(f"halfseen.journal.{module}.MIGRATIONS", newer)
    for _ in range(2):  # the second time there is nothing to do
        journal = open_journal(database)
        assert len(journal.events(row.id)) == 1
        journal._rows("SELECT id, state FROM more")
        journal.close()


def test_streams_of_before_reward_waits_were_put_down_are_looked_at_once(database, monkeypatch):
    older = schema.MIGRATIONS[:1]
    for module in ("schema", "sqlite", "postgres"):
        monkeypatch.setattr(f"halfseen.journal.{module}.MIGRATIONS", older)
    journal = open_journal(database)
    with journal.transaction():
        for name, wait in (("waits", "1.5"), ("never", "null")):
            journal._rows(
                "INSERT INTO streams (name, spec, arms, version, decisions, rewards, created, updated, identifying,"
                " retired) VALUES (?, ?, '[]', 0, 0, 0, 0, 0, 0, 0)",
                (name, f'{{"name":"{name}","reward_wait":{wait},"seed":1}}'),
            )
    journal.close()
    monkeypatch.undo()
    journal = open_journal(database)
    assert journal.overdue_streams(1, 10) == ["waits"]
    assert journal.stream("never").due == 0
    journal.close()


def test_the_log_is_copied_beside_commits_and_does_not_grow(tmp_path):
    journal, other = open_journal(tmp_path / "j.db"), open_journal(tmp_path / "j.db")
    ids = next_ids(1, None, 20_000)
    written(journal, row := new_row(), [decided(1, ids[0])])
    for start in range(1, 20_000, 200):
        written(journal, row, [decided(seq + 1, ids[seq]) for seq in range(start, min(start + 200, 20_000))])
        before = (tmp_path / "j.db").stat().st_size
        other.checkpoint()
        assert (tmp_path / "j.db").stat().st_size > before
    assert (tmp_path / "j.db-wal").stat().st_size < 20e6
    assert len(list(other.all_events(row.id))) == 20_000
    journal.close(), other.close()


def test_commits_are_synced(tmp_path):
    journal = open_journal(tmp_path / "j.db")
    assert journal._rows("PRAGMA journal_mode")[0][0] == "wal"
    assert journal._rows("PRAGMA synchronous")[0][0] == 2  # FULL
    journal.close()


def test_addresses_that_are_no_database_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="mysql") as refused:
        open_journal("mysql://root:secret@host/db")
    assert "secret" not in str(refused.value)
    with pytest.raises(JournalUnavailable, match="cannot open"):
        open_journal(tmp_path / "no" / "folder" / "j.db")
    (tmp_path / "text.db").write_text("this is no database, " * 100)
    with pytest.raises(JournalUnavailable, match="not a database"):
        open_journal(tmp_path / "text.db")
    with pytest.raises(JournalUnavailable, match="PostgreSQL") as away:
        open_journal(f"postgresql://someone:secret@/x?host={tmp_path}", lock_seconds=1.0)
    assert "secret" not in str(away.value)
    with sqlite3.connect(tmp_path / "other.db") as other:  # a database of something else
        other.execute("CREATE TABLE events (a)")
    with pytest.raises(JournalUnavailable, match="already exists"):
        open_journal(tmp_path / "other.db")
