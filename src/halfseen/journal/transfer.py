"""Journals to files and back: NDJSON, an event a line, and Parquet, a decision a row (parquet.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from halfseen.errors import invalid
from halfseen.journal import events
from halfseen.journal.events import (
    NAME,
    Arm,
    Event,
    Extent,
    JournalError,
    StreamExists,
    as_line,
    extent_of,
    from_line,
)
from halfseen.journal.journal import PAGE, Journal, StreamRow
from halfseen.journal.parquet import read_parquet, write_parquet
from halfseen.reports.files import write_atomically

ENDINGS = (".ndjson", ".jsonl", ".parquet")


def chosen(journal: Journal, names: Sequence[str] = ()) -> list[StreamRow]:
    """The streams of those names, or all of them."""
    if not names:
        found: list[StreamRow] = []
        while page := journal.streams(found[-1].name if found else "", PAGE):
            found += page
        return found
    rows = [(name, journal.stream(name)) for name in names]
    for name, row in rows:
        if row is None:
            raise invalid("stream", f"'{name}'", "the name of a stream of this database")
    return [row for _, row in rows if row is not None]


def lines(journal: Journal, rows: Sequence[StreamRow]) -> Iterator[bytes]:
    """Every event of the streams, up to where they were chosen, as a line of NDJSON, without its end."""
    for row in rows:
        extent = Extent(row.version, len(rows))
        for event in journal.all_events(row.id):
            if event.seq > row.version:  # it came while we were reading
                break
            yield as_line(row.name, event, extent if event.seq == 1 else None)


def export(journal: Journal, path: Path, names: Sequence[str] = ()) -> int:
    """Write streams to a file, its ending says how; the number of them. A file that is there stays until then."""
    _check_ending(path)
    rows = chosen(journal, names)
    if path.suffix == ".parquet":
        write_parquet(journal, rows, path)
    else:

        def fill(file: IO[bytes]) -> None:
            for line in lines(journal, rows):
                file.write(line + b"\n")

        write_atomically(path, fill)
    return len(rows)


def read(path: Path) -> Iterator[tuple[str, Event]]:
    """The streams and events of a file that `export` wrote; those of one stream are in order.

    Refused at the end if that is missing. Files that do not say what they hold are taken as they are.
    """
    _check_ending(path)
    if path.suffix == ".parquet":
        yield from read_parquet(path)
        return
    extents: dict[str, Extent | None] = {}
    reached: dict[str, int] = {}
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                name, event = from_line(line)
                reached[name] = event.seq
                if isinstance(event.content, events.Created):
                    extents[name] = extent_of(line)
                yield name, event
    for name, extent in extents.items():
        if extent is not None and reached[name] < extent.events:
            raise JournalError(
                f"file: got '{path}', which ends after event {reached[name]} of stream '{name}'; "
                f"want all {extent.events} that were exported"
            )
        if extent is not None and len(extents) < extent.streams:
            raise JournalError(
                f"file: got '{path}', which has {len(extents)} of {extent.streams} streams; want all that were exported"
            )


def bring_in(
    journal: Journal, record: Iterable[tuple[str, Event]], verify: Callable[[Journal, StreamRow], None]
) -> dict[str, int]:
    """Add the streams of a record: all of them or, if one is there already or does not fold, none. Events of each.

    `verify` is called with each stream before the commit, and raises if it is not as it should be.
    """
    arriving: dict[str, _Arrival] = {}
    with journal.transaction():
        for name, event in record:
            arrival = arriving.get(name)
            if arrival is None:
                arrival = arriving[name] = _Arrival(journal, name, event)
            arrival.take(event)
        for arrival in arriving.values():
            arrival.finish()
            verify(journal, arrival.row)
    return {name: arrival.row.version for name, arrival in arriving.items()}


class _Arrival:
    """A stream that is being brought in."""

    def __init__(self, journal: Journal, name: str, first: Event) -> None:
        self._journal, self._held = journal, [first][:0]
        if not NAME.fullmatch(name):
            raise JournalError(f"stream: got {name[:100]!r}, which is no name of a stream")
        if not isinstance(first.content, events.Created):
            raise JournalError(f"stream '{name}': got '{first.kind}' first; want a record from 'created' on")
        spec = first.content.spec
        arms = spec.get("arms", 0)
        names: list[Arm] = list(range(arms)) if isinstance(arms, int) else list(arms)
        text = msgspec.json.encode(spec | {"name": name}).decode()
        self.row = StreamRow(0, name, text, [(arm, True) for arm in names], 0, 0, 0, first.time, first.time)
        self.row.due = int(spec.get("reward_wait") is not None)  # or later: whoever looks at it first puts that down
        if not journal.create(self.row):
            raise StreamExists(f"stream '{name}': there is one of that name; want a database without it")

    def take(self, event: Event) -> None:
        row, content = self.row, event.content
        if event.seq != row.version + 1 or event.time < row.updated:
            raise JournalError(
                f"stream '{row.name}': got event {event.seq} after event {row.version}, or before its time"
            )
        row.version, row.updated = event.seq, event.time
        if isinstance(content, events.Decided):
            row.decisions += 1
        elif isinstance(content, events.Rewarded):
            row.rewards += content.how != "default"
        elif isinstance(content, events.ArmAdded):
            row.arms.append((content.arm, True))
        elif isinstance(content, events.ArmRetired):
            row.arms = [(arm, active and arm != content.arm) for arm, active in row.arms]
        elif isinstance(content, events.Retired):
            row.retired = True
        self._held.append(event)
        if len(self._held) >= PAGE:
            self.finish()

    def finish(self) -> None:
        self._journal.append([self.row], [(self.row.id, event) for event in self._held])
        self._held = []


def _check_ending(path: Path) -> None:
    if path.suffix not in ENDINGS:
        raise invalid("file", f"'{path}'", f"a name that ends in {', '.join(ENDINGS)}")
