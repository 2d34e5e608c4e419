"""A log out of an exported Parquet file: its rows are decisions with their last reward, its metadata all other events.

Taken together they are the events of the journal, and are read as those are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from halfseen.errors import invalid, missing_extra
from halfseen.evaluation.journal_file import event_of, read_events
from halfseen.evaluation.log import Log

FILE_ENDINGS = (".parquet", ".pq")
_OTHERS = b"halfseen.events"


def is_export(path: Path) -> bool:
    """Whether a Parquet file is an exported journal, and not just a table."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise missing_extra(error.name or "pyarrow", "experiments", "Parquet") from None
    try:
        return _OTHERS in (parquet.read_schema(path).metadata or {})
    except (OSError, ArrowException):  # whoever reads the table says what is wrong with it
        return False


def read_export(path: Path, *, stream: str | None = None, arms: Any = None) -> Log:
    """The log of one stream, the same as from an export of the same events as NDJSON."""
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise invalid("log", f"'{path}'", f"a file that can be read ({str(error).splitlines()[0]})") from None
    wanted = {"stream", "seq", "id", "observation", "available", "arm", "propensity", "propensities", "reward"}
    if absent := sorted(wanted - set(table.column_names)):
        raise invalid(str(path), f"no column '{absent[0]}'", "an exported journal as it was written")
    lines = enumerate(table.schema.metadata[_OTHERS].splitlines(), 1)
    found = [(where := f"{path}, event {number}", event_of(where, line)) for number, line in lines]
    numbered = {
        str(event.get("stream")): isinstance((event.get("spec") or {}).get("arms"), int)
        for _, event in found
        if event["kind"] == "created"
    }
    for number, row in enumerate(table.to_pylist(), 1):
        found += ((f"{path}, row {number}", event) for event in _events(row, numbered.get(row["stream"], False)))
    places = {name: place for place, name in enumerate(dict.fromkeys(str(event["stream"]) for _, event in found))}
    found.sort(key=lambda one: (places[str(one[1]["stream"])], one[1]["seq"]))
    return read_events(str(path), iter(found), stream=stream, arms=arms)


def _events(row: dict[str, Any], numbered: bool) -> Iterator[dict[str, Any]]:
    """The decision of a row and, if it had one, its last reward."""
    named = int if numbered else str
    available = None if row["available"] is None else [named(arm) for arm in row["available"]]
    yield row | {"kind": "decided", "arm": named(row["arm"]), "available": available}
    if row["reward"] is not None:
        yield {
            "stream": row["stream"],
            "seq": row["reward_seq"],
            "kind": "rewarded",
            "decision": row["id"],
            "value": row["reward"],
            "how": row["how"],
            "folded": row["folded"],
        }
