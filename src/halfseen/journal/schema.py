"""The tables of the database, as a list of migrations. A database stores the number of migrations applied to it."""

from __future__ import annotations

from halfseen.journal.events import JournalError

# The SQL is the same for both databases, except for the types in braces. A released migration must never change.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE streams (
            id {serial},
            name TEXT NOT NULL UNIQUE,
            spec TEXT NOT NULL,
            arms TEXT NOT NULL,
            version {integer} NOT NULL,
            decisions {integer} NOT NULL,
            rewards {integer} NOT NULL,
            created {integer} NOT NULL,
            updated {integer} NOT NULL,
            identifying {integer} NOT NULL,
            retired {integer} NOT NULL
        )
        """,
        """
        CREATE TABLE events (
            stream_id {integer} NOT NULL REFERENCES streams (id),
            seq {integer} NOT NULL,
            time {integer} NOT NULL,
            kind TEXT NOT NULL,
            id TEXT,
            key TEXT,
            payload TEXT NOT NULL,
            blob {bytes},
            PRIMARY KEY (stream_id, seq)
        )
        """,
        "CREATE UNIQUE INDEX events_decided ON events (stream_id, id) WHERE kind = 'decided'",
        "CREATE INDEX events_outcome ON events (stream_id, id) WHERE kind IN ('rewarded', 'expired')",
        "CREATE UNIQUE INDEX events_key ON events (stream_id, key) WHERE key IS NOT NULL",
        """
        CREATE TABLE snapshots (
            stream_id {integer} PRIMARY KEY REFERENCES streams (id),
            seq {integer} NOT NULL,
            state {bytes} NOT NULL,
            sha256 {bytes} NOT NULL
        )
        """,
        """
        CREATE TABLE tokens (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            sha256 {bytes} NOT NULL,
            scopes TEXT NOT NULL,
            streams TEXT,
            created {integer} NOT NULL,
            expires {integer},
            revoked {integer}
        )
        """,
    ),
    (
        "ALTER TABLE streams ADD COLUMN due {integer} NOT NULL DEFAULT 0",
        # due = 1 stands for "not computed yet". The stream's next transaction corrects it. (psycopg replaces %% by %.)
        """
        UPDATE streams SET due = 1
        WHERE spec LIKE '%%"reward_wait":%%' AND spec NOT LIKE '%%"reward_wait":null%%'
        """,
        "CREATE INDEX streams_due ON streams (due) WHERE due > 0",
    ),
)


def pending_migrations(version: int) -> tuple[tuple[str, ...], ...]:
    """Return the migrations that a database of `version` needs. A database of a later version is refused."""
    if version > len(MIGRATIONS):
        raise JournalError(
            f"database: expected schema version {len(MIGRATIONS)} or older, got version {version}. Upgrade halfseen."
        )
    return MIGRATIONS[version:]
