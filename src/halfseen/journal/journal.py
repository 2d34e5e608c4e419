"""The journal: what the engine reads from and writes to a database. sqlite.py and postgres.py implement it.

A journal is one connection, used by one thread at a time. All that changes it happens between `begin` and `commit`.
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
from halfseen.journal.events import Arm, Event, decode, encode

PAGE = 5_000  # events read at a time
LOCK_SECONDS = 10.0
_EVENT_COLUMNS = "seq, time, kind, id, payload, blob"
STREAM_COLUMNS = "id, name, spec, arms, version, decisions, rewards, created, updated, identifying, retired, due"
_TOKEN_COLUMNS = "id, name, sha256, scopes, streams, created, expires, revoked"


class StreamRow(Struct):
    """A stream as the journal lists it."""

    id: int
    name: str
    spec: str  # JSON
    arms: list[tuple[Arm, bool]]  # all there have ever been, and whether each is active
    version: int
    decisions: int
    rewards: int
    created: int
    updated: int
    identifying: int = 0  # until when a process is looking for a model of it
    retired: bool = False
    due: int = 0  # when the wait for the reward of its oldest decision is over; 0 if for none


class Token(Struct, frozen=True):
    """A bearer token as it is stored. `streams` None means all of them; times are microseconds since 1970, UTC."""

    id: str
    name: str
    sha256: bytes
    scopes: list[str]
    streams: list[str] | None
    created: int
    expires: int | None = None
    revoked: int | None = None


class Journal(ABC):
    """One connection to the record."""

    # ------------------------------------------------------------------ what dialects supply

    @abstractmethod
    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run a statement; its rows. Parameters are written `?`."""

    @abstractmethod
    def begin(self) -> None:
        """Start a transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Make it durable: on return it survives a power cut."""

    @abstractmethod
    def rollback(self) -> None:
        """Undo it; never raises."""

    @abstractmethod
    def _lock(self, names: Sequence[str]) -> list[Any]:
        """The rows of those streams, which no other connection can change before the transaction ends."""

    @abstractmethod
    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        """Insert events."""

    @abstractmethod
    def _update(self, rows: list[tuple[Any, ...]]) -> None:
        """Update streams: arms, version, decisions, rewards, updated, identifying, retired, due, id."""

    @abstractmethod
    def _is_among(self, column: str, values: Sequence[str]) -> tuple[str, list[Any]]:
        """A condition that `column` is among the values, and its parameters."""

    @abstractmethod
    def ping(self) -> None:
        """Raise JournalUnavailable unless the database answers. A lost connection is made again."""

    def checkpoint(self) -> None:  # noqa: B027  (most databases look after themselves)
        """Do housekeeping that would slow down a later commit, on a connection that no request waits for."""

    @abstractmethod
    def new_connection(self) -> Journal:
        """One more connection to the same database."""

    @abstractmethod
    def close(self) -> None: ...

    # ------------------------------------------------------------------ streams

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin; commit at the end, or undo everything."""
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    def create_stream(self, row: StreamRow) -> bool:
        """Add a stream and set the `id` of its row; False if there is one of that name."""
        sql = (
            "INSERT INTO streams (name, spec, arms, version, decisions, rewards, created, updated, identifying,"
            " retired, due) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING RETURNING id"
        )
        counts = (row.version, row.decisions, row.rewards, row.created, row.updated, row.identifying)
        made = self._rows(sql, (row.name, row.spec, _json(row.arms), *counts, int(row.retired), row.due))
        if made:
            row.id = made[0][0]
        return bool(made)

    def lock_streams(self, names: Iterable[str]) -> dict[str, StreamRow]:
        """Lock those of the streams that exist until the transaction ends, and return their rows by name."""
        return {row[1]: _to_stream_row(row) for row in self._lock(sorted(set(names)))}

    def stream(self, name: str) -> StreamRow | None:
        rows = self._rows(f"SELECT {STREAM_COLUMNS} FROM streams WHERE name = ?", (name,))
        return _to_stream_row(rows[0]) if rows else None

    def streams(self, after: str = "", limit: int = 100) -> list[StreamRow]:
        """Streams by name, those after `after`."""
        sql = f"SELECT {STREAM_COLUMNS} FROM streams WHERE name > ? ORDER BY name LIMIT ?"
        return [_to_stream_row(row) for row in self._rows(sql, (after, limit))]

    def overdue_streams(self, now: int, limit: int) -> list[str]:
        """Streams with a decision whose reward wait is over, the longest first."""
        sql = "SELECT name FROM streams WHERE due > 0 AND due <= ? ORDER BY due LIMIT ?"
        return [row[0] for row in self._rows(sql, (now, limit))]

    def count_streams(self) -> int:
        return int(self._rows("SELECT count(*) FROM streams")[0][0])

    def claim_identification(self, stream_id: int, now: int, until: int) -> bool:
        """Claim the identification of a stream's model, unless another process has; it ends by itself at `until`."""
        sql = "UPDATE streams SET identifying = ? WHERE id = ? AND identifying <= ? RETURNING id"
        return bool(self._rows(sql, (until, stream_id, now)))

    # ------------------------------------------------------------------ events

    def append(self, streams: Sequence[StreamRow], events: Sequence[tuple[int, Event]]) -> None:
        """Add events (with the ids of their streams), and update the rows of the streams."""
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
        """The next events of a stream, in order."""
        sql = f"SELECT {_EVENT_COLUMNS} FROM events WHERE stream_id = ? AND seq > ? ORDER BY seq LIMIT ?"
        return [_to_event(row) for row in self._rows(sql, (stream_id, after, limit))]

    def all_events(self, stream_id: int, after: int = 0) -> Iterator[Event]:
        """All events from there on, read page by page."""
        while page := self.events(stream_id, after):
            yield from page
            after = page[-1].seq

    def decisions_with_keys(self, stream_id: int, keys: Sequence[str]) -> list[Event]:
        """The decisions made under those idempotency keys."""
        if not keys:
            return []
        condition, values = self._is_among("key", keys)
        sql = f"SELECT {_EVENT_COLUMNS} FROM events WHERE stream_id = ? AND {condition}"
        return [_to_event(row) for row in self._rows(sql, [stream_id, *values])]

    def events_of_decisions(self, stream_id: int, decision_ids: Sequence[str]) -> list[Event]:
        """The events of those decisions: first all that were made, then all rewards and expirations, each in order."""
        if not decision_ids:
            return []
        condition, values = self._is_among("id", decision_ids)
        found: list[Event] = []
        for kinds in ("kind = 'decided'", "kind IN ('rewarded', 'expired')"):  # as the indexes have it
            sql = f"SELECT {_EVENT_COLUMNS} FROM events WHERE stream_id = ? AND {kinds} AND {condition} ORDER BY seq"
            found += [_to_event(row) for row in self._rows(sql, [stream_id, *values])]
        return found

    # ------------------------------------------------------------------ snapshots

    def save_snapshot(self, stream_id: int, seq: int, state: bytes) -> None:
        """Replace the snapshot of a stream, unless there is a later one."""
        self._rows(
            "INSERT INTO snapshots (stream_id, seq, state, sha256) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (stream_id) DO UPDATE SET seq = excluded.seq, state = excluded.state,"
            " sha256 = excluded.sha256 WHERE snapshots.seq <= excluded.seq",
            (stream_id, seq, state, hashlib.sha256(state).digest()),
        )

    def snapshot(self, stream_id: int) -> tuple[int, bytes] | None:
        """The last snapshot of a stream; None if there is none, or if it is not what was written."""
        rows = self._rows("SELECT seq, state, sha256 FROM snapshots WHERE stream_id = ?", (stream_id,))
        if not rows or hashlib.sha256(rows[0][1]).digest() != bytes(rows[0][2]):
            return None
        return int(rows[0][0]), bytes(rows[0][1])

    # ------------------------------------------------------------------ tokens

    def tokens(self) -> list[Token]:
        """All tokens, also those that are revoked or expired, oldest first."""
        return [_to_token(row) for row in self._rows(f"SELECT {_TOKEN_COLUMNS} FROM tokens ORDER BY created, id")]

    def add_token(self, token: Token) -> None:
        streams = None if token.streams is None else _json(token.streams)
        self._rows(
            f"INSERT INTO tokens ({_TOKEN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
            (token.id, token.name, token.sha256, _json(token.scopes), streams, token.created, token.expires,
             token.revoked),
        )  # fmt: skip

    def revoke_token(self, token_id: str, now: int) -> bool:
        """Revoke a token; False if there is none with that id that is still valid."""
        sql = "UPDATE tokens SET revoked = ? WHERE id = ? AND revoked IS NULL RETURNING id"
        return bool(self._rows(sql, (now, token_id)))


def open_journal(url: str | Path, *, lock_seconds: float = LOCK_SECONDS) -> Journal:
    """The journal at `url`: the path of an SQLite file, or postgresql://…; tables are made or brought up to date."""
    address = str(url)
    if address.startswith(("postgresql://", "postgres://")):
        try:
            from halfseen.journal.postgres import PostgresJournal
        except ImportError as error:
            raise missing_extra(error.name or "psycopg", "postgres", "a journal in PostgreSQL") from None
        return PostgresJournal(address, lock_seconds=lock_seconds)
    if "://" in address:
        scheme = address.partition("://")[0]  # the rest may hold a password
        raise invalid("database", "the path of a file, or postgresql://user@host/name", f"'{scheme}://…'")
    from halfseen.journal.sqlite import SqliteJournal

    return SqliteJournal(Path(address), lock_seconds=lock_seconds)


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
