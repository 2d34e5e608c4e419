"""The files of an SQLite journal that are moved, deleted or replaced while it is open."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from halfseen.journal.events import JournalUnavailable
from halfseen.journal.journal import Journal, StreamRow, open_journal

SUFFIXES = ("", "-wal", "-shm")


def add_stream(journal: Journal, name: str) -> None:
    with journal.transaction():
        assert journal.create_stream(StreamRow(0, name, "{}", [], 0, 0, 0, 0, 0))


def move(database: Path, target: Path) -> None:
    for suffix in SUFFIXES:
        source = Path(f"{database}{suffix}")
        if source.exists():
            source.rename(f"{target}{suffix}")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "j.db"


@pytest.fixture
def journal(path):
    with closing(open_journal(path)) as opened:
        add_stream(opened, "one")
        yield opened


def content(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.suffix != ".db-shm"}


def assert_unusable(journal: Journal, path: Path) -> None:
    before = content(path.parent)
    for act in (
        lambda: add_stream(journal, "two"),
        journal.ping,
        journal.count_streams,
        journal.checkpoint,
        journal.new_connection,
    ):
        with pytest.raises(JournalUnavailable, match="was moved, deleted or replaced while in use"):
            act()
    assert content(path.parent) == before  # nothing was created or written


def test_a_file_that_was_moved_away_is_not_created_again_and_can_come_back(journal, path, tmp_path):
    away = tmp_path / "away.db"
    move(path, away)
    assert_unusable(journal, path)
    assert not any(Path(f"{path}{suffix}").exists() for suffix in SUFFIXES)
    move(away, path)
    add_stream(journal, "two")
    with closing(journal.new_connection()) as another:
        assert another.count_streams() == 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_is_committed_while_one_of_the_files_is_missing(journal, path, tmp_path, suffix):
    Path(f"{path}{suffix}").rename(tmp_path / "away")
    assert_unusable(journal, path)
    (tmp_path / "away").rename(f"{path}{suffix}")
    add_stream(journal, "two")
    assert journal.count_streams() == 2


def test_a_file_that_was_replaced_is_neither_used_nor_changed_nor_deleted(tmp_path, path):
    journal = open_journal(path)
    add_stream(journal, "one")
    move(path, tmp_path / "old.db")
    with closing(open_journal(path)) as other:  # another process would do the same
        add_stream(other, "another")
        assert_unusable(journal, path)
        journal.close()
        assert Path(f"{path}-wal").exists()
        add_stream(other, "more")
    with closing(open_journal(tmp_path / "old.db")) as old:  # the log is still beside the file that was moved
        assert [row.name for row in old.streams()] == ["one"]
    with closing(open_journal(path)) as other:
        assert [row.name for row in other.streams()] == ["another", "more"]


def test_a_transaction_fails_if_the_file_is_deleted_before_its_commit(journal, path, tmp_path):
    journal.begin()
    journal.create_stream(StreamRow(0, "two", "{}", [], 0, 0, 0, 0, 0))
    (tmp_path / "kept").hardlink_to(path)
    path.unlink()
    with pytest.raises(JournalUnavailable, match="was moved, deleted or replaced"):
        journal.commit()
    path.hardlink_to(tmp_path / "kept")
    journal.ping()


def test_a_copy_of_the_file_is_another_file(journal, path, tmp_path):
    """What is committed to the open file would not reach the copy."""
    shutil.copy(path, tmp_path / "copy")
    path.unlink()
    (tmp_path / "copy").rename(path)
    assert_unusable(journal, path)


def test_the_file_may_be_a_symbolic_link(tmp_path):
    """The other files are beside the target of the link, and another target is another file."""
    link, target = tmp_path / "link.db", tmp_path / "folder" / "j.db"
    target.parent.mkdir()
    link.symlink_to(target)
    with closing(open_journal(link)) as journal:
        add_stream(journal, "one")
        assert sorted(file.name for file in target.parent.iterdir()) == ["j.db", "j.db-shm", "j.db-wal"]
        Path(f"{target}-wal").rename(tmp_path / "away")
        assert_unusable(journal, link)
        (tmp_path / "away").rename(f"{target}-wal")
        add_stream(journal, "two")
        link.unlink()
        link.symlink_to(tmp_path / "other.db")
        assert_unusable(journal, link)
        link.unlink()
        link.symlink_to(target)
        assert journal.count_streams() == 2


def test_only_the_owner_may_read_new_files(journal, path):
    for suffix in SUFFIXES:
        assert stat.S_IMODE(Path(f"{path}{suffix}").stat().st_mode) == 0o600


def test_the_mode_of_an_existing_file_is_kept(tmp_path):
    path = tmp_path / "j.db"
    sqlite3.connect(path).close()
    path.touch(0o640)
    path.chmod(0o640)
    open_journal(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("name", ["a b%20?mode=memory#x.db", "ü.db"])
def test_the_name_of_the_file_may_have_special_characters(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(open_journal(name)) as journal:
        add_stream(journal, "one")
        assert sorted(file.name for file in tmp_path.iterdir()) == sorted(name + suffix for suffix in SUFFIXES)
