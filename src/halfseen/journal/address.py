"""A database is named by the path of an SQLite file, by sqlite:///path or by postgresql://user@host/name."""

from __future__ import annotations

from pathlib import Path

_SQLITE = "sqlite:///"  # what follows is the path, as in SQLAlchemy: sqlite:///file or sqlite:////folder/file
_POSTGRES = ("postgresql://", "postgres://")


def is_postgres(database: str) -> bool:
    return database.startswith(_POSTGRES)


def sqlite_path(database: str) -> Path | None:
    """Return the path of the SQLite file that `database` names, or None if `database` is another URL."""
    path = database.removeprefix(_SQLITE)
    return None if "://" in path else Path(path)


def is_new_file(database: str) -> bool:
    """Return whether `database` is an SQLite file that does not exist. Opening such a database creates the file."""
    path = sqlite_path(database)
    return path is not None and not path.exists()
