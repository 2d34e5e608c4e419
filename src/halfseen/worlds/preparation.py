"""Prepares the columns of a table for agents: rows in order of time, scaled columns and an intercept.

`Columns.features` encodes texts and dates before. Experiments on a table, evaluations of a log, examinations and
studies all use these functions, so that an agent receives the same numbers in each of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from halfseen.errors import invalid
from halfseen.kernels.random import Floats, Ints
from halfseen.worlds.columns import Columns

SCALE_ON = 0.2  # default share of the rows, from the first on, that is used for scaling
LEAST_SCALING = 10  # least number of rows for scaling
_ROUNDING = 1e-12  # a column varies if its standard deviation is larger than this share of its mean


class Scaling(NamedTuple):
    """The mean and the standard deviation of every column in some rows. The latter is 1 if a column is constant."""

    centre: Floats  # (k,)
    scale: Floats  # (k,)
    varies: tuple[bool, ...]  # whether the column has different values in these rows

    @classmethod
    def of(cls, values: Floats) -> Scaling:
        """Measure the columns of `values` (n, k). The mean of a column that is empty is 0."""
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
        """Return a scaling in which columns that do not vary here are scaled as in `other`."""
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

    Columns are centred, and the regressions of most agents have no intercept.
    """
    return np.insert(values, position, 1.0, axis=1)


def reward_unit(deviations: Floats) -> float:
    """Return the root mean square of rewards minus the mean of their arm, or 1 if rewards are constant."""
    std = float(np.sqrt(np.mean(deviations**2))) if deviations.size else 0.0
    return std if std > 0 else 1.0


def time_order(columns: Columns, time: str, rows: Ints) -> tuple[Ints, Floats, str | None]:
    """Return `rows` in order of time, their times in seconds, and a sentence if the order has changed.

    Rows of the same time keep their order.
    """
    if (count := len(columns.as_given(time))) <= rows.max(initial=-1):
        raise invalid(columns.source, "columns of the same length", f"{count} rows of '{time}'")
    seconds = columns.times(time, rows)
    missing = np.flatnonzero(np.isnan(seconds))
    if len(missing):
        raise invalid(f"{columns.source}, column '{time}', row {rows[missing[0]] + 1}", "a time", "an empty cell")
    order = np.argsort(seconds, kind="stable")
    note = f"the rows were not in order of '{time}' and have been sorted" if (np.diff(order) < 0).any() else None
    return rows[order], seconds[order], note
