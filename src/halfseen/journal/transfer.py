"""Export and import of journals as NDJSON, with one event per line, or Parquet, with one decision per row.

A row of a Parquet file is a decision with its last reward. The other events are stored in the metadata of the file as
NDJSON. So any program that reads tables can read the file, and the file can be imported without loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from halfseen.errors import SaveFileError, invalid, missing_extra
from halfseen.journal import events
from halfseen.journal.events import (
    STREAM_NAME,
    Arm,
    Event,
    ExportExtent,
    JournalError,
    StreamExists,
    from_line,
    to_line,
)
from halfseen.journal.journal import PAGE, Journal, StreamRow
from halfseen.reports.files import write_atomically

ENDINGS = (".ndjson", ".jsonl", ".parquet")
_OTHER_EVENTS = b"halfseen.events"  # key in the metadata of a Parquet file
_ROWS = 20_000  # rows of a Parquet file that are in memory at a time


# ---------------------------------------------------------------------- export


def export(journal: Journal, path: Path, names: Sequence[str] = ()) -> int:
    """Write the streams with these names, or all streams, to a file, and return the number of streams.

    The ending of the path determines the format. An existing file is replaced when the new one is complete.
    """
    _check_ending(path)
    rows = select_streams(journal, names)
    if path.suffix == ".parquet":
        _pyarrow()  # fails here if it is not installed, before any file is written
        write_atomically(path, lambda file: _write_parquet(journal, rows, file))
    else:
        write_atomically(path, lambda file: file.writelines(_ndjson_lines(journal, rows)))
    return len(rows)


def select_streams(journal: Journal, names: Sequence[str] = ()) -> list[StreamRow]:
    """Return the streams with these names, or all streams."""
    if not names:
        found: list[StreamRow] = []
        while page := journal.streams(found[-1].name if found else "", PAGE):
            found += page
        return found
    rows = [(name, journal.stream(name)) for name in names]
    for name, row in rows:
        if row is None:
            raise invalid("stream", "the name of a stream in this database", f"'{name}'")
    return [row for _, row in rows if row is not None]


def _ndjson_lines(journal: Journal, rows: Sequence[StreamRow]) -> Iterator[bytes]:
    for row in rows:
        extent = ExportExtent(row.version, len(rows))
        for event in _events_up_to_version(journal, row):
            yield to_line(row.name, event, extent if event.seq == 1 else None) + b"\n"


def _events_up_to_version(journal: Journal, row: StreamRow) -> Iterator[Event]:
    """Yield the events of a stream up to the version in `row`, because more may have been added since."""
    for event in journal.all_events(row.id):
        if event.seq > row.version:
            break
        yield event


def _write_parquet(journal: Journal, rows: Sequence[StreamRow], file: IO[bytes]) -> None:
    """Write one row per decision.

    The columns reward, reward_time, reward_seq, how and folded describe the last reward of the decision. The other
    columns are the fields of the event.
    """
    pa, parquet = _pyarrow()
    numbered = all(isinstance(arm, int) for row in rows for arm, _ in row.arms)
    arm, text, moment = pa.int64() if numbered else pa.string(), pa.string(), pa.timestamp("us", "UTC")
    numbers = pa.list_(pa.float64())
    types = {
        "stream": text, "seq": pa.int64(), "id": text, "round": pa.int64(), "time": moment, "observation": numbers,
        "available": pa.list_(arm), "arm": arm, "propensity": pa.float64(), "propensities": numbers,
        "expected": numbers, "key": text, "reward": pa.float64(), "reward_time": moment, "reward_seq": pa.int64(),
        "how": text, "folded": pa.bool_(), "clock": moment,
    }  # fmt: skip
    rewards: dict[int, dict[str, Event]] = {}  # the last reward, by stream and decision
    others: list[bytes] = []
    for row in rows:
        last = rewards[row.id] = {}
        for event in _events_up_to_version(journal, row):
            if isinstance(event.content, events.Rewarded):
                if event.content.decision in last:  # a late reward follows a default reward
                    others.append(to_line(row.name, last[event.content.decision]))
                last[event.content.decision] = event
            elif not isinstance(event.content, events.Decided):
                others.append(to_line(row.name, event))
    schema = pa.schema(types, metadata={_OTHER_EVENTS: b"\n".join(others)})
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        batch: list[dict[str, Any]] = []
        for row in rows:
            for event in _events_up_to_version(journal, row):
                if isinstance(event.content, events.Decided):
                    batch.append(_parquet_row(row.name, event, event.content, rewards[row.id], numbered))
                if len(batch) >= _ROWS:
                    writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                    batch = []
        writer.write_table(pa.Table.from_pylist(batch, schema=schema))


def _parquet_row(
    stream: str, event: Event, decided: events.Decided, rewards: dict[str, Event], numbered: bool
) -> dict[str, Any]:
    to_column = (lambda arm: arm) if numbered else str
    cells = {"stream": stream, "seq": event.seq, "id": event.id, "time": event.time} | msgspec.structs.asdict(decided)
    cells |= {"arm": to_column(decided.arm)}
    cells |= {"available": decided.available and [to_column(arm) for arm in decided.available]}
    rewarded = rewards.get(event.id or "")
    if rewarded is not None and isinstance(rewarded.content, events.Rewarded):
        reward = rewarded.content
        cells |= {"reward": reward.value, "reward_time": rewarded.time, "reward_seq": rewarded.seq}
        cells |= {"how": reward.how, "folded": reward.folded}
    return cells


# ---------------------------------------------------------------------- import


def read_events(path: Path) -> Iterator[tuple[str, Event]]:
    """Yield the events of a file that `export` wrote, each with the name of its stream.

    The events of a stream are in order. A truncated file is refused when its end is reached, unless the file does not
    state its size.
    """
    _check_ending(path)
    if path.suffix == ".parquet":
        yield from _read_parquet(path)
        return
    extents: dict[str, ExportExtent] = {}
    reached: dict[str, int] = {}
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                name, event, extent = from_line(line)
                reached[name] = event.seq
                if extent is not None:
                    extents[name] = extent
                yield name, event
    for name, extent in extents.items():
        if reached[name] < extent.events:
            raise JournalError(
                f"file: expected all {extent.events} events of stream '{name}', got '{path}', which ends after event "
                f"{reached[name]}"
            )
        if len(reached) < extent.streams:
            raise JournalError(
                f"file: expected all {extent.streams} exported streams, got '{path}', which contains {len(reached)}"
            )


def _read_parquet(path: Path) -> Iterator[tuple[str, Event]]:
    pa, parquet = _pyarrow()
    try:
        table = parquet.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SaveFileError(f"Cannot read '{path}': {str(error).splitlines()[0]}") from None
    metadata = table.schema.metadata or {}
    if _OTHER_EVENTS not in metadata:
        raise JournalError(f"file: expected a file written by `halfseen export`, got '{path}', which has other columns")
    streams: dict[str, list[Event]] = {}
    numbered: dict[str, bool] = {}
    for line in metadata[_OTHER_EVENTS].splitlines():
        stream, event, _ = from_line(line)
        streams.setdefault(stream, []).append(event)
        if isinstance(event.content, events.Created):
            numbered[stream] = isinstance(event.content.spec.get("arms"), int)
    for column in {"time", "reward_time", "clock"}.intersection(table.column_names):
        index = table.schema.get_field_index(column)
        table = table.set_column(index, column, table[column].cast(pa.int64()))
    for batch in table.to_batches(_ROWS):
        for row in batch.to_pylist():
            stream_events = streams.setdefault(row["stream"], [])
            to_arm = int if numbered.get(row["stream"]) else str
            row["arm"] = to_arm(row["arm"])
            row["available"] = row["available"] and [to_arm(arm) for arm in row["available"]]
            try:
                decided = msgspec.convert(row, events.Decided)
            except msgspec.ValidationError as error:
                raise JournalError(f"Cannot read decision '{row['id']}' of '{path}': {error}") from None
            stream_events.append(Event(row["seq"], row["time"], row["id"], decided))
            if row["reward_seq"] is not None:
                content = events.Rewarded(row["id"], row["round"], row["reward"], row["how"], row["folded"])
                stream_events.append(Event(row["reward_seq"], row["reward_time"], row["id"], content))
    for stream, stream_events in streams.items():
        yield from ((stream, event) for event in sorted(stream_events, key=lambda event: event.seq))


def import_streams(
    journal: Journal, source: Iterable[tuple[str, Event]], verify: Callable[[Journal, StreamRow], None]
) -> dict[str, int]:
    """Add the streams of an export to the journal and return the number of events of each.

    `verify` is called for each stream before the commit and raises an error if the stream is invalid. Either all
    streams are added or, if one is invalid or exists already, none.
    """
    imports: dict[str, _StreamImport] = {}
    with journal.transaction():
        for name, event in source:
            if name not in imports:
                imports[name] = _StreamImport(journal, name, event)
            imports[name].add(event)
        for one in imports.values():
            one.write()
            verify(journal, one.row)
    return {name: one.row.version for name, one in imports.items()}


class _StreamImport:
    """A stream that is being imported, with the events that are not written yet."""

    def __init__(self, journal: Journal, name: str, first: Event) -> None:
        self._journal = journal
        self._events: list[Event] = []
        if not STREAM_NAME.fullmatch(name):
            raise JournalError(f"stream: expected the name of a stream, got {name[:100]!r}")
        if not isinstance(first.content, events.Created):
            raise JournalError(f"stream '{name}': expected 'created' as the first event, got '{first.kind}'")
        spec = first.content.spec
        arms = spec.get("arms", 0)
        names: list[Arm] = list(range(arms)) if isinstance(arms, int) else list(arms)
        text = msgspec.json.encode(spec | {"name": name}).decode()
        self.row = StreamRow(0, name, text, [(arm, True) for arm in names], 0, 0, 0, first.time, first.time)
        self.row.due = int(
            spec.get("reward_wait") is not None
        )  # 1 means overdue, so that the next transaction writes the correct time
        if not journal.create_stream(self.row):
            raise StreamExists(f"Stream '{name}' exists already in this database.")

    def add(self, event: Event) -> None:
        row, content = self.row, event.content
        if event.seq != row.version + 1 or event.time < row.updated:
            raise JournalError(
                f"stream '{row.name}': expected events in the order of their numbers and times, got event "
                f"{event.seq} after event {row.version}"
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
        self._events.append(event)
        if len(self._events) >= PAGE:
            self.write()

    def write(self) -> None:
        self._journal.append([self.row], [(self.row.id, event) for event in self._events])
        self._events = []


def _check_ending(path: Path) -> None:
    if path.suffix not in ENDINGS:
        raise invalid("file", f"a name that ends in {', '.join(ENDINGS)}", f"'{path}'")


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra(error.name or "pyarrow", "experiments", "Parquet") from None
    return pyarrow, pyarrow.parquet
