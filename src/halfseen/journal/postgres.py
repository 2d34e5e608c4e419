"""The journal in PostgreSQL.

Many processes can use the database, and each process locks the streams to which it writes.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from halfseen.journal.events import JournalError, JournalUnavailable
from halfseen.journal.journal import STREAM_COLUMNS, Journal
from halfseen.journal.schema import MIGRATIONS, pending_migrations

_TYPES = {"serial": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "integer": "BIGINT", "bytes": "BYTEA"}
_MIGRATION_LOCK = 7_309_940_213_865_423_457  # the advisory lock that is held during migrations
_MAX_DEFERRED = 2_000  # rows per deferred statement
_EVENT_TYPES = ("bigint", "bigint", "bigint", "text", "text", "text", "text", "bytea")
_STREAM_TYPES = ("text", *["bigint"] * 8)
_ANSWER_SECONDS = 5.0  # how long an answer may take in addition to the wait for a lock
_TCP = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}  # detects a dead host


class _Connection(psycopg.Connection[Any]):
    """A connection that is closed when the server does not answer within `timeout` seconds."""

    timeout = math.inf

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        if self.timeout == math.inf:
            return super().wait(gen, *arguments, **options)
        return super().wait(self._bounded(gen), *arguments, **options)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Run `gen` with a time limit. psycopg resumes `gen` a few times per second while the server sends nothing."""
        deadline = time.monotonic() + self.timeout
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {self.timeout:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value


class PostgresJournal(Journal):
    """A journal in the database at `url`. A lost connection is opened again by the next transaction or query."""

    def __init__(self, url: str, *, lock_seconds: float) -> None:
        self._url, self._lock_seconds = url, lock_seconds
        self._connection: _Connection | None = None
        self._deferred: list[tuple[bytes, Sequence[Any]]] = []  # statements that are sent together with the next query
        self._begun = False  # whether the server has answered a query of the current transaction
        self._timeout = math.inf  # migrations may take long
        try:
            self._migrate()
            self._timeout = lock_seconds + _ANSWER_SECONDS
            if self._connection is not None:
                self._connection.timeout = self._timeout
        except BaseException:
            self.close()
            raise

    def _connected(self) -> _Connection:
        if self._connection is None or self._connection.closed:
            if self._begun:  # the locks of the transaction are lost
                raise psycopg.OperationalError("the connection was lost in the middle of a transaction")
            milliseconds = int(1000 * self._lock_seconds)
            given = conninfo_to_dict(self._url)
            keepalive: dict[str, Any] = _TCP | {"tcp_user_timeout": int(1000 * (self._lock_seconds + _ANSWER_SECONDS))}
            self._connection = _Connection.connect(
                self._url,
                autocommit=True,
                connect_timeout=max(2, round(self._lock_seconds)),
                application_name="halfseen",
                options=f"-c lock_timeout={milliseconds} -c synchronous_commit=on",
                **{name: value for name, value in keepalive.items() if name not in given},
            )
            self._connection.timeout = self._timeout
        return self._connection

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise errors of psycopg as errors of the journal, without the address, which may contain a password."""
        try:
            yield
        except (psycopg.IntegrityError, psycopg.ProgrammingError, psycopg.DataError) as error:
            raise JournalError(f"journal: {_first_line(error)}") from None
        except psycopg.Error as error:
            raise JournalUnavailable(f"database: PostgreSQL cannot be used now: {_first_line(error)}") from None

    def _migrate(self) -> None:
        with self.transaction():
            self._rows("SELECT pg_advisory_xact_lock(?)", (_MIGRATION_LOCK,))
            self._rows("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
            found = self._rows("SELECT version FROM schema_version")
            version = found[0][0] if found else 0
            for migration in pending_migrations(version):
                for statement in migration:
                    self._rows(statement.format(**_TYPES))
            if not found:
                self._rows("INSERT INTO schema_version VALUES (?)", (len(MIGRATIONS),))
            elif version < len(MIGRATIONS):
                self._rows("UPDATE schema_version SET version = ?", (len(MIGRATIONS),))

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return self._run(_statement(sql), parameters)

    def _run(self, statement: bytes, parameters: Sequence[Any]) -> list[Any]:
        with self._translated_errors():
            try:
                return self._fetch(statement, parameters)
            except psycopg.OperationalError:
                lost = self._connection is not None and self._connection.closed
                if self._begun or not lost:
                    raise
                return self._fetch(statement, parameters)  # again, as the server may have been restarted meanwhile

    def _fetch(self, statement: bytes, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run the deferred statements and then `statement`, and return the rows of `statement`."""
        connection = self._connected()
        if self._deferred:
            cursor = self._run_pipelined(connection, statement, parameters)
            self._deferred.clear()
            self._begun = True  # statements are deferred only inside a transaction
        else:
            cursor = connection.execute(statement, parameters, binary=True)
        return cursor.fetchall() if cursor.description else []

    def _run_pipelined(
        self, connection: _Connection, statement: bytes, parameters: Sequence[Any]
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run the deferred statements and `statement` in one round trip.

        Errors are raised after the pipeline has ended. If an error were raised inside the pipeline, psycopg would log a
        second error when the connection is lost.
        """
        first: psycopg.Error | None = None
        try:
            with connection.pipeline():
                try:
                    for deferred, values in self._deferred:
                        connection.execute(deferred, values)
                    cursor = connection.execute(statement, parameters, binary=True)
                except psycopg.Error as error:
                    first = error
        except psycopg.Error as second:
            raise first or second from None
        if first is not None:
            raise first
        return cursor

    def begin(self) -> None:
        self._deferred = [(b"BEGIN", ())]

    def commit(self) -> None:
        with self._translated_errors():
            self._fetch(b"COMMIT")  # not repeated: if the connection is lost, the commit may have happened
        self._begun = False

    def rollback(self) -> None:
        self._begun = False
        self._deferred.clear()
        if self._connection is not None and not self._connection.closed:
            try:
                self._connection.execute("ROLLBACK")
            except psycopg.Error:
                self._connection.close()

    def _lock(self, names: Sequence[str]) -> list[Any]:
        sql = f"SELECT {STREAM_COLUMNS} FROM streams WHERE name = ANY(?) ORDER BY name FOR UPDATE"
        return self._rows(sql, (list(names),))

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        self._defer(_INSERT, rows)

    def _update(self, rows: list[tuple[Any, ...]]) -> None:
        self._defer(_UPDATE, rows)

    def _defer(self, statement: bytes, rows: list[tuple[Any, ...]]) -> None:
        """Send a statement together with the next query, at the latest with the commit.

        Large statements are sent at once.
        """
        columns = [_array(column) for column in zip(*rows, strict=True)]
        if len(rows) > _MAX_DEFERRED:
            self._run(statement, columns)
        else:
            self._deferred.append((statement, columns))

    def _is_among(self, column: str, values: Sequence[str]) -> tuple[str, list[Any]]:
        return f"{column} = ANY(?)", [list(values)]

    def ping(self) -> None:
        self._rows("SELECT 1")

    def new_connection(self) -> PostgresJournal:
        return PostgresJournal(self._url, lock_seconds=self._lock_seconds)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _unnest(types: Sequence[str]) -> str:
    return f"unnest({', '.join(f'?::{kind}[]' for kind in types)})"


@functools.cache
def _statement(sql: str) -> bytes:
    """Replace the placeholders `?` in SQL by those of psycopg, `%s`."""
    return sql.replace("?", "%s").encode()


_INSERT = _statement(
    f"INSERT INTO events (stream_id, seq, time, kind, id, key, payload, blob) SELECT * FROM {_unnest(_EVENT_TYPES)}"
)
_UPDATE = _statement(
    "UPDATE streams SET arms = n.arms, version = n.version, decisions = n.decisions, rewards = n.rewards,"
    f" updated = n.updated, identifying = n.identifying, retired = n.retired, due = n.due"
    f" FROM {_unnest(_STREAM_TYPES)}"
    " AS n (arms, version, decisions, rewards, updated, identifying, retired, due, id) WHERE streams.id = n.id"
)


def _array(column: Sequence[Any]) -> str:
    """Format an array parameter as text, which is many times faster than the conversion of psycopg."""
    return f"{{{','.join(map(_array_entry, column))}}}"


def _array_entry(value: int | str | bytes | None) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if value is None:
        return "NULL"
    return f'"\\\\x{value.hex()}"' if isinstance(value, bytes) else str(value)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
