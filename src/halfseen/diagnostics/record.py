"""A record to examine a model by: what was seen, what was played, what it paid, and whatever else is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation as inputs
from halfseen.errors import invalid
from halfseen.kernels.checks import EXCESSIVE, survey
from halfseen.kernels.random import Floats, Ints
from halfseen.validation import LIMIT


class Payments(NamedTuple):
    """One row a reward: of the arm played or, where they were recorded, of every arm."""

    rounds: Ints
    arms: Ints
    rewards: Floats


@dataclass(frozen=True, eq=False)
class Record:
    """n rounds. Rewards are of the arm played (n,), or of every arm (n, K)."""

    observations: Floats  # (n, k), NaN where not seen
    arms: Ints  # (n,), or (0,) where every arm's reward is known and none was played; −1: not known
    rewards: Floats  # (n,) or (n, K), NaN where none came
    sensors: tuple[str, ...]  # names of the k features
    arm_names: tuple[str, ...]
    contexts: Floats | None = None  # (n, d), the truth, in simulation
    contexts_name: str = "true context"
    hidden: Floats | None = None  # (n, h), features that were recorded and not shown; NaN where missing
    hidden_names: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        return len(self.observations)

    @property
    def knows_every_arm(self) -> bool:
        return self.rewards.ndim == 2

    def payments(self) -> Payments:
        """Of every arm if they were recorded, of those played if not."""
        if self.knows_every_arm:
            # `nonzero` gives strided views of one array; kernels are compiled for contiguous ones
            rounds, arms = map(np.ascontiguousarray, np.nonzero(~np.isnan(self.rewards)))
            return Payments(rounds, arms, self.rewards[rounds, arms])
        rounds = np.flatnonzero(~np.isnan(self.rewards))
        return Payments(rounds, self.arms[rounds], self.rewards[rounds])

    def played(self) -> Payments:
        """Of the arms played, where it is known which."""
        if not self.knows_every_arm or len(self.arms) == 0:
            return self.payments()
        rounds = np.flatnonzero(self.arms >= 0)
        rewards = self.rewards[rounds, self.arms[rounds]]
        told = ~np.isnan(rewards)
        return Payments(rounds[told], self.arms[rounds[told]], rewards[told])


def make_record(
    observations: ArrayLike,
    arms: ArrayLike | None,
    rewards: ArrayLike,
    *,
    features: int,
    contexts: ArrayLike | None = None,
    hidden: ArrayLike | None = None,
    sensors: Sequence[str] | None = None,
    hidden_names: Sequence[str] | None = None,
    arm_names: Sequence[str] | None = None,
) -> Record:
    """A checked record; `features` is how many the model sees."""
    ys = _columns("observations", observations, features)
    if len(ys) == 0:
        raise invalid("observations", "no rounds", "at least one")
    paid = inputs.numbers("rewards", rewards, "numbers, one a round, or one a round and arm")
    if paid.ndim not in (1, 2) or len(paid) != len(ys) or 0 in paid.shape:
        wanted = f"({len(ys)},), those of the arms played, or ({len(ys)}, arms)"
        raise invalid("rewards", f"shape {paid.shape}", wanted)
    if survey(paid.reshape(len(ys), -1)) == EXCESSIVE:
        raise invalid("rewards", "an entry too large", f"numbers within ±{LIMIT:g}, NaN where none came")
    played = _played(arms, paid, len(ys))
    count = paid.shape[1] if paid.ndim == 2 else int(played.max()) + 1
    if arm_names is not None and paid.ndim == 1:
        if len(arm_names) < count:
            raise invalid("arm_names", f"{len(arm_names)} names", f"at least {count}, one an arm")
        count = len(arm_names)
    truth = None if contexts is None else _columns("contexts", contexts, None, len(ys))
    if truth is not None and np.isnan(truth).any():
        raise invalid("contexts", "an entry that is NaN", "the whole context in every round")
    more = None if hidden is None else _columns("hidden", hidden, None, len(ys))
    return Record(
        ys,
        played,
        paid,
        _names("sensors", sensors, features, "entry"),
        _names("arm_names", arm_names, count, "arm"),
        truth,
        "true context",
        more,
        () if more is None else _names("hidden_names", hidden_names, more.shape[1], "hidden"),
    )


def _columns(argument: str, value: ArrayLike, columns: int | None, rows: int | None = None) -> Floats:
    array = inputs.numbers(argument, value, "a table of numbers")
    if array.ndim != 2 or (columns is not None and array.shape[1] != columns) or array.shape[1] == 0:
        wanted = "a table, one row a round" if columns is None else f"a table of {columns} columns, as the model sees"
        raise invalid(argument, f"shape {array.shape}", wanted)
    if rows is not None and len(array) != rows:
        raise invalid(argument, f"{len(array)} rows", f"{rows}, one a round")
    if len(array) and survey(array) == EXCESSIVE:
        raise invalid(argument, "an entry too large", f"numbers within ±{LIMIT:g}, NaN for what was not seen")
    return array


def _played(arms: ArrayLike | None, paid: Floats, rounds: int) -> Ints:
    if arms is None and paid.ndim == 2:
        return np.zeros(0, dtype=np.int64)
    if arms is None:
        raise invalid("arms", "nothing", "the arm played in each round, unless rewards has a column an arm")
    given = np.asarray(inputs.listed("arms", arms, "the number of the arm played in each round"))  # type: ignore[arg-type]
    if given.shape != (rounds,) or given.dtype.kind not in "iu" or given.min() < 0:
        raise invalid("arms", f"{given.dtype} of shape {given.shape}", f"{rounds} numbers of arms, from 0 on")
    if paid.ndim == 2 and given.max() >= paid.shape[1]:
        raise invalid("arms", f"arm {given.max()}", f"numbers below {paid.shape[1]}, the columns of rewards")
    return given.astype(np.int64)


def _names(argument: str, names: Sequence[str] | None, count: int, word: str) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{word} {i}" for i in range(count))
    listed = [str(name) for name in inputs.listed(argument, names, f"{count} names")]
    if len(listed) != count or len(set(listed)) != count:
        raise invalid(argument, repr(listed), f"{count} different names")
    return tuple(listed)
