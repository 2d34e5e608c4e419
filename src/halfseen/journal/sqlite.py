"""The journal in an SQLite file. Every commit is synced to the disk, so a power failure loses no commit."""

from __future__ import annotations

import contextlib
import functools
import itertools
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
_CHECKPOINT_PAGES = 4_000  # size of the write-ahead log, 16 MB, at which a commit copies it into the file


@functools.cache
def _insert_statement(rows: int) -> str:
    return f"INSERT INTO events VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?)'] * rows)}"


class SqliteJournal(Journal):
    """A journal in the file `path`, which is created if it does not exist."""

    def __init__(self, path: Path, *, lock_seconds: float) -> None:
        self._path, self._lock_seconds = path, lock_seconds
        try:
            self._connection = sqlite3.connect(
                path, timeout=0.0, isolation_level=None, check_same_thread=False, cached_statements=64
            )
        except sqlite3.Error as error:
            raise JournalUnavailable(f"Cannot open the database '{path}': {error}") from None
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

    def _migrate(self) -> None:
        if self._version() == len(MIGRATIONS):
            return
        with self.transaction():
            for migration in pending_migrations(self._version()):
                for statement in migration:
                    self._rows(statement.format(**_TYPES))
            self._rows(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _version(self) -> int:
        return int(self._rows("PRAGMA user_version")[0][0])

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise errors of sqlite3 as errors of the journal."""
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
        with self._translated_errors():
            return self._execute(sql, parameters)

    def begin(self) -> None:
        self._rows("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._rows("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _lock(self, names: Sequence[str]) -> list[Any]:
        condition, values = self._is_among("name", names)  # BEGIN IMMEDIATE has locked the whole database
        return self._rows(f"SELECT {STREAM_COLUMNS} FROM streams WHERE {condition}", values)

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        """Insert many rows per statement, because other threads may run for long between two statements."""
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
            self._rows(f"PRAGMA user_version = {self._version()}")

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file, so that commits of other connections need not do it."""
        self._rows("PRAGMA wal_checkpoint(PASSIVE)")

    def new_connection(self) -> SqliteJournal:
        return SqliteJournal(self._path, lock_seconds=self._lock_seconds)

    def close(self) -> None:
        self.rollback()
        self._connection.close()
