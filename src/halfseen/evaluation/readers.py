"""Reads logs of decisions from exported journals (NDJSON or Parquet) and from tables.

This module does not use the classes of `halfseen.journal`, because they need the extra `service`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.agents.arms import Arm
from halfseen.agents.guardrails import BRANCHES
from halfseen.components import Mask
from halfseen.errors import HalfseenError, InvalidInput, invalid, missing_extra, unknown
from halfseen.evaluation.log import ROUNDING, Log, LogBuilder, check_propensity
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import at_least, is_missing
from halfseen.worlds.columns import FILE_ENDINGS as TABLE_ENDINGS
from halfseen.worlds.columns import Columns, are_dates, file_ending, read_columns
from halfseen.worlds.preparation import check_no_repeated_rows, time_order

JOURNAL_ENDINGS = (".ndjson", ".jsonl")
PARQUET_ENDINGS = (".parquet", ".pq")
LOG_ENDINGS = (*JOURNAL_ENDINGS, *TABLE_ENDINGS)
_OTHER_EVENTS = b"halfseen.events"  # key of the Parquet metadata for all events except decisions and their last rewards
_EXPORT_COLUMNS = {"stream", "seq", "id", "observation", "available", "arm", "propensity", "propensities", "reward"}
_TABLE_COLUMNS = "the columns arm, reward and the observed columns"
_IN_JOURNALS = {"observed": "observations", "time": "its events in order"}
_TIME = "time"
LIKE_TIMES = ("time", "timestamp", "ts", "when", "date", "datetime")  # column names that may be times, in lower case
# Names with a fixed meaning. Such a column is observed only if the caller names it, and is not searched for dates.
RESERVED = {
    "arm", "reward", "propensity", _TIME, "propensities", "reward_time", "available", "stream", "how", "folded",
    "branch",
}  # fmt: skip
_MOST_LISTED = 10  # a message lists at most this many names of columns
_HOW = ("given", "default", "late")  # values of the field `how` of a reward in a journal
_LISTS = {"propensities": "a list such as [0.2, 0.8]", "available": "a list of arms"}  # expected, for messages
_IGNORED = ("retired", "model_accepted", "expired")  # events without a meaning for the evaluation


Event = tuple[str, dict[str, Any]]  # the line or row of the event, for messages, and its fields


def read_log(
    log: Any,
    *,
    stream: str | None = None,
    observed: Sequence[str] | None = None,
    arms: int | Sequence[Arm] | None = None,
    time: str | None = None,
) -> Log:
    """Read a log from a file, whose format is given by the ending of its name, or from a table.

    The rows of a table are sorted by the column whose name is `time`. By default this is the column "time" or, if there
    is none, the only column of dates.
    """
    if isinstance(log, str | Path):
        path = Path(log)
        ending = file_ending(path)
        if ending not in LOG_ENDINGS:
            raise invalid("log", f"a file whose name ends in {', '.join(LOG_ENDINGS)}", f"'{path}'")
        if not path.is_file():
            raise invalid("log", "an existing file", f"'{path}'")
        if ending in JOURNAL_ENDINGS:
            for argument, given in (("observed", observed), ("time", time)):
                if given is not None:
                    raise invalid(
                        argument, f"nothing, because a journal contains {_IN_JOURNALS[argument]}", "names of columns"
                    )
            return _read_stream(str(path), _ndjson_events(path), stream, arms)
        if path.stat().st_size == 0:
            raise invalid(str(path), f"a table with {_TABLE_COLUMNS}", "an empty file")
        if observed is None and time is None and is_journal(path):
            return _read_stream(str(path), iter(_parquet_events(path)), stream, arms)
    columns = log if isinstance(log, Columns) else read_columns(log)
    return _read_table(columns, observed, stream, arms, time)


def time_column(columns: Columns, observed: Sequence[str] | None) -> str | None:
    """Return the column "time" or, if there is none, the only column of dates that is not observed."""
    if _TIME in columns.names:
        return _TIME
    dates = _dates(columns, observed)
    return dates[0] if len(dates) == 1 else None


def _dates(columns: Columns, observed: Sequence[str] | None) -> list[str]:
    taken = {*RESERVED, *(observed or ())}
    return [name for name in columns.names if name not in taken and are_dates(columns.as_given(name))]


def perhaps_times(columns: Columns) -> tuple[str, ...]:
    """Return the columns that could be the time: columns of dates, and columns with a name in LIKE_TIMES."""
    like_times = (name for name in columns.names if name.lower() in LIKE_TIMES)
    return tuple(dict.fromkeys([*_dates(columns, None), *like_times]))


def journal_columns(columns: Columns, stream: str | None) -> set[str]:
    """Return the columns with a reserved name whose cells look like those of this column in an exported journal.

    In other tables, a column such as `branch` may be part of the context.
    """

    def are_lists(cells: Any) -> bool:
        return all(isinstance(cell, list | tuple | np.ndarray) or str(cell).startswith("[") for cell in cells)

    kinds: dict[str, Callable[[Any], bool]] = {
        "propensities": are_lists,
        "available": are_lists,
        "stream": lambda cells: stream is not None or all(isinstance(cell, str) for cell in cells),
        "how": lambda cells: all(str(cell) in _HOW for cell in cells),
        "folded": lambda cells: all(isinstance(cell, bool | np.bool_) for cell in cells),
        "branch": lambda cells: all(str(cell) in BRANCHES for cell in cells),
    }
    return {
        name
        for name in RESERVED & set(columns.names)
        if name not in kinds or kinds[name]([cell for cell in columns.as_given(name) if not _is_empty(cell)])
    }


def _arm_names(arms: Any) -> list[Arm]:
    """Return the arms of a stream, which are given as a number of arms, as names or as integers."""
    if not isinstance(arms, Iterable) or isinstance(arms, str):
        return list(range(at_least("arms", arms, 1)))
    listed: list[Arm] = [int(arm) if isinstance(arm, np.integer) else arm for arm in arms]
    named = all(isinstance(arm, str) and arm for arm in listed)
    if not listed or not (named or _all_integers(listed)) or len(set(listed)) < len(listed):
        raise invalid("arms", "distinct names or distinct integers", repr(arms))
    return listed


def _all_integers(arms: Iterable[Any]) -> bool:
    return all(isinstance(arm, int) and not isinstance(arm, bool) for arm in arms)


# ---------------------------------------------------------------------- exported journals


def _ndjson_events(path: Path) -> Iterator[Event]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    where = f"{path}, line {number}"
                    yield where, _parse_event(where, line)
    except OSError as error:
        raise invalid("log", "a readable file", f"'{path}' ({error.strerror})") from None


def _parse_event(where: str, line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:  # broken JSON, broken UTF-8, NaN
        got = line.decode("utf-8", "replace").strip()
        why = " ".join(str(error).split())
        text = f"'{got[:40]}…'" if len(got) > 40 else f"'{got}'"
        raise invalid(where, "an event as JSON", f"{text} ({why})") from None
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        raise invalid(where, 'a JSON object with a field "kind"', line.decode("utf-8", "replace").strip())
    return event


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def is_journal(path: Path) -> bool:
    """Return whether a file is an exported journal."""
    if (ending := file_ending(path)) not in PARQUET_ENDINGS:
        return ending in JOURNAL_ENDINGS
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise missing_extra(error.name or "pyarrow", "experiments", "Parquet") from None
    try:
        return _OTHER_EVENTS in (parquet.read_schema(path).metadata or {})
    except (OSError, ArrowException):  # reading the file as a table will raise an error with a message
        return False


def _parquet_events(path: Path) -> list[Event]:
    """Return the events in order: decisions and last rewards from the rows, other events from the metadata."""
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise invalid("log", "a readable file", f"'{path}' ({str(error).splitlines()[0]})") from None
    if absent := sorted(_EXPORT_COLUMNS - set(table.column_names)):
        raise invalid(str(path), f"an exported journal with the column '{absent[0]}'", "none of this name")
    lines = enumerate(table.schema.metadata[_OTHER_EVENTS].splitlines(), 1)
    events = [(where := f"{path}, event {number}", _parse_event(where, line)) for number, line in lines]
    numbered = {
        str(event.get("stream")): isinstance((event.get("spec") or {}).get("arms"), int)
        for _, event in events
        if event["kind"] == "created"
    }
    for number, row in enumerate(table.to_pylist(), 1):
        events += ((f"{path}, row {number}", event) for event in _row_events(row, numbered.get(row["stream"], False)))
    order = {name: at for at, name in enumerate(dict.fromkeys(str(event["stream"]) for _, event in events))}
    return sorted(events, key=lambda one: (order[str(one[1]["stream"])], one[1]["seq"]))


def _row_events(row: dict[str, Any], numbered: bool) -> Iterator[dict[str, Any]]:
    """Yield the decision of a row and, if there is one, its last reward."""
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


def _read_stream(source: str, events: Iterable[Event], stream: str | None, arms: Any) -> Log:
    """Return the log of one stream. `stream` is required if there are several streams.

    `arms`, the number or the names of the arms, is required if the events begin after the stream was created.
    """
    streams: dict[str, None] = {}
    reader: _StreamReader | None = None
    for where, event in events:
        name = str(event.get("stream"))
        streams[name] = None
        if reader is None and stream in (None, name):
            reader = _StreamReader(source, name, arms)
        if reader is not None and reader.stream == name:
            reader.read(where, event)
    if not streams:
        raise invalid(source, "a journal with one event per line", "an empty file")
    if stream is None and len(streams) > 1:
        raise invalid("stream", f"one of the streams {', '.join(streams)}", "nothing")
    if reader is None:
        raise unknown("stream", stream, streams)
    return reader.finish()


class _StreamReader:
    """Reads the events of one stream in order."""

    def __init__(self, source: str, stream: str, arms: Any) -> None:
        self.source, self.stream = source, stream
        self._builder = None if arms is None else LogBuilder(source, _arm_names(arms))
        self._rows: dict[str, int] = {}  # rows of the log by the id of the decision
        self._last_seq = -1
        self._shares: tuple[Any, Any] = (0.0, None)  # holdback and control of the guardrails

    def read(self, where: str, event: dict[str, Any]) -> None:
        seq = event.get("seq")
        if isinstance(seq, int):
            if seq <= self._last_seq:
                raise invalid(where, f"an event with seq above {self._last_seq}", str(seq))
            self._last_seq = seq
        kind = event["kind"]
        if kind == "created":
            self._create(where, event.get("spec"))
        elif kind in _IGNORED:
            pass
        elif kind not in ("decided", "observed", "rewarded", "arm_added", "arm_retired", "guardrails_set"):
            known = (
                "created, decided, rewarded, observed, expired, arm_added, arm_retired, guardrails_set, "
                "model_accepted, retired"
            )
            raise invalid(where, f"an event of one of the kinds {known}", f"'{kind}'")
        elif self._builder is None:
            raise InvalidInput(
                f"{where}: expected an export that begins with 'created', or the arms (arms=, --arms), got "
                f"'{kind}' first"
            )
        elif kind == "decided":
            self._decide(where, event, self._builder)
        elif kind == "observed":
            self._builder.observed_only(where, event.get("observation"), event.get("elapsed"))
        elif kind == "rewarded":
            self._reward(where, event, self._builder)
        elif kind == "arm_added":
            self._builder.arm_added(where, event.get("arm"))
        elif kind == "guardrails_set":
            self._set_guardrails(event, self._builder)
        else:
            self._builder.arm_retired(where, event.get("arm"))

    def finish(self) -> Log:
        if self._builder is None:
            raise invalid(self.source, "a log with decisions and rewards", "no decisions")
        return self._builder.finish()

    def _create(self, where: str, spec: Any) -> None:
        if self._builder is not None and self._rows:
            raise invalid(where, f"one event 'created' of stream '{self.stream}'", "another one")
        if not isinstance(spec, dict):
            raise invalid(where, "the spec of a stream", repr(spec))
        if isinstance(guardrails := spec.get("guardrails"), dict):
            self._shares = guardrails.get("holdback") or 0.0, guardrails.get("control")
        observed = spec.get("observed")
        try:
            count = len(observed) if isinstance(observed, list) else at_least("observed", observed, 1)
            self._builder = LogBuilder(self.source, _arm_names(spec.get("arms")), count)
        except HalfseenError as error:
            raise InvalidInput(f"{where}: {error}") from None

    def _set_guardrails(self, guardrails: dict[str, Any], builder: LogBuilder) -> None:
        shares = guardrails.get("holdback") or 0.0, guardrails.get("control")
        if shares != self._shares:
            builder.shares_changed()
        self._shares = shares

    def _decide(self, where: str, event: dict[str, Any], builder: LogBuilder) -> None:
        for field in ("id", "observation", "arm", "propensity"):
            if event.get(field) is None:
                raise invalid(where, f"a decision with the field '{field}'", "none")
        decision = str(event["id"])
        if decision in self._rows:
            raise invalid(where, "a decision with a new id", f"'{decision}' again")
        self._rows[decision] = builder.decided(
            where,
            observation=event["observation"],
            arm=event["arm"],
            propensity=event["propensity"],
            propensities=event.get("propensities"),
            available=event.get("available"),
            branch=event.get("branch"),
            elapsed=event.get("elapsed"),
            estimated=event.get("estimated"),
        )

    def _reward(self, where: str, event: dict[str, Any], builder: LogBuilder) -> None:
        decision = str(event.get("decision"))
        if decision not in self._rows:
            raise invalid(where, "the id of an earlier decision", f"'{decision}'")
        builder.rewarded(
            where,
            self._rows[decision],
            event.get("value"),
            default=event.get("how") == "default",
            learnt=event.get("folded") is not False,
        )


# ---------------------------------------------------------------------- tables


def _read_table(
    columns: Columns, observed: Sequence[str] | None, stream: str | None, arms: Any, time: str | None
) -> Log:
    """Read a log from a table with one row per decision.

    These columns are required: `arm`, `reward` (empty if there is no reward) and the columns named in `observed` (by
    default all whose names begin with "observation"). These are optional: `propensity` (in all rows or in none),
    `propensities` (one list per row in the order of the arms, as JSON text in a CSV file), `available` (one list of
    available arms per row), `stream`, `how` ("given", "late" or "default"), `folded` (false if a reward arrived too
    late to be learnt), `branch` (what made the decision, if there were guardrails), `time` and `reward_time`.

    Rows are sorted by time, and the steps between them are inferred. The time is by default the column `time` or the
    only column of dates. Without times, the order of the rows is taken as the order in time, and every reward as
    arriving directly after its decision.
    """
    source = columns.source
    for name in ("arm", "reward"):
        if name not in columns.names:
            raise InvalidInput(f"{source}: expected {_TABLE_COLUMNS}, got no column '{name}'")
    if len(columns.as_given("arm")) == 0:
        raise InvalidInput(f"{source}: expected at least one decision, but the table has no rows")
    observed_columns = _observed_columns(columns, observed)
    optional = _without(columns, observed_columns)  # a column that is observed has no other meaning
    rows = _rows_of_stream(optional, stream)
    observations, features, notes = _observations(columns, observed_columns)
    order = None
    if time is None and (time := time_column(columns, observed_columns)) not in (None, _TIME):
        notes.append(f"'{time}' is the only column of dates and is taken as the time of the rows")
    if time is not None:
        order = time_order(columns, time, rows)
        check_no_repeated_rows(columns, time, order)
        rows = order.rows
        notes += order.notes
    times = None if order is None else order.seconds
    steps = None if order is None else order.steps
    observations = observations[rows]
    played = [_arm(cell) for cell in _cells(columns, "arm", rows) or []]
    rewards = columns["reward"][rows].tolist()
    propensity = _propensities_of_played(columns, rows)
    propensities, available = _lists(optional, "propensities", rows), _lists(optional, "available", rows)
    where = [f"{source}, row {row + 1}" for row in rows]
    for at, value in enumerate(propensity or ()):  # checked first, because they may determine the order of the arms
        if math.isnan(value):
            raise invalid(f"{where[at]}, propensity", "a probability above 0", "an empty cell")
        check_propensity(where[at], value)
    ordered = _arms_in_order(where, source, played, propensity, propensities, arms)
    builder = LogBuilder(source, ordered, observations.shape[1])
    how, folded, marks = (_cells(optional, name, rows) for name in ("how", "folded", "branch"))
    arrivals = _rewarded_after(optional, rows, times)
    rewarded_rows: dict[int, list[int]] = {}  # rows, by the last decision before their reward
    for at, reward in enumerate(rewards):
        if not math.isnan(reward):
            rewarded_rows.setdefault(int(arrivals[at]), []).append(at)
    for at in range(len(rows)):
        builder.decided(
            where[at],
            observation=observations[at].tolist(),
            arm=played[at],
            propensity=propensity and propensity[at],
            propensities=propensities and propensities[at],
            available=available and available[at] and [_arm(arm) for arm in available[at]],
            branch=None if marks is None or _is_empty(marks[at]) else marks[at],
        )
        for row in rewarded_rows.get(at, ()):
            is_default = how is not None and how[row] == "default"
            learnt = folded is None or folded[row] is not False
            builder.rewarded(where[row], row, rewards[row], default=is_default, learnt=learnt)
    notes += _same_times(times, rows)
    return replace(
        builder.finish(),
        notes=tuple(notes),
        times=times,
        perhaps_times=perhaps_times(columns) if times is None else (),
        features=tuple(features),
        rows=rows,
        dates_in_index=columns.dates_in_index,
        elapsed=steps.elapsed if steps is not None and steps.has_gaps else None,
        time_steps=steps,
    )


def _same_times(times: Floats | None, rows: Ints) -> list[str]:
    """Return one sentence if decisions have the same time."""
    same = np.zeros(0, dtype=np.bool_) if times is None else np.diff(times) == 0
    if not same.any():
        return []
    number, row = int(same.sum()), int(rows[np.argmax(same) + 1]) + 1
    have, them = ("has", "it") if number == 1 else ("have", "them")
    return [
        f"{number} of {len(rows):,} rows {have} the same time as the row before {them} (first in row {row}), so their "
        "order is unknown, and they may be the same decision twice"
    ]


def _without(columns: Columns, names: Sequence[str]) -> Columns:
    left = [name for name in columns.names if name not in names]
    return Columns({name: columns.as_given(name) for name in left}, columns.source)


def _rows_of_stream(columns: Columns, stream: str | None) -> Ints:
    if "stream" not in columns.names:
        if stream is not None:
            raise invalid("stream", "nothing, because the table has no column 'stream'", f"'{stream}'")
        return np.arange(len(columns.as_given("arm")))
    names = [str(name) for name in columns.as_given("stream")]
    found = list(dict.fromkeys(names))
    if stream is None and len(found) > 1:
        shown = ", ".join(found[:12]) + ", …" * (len(found) > 12)
        expected = f"one of the streams {shown}, or 'stream' among the observed columns if it is part of the context"
        raise invalid("stream", expected, "nothing")
    if stream is not None and stream not in found:
        raise unknown("stream", stream, found)
    return np.flatnonzero(np.array([stream in (None, name) for name in names], dtype=np.bool_))


def _observed_columns(columns: Columns, observed: Sequence[str] | None) -> list[str]:
    names = [name for name in columns.names if name.startswith("observation")] if observed is None else list(observed)
    if not names:
        others = [name for name in columns.names if name not in RESERVED]
        listed = ", ".join(others[:_MOST_LISTED]) + ", …" * (len(others) > _MOST_LISTED)
        raise InvalidInput(
            f"{columns.source}: expected the names of the observed columns (--observed a,b on the command line, "
            "observed=['a', 'b'] in Python), because no name begins with 'observation'. "
            f"The columns that may be observed are: {listed or 'none'}"
        )
    return names


def _observations(columns: Columns, names: list[str]) -> tuple[Floats, list[str], list[str]]:
    """Return the observations (n, k), the names of the features, and remarks about columns that were encoded.

    A single column may contain lists of k numbers.
    """
    cells = columns.as_given(names[0])
    if len(names) == 1 and len(cells) > 0 and isinstance(cells[0], list | tuple | np.ndarray):
        if len({len(cell) for cell in cells}) > 1:
            raise invalid(f"{columns.source}, column '{names[0]}'", "lists of equal length", "different lengths")
        listed = np.array([list(cell) for cell in cells], dtype=np.float64)
        return listed, [f"{names[0]}[{entry}]" for entry in range(listed.shape[1])], []
    features, notes = columns.features(names)
    return np.column_stack(list(features.values())), list(features), notes


def _propensities_of_played(columns: Columns, rows: Ints) -> list[float] | None:
    """Return the propensities of the arms played, or None if the column is missing or empty."""
    found = columns["propensity"][rows] if "propensity" in columns.names else np.full(len(rows), np.nan)
    if not np.isnan(found).all():
        return list(found.tolist())
    if "propensities" in columns.names:
        raise invalid(columns.source, "a column 'propensity' beside the column 'propensities'", "none, or an empty one")
    return None


def _lists(columns: Columns, name: str, rows: Ints) -> list[Any] | None:
    """Return a column of lists, with None for empty cells. Lists may be given as JSON text."""
    cells = _cells(columns, name, rows)
    if cells is None:
        return None
    found = []
    for row, cell in zip(rows, cells, strict=True):
        if isinstance(cell, str):
            try:
                cell = json.loads(cell) if cell else None
            except ValueError:
                where = f"{columns.source}, column '{name}', row {row + 1}"
                raise invalid(where, _LISTS[name], f"'{cell}'") from None
        cell = cell.tolist() if isinstance(cell, np.ndarray) else list(cell) if isinstance(cell, tuple) else cell
        if not isinstance(cell, list) and not _is_empty(cell):
            where = f"{columns.source}, column '{name}', row {row + 1}"
            raise invalid(where, _LISTS[name], repr(cell))
        found.append(cell if isinstance(cell, list) else None)
    return found


def _arms_in_order(
    where: Sequence[str],
    source: str,
    played: Sequence[Any],
    propensity: Sequence[float] | None,
    propensities: Sequence[Any] | None,
    arms: Any,
) -> list[Arm]:
    """Return the arms in order: the given `arms`, the numbers from 0 on, or names.

    Names are in alphabetical order unless there are both `propensity` and lists of propensities. Then the lists
    determine the order: the index of an arm is the only position at which the list has the value of `propensity` in
    every row in which the arm was played.
    """
    if arms is not None:
        given = _arm_names(arms)
        written_as_text = all(isinstance(arm, str) and arm.isdecimal() for arm in given)  # as on the command line
        return [int(arm) for arm in given] if written_as_text and _all_integers(played) else given
    longest = max((len(one) for one in propensities or () if isinstance(one, list)), default=0)
    names = list(dict.fromkeys(played))
    if _all_integers(names):
        return list(range(max([*names, longest - 1], default=0) + 1))
    if not all(isinstance(arm, str) for arm in names):
        odd = next((at for at, arm in enumerate(played) if not isinstance(arm, str) and not _all_integers([arm])), None)
        if odd is not None:
            raise invalid(f"{where[odd]}, arm", "a name or a whole number", str(played[odd]))
        odd = next(at for at, arm in enumerate(played) if not isinstance(arm, str))
        raise invalid(where[odd], "names of arms in all rows or numbers in all rows", repr(played[odd]))
    if propensity is None or propensities is None:
        return sorted(names)
    fits: dict[str, Mask] = {name: np.ones(longest, dtype=np.bool_) for name in names}
    for name, value, given in zip(played, propensity, propensities, strict=True):
        if isinstance(given, list):
            row = np.full(longest, np.nan)
            row[: len(given)] = given
            fits[name] &= np.abs(row - value) <= ROUNDING
    order: list[Arm] = [""] * longest
    for name, mask in fits.items():
        if mask.sum() != 1 or order[int(np.argmax(mask))]:
            raise InvalidInput(
                f"{source}: expected the names of the arms in the order of the propensities (arms=, --arms), because "
                f"the index of '{name}' in the {longest} propensities is not unique"
            )
        order[int(np.argmax(mask))] = name
    return [name or f"arm {index}, never played" for index, name in enumerate(order)]


def _rewarded_after(columns: Columns, rows: Ints, times: Floats | None) -> Ints:
    """Return the index of the last decision before each reward. A decision at the same time counts as earlier."""
    immediately = np.arange(len(rows))
    if times is None or "reward_time" not in columns.names:
        return immediately
    rewarded = columns.times("reward_time", rows)
    after = np.searchsorted(times, np.where(np.isnan(rewarded), times, rewarded), side="right") - 1
    return np.maximum(after, immediately)


def _cells(columns: Columns, name: str, rows: Ints) -> list[Any] | None:
    """Return the cells of a column, or None if there is no such column."""
    if name not in columns.names:
        return None
    given = columns.as_given(name)
    return [_plain(given[row]) for row in rows]


def _is_empty(cell: Any) -> bool:
    return not isinstance(cell, np.ndarray) and (is_missing(cell) or cell == "" or cell != cell)


def _arm(cell: Any) -> Any:
    """Return the name or the number of an arm. Spaces around a name are removed."""
    return cell.strip() if isinstance(cell, str) else _plain(cell)


def _plain(cell: Any) -> Any:
    """Convert NumPy numbers to Python numbers, and whole floats to integers.

    If a cell of a column is empty, a table contains the integers of this column as floats.
    """
    if isinstance(cell, np.generic):
        cell = cell.item()
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
