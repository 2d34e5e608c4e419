"""From the address of a database to a journal."""

from __future__ import annotations

from pathlib import Path

from halfseen.errors import invalid, missing_extra
from halfseen.journal.journal import Journal

LOCK_SECONDS = 10.0


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
        raise invalid("database", f"'{scheme}://…'", "the path of a file, or postgresql://user@host/name")
    from halfseen.journal.sqlite import SqliteJournal

    return SqliteJournal(Path(address), lock_seconds=lock_seconds)
