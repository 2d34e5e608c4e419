"""What a journal does, in SQLite and in PostgreSQL."""

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


def decided(seq: int, decision_id: str, key: str | None = None) -> Event:
    content = events.Decided(
        round=seq, observation=[0.1 + 0.2, None, -1e300], arm="up", propensity=1 / 3, propensities=[1 / 3, 2 / 3],
        expected=[5e-324, -0.0], available=["up"], key=key,
    )  # fmt: skip
    return Event(seq, 1000 + seq, decision_id, content)


def append_events(journal: Journal, row: StreamRow, added: list[Event]) -> None:
    """Create the stream if it is new, and append events to it."""
    with journal.transaction():
        if row.id == 0:
            assert journal.create_stream(row)
        (locked,) = journal.lock_streams([row.name]).values()
        locked.version = added[-1].seq
        journal.append([locked], [(row.id, event) for event in added])


def test_events_are_read_as_they_were_written(journal):
    row, decision_id = new_row(), next_ids(1, None, 1)[0]
    added = [
        Event(1, 1001, None, events.Created({"name": "one", "observed": 3})),
        decided(2, decision_id, key="k"),
        Event(3, 1003, decision_id, events.Rewarded(decision_id, 2, 0.1, "given", True)),
        Event(4, 1004, None, events.ArmAdded("left")),
        Event(5, 1005, None, events.ArmRetired("left")),
        Event(6, 1006, None, events.ModelAccepted(5), b"\x00\xffbytes"),
        Event(7, 1007, decision_id, events.Expired(decision_id)),
        Event(8, 1008, None, events.Retired()),
    ]
    append_events(journal, row, added)
    assert journal.events(row.id) == added
    assert journal.events(row.id, after=6, limit=1) == added[6:7]
    assert list(journal.all_events(row.id, after=2)) == added[2:]
    assert journal.decisions_with_keys(row.id, ["k", "other"]) == [added[1]]
    assert journal.events_of_decisions(row.id, [decision_id]) == [added[1], added[2], added[6]]
    assert journal.events_of_decisions(row.id + 1, [decision_id]) == []
    assert journal.stream("one").version == 8
    assert journal.stream("one").arms == [("up", True), ("down", False)]


@pytest.mark.parametrize("text", ['a\\\\b"c', "{1,NULL}", "NULL", "null", "'; --", "%s ? $1", "ünï…", "\\\\x41", " "])
def test_any_text_is_read_as_it_was_written(journal, text):
    row, decision_id = new_row(), next_ids(1, None, 1)[0]
    row.arms = [(text, True), ("down", False)]
    added = [
        Event(1, 1001, None, events.ArmAdded(text), text.encode()),
        decided(2, decision_id, key=text),
        decided(3, next_ids(2, None, 1)[0]),
    ]
    append_events(journal, row, added)
    assert journal.events(row.id) == added
    assert journal.decisions_with_keys(row.id, [text]) == [added[1]]
    assert journal.stream("one").arms == [(text, True), ("down", False)]


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 1_000, 2_001])
def test_any_number_of_events_is_written_in_one_call(journal, count):
    row = new_row()
    added = [decided(seq, decision_id) for seq, decision_id in enumerate(next_ids(1, None, count), 1)]
    append_events(journal, row, added)
    assert journal.events(row.id) == added
    assert journal.stream("one").version == count


def test_appended_events_can_be_read_in_the_same_transaction(journal):
    row = new_row()
    with journal.transaction():
        assert journal.create_stream(row)
        row.version = 1
        journal.append([row], [(row.id, event := decided(1, next_ids(1, None, 1)[0]))])
        assert journal.events(row.id) == [event]
        assert journal.stream("one").version == 1


def test_lines_are_decoded_as_they_were_encoded():
    decision_id = next_ids(5, None, 1)[0]
    for event in (decided(2, decision_id, "key"), Event(3, 7, None, events.ModelAccepted(2), b"\x00\x01")):
        assert events.from_line(events.to_line("one", event)) == ("one", event, None)


def test_decision_ids_keys_and_event_numbers_are_unique(journal):
    row, decision_id = new_row(), next_ids(1, None, 1)[0]
    append_events(journal, row, [decided(1, decision_id, "k")])
    for duplicate in (
        decided(2, decision_id),
        decided(2, next_ids(2, None, 1)[0], "k"),
        decided(1, next_ids(3, None, 1)[0]),
    ):
        with pytest.raises(JournalError):
            append_events(journal, row, [duplicate])
    assert [event.seq for event in journal.events(row.id)] == [1]


def test_a_transaction_takes_effect_when_it_is_committed(journal, database):
    with pytest.raises(JournalError):
        append_events(journal, new_row(), [decided(1, next_ids(1, None, 1)[0])] * 2)
    assert journal.streams() == []
    other = open_journal(database)
    journal.begin()
    journal.create_stream(new_row("later"))
    assert other.streams() == []
    journal.commit()
    assert [row.name for row in other.streams()] == ["later"]
    other.close()


def test_streams_are_listed_by_name_and_their_names_are_unique(journal):
    for name in ("b", "a", "c"):
        with journal.transaction():
            assert journal.create_stream(new_row(name))
    with journal.transaction():
        assert not journal.create_stream(new_row("b"))
    assert [row.name for row in journal.streams(limit=2)] == ["a", "b"]
    assert [row.name for row in journal.streams(after="b")] == ["c"]
    assert journal.count_streams() == 3
    assert journal.stream("d") is None


def test_waiting_for_a_locked_stream_ends_with_an_error(journal, database):
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


def test_a_claim_excludes_others_until_it_ends(journal):
    row = new_row()
    with journal.transaction():
        journal.create_stream(row)
    with journal.transaction():
        assert journal.claim_identification(row.id, now=100, until=200)
        assert not journal.claim_identification(row.id, now=199, until=300)
        assert journal.claim_identification(row.id, now=200, until=300)


def test_a_snapshot_is_only_replaced_by_a_later_one_and_checked_for_damage(journal):
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


def test_tokens_are_stored_and_revoked(journal):
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


def test_a_database_of_a_newer_version_is_refused(database, monkeypatch):
    newer = (*schema.MIGRATIONS, ("CREATE TABLE more (id {integer})",))
    for module in ("schema", "sqlite", "postgres"):
        monkeypatch.setattr(f"halfseen.journal.{module}.MIGRATIONS", newer)
    open_journal(database).close()
    monkeypatch.undo()
    with pytest.raises(JournalError, match="database: expected schema version 2 or older, got version 3") as refused:
        open_journal(database)
    assert "\n" not in str(refused.value)


def test_an_older_database_is_migrated_without_loss(database, monkeypatch):
    journal = open_journal(database)
    append_events(journal, row := new_row(), [decided(1, next_ids(1, None, 1)[0])])
    journal.close()
    newer = (*schema.MIGRATIONS, ("CREATE TABLE more (id {integer}, state {bytes})",))
    for module in ("schema", "sqlite", "postgres"):
        monkeypatch.setattr(f"halfseen.journal.{module}.MIGRATIONS", newer)
    for _ in range(2):  # the second time no migration is left
        journal = open_journal(database)
        assert len(journal.events(row.id)) == 1
        journal._rows("SELECT id, state FROM more")
        journal.close()


def test_migrated_streams_with_a_reward_wait_are_overdue(database, monkeypatch):
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


def test_checkpoints_between_commits_keep_the_write_ahead_log_small(tmp_path):
    journal, other = open_journal(tmp_path / "j.db"), open_journal(tmp_path / "j.db")
    ids = next_ids(1, None, 20_000)
    append_events(journal, row := new_row(), [decided(1, ids[0])])
    for start in range(1, 20_000, 200):
        append_events(journal, row, [decided(seq + 1, ids[seq]) for seq in range(start, min(start + 200, 20_000))])
        before = (tmp_path / "j.db").stat().st_size
        other.checkpoint()
        assert (tmp_path / "j.db").stat().st_size > before
    assert (tmp_path / "j.db-wal").stat().st_size < 20e6
    assert len(list(other.all_events(row.id))) == 20_000
    journal.close(), other.close()


def test_commits_are_synced_to_the_disk(tmp_path):
    journal = open_journal(tmp_path / "j.db")
    assert journal._rows("PRAGMA journal_mode")[0][0] == "wal"
    assert journal._rows("PRAGMA synchronous")[0][0] == 2  # FULL
    journal.close()


def test_invalid_addresses_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="mysql") as refused:
        open_journal("mysql://root:secret@host/db")
    assert "secret" not in str(refused.value)
    with pytest.raises(JournalUnavailable, match="Cannot open the database"):
        open_journal(tmp_path / "no" / "folder" / "j.db")
    (tmp_path / "text.db").write_text("this is no database, " * 100)
    with pytest.raises(JournalUnavailable, match="not a database"):
        open_journal(tmp_path / "text.db")
    with pytest.raises(JournalUnavailable, match="PostgreSQL") as away:
        open_journal(f"postgresql://someone:secret@/x?host={tmp_path}", lock_seconds=1.0)
    assert "secret" not in str(away.value)
    with sqlite3.connect(tmp_path / "other.db") as other:  # a database of another program
        other.execute("CREATE TABLE events (a)")
    with pytest.raises(JournalUnavailable, match="already exists"):
        open_journal(tmp_path / "other.db")
