"""The interface of a journal, which sqlite.py and postgres.py implement.

A journal is one connection to the database and is used by one thread at a time. Changes are made between `begin` and
`commit`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from halfseen.errors import invalid, missing_extra
from halfseen.journal.address import is_postgres, sqlite_path
from halfseen.journal.events import Arm, Event, decode, encode

PAGE = 5_000  # events per query
LOCK_SECONDS = 10.0
_EVENT_COLUMNS = "seq, time, kind, id, payload, blob"
STREAM_COLUMNS = "id, name, spec, arms, version, decisions, rewards, created, updated, identifying, retired, due"
_TOKEN_COLUMNS = "id, name, sha256, scopes, streams, created, expires, revoked"


class StreamRow(Struct):
    """A stream in the table of streams. Times are microseconds since 1970, UTC."""

    id: int
    name: str
    spec: str  # JSON
    arms: list[tuple[Arm, bool]]  # every arm, and whether it is active
    version: int  # the number of its last event
    decisions: int
    rewards: int
    created: int
    updated: int
    identifying: int = 0  # the time at which the claim of a process to identify the stream's model ends
    retired: bool = False
    due: int = 0  # when the reward wait of its oldest open decision ends, or 0 if no decision waits


class Token(Struct, frozen=True):
    """A stored bearer token.

    `streams` is None if the token is valid for all streams. Times are microseconds since 1970.
    """

    id: str
    name: str
    sha256: bytes
    scopes: list[str]
    streams: list[str] | None
    created: int
    expires: int | None = None
    revoked: int | None = None


class Journal(ABC):
    """A connection to the database with the events of all streams."""

    # ------------------------------------------------------------------ implemented per database

    @abstractmethod
    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run a statement and return its rows. The placeholder for a parameter is `?`."""

    @abstractmethod
    def begin(self) -> None:
        """Start a transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the transaction. A committed transaction survives a power failure."""

    @abstractmethod
    def rollback(self) -> None:
        """Undo the transaction. Never raises."""

    @abstractmethod
    def _lock(self, names: Sequence[str]) -> list[Any]:
        """Lock streams until the transaction ends, and return their rows."""

    @abstractmethod
    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        """Insert events."""

    @abstractmethod
    def _update(self, rows: list[tuple[Any, ...]]) -> None:
        """Update streams.

        Each row contains arms, version, decisions, rewards, updated, identifying, retired, due and id.
        """

    @abstractmethod
    def _is_among(self, column: str, values: Sequence[str]) -> tuple[str, list[Any]]:
        """Return the SQL condition that `column` is one of the values, and the parameters of the condition."""

    @abstractmethod
    def ping(self) -> None:
        """Raise JournalUnavailable unless the database answers. A lost connection is opened again."""

    def checkpoint(self) -> None:  # noqa: B027  (only SQLite needs it)
        """Copy committed changes into the database file, which a later commit would otherwise have to do."""

    @abstractmethod
    def new_connection(self) -> Journal:
        """Open another connection to the same database."""

    @abstractmethod
    def close(self) -> None: ...

    # ------------------------------------------------------------------ streams

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body in a transaction, which is undone if the body raises an error."""
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    def create_stream(self, row: StreamRow) -> bool:
        """Add a stream and set the `id` of `row`. Returns False if the name exists already."""
        sql = (
            "INSERT INTO streams (name, spec, arms, version, decisions, rewards, created, updated, identifying,"
            " retired, due) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING RETURNING id"
        )
        counts = (row.version, row.decisions, row.rewards, row.created, row.updated, row.identifying)
        inserted = self._rows(sql, (row.name, row.spec, _json(row.arms), *counts, int(row.retired), row.due))
        if inserted:
            row.id = inserted[0][0]
        return bool(inserted)

    def lock_streams(self, names: Iterable[str]) -> dict[str, StreamRow]:
        """Lock streams until the transaction ends, and return their rows by name. Unknown names are ignored."""
        return {row[1]: _to_stream_row(row) for row in self._lock(sorted(set(names)))}

    def stream(self, name: str) -> StreamRow | None:
        rows = self._rows(f"SELECT {STREAM_COLUMNS} FROM streams WHERE name = ?", (name,))
        return _to_stream_row(rows[0]) if rows else None

    def streams(self, after: str = "", limit: int = 100) -> list[StreamRow]:
        """Return the streams whose names follow `after`, ordered by name."""
        sql = f"SELECT {STREAM_COLUMNS} FROM streams WHERE name > ? ORDER BY name LIMIT ?"
        return [_to_stream_row(row) for row in self._rows(sql, (after, limit))]

    def overdue_streams(self, now: int, limit: int) -> list[str]:
        """Return the names of streams with a decision whose wait for a reward is over, the most overdue first."""
        sql = "SELECT name FROM streams WHERE due > 0 AND due <= ? ORDER BY due LIMIT ?"
        return [row[0] for row in self._rows(sql, (now, limit))]

    def count_streams(self) -> int:
        return int(self._rows("SELECT count(*) FROM streams")[0][0])

    def claim_identification(self, stream_id: int, now: int, until: int) -> bool:
        """Claim the identification of the model of a stream until the time `until`.

        Returns False if the claim of another process has not ended yet. A claim that ends after `until` was made while
        the clock was ahead, and is void.
        """
        sql = "UPDATE streams SET identifying = ? WHERE id = ? AND (identifying <= ? OR identifying > ?) RETURNING id"
        return bool(self._rows(sql, (until, stream_id, now, until)))

    # ------------------------------------------------------------------ events

    def append(self, streams: Sequence[StreamRow], events: Sequence[tuple[int, Event]]) -> None:
        """Add events, each with the id of its stream, and update the rows of the streams."""
        if events:
            self._insert(
                [(stream, e.seq, e.time, e.kind, e.id, e.key, encode(e.content), e.blob) for stream, e in events]
            )
        if streams:
            updates: list[tuple[Any, ...]] = []
            for s in streams:
                counts = (s.version, s.decisions, s.rewards, s.updated, s.identifying)
                updates.append((_json(s.arms), *counts, int(s.retired), s.due, s.id))
            self._update(updates)

    def events(self, stream_id: int, after: int = 0, limit: int = PAGE) -> list[Event]:
        """Return the events of a stream with numbers above `after`, in order."""
        sql = f"SELECT {_EVENT_COLUMNS} FROM events WHERE stream_id = ? AND seq > ? ORDER BY seq LIMIT ?"
        return [_to_event(row) for row in self._rows(sql, (stream_id, after, limit))]

    def all_events(self, stream_id: int, after: int = 0) -> Iterator[Event]:
        """Yield all events of a stream with numbers above `after`, reading them page by page."""
        while page := self.events(stream_id, after):
            yield from page
            after = page[-1].seq

    def decisions_with_keys(self, stream_id: int, keys: Sequence[str]) -> list[Event]:
        """Return the decisions with these idempotency keys."""
        if not keys:
            return []
        condition, values = self._is_among("key", keys)
        sql = f"SELECT {_EVENT_COLUMNS} FROM events WHERE stream_id = ? AND {condition}"
        return [_to_event(row) for row in self._rows(sql, [stream_id, *values])]

    def events_of_decisions(self, stream_id: int, decision_ids: Sequence[str]) -> list[Event]:
        """Return the events of these decisions: first the decisions in order, then rewards and expirations in order."""
        if not decision_ids:
            return []
        condition, values = self._is_among("id", decision_ids)
        found: list[Event] = []
        # The table has an index for each of these conditions on `kind`.
        for kinds in ("kind = 'decided'", "kind IN ('rewarded', 'expired')"):
            sql = f"SELECT {_EVENT_COLUMNS} FROM events WHERE stream_id = ? AND {kinds} AND {condition} ORDER BY seq"
            found += [_to_event(row) for row in self._rows(sql, [stream_id, *values])]
        return found

    # ------------------------------------------------------------------ snapshots

    def save_snapshot(self, stream_id: int, seq: int, state: bytes) -> None:
        """Save the snapshot of a stream, unless a later one is stored."""
        self._rows(
            "INSERT INTO snapshots (stream_id, seq, state, sha256) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (stream_id) DO UPDATE SET seq = excluded.seq, state = excluded.state,"
            " sha256 = excluded.sha256 WHERE snapshots.seq <= excluded.seq",
            (stream_id, seq, state, hashlib.sha256(state).digest()),
        )

    def snapshot(self, stream_id: int) -> tuple[int, bytes] | None:
        """Return the last event number and the state of a snapshot, or None if the snapshot is missing or damaged."""
        rows = self._rows("SELECT seq, state, sha256 FROM snapshots WHERE stream_id = ?", (stream_id,))
        if not rows or hashlib.sha256(rows[0][1]).digest() != bytes(rows[0][2]):
            return None
        return int(rows[0][0]), bytes(rows[0][1])

    # ------------------------------------------------------------------ tokens

    def tokens(self) -> list[Token]:
        """Return all tokens, including revoked and expired ones, oldest first."""
        return [_to_token(row) for row in self._rows(f"SELECT {_TOKEN_COLUMNS} FROM tokens ORDER BY created, id")]

    def add_token(self, token: Token) -> None:
        streams = None if token.streams is None else _json(token.streams)
        self._rows(
            f"INSERT INTO tokens ({_TOKEN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
            (token.id, token.name, token.sha256, _json(token.scopes), streams, token.created, token.expires,
             token.revoked),
        )  # fmt: skip

    def revoke_token(self, token_id: str, now: int) -> bool:
        """Revoke a token. Returns False if no token has this id or if the token is already revoked."""
        sql = "UPDATE tokens SET revoked = ? WHERE id = ? AND revoked IS NULL RETURNING id"
        return bool(self._rows(sql, (now, token_id)))


def open_journal(url: str | Path, *, lock_seconds: float = LOCK_SECONDS) -> Journal:
    """Open the journal at `url`, in one of the forms listed in address.py, and create or migrate its tables."""
    address = str(url)
    if is_postgres(address):
        try:
            from halfseen.journal.postgres import PostgresJournal
        except ImportError as error:
            raise missing_extra(error.name or "psycopg", "postgres", "A journal in PostgreSQL") from None
        return PostgresJournal(address, lock_seconds=lock_seconds)
    path = sqlite_path(address)
    if path is None:
        scheme = address.partition("://")[0]  # the other parts may contain a password
        raise invalid("database", "the path of a file or postgresql://user@host/name", f"'{scheme}://…'")
    from halfseen.journal.sqlite import SqliteJournal

    return SqliteJournal(path, lock_seconds=lock_seconds)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _to_stream_row(row: Any) -> StreamRow:
    stream_id, name, spec, text, version, decisions, rewards, created, updated, identifying, retired, due = row
    arms = [(arm, active) for arm, active in msgspec.json.decode(text)]
    return StreamRow(
        stream_id, name, spec, arms, version, decisions, rewards, created, updated, identifying, bool(retired), due
    )


def _to_event(row: Any) -> Event:
    seq, time, kind, decision_id, payload, blob = row
    return Event(seq, time, decision_id, decode(kind, payload), None if blob is None else bytes(blob))


def _to_token(row: Any) -> Token:
    token_id, name, digest, scopes, streams, created, expires, revoked = row
    allowed = None if streams is None else msgspec.json.decode(streams)
    return Token(token_id, name, bytes(digest), msgspec.json.decode(scopes), allowed, created, expires, revoked)
