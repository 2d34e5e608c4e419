"""Export and import of journals as NDJSON, with one event per line, or Parquet, with one decision per row.

A row of a Parquet file is a decision with its last reward. The other events are stored in the metadata of the file as
NDJSON. So any program that reads tables can read the file, and the file can be imported without loss.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from halfseen.errors import HalfseenError, SaveFileError, invalid, missing_extra
from halfseen.journal import events
from halfseen.journal.events import (
    STREAM_NAME,
    Arm,
    Event,
    ExportExtent,
    JournalError,
    JournalUnavailable,
    StreamExists,
    explain,
    from_line,
    to_line,
)
from halfseen.journal.journal import PAGE, Journal, StreamRow
from halfseen.reports.files import write_atomically

ENDINGS = (".ndjson", ".jsonl", ".parquet")
_OTHER_EVENTS = b"halfseen.events"  # key in the metadata of a Parquet file
_ROWS = 20_000  # rows of a Parquet file that are in memory at a time during an export
_IMPORTED_ROWS = 1_000  # rows that are in memory at a time during an import
_TIMES = ("time", "reward_time", "clock")
_TEXTS = ("stream", "id", "key", "how", "arm", "available", "branch", "estimated")
_NEW_COLUMNS = {
    "clock",
    "branch",
    "costs",
    "elapsed",
    "tick",
    "estimated",
}  # columns that may be absent in files of earlier versions
_COLUMNS = {
    "seq", "round", "observation", "propensity", "propensities", "expected", "reward", "reward_seq", "folded",
    "costs", "elapsed", "tick", *_TIMES, *_TEXTS,
}  # fmt: skip
_SLICE_BYTES = 1 << 20  # size of the rows that are converted to Python objects at a time
_MAX_TEXT = 1_000  # characters of one cell
_MAX_LINE = 1 << 26  # bytes of one event in NDJSON
MAX_IMPORT_BYTES = 1 << 30  # after decompression
MAX_TIME = 253_402_214_400_000_000  # microseconds until the last day of the year 9999


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
        "how": text, "folded": pa.bool_(), "clock": moment, "branch": text,
        "costs": numbers, "elapsed": pa.int64(), "tick": pa.int64(), "estimated": text,
    }  # fmt: skip
    rewards: dict[int, dict[str, Event]] = {}  # the last reward, by stream and decision
    others: list[bytes] = []
    for row in rows:
        last = rewards[row.id] = {}
        for event in _events_up_to_version(journal, row):
            if isinstance(event.content, events.Rewarded):
                if event.content.decision in last:  # a second reward, which replaces a default reward
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


class ImportedEvent(NamedTuple):
    """An event of a file. For error messages, `place` says where the event is in the file, such as "line 3"."""

    place: str
    stream: str
    event: Event


class StreamChecks(Protocol):
    """Checks whether the events of one imported stream are possible. The journal itself cannot check this."""

    def check(self, event: Event) -> None:
        """Raise a HalfseenError unless `event` can follow the events that were checked before."""

    def finish(self, journal: Journal, row: StreamRow) -> None:
        """Save the state that follows from the events. This is called when all events have been written."""


def read_events(path: Path, max_bytes: int = MAX_IMPORT_BYTES) -> Iterator[ImportedEvent]:
    """Yield the events of a file that `export` wrote.

    The events of a stream are in order. A file that states how many streams and events it contains is refused at its
    end if some are absent. A file whose decompressed content is larger than `max_bytes` is refused.
    """
    _check_ending(path)
    if path.suffix == ".parquet":
        yield from _read_parquet(path, max_bytes)
        return
    extents: dict[str, ExportExtent] = {}
    reached: dict[str, int] = {}
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE + 1), b""), 1):
            if len(line) > _MAX_LINE:
                raise JournalError(f"line {number}: expected at most {_MAX_LINE} bytes, got more")
            if line.strip():
                with _at(f"line {number}"):
                    name, event, extent = from_line(line)
                reached[name] = event.seq
                if extent is not None:
                    extents[name] = extent
                yield ImportedEvent(f"line {number}", name, event)
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


class _ParquetRow(Struct, frozen=True):
    """The columns of a row that are not fields of the decision."""

    stream: str
    seq: int
    time: int
    id: str
    reward: float | None = None
    reward_time: int | None = None
    reward_seq: int | None = None
    how: str | None = None
    folded: bool | None = None


def _read_parquet(path: Path, max_bytes: int) -> Iterator[ImportedEvent]:
    """Yield the events of a Parquet file, whose rows are grouped by stream and, in a group, ordered by decision."""
    streams = _events_in_metadata(path)
    numbered = {stream: _has_numbered_arms(entries) for stream, entries in streams.items()}
    order = iter(streams)
    current: str | None = None
    waiting: list[tuple[int, int, ImportedEvent]] = []  # events of the current stream that are not decisions, by number
    for number, row in enumerate(_parquet_rows(path, max_bytes), 1):
        place = f"row {number}"
        with _at(place):
            decided, rewarded = _events_of_row(row, numbered)
        while current != row["stream"]:
            yield from (entry for _, _, entry in sorted(waiting))
            current = next(order, None)
            if current is None:
                raise JournalError(f"{place}: stream: expected the order of the streams in the metadata")
            waiting = [(entry.event.seq, index, entry) for index, entry in enumerate(streams[current])]
            heapq.heapify(waiting)
        while waiting and waiting[0][0] < decided.seq:
            yield heapq.heappop(waiting)[2]
        yield ImportedEvent(place, row["stream"], decided)
        if rewarded is not None:
            heapq.heappush(waiting, (rewarded.seq, -number, ImportedEvent(place, row["stream"], rewarded)))
    yield from (entry for _, _, entry in sorted(waiting))
    for stream in order:
        yield from sorted(streams[stream], key=lambda entry: entry.event.seq)


def _events_in_metadata(path: Path) -> dict[str, list[ImportedEvent]]:
    """Return the events that are neither decisions nor last rewards of decisions, by stream."""
    with _opened_parquet(path) as file:
        metadata = file.schema_arrow.metadata or {}
    if _OTHER_EVENTS not in metadata:
        raise JournalError(f"file: expected a file written by `halfseen export`, got '{path}', which has other columns")
    streams: dict[str, list[ImportedEvent]] = {}
    for number, line in enumerate(metadata[_OTHER_EVENTS].splitlines(), 1):
        place = f"line {number} of the metadata"
        with _at(place):
            stream, event, _ = from_line(line)
        streams.setdefault(stream, []).append(ImportedEvent(place, stream, event))
    return streams


def _has_numbered_arms(entries: Sequence[ImportedEvent]) -> bool:
    created = entries[0].event.content
    return isinstance(created, events.Created) and isinstance(created.spec.get("arms"), int)


def _events_of_row(row: dict[str, Any], numbered: dict[str, bool]) -> tuple[Event, Event | None]:
    """Return the decision of a row and its last reward."""
    if row.get("stream") not in numbered:
        raise JournalError(f"stream: expected a stream of the metadata, got {str(row.get('stream'))[:100]!r}")
    if numbered[row["stream"]]:
        row["arm"] = _arm_number("arm", row["arm"])
        row["available"] = row["available"] and [_arm_number("available", arm) for arm in row["available"]]
    try:
        cells, content = msgspec.convert(row, _ParquetRow), msgspec.convert(row, events.Decided)
        decided = Event(cells.seq, cells.time, cells.id, content)
        if cells.reward_seq is None:
            return decided, None
        reward = {"decision": cells.id, "round": content.round, "value": cells.reward, "how": cells.how}
        rewarded = msgspec.convert(reward | {"folded": cells.folded}, events.Rewarded)
    except msgspec.ValidationError as error:
        raise JournalError(explain(error)) from None
    if cells.reward_time is None:
        raise JournalError("reward_time: expected a time, got none")
    return decided, Event(cells.reward_seq, cells.reward_time, cells.id, rewarded)


def _arm_number(field: str, arm: object) -> int:
    """Return the number of an arm. In a file that also has streams with named arms, numbers are written as text."""
    if isinstance(arm, int):
        return arm
    if isinstance(arm, str) and arm.isascii() and arm.isdigit() and len(arm) < 10:
        return int(arm)
    raise JournalError(f"{field}: expected the number of an arm, got {str(arm)[:60]!r}")


@contextmanager
def _opened_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file. Errors while it is opened or read are raised as a `SaveFileError`."""
    pa, parquet = _pyarrow()
    try:
        schema = parquet.read_metadata(path).schema
        leaves = [schema.column(index) for index in range(len(schema.names))]
        # Strings stay dictionary-encoded, because a long string that is stored only once may occur in every row.
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SaveFileError(f"Cannot read '{path}': {reason[:200]}") from None


def _parquet_rows(path: Path, max_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, with times in microseconds."""
    pa, _ = _pyarrow()
    left = max_bytes
    with _opened_parquet(path) as file:
        types = {name: file.schema_arrow.field(name).type for name in file.schema_arrow.names}
        if len(types) < len(file.schema_arrow.names):
            raise JournalError("file: expected columns with different names, got a name more than once")
        for name in sorted(_COLUMNS - types.keys() - _NEW_COLUMNS):
            raise JournalError(f"file: expected a column '{name}', got none")
        _check_parquet_size(file.metadata, max_bytes)
        for batch in file.iter_batches(_IMPORTED_ROWS, columns=sorted(_COLUMNS & types.keys())):
            left -= batch.nbytes
            if left < 0:
                raise JournalError(f"file: expected at most {max_bytes} bytes after decompression, got more")
            table = pa.Table.from_batches([batch])
            for name in types.keys() & set(_TIMES):
                if not pa.types.is_timestamp(types[name]):
                    raise JournalError(f"{name}: expected a column of timestamps, got {types[name]}")
                cast = table[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
                table = table.set_column(table.schema.get_field_index(name), name, cast)
            for name in types.keys() & set(_TEXTS):
                _check_texts(name, table[name])
            step = 1 + len(batch) * _SLICE_BYTES // max(batch.nbytes, 1)  # so that an invalid row is found soon
            for start in range(0, len(batch), step):
                yield from table.slice(start, step).to_pylist()


def _check_parquet_size(metadata: Any, max_bytes: int) -> None:
    """Refuse a file that has more than `max_bytes` according to its metadata, before anything is decompressed.

    Runs of equal values take almost no space in a file, so a column counts as at least 8 bytes per value.
    """
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    chunks = [group.column(index) for group in groups for index in range(group.num_columns)]
    size = sum(max(8 * chunk.num_values, chunk.total_uncompressed_size) for chunk in chunks)
    if size > max_bytes:
        raise JournalError(f"file: expected at most {max_bytes} bytes after decompression, got {size}")


def _check_texts(name: str, column: Any) -> None:
    """Refuse long strings in a dictionary-encoded column, before they are copied into the rows."""
    pa, _ = _pyarrow()
    for chunk in column.chunks:
        values = chunk.values if pa.types.is_list(chunk.type) else chunk
        if not pa.types.is_dictionary(values.type):
            continue
        for text in values.dictionary:
            if len(text.as_py() or "") > _MAX_TEXT:
                raise JournalError(f"{name}: expected texts of at most {_MAX_TEXT} characters, got a longer one")


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Begin the messages of errors in the `with` block with `place`, which says where the event is in the file."""
    try:
        yield
    except (JournalUnavailable, StreamExists):
        raise
    except HalfseenError as error:
        raise JournalError(f"{place}: {error}") from None


def import_streams(
    journal: Journal, source: Iterable[ImportedEvent], open_stream: Callable[[str, events.Created], StreamChecks]
) -> dict[str, int]:
    """Add the streams of an export to the journal and return the number of events of each stream.

    `open_stream` is called with the name and the first event of each stream, and returns an object that checks the
    events. Either all streams are added or, if an event is invalid or a stream exists already, none. The events of a
    stream must not be mixed with those of other streams.
    """
    versions: dict[str, int] = {}
    current: _StreamImport | None = None
    with journal.transaction():
        for place, name, event in source:
            with _at(place):
                if current is None or name != current.row.name:
                    if current is not None:
                        versions[current.row.name] = current.finish()
                    if name in versions:
                        raise JournalError(f"stream: expected the events of stream '{name}' one after the other")
                    current = _StreamImport(journal, name, event, open_stream)
                current.add(event)
        if current is not None:
            versions[current.row.name] = current.finish()
    return versions


class _StreamImport:
    """A stream that is being imported, with the events that are not written yet."""

    def __init__(
        self, journal: Journal, name: str, first: Event, open_stream: Callable[[str, events.Created], StreamChecks]
    ) -> None:
        self._journal = journal
        self._events: list[Event] = []
        if not STREAM_NAME.fullmatch(name):
            raise JournalError(f"stream: expected the name of a stream, got {name[:100]!r}")
        if not isinstance(first.content, events.Created):
            raise JournalError(f"kind: expected 'created' as the first event of stream '{name}', got '{first.kind}'")
        _check_time(first.time)
        self._checks = open_stream(name, first.content)
        spec = first.content.spec
        arms = spec["arms"]
        names: list[Arm] = list(range(arms)) if isinstance(arms, int) else list(arms)
        text = msgspec.json.encode(spec | {"name": name}).decode()
        self.row = StreamRow(0, name, text, [(arm, True) for arm in names], 0, 0, 0, first.time, first.time)
        self.row.due = int(
            spec.get("reward_wait") is not None
        )  # 1 is in the past: the next transaction replaces it by the correct time
        if not journal.create_stream(self.row):
            raise StreamExists(f"Stream '{name}' exists already in this database.")

    def add(self, event: Event) -> None:
        row, content = self.row, event.content
        if event.seq != row.version + 1:
            raise JournalError(
                f"seq: expected {row.version + 1}, the next number of stream '{row.name}', got {event.seq}"
            )
        _check_time(event.time)
        if event.time < row.updated:
            raise JournalError("time: expected a time that is not before that of the previous event")
        self._checks.check(event)
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
            self._write()

    def _write(self) -> None:
        self._journal.append([self.row], [(self.row.id, event) for event in self._events])
        self._events = []

    def finish(self) -> int:
        """Write the remaining events and return the number of all events."""
        self._write()
        self._checks.finish(self._journal, self.row)
        return self.row.version


def _check_time(time: int) -> None:
    if not 0 <= time <= MAX_TIME:
        raise JournalError("time: expected a time between the years 1970 and 9999, got another one")


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
