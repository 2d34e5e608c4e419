"""Worlds made of recorded data: the observed columns, the hidden ones and the reward of every arm, row by row.

The reward of every arm is in the table, so that any agent can be played on it as if it had been there. The first rows
serve to scale the context and to fix a unit for rewards; agents start untrained on the rest.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.errors import invalid
from halfseen.kernels.random import Floats, checked_keys
from halfseen.validation import at_least
from halfseen.worlds.columns import Columns, read_columns
from halfseen.worlds.world import Episodes, Rounds, World

SCALE_ON = 0.2  # of the rows, unless asked otherwise
LEAST_SCALING = 10  # rows to scale on
CAVEAT = (
    "What an arm would have paid is taken from the table. Whether it would have, had it really been played, no number "
    "here can tell."
)


class RecordedEpisodes(Episodes):
    """The same rows for every stream, one after the other."""

    canonical = True

    def __init__(self, world: RecordedWorld, streams: int) -> None:
        self._world, self._streams, self._at = world, streams, 0

    def advance(self, n: int) -> Rounds:
        world, first, last = self._world, self._at, self._at + at_least("n", n, 1)
        if last > world.length:
            raise invalid("rounds", f"at most {world.length}: '{world.name}' has no more", str(last))
        self._at = last

        def for_all(values: Floats) -> Floats:
            return np.repeat(values[first:last, None], self._streams, axis=1)

        return Rounds(
            for_all(world.contexts), for_all(world.observations), for_all(world.rewards), np.zeros((n, self._streams))
        )

    def facts(self) -> dict[str, Any]:
        """The size of the context, and the standard deviation of rewards in their unit. No more is known."""
        return {"latent": self._world.latent, "noise_std": 1.0}


class RecordedWorld(World):
    """Columns of a table, scaled; `contexts` (T, d) are the observed columns, any intercept, the hidden ones."""

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
    ) -> None:
        self.name, self.source, self.about, self.caveat, self.scaling = name, source, about, caveat, scaling
        self.scale_on, self.from_file = scale_on, from_file
        self.observed_names, self.hidden_names, self.arm_names = tuple(observed), tuple(hidden), tuple(rewards)
        self.observed, self.latent, self.arms = len(observed), len(observed) + len(hidden), len(rewards)
        self.intercept = False
        context = np.stack([*observed.values(), *hidden.values()], axis=1)
        centre, scale = _centre_and_scale(context[:scaling], [*observed, *hidden], source)
        scaled = (context - centre) / scale
        self.observations = np.ascontiguousarray(scaled[scaling:, : self.observed])
        self.contexts = _forward_fill(scaled)[scaling:]
        table = np.stack(list(rewards.values()), axis=1)
        self.rewards = np.ascontiguousarray(table[scaling:])
        self.reward_unit = _reward_scale(table[:scaling])
        self.still_names = _constant_columns(observed, scaling)  # in the rows for scaling
        self.constant_names = _constant_columns(observed, len(context))  # in all rows
        self.length, self.reward_every = len(self.rewards), reward_every
        if intercept:
            self._add_intercept()

    def _add_intercept(self) -> None:
        """A constant 1 after the observed columns, seen in every round."""
        k = self.observed
        self.observations = np.insert(self.observations, k, 1.0, axis=1)
        self.contexts = np.insert(self.contexts, k, 1.0, axis=1)
        self.intercept, self.observed, self.latent = True, k + 1, self.latent + 1

    def without_intercept(self) -> RecordedWorld:
        """The same world without the constant 1."""
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
        for part in (self.observations, self.contexts, self.rewards):
            digest.update(np.ascontiguousarray(part).tobytes())
        return {
            "name": self.name,
            "source": self.source,
            "observed": ", ".join(self.observed_names),
            "hidden": ", ".join(self.hidden_names) or "–",
            "intercept": "a constant 1 is seen too" if self.intercept else "–",
            "arms": ", ".join(self.arm_names),
            "rows for scaling": self.scaling,
            "rounds": self.length,
            "rewards come every": self.reward_every,
            "unit of rewards": self.reward_unit,
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
) -> RecordedWorld:
    """A world of recorded data.

    `table` is a CSV or Parquet file, a mapping of columns, a DataFrame, an Arrow table or a structured array; a row is
    a round. `observed` and `hidden` name the columns of the context that agents see and do not see, `rewards` a column
    an arm: what it would have paid, had it been played in that row. What is seen in a row must be known when it is
    decided on; its rewards come later, those of `reward_every` rows together after the last of them.

    An empty cell of the context was not seen; `oracle-ts`, which is shown all of it, keeps the value before. A reward
    may not be missing. The first `scale_on` of the rows give every column of the context its centre and scale and the
    rewards the unit in which agents hear them; they are not played. `source`, `about` and `caveat` are for reports.

    With `intercept` a constant 1 is one more observed feature. Columns are centred and the regressions of most agents
    have no intercept of their own: without it they could not tell that one arm pays more than another on average.
    """
    columns = read_columns(table)
    names = {"observed": _names("observed", observed), "hidden": _names("hidden", hidden)}
    names["rewards"] = _names("rewards", rewards)
    _check_names(names)
    if not isinstance(intercept, bool):
        raise invalid("intercept", "True or False", repr(intercept))
    parts = {role: {one: columns[one] for one in given} for role, given in names.items()}
    count = _row_count(columns, {one: values for part in parts.values() for one, values in part.items()})
    every = at_least("reward_every", reward_every, 1)
    scaling = _scaling_rows(count, scale_on, every, columns.source)
    for column, values in parts["rewards"].items():
        missing = np.flatnonzero(np.isnan(values))
        if len(missing):
            where = f"{columns.source}, column '{column}', row {missing[0] + 1}"
            raise invalid(where, "a reward: what every arm would have paid must be known", "nothing")
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
                raise invalid("columns", "every column in one place only", f"'{one}' {where}")
            roles[one] = role


def _row_count(columns: Columns, read: dict[str, Floats]) -> int:
    first, *rest = read
    for other in rest:
        if len(read[other]) != len(read[first]):
            got = f"{len(read[first])} rows of '{first}' and {len(read[other])} of '{other}'"
            raise invalid(columns.source, "columns of the same length", got)
    return len(read[first])


def _scaling_rows(count: int, scale_on: float, every: int, source: str) -> int:
    """Rows to scale on: the share asked for, down to whole batches of rewards."""
    number = isinstance(scale_on, int | float) and not isinstance(scale_on, bool)
    if not number or not 0 < scale_on < 1:
        raise invalid("scale_on", "a share of the rows, above 0 and below 1", repr(scale_on))

    def scaling_of(rows: int) -> int:
        return int(scale_on * rows) // every * every

    least = max(LEAST_SCALING, every)
    if scaling_of(count) < least:
        needed = next(rows for rows in itertools.count(least) if scaling_of(rows) >= least)
        raise invalid(source, f"at least {needed}, so that {scale_on:g} of them can serve for scaling", f"{count} rows")
    return scaling_of(count)


def _centre_and_scale(part: Floats, names: list[str], source: str) -> tuple[Floats, Floats]:
    """Mean and standard deviation of every column; 1 for a column that is constant there."""
    for name, column in zip(names, part.T, strict=True):
        if np.isnan(column).all():
            got = f"no number in rows 1 to {len(part)}"
            raise invalid(f"{source}, column '{name}'", "some: they fix its scale", got)
    scale = np.nanstd(part, axis=0)
    centre = np.nanmean(part, axis=0)
    return centre, np.where(scale > 1e-12 * np.abs(centre), scale, 1.0)


def _constant_columns(columns: dict[str, Floats], rows: int) -> tuple[str, ...]:
    """Names of the columns that are constant in the first `rows` rows."""
    return tuple(name for name, values in columns.items() if np.nanmax(values[:rows]) == np.nanmin(values[:rows]))


def _forward_fill(values: Floats) -> Floats:
    """NaN replaced by the value before it, or by 0 (the centre) where there is none."""
    filled = values.copy()
    filled[0] = np.nan_to_num(filled[0])
    for row in np.flatnonzero(np.isnan(filled).any(axis=1)):
        filled[row] = np.where(np.isnan(filled[row]), filled[row - 1], filled[row])
    return filled


def _reward_scale(rewards: Floats) -> float:
    """The standard deviation of the rewards (n, K) about the mean of their arm; 1 where they are constant."""
    std = float(np.sqrt(np.mean((rewards - rewards.mean(axis=0)) ** 2)))
    return std if std > 0 else 1.0
