"""The journal in an SQLite file. Every commit is synced to the disk, so a power failure loses no commit.

If the files are moved, deleted or replaced while they are open, SQLite continues to use the old files. What it writes
to them is lost at the next start. So whenever the journal is used, the device and inode of each open file are compared
with those of the file at its path. If the file of an open database is missing, further connections do not create it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from halfseen.journal.events import JournalError, JournalUnavailable
from halfseen.journal.journal import STREAM_COLUMNS, Journal
from halfseen.journal.schema import MIGRATIONS, pending_migrations

_TYPES = {"serial": "INTEGER PRIMARY KEY", "integer": "INTEGER", "bytes": "BLOB"}
_MAX_PARAMETERS = 30_000  # SQLite allows 32,766
_MAX_ROWS = 256  # per INSERT
_CHECKPOINT_PAGES = 4_000  # 16 MB, the size of the write-ahead log at which a commit copies it into the database
_SUFFIXES = ("-wal", "-shm")  # of the write-ahead log and its index
_FileId = tuple[int, int]  # device and inode


@functools.cache
def _insert_statement(rows: int) -> str:
    return f"INSERT INTO events VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?)'] * rows)}"


class SqliteJournal(Journal):
    """A journal in the file `path`, which is created if it does not exist.

    `files` are the expected devices and inodes of the database and the two files beside it. With other files, opening
    fails.
    """

    def __init__(self, path: Path, *, lock_seconds: float, files: Sequence[_FileId | None] | None = None) -> None:
        self._path, self._lock_seconds = path, lock_seconds
        absolute, target = path.absolute(), os.path.realpath(path)  # SQLite puts the other files beside a link's target
        self._names = [str(absolute), *(target + suffix for suffix in _SUFFIXES)]
        if files is None:
            self._create(target)
            files = [_file_id(self._names[0])]
        try:
            self._connection = sqlite3.connect(
                f"{absolute.as_uri()}?mode=rw",  # so that SQLite does not create a file that has just been deleted
                uri=True,
                timeout=0.0,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
            )
        except sqlite3.Error as error:
            raise self._cannot_open(str(error)) from None
        try:
            with self._translated_errors():
                for pragma in (
                    "journal_mode = WAL",
                    "synchronous = FULL",
                    "foreign_keys = ON",
                    f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
                ):
                    self._execute(f"PRAGMA {pragma}")
            self._migrate()
        except BaseException:
            self._connection.close()
            raise
        # SQLite keeps all three files open from here on. As long as they are open, SQLite in another process does not
        # delete them.
        self._open_files = [_file_id(name) for name in self._names]
        if self._open_files[: len(files)] != list(files):
            self.close()
            raise self._files_changed()

    def _create(self, path: str) -> None:
        """Create the file if it does not exist, readable only by its owner.

        SQLite gives the files -wal and -shm the same mode.
        """
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            pass  # the file must not be opened here: closing it would release the locks of other connections
        except OSError as error:
            raise self._cannot_open(error.strerror or str(error)) from None

    def _cannot_open(self, reason: str) -> JournalUnavailable:
        return JournalUnavailable(f"Cannot open the database '{self._path}': {reason}")

    def _files_changed(self) -> JournalUnavailable:
        return JournalUnavailable(
            f"database: '{self._path}' was moved, deleted or replaced while in use. Put its files back, or restart."
        )

    def _files_are_open_ones(self) -> bool:
        return [_file_id(name) for name in self._names] == self._open_files

    def _check_files(self) -> None:
        if not self._files_are_open_ones():
            raise self._files_changed()

    def _migrate(self) -> None:
        with self._translated_errors():
            if self._version() == len(MIGRATIONS):
                return
            self._execute("BEGIN IMMEDIATE")
            for migration in pending_migrations(self._version()):
                for statement in migration:
                    self._execute(statement.format(**_TYPES))
            self._execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            self._execute("COMMIT")

    def _version(self) -> int:
        return int(self._execute("PRAGMA user_version")[0][0])

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise an error of sqlite3 as a JournalError or a JournalUnavailable."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise JournalError(f"journal: {error}") from None
        except sqlite3.Error as error:
            raise JournalUnavailable(f"database: '{self._path}' cannot be used now: {error}") from None

    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run a statement, waiting while another connection writes.

        SQLite's own busy handler retries at most ten times per second, and might never find the database unlocked while
        another process commits often.
        """
        deadline = None
        while True:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                deadline = time.monotonic() + self._lock_seconds if deadline is None else deadline
                if time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(0.0002, 0.002))

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        if not self._connection.in_transaction:  # a transaction checks the files when it begins and ends
            self._check_files()
        with self._translated_errors():
            return self._execute(sql, parameters)

    def begin(self) -> None:
        self._rows("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._rows("COMMIT")
        self._check_files()

    def rollback(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _lock(self, names: Sequence[str]) -> list[Any]:
        condition, values = self._is_among("name", names)  # BEGIN IMMEDIATE has locked the whole database
        return self._rows(f"SELECT {STREAM_COLUMNS} FROM streams WHERE {condition}", values)

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        """Insert many rows per statement, because other threads may delay this one between two statements."""
        with self._translated_errors():
            start, most = 0, _MAX_ROWS
            while start < len(rows):
                while most > len(rows) - start:
                    most //= 2  # powers of two, so that only a few distinct statements are prepared
                part = itertools.chain.from_iterable(rows[start : start + most])
                self._execute(_insert_statement(most), list(part))
                start += most

    def _update(self, rows: list[tuple[Any, ...]]) -> None:
        with self._translated_errors():
            self._connection.executemany(
                "UPDATE streams SET arms = ?, version = ?, decisions = ?, rewards = ?, updated = ?, identifying = ?,"
                " retired = ?, due = ? WHERE id = ?",
                rows,
            )

    def _is_among(self, column: str, values: Sequence[str]) -> tuple[str, list[Any]]:
        if len(values) > _MAX_PARAMETERS:
            raise JournalError(f"query: expected at most {_MAX_PARAMETERS} values, got {len(values)}")
        return f"{column} IN ({', '.join('?' * len(values))})", list(values)

    def ping(self) -> None:
        with self.transaction():  # on a full disk, reading and locking work, but committing does not
            self._rows(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file, so that commits of other connections need not do it."""
        self._rows("PRAGMA wal_checkpoint(PASSIVE)")

    def new_connection(self) -> SqliteJournal:
        self._check_files()
        return SqliteJournal(self._path, lock_seconds=self._lock_seconds, files=self._open_files)

    def close(self) -> None:
        self.rollback()
        if self._files_are_open_ones():
            self._connection.close()
        else:
            # Closing would delete the files "-wal" and "-shm" at the path, which may belong to another database or
            # contain commits that are nowhere else. So the connection stays open until the process ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))


def _file_id(name: str) -> _FileId | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino
