"""The commands `halfseen export` and `halfseen import`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfseen.errors import invalid, missing_extra
from halfseen.journal.address import is_new_file

if TYPE_CHECKING:
    from halfseen.journal.journal import Journal

Database = Annotated[
    str,
    typer.Option(
        help="A SQLite file, also as sqlite:///path, or postgresql://user@host/name.",
        envvar="HALFSEEN_DATABASE",
        show_envvar=True,
    ),
]


def export_journal(
    file: Annotated[Path, typer.Argument(help="The file to write, such as events.ndjson or decisions.parquet.")],
    streams: Annotated[list[str] | None, typer.Argument(help="Streams to export.", show_default="all")] = None,
    database: Database = "halfseen.db",
) -> None:
    """Export the journal: all events as NDJSON, or one row per decision as Parquet. The service may be running."""
    if is_new_file(database):
        raise invalid("database", "an existing file, or postgresql://user@host/name", f"'{database}'")
    with opened_journal(database) as journal:
        from halfseen.journal.transfer import export

        count = export(journal, file, streams or ())
    print(f"{count} {'stream' if count == 1 else 'streams'} written to {file}")


def import_journal(
    file: Annotated[Path, typer.Argument(help="A file of events from `halfseen export`.", exists=True, dir_okay=False)],
    database: Database = "halfseen.db",
) -> None:
    """Import all streams of a file into a database. If a stream exists there or has invalid events, import none."""
    try:
        from halfseen.journal.transfer import import_streams, read_events
        from halfseen.service.engine.imported_stream import Importer
        from halfseen.service.schemas import Limits
    except ImportError as error:
        raise missing_extra(error.name or "msgspec", "service", "the journal") from None
    events = iter(read_events(file))
    first = list(islice(events, 1))  # check the file before a database is created
    with opened_journal(database) as journal:
        importer = Importer(Limits(), journal.count_streams())
        event_counts = import_streams(journal, chain(first, events), importer.open_stream)
    for name, count in event_counts.items():
        skipped = importer.skipped_models.get(name, 0)
        print(f"{name}: {count} events" + (f", {skipped} models of another version skipped" if skipped else ""))


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
