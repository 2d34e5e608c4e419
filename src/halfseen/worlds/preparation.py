"""Prepares the columns of a table for agents: rows in order of time, steps between them, scaled columns, an intercept.

Before that, `Columns.features` encodes texts and dates. Experiments on a table, evaluations of a log, examinations and
studies all use these functions, so that an agent receives the same numbers in each of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.reports.tables import count
from halfseen.validation import MAX_ELAPSED
from halfseen.worlds.columns import Columns, are_dates

SCALE_ON = 0.2  # default share of the rows, from the first on, that is used for scaling
LEAST_SCALING = 10  # least number of rows for scaling
_ROUNDING = 1e-12  # a column varies if its standard deviation is larger than this share of its mean
LEAST_DIFFERENCES = 5  # a step is inferred only from at least this many differences above 0
# Times are regular if two conditions hold. At least the share LEAST_ONE_STEP of the differences is one step. Of the
# differences of at most NEAR steps, at least the share LEAST_ON_GRID is within TOLERANCE of a whole number of steps.
NEAR, TOLERANCE, LEAST_ON_GRID, LEAST_ONE_STEP = 20, 0.25, 0.8, 0.25
MOST_TIED = 0.1  # equal rows are a mistake only if at most this share of the rows has the same time as another row
_UNITS = (("day", 86_400.0), ("hour", 3_600.0), ("minute", 60.0), ("second", 1.0))


class Scaling(NamedTuple):
    """The mean and the standard deviation of every column in some rows. `scale` is 1 for a constant column."""

    centre: Floats  # (k,)
    scale: Floats  # (k,)
    varies: tuple[bool, ...]  # whether the column has different values in these rows

    @classmethod
    def of(cls, values: Floats) -> Scaling:
        """Measure the columns of `values` (n, k). The mean of an empty column is 0."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # columns without any number
            scale, centre = np.nanstd(values, axis=0), np.nanmean(values, axis=0)
        centre = np.nan_to_num(centre)
        varies = np.nan_to_num(scale) > _ROUNDING * np.abs(centre)
        return cls(centre, np.where(varies, scale, 1.0), tuple(varies.tolist()))

    def apply(self, values: Floats) -> Floats:
        """Return (values − centre) / scale."""
        return np.asarray((values - self.centre) / self.scale)

    def completed_by(self, other: Scaling) -> Scaling:
        """Return this scaling, but with the centre and the scale of `other` for columns that do not vary here."""
        varies = np.array(self.varies)
        either = np.where(varies, True, other.varies)
        centre = np.where(varies, self.centre, other.centre)
        return Scaling(centre, np.where(varies, self.scale, other.scale), tuple(either.tolist()))


def check_not_empty(values: Floats, names: Sequence[str], source: str) -> None:
    """Raise unless every column has a number in these rows, which are used for scaling."""
    for name, column in zip(names, values.T, strict=True):
        if np.isnan(column).all():
            expected = f"at least one number in rows 1 to {len(values)}, which are used for scaling"
            raise invalid(f"{source}, column '{name}'", expected, "empty cells only")


def with_intercept(values: Floats, position: int) -> Floats:
    """Return the features (n, k) with a feature that is always 1 at `position`.

    Agents need it, because columns are centred and the regressions of most agents have no intercept of their own.
    """
    return np.insert(values, position, 1.0, axis=1)


def reward_unit(deviations: Floats) -> float:
    """Return the root mean square of `deviations` (reward minus mean of its arm), or 1 if rewards are constant."""
    std = float(np.sqrt(np.mean(deviations**2))) if deviations.size else 0.0
    return std if std > 0 else 1.0


class Steps(NamedTuple):
    """The usual step between the times of a table, and the number of steps between its rows."""

    step: float  # in seconds, or in the unit of a column of numbers
    elapsed: Ints  # (n,) steps since the row before, at least 1
    shown: str  # the step with its unit, as text

    @property
    def has_gaps(self) -> bool:
        return bool((self.elapsed > 1).any())


class TimeOrder(NamedTuple):
    """The rows of a table in order of time."""

    rows: Ints  # (n,)
    seconds: Floats  # (n,)
    steps: Steps | None  # None if the times are irregular, or too few
    notes: list[str]  # one sentence for each thing that was done or found


def time_order(columns: Columns, time: str, rows: Ints) -> TimeOrder:
    """Return `rows` in order of time. Rows of the same time keep their order."""
    if (number := len(columns.as_given(time))) <= rows.max(initial=-1):
        raise invalid(columns.source, "columns of the same length", f"{number} rows of '{time}'")
    seconds = columns.times(time, rows)
    missing = np.flatnonzero(np.isnan(seconds))
    if len(missing):
        raise invalid(f"{columns.source}, column '{time}', row {rows[missing[0]] + 1}", "a time", "an empty cell")
    order = np.argsort(seconds, kind="stable")
    notes = []
    if (np.diff(order) < 0).any():
        notes.append(f"the rows were not in order of '{time}' and have been sorted")
    steps, note = infer_steps(seconds[order], time, dates=are_dates(columns.as_given(time)))
    return TimeOrder(rows[order], seconds[order], steps, notes + ([] if note is None else [note]))


def infer_steps(seconds: Floats, time: str, *, dates: bool) -> tuple[Steps | None, str | None]:
    """Return the steps between the ascending times `seconds`, and a sentence about gaps or about irregular times.

    The step is the usual difference between neighbouring times: the median of those differences that are at most 1.5
    times the first decile. All differences are rounded to whole numbers of steps. Rows of the same time, whose order is
    unknown, count as one step apart.
    """
    differences = np.diff(seconds)
    moved = differences[differences > 0.0]
    if len(moved) < LEAST_DIFFERENCES:
        return None, None
    step = float(np.median(moved[moved <= 1.5 * np.quantile(moved, 0.1, method="lower")]))
    multiples = moved / step
    nearest = np.maximum(np.rint(multiples), 1.0)
    on_grid = (np.abs(multiples - nearest) <= TOLERANCE)[nearest <= NEAR]
    if on_grid.mean() < LEAST_ON_GRID or (nearest == 1.0).mean() < LEAST_ONE_STEP:
        return None, f"the times in '{time}' are too irregular for a step, so agents count rows and not time"
    elapsed = np.minimum(np.maximum(np.rint(differences / step), 1.0), MAX_ELAPSED).astype(np.int64)
    steps = Steps(step, np.append(np.int64(1), elapsed), _shown(step) if dates else f"{step:g}")
    if not steps.has_gaps:
        return steps, None
    gaps = int((elapsed > 1).sum())
    return steps, (
        f"the step of '{time}' is {steps.shown}, and there {'is' if gaps == 1 else 'are'} {count(gaps, 'gap')} of up "
        f"to {int(elapsed.max()):,} steps between rows, of which agents are told"
    )


def _shown(seconds: float) -> str:
    """Return a duration as text, in the largest unit that is not longer than the duration."""
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds / size:.4g} {unit}{'' if seconds == size else 's'}"


def check_distinct_times(columns: Columns, time: str, order: TimeOrder) -> None:
    """Raise if two rows have the same time. The message names them."""
    same = np.flatnonzero(np.diff(order.seconds) == 0.0)
    if len(same):
        first, second = (int(order.rows[at]) + 1 for at in (same[0], same[0] + 1))
        more = f", and {count(len(same) - 1, 'more pair')} of rows" if len(same) > 1 else ""
        got = f"'{columns.as_given(time)[first - 1]}' in both{more}"
        raise invalid(f"{columns.source}, column '{time}', rows {first} and {second}", "different times", got)


def check_no_repeated_rows(columns: Columns, time: str, order: TimeOrder) -> None:
    """Raise if two rows with the same time agree in every column, because they are then the same decision twice.

    If many rows share a time, such as a date with many decisions, equal rows may be different decisions, so there is no
    check.
    """
    same = np.diff(order.seconds) == 0.0
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if len(tied) > MOST_TIED * len(order.rows):
        return
    seen: dict[tuple[str, ...], int] = {}
    cells = [columns.as_given(name) for name in columns.names]
    for row in order.rows[tied].tolist():
        key = tuple(str(column[row]) for column in cells)
        if (first := seen.setdefault(key, row)) != row:
            got = f"the same row twice, with '{columns.as_given(time)[row]}' in the column '{time}'"
            raise invalid(f"{columns.source}, rows {first + 1} and {row + 1}", "different rows", got)
