"""`halfseen export` and `halfseen import`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfseen.errors import invalid, missing_extra

if TYPE_CHECKING:
    from halfseen.journal.journal import Journal

Database = Annotated[
    str, typer.Option(help="A file, or postgresql://user@host/name.", envvar="HALFSEEN_DATABASE", show_envvar=True)
]


def is_new_file(database: str) -> bool:
    """Whether it is a file that is not there, and would be made."""
    return "://" not in database and not Path(database).exists()


def export_journal(
    file: Annotated[Path, typer.Argument(help="To write: events.ndjson, or decisions.parquet")],
    streams: Annotated[list[str] | None, typer.Argument(help="Streams to export.", show_default="all")] = None,
    database: Database = "halfseen.db",
) -> None:
    """Write the journal to a file: every event (NDJSON), or a row a decision (Parquet). A server may be running."""
    if is_new_file(database):
        raise invalid("database", "a file that is there, or postgresql://user@host/name", f"'{database}'")
    with opened_journal(database) as journal:
        from halfseen.journal.transfer import export

        count = export(journal, file, streams or ())
    print(f"{count} {'stream' if count == 1 else 'streams'} written to {file}")


def import_journal(
    file: Annotated[Path, typer.Argument(help="What `halfseen export` wrote", exists=True, dir_okay=False)],
    database: Database = "halfseen.db",
) -> None:
    """Bring streams into a database from a file. All of them or none: each must be new there, and fold."""
    try:
        from halfseen.journal.transfer import import_streams, read_events
        from halfseen.service.engine.loaded_stream import fold_imported_stream
    except ImportError as error:
        raise missing_extra(error.name or "msgspec", "service", "the journal") from None
    record = iter(read_events(file))
    first = list(islice(record, 1))  # before a database is made: it may be no record at all
    with opened_journal(database) as journal:
        found = import_streams(journal, chain(first, record), fold_imported_stream)
    for name, count in found.items():
        print(f"{name}: {count} events")


@contextmanager
def opened_journal(database: str, needed_for: str = "the journal") -> Iterator[Journal]:
    try:
        from halfseen.journal.journal import open_journal
    except ImportError as error:
        raise missing_extra(error.name or "msgspec", "service", needed_for) from None
    journal = open_journal(database)
    try:
        yield journal
    finally:
        journal.close()
