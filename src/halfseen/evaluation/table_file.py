"""A log out of a table, a decision a row: an exported Parquet file, or columns from anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from halfseen.agents.arms import Arm
from halfseen.components import Mask
from halfseen.errors import InvalidInput, invalid, unknown
from halfseen.evaluation.journal_file import arm_names
from halfseen.evaluation.log import ROUNDING, Log, LogBuilder, played_with
from halfseen.kernels.random import Floats, Ints
from halfseen.worlds.columns import Columns, read_columns

WANTED = "columns arm, propensity, reward and those observed"


def read_table(
    table: Any, *, observed: Sequence[str] | None = None, stream: str | None = None, arms: Any = None
) -> Log:
    """Columns `arm`, `propensity`, `reward` (empty: none came) and what was seen: those `observed`, else all whose
    names begin with "observation". If they are there: `propensities`, a list a row (JSON text in a CSV file) in the
    order of the arms; `available`, a list a row of the arms there were to choose from; `stream`; `how`; `folded`, false
    where a reward came too late to be learnt; `time` and `reward_time`, without which rewards came at once.
    """
    columns = read_columns(table)
    source = columns.source
    for name in ("arm", "propensity", "reward"):
        if name not in columns.names:
            raise InvalidInput(f"{source}: got no column '{name}'; want {WANTED}")
    rows = _rows_of(columns, stream)
    seen = _observations(columns, observed)[rows]
    played = [_plain(arm) for arm in _cells(columns, "arm", rows)]
    chances, paid = columns["propensity"][rows], columns["reward"][rows]
    lists, offered = _lists(columns, "propensities", rows), _lists(columns, "available", rows)
    where = [f"{source}, row {row + 1}" for row in rows]
    for at, chance in enumerate(chances):  # first of all, as they may have to tell the arms' order
        played_with(where[at], None if math.isnan(chance) else float(chance))
    builder = LogBuilder(source, _arms(source, played, chances, lists, arms), seen.shape[1])
    defaults = [how == "default" for how in _cells(columns, "how", rows)] if "how" in columns.names else None
    learnt = (
        [folded is not False for folded in map(_plain, _cells(columns, "folded", rows))]
        if "folded" in columns.names
        else None
    )
    due = _due(columns, rows)
    arriving: dict[int, list[int]] = {}
    for at, reward in enumerate(paid):
        if not math.isnan(reward):
            arriving.setdefault(int(due[at]), []).append(at)
    for at in range(len(rows)):
        given = None if lists is None else lists[at]
        y, chance = seen[at].tolist(), float(chances[at])
        there = None if offered is None or offered[at] is None else [_plain(arm) for arm in offered[at]]
        builder.decided(
            where[at], observation=y, arm=played[at], propensity=chance, propensities=given, available=there
        )
        for row in arriving.get(at, ()):
            is_default = defaults is not None and defaults[row]
            was_learnt = learnt is None or learnt[row]
            builder.rewarded(where[row], row, float(paid[row]), default=is_default, learnt=was_learnt)
    return builder.finish()


def _rows_of(columns: Columns, stream: str | None) -> Ints:
    count = len(columns.as_given("arm"))
    if "stream" not in columns.names:
        if stream is not None:
            raise invalid("stream", f"'{stream}', with a table that has no such column", "nothing")
        return np.arange(count)
    names = [str(name) for name in columns.as_given("stream")]
    found = list(dict.fromkeys(names))
    if stream is None and len(found) > 1:
        shown = ", ".join(found)
        raise invalid("stream", f"nothing, with {len(found)} streams in {columns.source}", f"one of: {shown}")
    if stream is not None and stream not in found:
        raise unknown("stream", stream, found)
    return np.flatnonzero(np.array([stream in (None, name) for name in names], dtype=np.bool_))


def _observations(columns: Columns, observed: Sequence[str] | None) -> Floats:
    """(n, k). A column of lists, as `observation` may be, counts as its entries."""
    names = [name for name in columns.names if name.startswith("observation")] if observed is None else list(observed)
    if not names:
        raise InvalidInput(
            f"{columns.source}: got no column whose name begins with 'observation'; want the columns that were seen "
            "(observed=, --observed)"
        )
    if len(names) == 1 and _holds_lists(columns.as_given(names[0])):
        cells = columns.as_given(names[0])
        lengths = {len(cell) for cell in cells}
        if len(lengths) > 1:
            raise invalid(f"{columns.source}, column '{names[0]}'", "lists of several lengths", "one length")
        return np.array([list(cell) for cell in cells], dtype=np.float64)
    return np.column_stack([columns[name] for name in names])


def _lists(columns: Columns, name: str, rows: Ints) -> list[Any] | None:
    """A column of lists, as text or not; None for an empty cell."""
    if name not in columns.names:
        return None
    found = []
    for row, cell in zip(rows, _cells(columns, name, rows), strict=True):
        if isinstance(cell, str):
            try:
                cell = json.loads(cell) if cell else None
            except ValueError:
                shown = f"{name} '{cell}'"
                raise invalid(f"{columns.source}, row {row + 1}", shown, "a list such as [0.2, 0.8]") from None
        found.append(cell.tolist() if isinstance(cell, np.ndarray) else None if cell != cell else cell)
    return found


def _arms(source: str, played: Sequence[Any], chances: Floats, lists: Sequence[Any] | None, arms: Any) -> list[Arm]:
    """The arms in order: as told; else by number, or by name.

    Where there are lists of propensities, their order decides: the place of an arm is the one at which, in all rows in
    which it was played, they hold its propensity.
    """
    if arms is not None:
        return arm_names("arms", arms)
    longest = max((len(one) for one in lists or () if isinstance(one, list)), default=0)
    names = list(dict.fromkeys(played))
    if all(isinstance(arm, int) and not isinstance(arm, bool) for arm in names):
        return list(range(max([*names, longest - 1], default=0) + 1))
    if not all(isinstance(arm, str) for arm in names):
        odd = next(row for row, arm in enumerate(played, 1) if not isinstance(arm, str))
        raise invalid(f"{source}, row {odd}", f"arm {played[odd - 1]!r}", "names of arms in all rows, or numbers")
    if lists is None:
        return sorted(names)
    fits: dict[str, Mask] = {name: np.ones(longest, dtype=np.bool_) for name in names}
    for name, chance, given in zip(played, chances, lists, strict=True):
        if isinstance(given, list):
            row = np.full(longest, np.nan)
            row[: len(given)] = given
            fits[name] &= np.abs(row - chance) <= ROUNDING
    order: list[Arm] = [""] * longest
    for name, mask in fits.items():
        if mask.sum() != 1 or order[int(np.argmax(mask))]:
            raise InvalidInput(
                f"{source}: got propensities of {longest} arms that do not tell the place of '{name}'; want the arms "
                "in their order (arms=, --arms)"
            )
        order[int(np.argmax(mask))] = name
    return [name or f"arm {place}, never played" for place, name in enumerate(order)]


def _due(columns: Columns, rows: Ints) -> Ints:
    """After which decision each reward came: those whose time it was are counted as decided before it."""
    at_once = np.arange(len(rows))
    if not {"time", "reward_time"} <= set(columns.names):
        return at_once
    decided = _moments(columns, "time", rows)
    came = _moments(columns, "reward_time", rows)
    if np.isnan(decided).any() or (np.diff(decided) < 0).any():
        bad = int(rows[np.isnan(decided).argmax() if np.isnan(decided).any() else (np.diff(decided) < 0).argmax() + 1])
        raise invalid(f"{columns.source}, row {bad + 1}", "a time missing or before the last", "rows in order of time")
    after = np.searchsorted(decided, np.where(np.isnan(came), decided, came), side="right") - 1
    return np.maximum(after, at_once)


def _moments(columns: Columns, name: str, rows: Ints) -> Floats:
    """Times as seconds, NaN where there is none."""
    given = np.asarray(columns.as_given(name))[rows]
    if given.dtype.kind == "M":
        seconds = given.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(given), np.nan, seconds)
    found = np.empty(len(given))
    for at, cell in enumerate(given):
        try:
            if cell is None or cell == "" or cell != cell:
                found[at] = math.nan
            elif isinstance(cell, str):
                found[at] = datetime.fromisoformat(cell).timestamp()
            else:
                found[at] = cell.timestamp() if hasattr(cell, "timestamp") else float(cell)
        except (TypeError, ValueError):
            raise invalid(f"{columns.source}, row {rows[at] + 1}", f"{name} '{cell}'", "a time") from None
    return found


def _cells(columns: Columns, name: str, rows: Ints) -> list[Any]:
    given = columns.as_given(name)
    return [given[row] for row in rows]


def _holds_lists(cells: Any) -> bool:
    return len(cells) > 0 and isinstance(cells[0], list | tuple | np.ndarray)


def _plain(arm: Any) -> Any:
    """Numbers as Python has them: tables hold NumPy's, and whole ones as floats where a cell is empty."""
    if isinstance(arm, np.generic):
        arm = arm.item()
    return int(arm) if isinstance(arm, float) and arm.is_integer() else arm
