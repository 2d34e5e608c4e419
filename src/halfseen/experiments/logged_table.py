"""Reads a table of logged decisions, and infers which columns are observed and which column is the time."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from halfseen.agents.arms import Arm
from halfseen.errors import HalfseenError, InvalidInput, invalid
from halfseen.evaluation.log import Log
from halfseen.evaluation.readers import journal_columns, perhaps_times, read_log, time_column
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import is_missing
from halfseen.worlds.columns import Columns, are_texts, read_columns
from halfseen.worlds.preparation import infer_steps

ROLES = ("arm", "reward", "propensity", "time")
_MOST_GAPS = 2  # integers from 0 on are taken as indices of arms if the largest is at most _MOST_GAPS times their count
_LEAST_ROWS = 20  # shorter columns are never taken for row numbers or keys
_KEYS = ("id", "key")  # names, in lower case, of columns that may only identify the row


class LoggedTable(NamedTuple):
    """A table of logged decisions."""

    log: Log
    time: str | None  # the column by which the rows were sorted
    left_out: dict[str, str]  # the columns that are not observed, each with the reason
    next_observation: Floats | None  # the last row if it has no arm, because its decision is still to be made
    next_elapsed: int = 1  # steps between the last decision and the next one


def read_table(
    table: Any,
    *,
    observed: Sequence[str] | None,
    roles: dict[str, str],
    arms: int | Sequence[Arm] | None,
    stream: str | None,
) -> LoggedTable:
    """Read a table. `roles` maps "arm", "reward", "propensity" and "time" to names of columns, if they were given.

    By default, every column without another meaning is observed. If there is no column "time" but exactly one column of
    dates, that column is the time.
    """
    columns = _renamed(read_columns(table), roles)
    for name in ("arm", "reward"):
        if name not in columns.names:
            raise InvalidInput(
                f"{columns.source}: expected a column '{name}', or its name ({name}=, --{name}), got the columns "
                f"{', '.join(columns.names[:12])}{', …' * (len(columns.names) > 12)}"
            )
    if len(columns.as_given("arm")) == 0:
        raise InvalidInput(f"{columns.source}: expected at least one decision, but the table has no rows")
    time, seconds = _time(columns, observed, roles.get("time"))
    reserved = journal_columns(columns, stream) - (set(observed or ()) - set(ROLES))
    rows = np.arange(len(columns.as_given("arm")))
    decided = np.array([not _is_empty(cell) for cell in columns.as_given("arm")], dtype=np.bool_)
    if any(len(columns.as_given(name)) != len(rows) for name in columns.names):
        raise invalid(columns.source, "columns of the same length", "columns of different lengths")
    order = rows if seconds is None else np.argsort(seconds, kind="stable")
    features, notes, left_out = _features(columns, observed, reserved | {time}, order)
    next_row = _next_row(columns.source, order, decided)
    kept = rows[decided]
    others = {name: np.asarray(columns.as_given(name), dtype=object) for name in reserved}
    cells: dict[str, Any] = {name: values[kept] for name, values in others.items()}
    if time is not None:
        cells[time] = np.asarray(columns.as_given(time))[kept]
    prefix = f"{time} observation"  # with the name of the times, so that no name of an observation equals it
    observations = {f"{prefix} {number}": values[kept] for number, values in enumerate(features.values())}
    unread: dict[str, Any] = {}
    # `read_log` refuses equal rows of the same time. Rows that differ only in columns that it does not read would seem
    # to be equal, so these columns are added.
    if seconds is not None and len(np.unique(seconds)) < len(seconds):
        names = [name for name in columns.names if name not in reserved]
        unread = {f"unread {name}": [columns.as_given(name)[row] for row in kept] for name in names}
    log = read_log(
        Columns({**observations, **unread, **cells}, columns.source),
        observed=list(observations),
        arms=_numbered(cells) if arms is None else arms,
        stream=stream,
        time=time,
    )
    assert log.rows is not None
    log = replace(
        log,
        notes=(*notes, *log.notes),
        features=tuple(features),
        perhaps_times=perhaps_times(columns) if time is None else (),
        dates_in_index=columns.dates_in_index,
        rows=kept[log.rows],
    )
    if next_row is None:
        return LoggedTable(log, time, left_out, None)
    steps = None if seconds is None else infer_steps(seconds[order], str(time), dates=False)[0]
    observation = np.array([values[next_row] for values in features.values()])
    return LoggedTable(log, time, left_out, observation, 1 if steps is None else int(steps.elapsed[-1]))


def _numbered(cells: dict[str, Any]) -> list[Arm] | None:
    """Return the arms if they are integers such as article numbers.

    Return None for indices such as 0, 1, 2, and for all other arms.
    """
    if "propensities" in cells:
        return None
    found = {cell for cell in cells["arm"].tolist() if isinstance(cell, int | float) and float(cell).is_integer()}
    if len(found) < len(set(cells["arm"].tolist())) or (min(found) == 0 and max(found) <= _MOST_GAPS * len(found)):
        return None
    return [int(arm) for arm in sorted(found)]


def _renamed(columns: Columns, roles: dict[str, str]) -> Columns:
    """Rename the columns that were given for roles. For other roles, the column with the name of the role is kept.

    If a column was given for the time, it keeps its name, and another column with the name "time" is left out.
    """
    for given in roles.values():
        columns.as_given(given)  # raises if there is no such column
    names = {given: given if role == "time" else role for role, given in roles.items()}
    taken = set(roles)
    return Columns(
        {names.get(name, name): columns.as_given(name) for name in columns.names if name in names or name not in taken},
        columns.source,
        dates_in_index=columns.dates_in_index,
    )


def _time(columns: Columns, observed: Sequence[str] | None, given: str | None) -> tuple[str | None, Floats | None]:
    """Return the name of the time column (see `read_table`) and its times in seconds."""
    time = time_column(columns, observed) if given is None else given
    if time is None:
        return None, None
    seconds = columns.times(time)
    missing = np.flatnonzero(np.isnan(seconds))
    if len(missing):
        raise invalid(f"{columns.source}, column '{time}', row {missing[0] + 1}", "a time", "an empty cell")
    return time, seconds


def _features(
    columns: Columns, observed: Sequence[str] | None, taken: Container[str | None], order: Ints
) -> tuple[dict[str, Floats], list[str], dict[str, str]]:
    """Return the observed features, remarks about encoded columns, and the columns that cannot be observed.

    Columns in `taken` have another meaning. `order` (n,) has the numbers of the rows in order of time.
    """
    left_out: dict[str, str] = {}
    if observed is not None:
        features, notes = columns.features(observed)
        return _checked(columns, _without_empty(features, left_out)), notes, left_out
    begin = [name for name in columns.names if name.startswith("observation")]
    names: Iterable[str] = begin or [name for name in columns.names if name not in taken]
    features, notes = {}, []
    for name in names:
        try:
            found, remarks = columns.features([name])
            if _is_row_number(found, order):
                left_out[name] = "its values are row numbers"
                continue
            if name.lower() in _KEYS and _all_differ(columns.as_given(name)):
                left_out[name] = "it has another value in every row; if it is part of the context, give it another name"
                continue
        except HalfseenError as error:
            if not are_texts(columns.as_given(name)):
                raise
            left_out[name] = str(error).partition(": ")[2]
            continue
        features |= found
        notes += remarks
    return _checked(columns, _without_empty(features, left_out)), notes, left_out


def _without_empty(features: dict[str, Floats], left_out: dict[str, str]) -> dict[str, Floats]:
    """Return the features that have a value in some row, and note the others in `left_out`."""
    empty = [name for name, values in features.items() if np.isnan(values).all()]
    left_out |= dict.fromkeys(empty, "it is empty")
    return {name: values for name, values in features.items() if name not in left_out}


def _checked(columns: Columns, features: dict[str, Floats]) -> dict[str, Floats]:
    if not features:
        raise InvalidInput(f"{columns.source}: expected at least one observed column beside arm and reward, got none")
    return features


def _next_row(source: str, order: Ints, decided: np.ndarray[Any, Any]) -> int | None:
    """Return the number of the last row if it has no arm. All other rows must have an arm."""
    if not decided.any():
        raise invalid(source, "rows with an arm", "empty cells only")
    without = order[~decided[order]]
    if len(without) == 0:
        return None
    if len(without) > 1 or without[0] != order[-1]:
        row = int(min(without[:-1], default=without[0])) if len(without) > 1 else int(without[0])
        raise invalid(f"{source}, row {row + 1}", "an arm, which only the last row may lack", "an empty cell")
    return int(without[0])


def _is_row_number(found: dict[str, Floats], order: Ints) -> bool:
    """Return whether a column of at least _LEAST_ROWS numbers changes by the same nonzero step from row to row."""
    (values, *others) = found.values()
    if others or len(values) < _LEAST_ROWS:
        return False
    steps = np.diff(values[order])
    return bool((steps == steps[0]).all() and steps[0] != 0)


def _all_differ(cells: Any) -> bool:
    return len({str(cell) for cell in cells}) == len(cells) >= _LEAST_ROWS


def _is_empty(cell: Any) -> bool:
    return is_missing(cell) or (isinstance(cell, str) and not cell.strip()) or cell != cell
