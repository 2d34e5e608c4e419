"""Worlds from recorded data: a table with observed columns, hidden columns and the reward of every arm in every row.

The table contains the reward of every arm, so that any agent can be played on it. The first rows are used only to scale
the context and the rewards. Agents start untrained in the first row that is not used for scaling.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.errors import HalfseenWarning, invalid
from halfseen.kernels.random import Floats, Ints, checked_keys
from halfseen.validation import REWARD_RANGES, Words, at_least
from halfseen.worlds.columns import Columns, read_columns
from halfseen.worlds.preparation import (
    LEAST_SCALING,
    SCALE_ON,
    Scaling,
    Steps,
    check_distinct_times,
    check_not_empty,
    reward_unit,
    time_order,
    with_intercept,
)
from halfseen.worlds.world import Episodes, Rounds, World

CAVEAT = (
    "The reward of every arm is taken from the table. The results assume that playing an arm does not change other "
    "rows."
)


class RecordedEpisodes(Episodes):
    """B streams of a recorded world. All streams have the same rows."""

    canonical = True

    def __init__(self, world: RecordedWorld, streams: int) -> None:
        self._world, self._streams, self._at = world, streams, 0

    def advance(self, n: int) -> Rounds:
        world, first, last = self._world, self._at, self._at + at_least("n", n, 1)
        if last > world.length:
            raise invalid("rounds", f"at most {world.length}, the length of '{world.name}'", str(last))
        self._at = last

        def for_all(values: Floats) -> Floats:
            return np.repeat(values[first:last, None], self._streams, axis=1)

        rounds = Rounds(
            for_all(world.contexts), for_all(world.observations), for_all(world.rewards), np.zeros((n, self._streams))
        )
        return rounds if world.elapsed is None else rounds.with_elapsed(world.elapsed[first:last])

    def facts(self) -> dict[str, Any]:
        """Return the dimension of the context and the standard deviation of the scaled rewards."""
        return {"latent": self._world.latent, "noise_std": 1.0}


class RecordedWorld(World):
    """A world made of the scaled columns of a table. Make one with `recorded`.

    `contexts` (T, d) contains the observed columns, the intercept if there is one, and the hidden columns.
    `observations` (T, k) contains the observed columns and the intercept, and `rewards` (T, K) the reward of every arm.
    `elapsed` (T,) contains the steps between each row and the row before it. It is None if there are no gaps between
    rows.
    """

    recorded = True
    known_facts = ("latent", "noise_std")
    length: int

    def __init__(
        self,
        *,
        name: str,
        observed: dict[str, Floats],
        hidden: dict[str, Floats],
        rewards: dict[str, Floats],
        scaling: int,
        scale_on: float,
        reward_every: int,
        source: str,
        from_file: bool,
        about: str,
        caveat: str,
        intercept: bool,
        reward_family: str = "gaussian",
        columns: dict[str, list[str]] | None = None,
        notes: Sequence[str] = (),
        steps: Steps | None = None,
    ) -> None:
        self.columns = columns or {"observed": list(observed), "hidden": list(hidden)}  # names in the table, by role
        self.notes = tuple(notes)  # remarks about columns that were encoded, and about the order of the rows
        self.name, self.source, self.about, self.caveat, self.scaling = name, source, about, caveat, scaling
        self.scale_on, self.from_file = scale_on, from_file
        self.observed_names, self.hidden_names, self.arm_names = tuple(observed), tuple(hidden), tuple(rewards)
        self.observed, self.latent, self.arms = len(observed), len(observed) + len(hidden), len(rewards)
        self.intercept = False
        context = np.stack([*observed.values(), *hidden.values()], axis=1)
        check_not_empty(context[:scaling], [*observed, *hidden], source)
        scaled = Scaling.of(context[:scaling]).apply(context)
        self.observations = np.ascontiguousarray(scaled[scaling:, : self.observed])
        self.contexts = _forward_fill(scaled)[scaling:]
        table = np.stack(list(rewards.values()), axis=1)
        self.rewards = np.ascontiguousarray(table[scaling:])
        self.reward_family = reward_family
        deviations = table[:scaling] - table[:scaling].mean(axis=0)
        self.reward_unit = reward_unit(deviations) if reward_family == "gaussian" else 1.0
        self.constant_in_scaling = _constant_columns(observed, scaling)  # columns constant in the rows for scaling
        self.constant_names = _constant_columns(observed, len(context))  # columns constant in all rows
        self.length, self.reward_every = len(self.rewards), reward_every
        self.step = None if steps is None else steps.shown  # between two rows, as text
        self.elapsed: Ints | None = None
        if steps is not None and (steps.elapsed[scaling:] > 1).any():
            self.elapsed = np.append(np.int64(1), steps.elapsed[scaling + 1 :])
        if intercept:
            self._add_intercept()

    def _add_intercept(self) -> None:
        """Add a feature that is always 1 after the observed columns."""
        k = self.observed
        self.observations = with_intercept(self.observations, k)
        self.contexts = with_intercept(self.contexts, k)
        self.intercept, self.observed, self.latent = True, k + 1, self.latent + 1

    def without_intercept(self) -> RecordedWorld:
        """Return the same world without the intercept."""
        if not self.intercept:
            return self
        plain, k = copy.copy(self), self.observed - 1
        plain.observations = np.ascontiguousarray(self.observations[:, :k])
        plain.contexts = np.delete(self.contexts, k, axis=1)
        plain.intercept, plain.observed, plain.latent = False, k, self.latent - 1
        return plain

    def begin(self, seeds: Sequence[int]) -> RecordedEpisodes:
        return RecordedEpisodes(self, len(checked_keys(seeds)))

    def settings(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        elapsed = () if self.elapsed is None else (self.elapsed,)
        for part in (self.observations, self.contexts, self.rewards, *elapsed):
            digest.update(np.ascontiguousarray(part).tobytes())
        return {
            "name": self.name,
            "source": self.source,
            "observed": ", ".join(self.observed_names),
            "hidden": ", ".join(self.hidden_names) or "–",
            "intercept": "a feature that is always 1" if self.intercept else "–",
            "arms": ", ".join(self.arm_names),
            "rows for scaling": self.scaling,
            "rounds": self.length,
            **({} if self.step is None else {"step between rows": self.step}),
            "rewards come every": self.reward_every,
            "unit of rewards": self.reward_unit,
            **({} if self.reward_family == "gaussian" else {"family of rewards": self.reward_family}),
            "sha256": digest.hexdigest()[:16],
        }


def recorded(
    table: Any,
    *,
    observed: Iterable[str],
    rewards: Iterable[str],
    hidden: Iterable[str] = (),
    name: str = "recorded",
    reward_every: int = 1,
    scale_on: float = SCALE_ON,
    source: str | None = None,
    about: str = "",
    caveat: str = CAVEAT,
    intercept: bool = True,
    reward_family: str = "gaussian",
    time: str | None = None,
) -> RecordedWorld:
    """Make a world from a table of recorded data.

    Each row of the table is a round, in order of time. The table contains the reward that every arm would have given in
    every row, so that any agent can be played on it.

    Parameters
    ----------
    table : str, Path, DataFrame, pyarrow.Table, dict or structured ndarray
        A CSV file (.csv or .csv.gz) or Parquet file, a pandas or polars DataFrame, an Arrow table, or columns by name.
    observed : iterable of str
        The columns that agents observe. Their values must be known when the decision of their row is made. An empty
        cell is an entry that was not observed. A column of text becomes columns of zeros and ones, one for every
        text except the most frequent one, and a column of dates becomes the number of days since its first row. A
        warning names every column that is changed in this way.
    rewards : iterable of str
        One column per arm: the reward of this arm in each row. Rewards must not be missing.
    hidden : iterable of str, optional
        The columns of the context that agents do not observe. `oracle-ts` uses them. An empty cell is replaced by the
        value before it.
    name : str, optional
        Name of the world in tables and reports.
    reward_every : int, optional
        The rewards of this many rows arrive together, after the last of these rows.
    scale_on : float, optional
        The share of the rows at the start of the table that is used only for scaling. Every column of the context is
        centred and divided by its standard deviation in these rows. Agents receive rewards divided by their standard
        deviation around the mean of their arm in these rows.
    source, about, caveat : str, optional
        Texts for reports: the source of the data, a description and a limitation.
    intercept : bool, optional
        Whether to add a feature that is always 1. Columns are centred, and the regressions of most agents have no
        intercept. Without this feature these agents could not learn that one arm gives more on average than another.
    reward_family : {"gaussian", "binary", "count"}, optional
        The family of the rewards. It is given to agents that have an option `reward_family`. Rewards that are clicks
        ("binary", from 0 to 1) or counts ("count", at least 0) are not scaled.
    time : str, optional
        The column with the time of each row, as dates or numbers. If the rows are not in order of time, they are
        sorted. The usual difference between neighbouring times is the step of the world. If a row is several steps
        after the row before it, agents are told how many. Warnings report sorted rows and such gaps. Two rows of the
        same time are refused.

    Returns
    -------
    RecordedWorld
        The world, which can be passed to `hs.run`. Its attribute `notes` has the texts of the warnings.

    Warns
    -----
    HalfseenWarning
        If a column was encoded, if rows were sorted, if there are gaps between times, or if the times are irregular.

    Raises
    ------
    HalfseenError
        If the file cannot be read, a column does not exist or does not contain numbers, a reward is missing or outside
        of the range of its family, two rows have the same time, or there are too few rows.

    Examples
    --------
    >>> import halfseen as hs
    >>> rows = range(100)
    >>> table = {
    ...     "load": [t % 7 for t in rows],
    ...     "price": [t % 5 for t in rows],
    ...     "buy": [t % 5 - 2 for t in rows],
    ...     "sell": [2 - t % 5 for t in rows],
    ... }
    >>> world = hs.worlds.recorded(table, observed=["load"], hidden=["price"], rewards=["buy", "sell"])
    >>> world.length, world.observed_names, world.arm_names
    (80, ('load',), ('buy', 'sell'))
    """
    columns = read_columns(table)
    names = {"observed": _names("observed", observed), "hidden": _names("hidden", hidden)}
    names["rewards"] = _names("rewards", rewards)
    _check_names(names)
    if not isinstance(intercept, bool):
        raise invalid("intercept", "True or False", repr(intercept))
    Words(tuple(REWARD_RANGES)).check("reward_family", reward_family)
    observed_features, notes = columns.features(names["observed"])
    hidden_features, more = columns.features(names["hidden"])
    notes += more
    reward_columns = {one: columns[one] for one in names["rewards"]}
    parts = {"observed": observed_features, "hidden": hidden_features, "rewards": reward_columns}
    count = _row_count(columns, {one: values for part in parts.values() for one, values in part.items()})
    steps = None
    if time is not None:
        order = time_order(columns, time, np.arange(count))
        check_distinct_times(columns, time, order)
        notes, steps = notes + order.notes, order.steps
        parts = {role: {one: values[order.rows] for one, values in part.items()} for role, part in parts.items()}
    every = at_least("reward_every", reward_every, 1)
    scaling = _scaling_rows(count, scale_on, every, columns.source)
    for column, values in parts["rewards"].items():
        missing = np.flatnonzero(np.isnan(values))
        if len(missing):
            where = f"{columns.source}, column '{column}', row {missing[0] + 1}"
            raise invalid(where, "the reward of the arm", "an empty cell")
        REWARD_RANGES[reward_family].check(f"{columns.source}, column '{column}'", values)
    for note in notes:
        warnings.warn(f"{columns.source}: {note}", HalfseenWarning, stacklevel=2)
    return RecordedWorld(
        name=name,
        **parts,
        scaling=scaling,
        scale_on=scale_on,
        reward_every=every,
        source=columns.source if source is None else source,
        from_file=isinstance(table, str | Path) and source is None,
        about=about,
        caveat=caveat,
        intercept=intercept,
        reward_family=reward_family,
        columns=names | ({} if time is None else {"time": [time]}),
        notes=notes,
        steps=steps,
    )


def _names(argument: str, given: Iterable[str]) -> list[str]:
    listed = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if not all(isinstance(one, str) and one for one in listed):
        raise invalid(argument, "names of columns", repr(given))
    return listed


def _check_names(names: dict[str, list[str]]) -> None:
    for role, least in (("observed", 1), ("rewards", 2)):
        if len(names[role]) < least:
            raise invalid(role, f"at least {least} column{'s' * (least > 1)}", ", ".join(names[role]) or "nothing")
    roles: dict[str, str] = {}
    for role, given in names.items():
        for one in given:
            if one in roles:
                where = f"in {roles[one]} and in {role}" if roles[one] != role else f"twice in {role}"
                raise invalid("columns", "every column once", f"'{one}' {where}")
            roles[one] = role


def _row_count(columns: Columns, read: dict[str, Floats]) -> int:
    first, *rest = read
    for other in rest:
        if len(read[other]) != len(read[first]):
            got = f"{len(read[first])} rows of '{first}' and {len(read[other])} of '{other}'"
            raise invalid(columns.source, "columns of the same length", got)
    return len(read[first])


def _scaling_rows(count: int, scale_on: float, every: int, source: str) -> int:
    """Return the number of rows for scaling: the given share, rounded down to whole batches of rewards."""
    number = isinstance(scale_on, int | float) and not isinstance(scale_on, bool)
    if not number or not 0 < scale_on < 1:
        raise invalid("scale_on", "a number between 0 and 1", repr(scale_on))

    def scaling_of(rows: int) -> int:
        return int(scale_on * rows) // every * every

    least = max(LEAST_SCALING, every)
    if scaling_of(count) < least:
        needed = next(rows for rows in itertools.count(least) if scaling_of(rows) >= least)
        expected = f"at least {needed} rows, {least} of them for scaling (scale_on={scale_on:g})"
        raise invalid(source, expected, f"{count} rows")
    return scaling_of(count)


def _constant_columns(columns: dict[str, Floats], rows: int) -> tuple[str, ...]:
    """Return the names of the columns that are constant in the first `rows` rows."""
    return tuple(name for name, values in columns.items() if np.nanmax(values[:rows]) == np.nanmin(values[:rows]))


def _forward_fill(values: Floats) -> Floats:
    """Replace NaN by the value before it, or by 0 (the mean) if there is none."""
    filled = values.copy()
    filled[0] = np.nan_to_num(filled[0])
    for row in np.flatnonzero(np.isnan(filled).any(axis=1)):
        filled[row] = np.where(np.isnan(filled[row]), filled[row - 1], filled[row])
    return filled
