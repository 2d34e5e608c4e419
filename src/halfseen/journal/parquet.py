"""Streams as Parquet: a row a decision, with its last reward. All other events are in the file's metadata, as NDJSON.

So the file can be read by anything that reads tables, and brought back without loss.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from halfseen.errors import SaveFileError, missing_extra
from halfseen.journal import events
from halfseen.journal.events import Event, JournalError, as_line, from_line
from halfseen.journal.journal import Journal, StreamRow
from halfseen.reports.files import write_atomically

_OTHERS = b"halfseen.events"
_ROWS = 20_000  # in memory at a time


def write_parquet(journal: Journal, rows: Sequence[StreamRow], path: Path) -> None:
    """Columns: stream, seq, id, round, time, observation, available, arm, propensity, propensities, expected, key, and
    of the last reward that came reward, reward_time, reward_seq, how and folded; clock, if it was behind the time.
    """
    _pyarrow()  # or it is missing, before anything is touched
    write_atomically(path, lambda file: _fill(journal, rows, file))


def _fill(journal: Journal, rows: Sequence[StreamRow], file: IO[bytes]) -> None:
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
    rewards: dict[int, dict[str, Event]] = {}
    others: list[bytes] = []
    for row in rows:
        last = rewards[row.id] = {}
        for event in journal.all_events(row.id):
            if event.seq > row.version:  # it came while we were reading, as its decision may have
                break
            if isinstance(event.content, events.Rewarded):
                if event.content.decision in last:  # a default that a late reward came after
                    others.append(as_line(row.name, last[event.content.decision]))
                last[event.content.decision] = event
            elif not isinstance(event.content, events.Decided):
                others.append(as_line(row.name, event))
    schema = pa.schema(types, metadata={_OTHERS: b"\n".join(others)})
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        held: list[dict[str, Any]] = []
        for row in rows:
            for event in journal.all_events(row.id):
                if event.seq > row.version:
                    break
                if isinstance(event.content, events.Decided):
                    held.append(_cells(row.name, event, event.content, rewards[row.id], numbered))
                if len(held) >= _ROWS:
                    writer.write_table(pa.Table.from_pylist(held, schema=schema))
                    held = []
        writer.write_table(pa.Table.from_pylist(held, schema=schema))


def _cells(
    stream: str, event: Event, made: events.Decided, rewards: dict[str, Event], numbered: bool
) -> dict[str, Any]:
    named = (lambda arm: arm) if numbered else str
    cells = {
        "stream": stream, "seq": event.seq, "id": event.id, "round": made.round, "time": event.time,
        "observation": made.observation, "available": made.available and [named(arm) for arm in made.available],
        "arm": named(made.arm), "propensity": made.propensity, "propensities": made.propensities,
        "expected": made.expected, "key": made.key, "clock": made.clock,
    }  # fmt: skip
    came = rewards.get(event.id or "")
    if came is not None and isinstance(came.content, events.Rewarded):
        reward = came.content
        cells |= {"reward": reward.value, "reward_time": came.time, "reward_seq": came.seq, "how": reward.how}
        cells["folded"] = reward.folded
    return cells


def read_parquet(path: Path) -> Iterator[tuple[str, Event]]:
    """The events of such a file, stream by stream and in order."""
    pa, parquet = _pyarrow()
    try:
        table = parquet.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SaveFileError(f"file: got '{path}'; cannot read it: {str(error).splitlines()[0]}") from None
    metadata = table.schema.metadata or {}
    if _OTHERS not in metadata:
        raise JournalError(f"file: got '{path}', a table of something else; want what `halfseen export` writes")
    others: dict[str, list[Event]] = {}
    numbered: dict[str, bool] = {}
    for line in metadata[_OTHERS].splitlines():
        stream, event = from_line(line)
        others.setdefault(stream, []).append(event)
        if isinstance(event.content, events.Created):
            numbered[stream] = isinstance(event.content.spec.get("arms"), int)
    for column in {"time", "reward_time", "clock"}.intersection(table.column_names):
        place = table.schema.get_field_index(column)
        table = table.set_column(place, column, table[column].cast(pa.int64()))
    decided: dict[str, list[Event]] = {}
    rewarded: dict[str, list[Event]] = {}
    for batch in table.to_batches(_ROWS):
        for row in batch.to_pylist():
            arm_of = int if numbered.get(row["stream"]) else str
            decided.setdefault(row["stream"], []).append(_decision(row, arm_of))
            if row["reward_seq"] is not None:
                content = events.Rewarded(row["id"], row["round"], row["reward"], row["how"], row["folded"])
                rewarded.setdefault(row["stream"], []).append(
                    Event(row["reward_seq"], row["reward_time"], row["id"], content)
                )
    for stream, record in others.items():
        parts = [decided.get(stream, []), rewarded.get(stream, []), record]
        ordered = [sorted(part, key=lambda event: event.seq) for part in parts]
        for event in heapq.merge(*ordered, key=lambda event: event.seq):
            yield stream, event


def _decision(row: dict[str, Any], arm_of: type) -> Event:
    content = events.Decided(
        round=row["round"],
        observation=row["observation"],
        arm=arm_of(row["arm"]),
        propensity=row["propensity"],
        propensities=row["propensities"],
        expected=row["expected"],
        available=None if row["available"] is None else [arm_of(arm) for arm in row["available"]],
        key=row["key"],
        clock=row.get("clock"),
    )
    return Event(row["seq"], row["time"], row["id"], content)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra(error.name or "pyarrow", "experiments", "Parquet") from None
    return pyarrow, pyarrow.parquet
