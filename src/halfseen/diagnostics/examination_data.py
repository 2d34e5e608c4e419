"""What is examined: a model, the data it is examined with, and how both are taken from an adaptive agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation
from halfseen.components import Estimator
from halfseen.diagnostics.health import ENOUGH_ROUNDS
from halfseen.errors import HalfseenError, invalid
from halfseen.estimators.adaptive.estimator import Adaptive
from halfseen.kernels.checks import EXCESSIVE, classify_values
from halfseen.kernels.random import Floats, Ints
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.validation import LIMIT


class ObservedRewards(NamedTuple):
    """One entry per reward: of the arm played or, where they were recorded, of every arm."""

    rounds: Ints
    arms: Ints
    rewards: Floats


@dataclass(frozen=True, eq=False)
class ExaminationData:
    """n rounds of observations and rewards. Rewards are of the arm played (n,), or of every arm (n, K)."""

    observations: Floats  # (n, k), NaN where not observed
    arms: Ints  # (n,), or (0,) where every arm's reward is known and none was played; −1: not known
    rewards: Floats  # (n,) or (n, K), NaN where there is none
    sensors: tuple[str, ...]  # names of the k features
    arm_names: tuple[str, ...]
    contexts: Floats | None = None  # (n, d), the truth, in simulation
    contexts_name: str = "true context"
    hidden: Floats | None = None  # (n, h), features that were recorded and hidden from the model; NaN where missing
    hidden_names: tuple[str, ...] = ()

    @classmethod
    def from_arrays(
        cls,
        observations: ArrayLike,
        arms: ArrayLike | None,
        rewards: ArrayLike,
        *,
        features: int,
        contexts: ArrayLike | None = None,
        contexts_name: str = "true context",
        hidden: ArrayLike | None = None,
        sensors: Sequence[str] | None = None,
        hidden_names: Sequence[str] | None = None,
        arm_names: Sequence[str] | None = None,
    ) -> ExaminationData:
        """Check the arrays a user gives; `features` is the number of features that the model observes."""
        ys = _columns("observations", observations, features)
        if len(ys) == 0:
            raise invalid("observations", "at least one", "no rounds")
        values = validation.numbers("rewards", rewards, "numbers, one per round, or one per round and arm")
        if values.ndim not in (1, 2) or len(values) != len(ys) or 0 in values.shape:
            wanted = f"({len(ys)},), those of the arms played, or ({len(ys)}, arms)"
            raise invalid("rewards", wanted, f"shape {values.shape}")
        if classify_values(values.reshape(len(ys), -1)) == EXCESSIVE:
            raise invalid("rewards", f"numbers within ±{LIMIT:g}, NaN where none came", "an entry too large")
        played = _arms_played(arms, values, len(ys))
        count = values.shape[1] if values.ndim == 2 else int(played.max()) + 1
        if arm_names is not None and values.ndim == 1:
            if len(arm_names) < count:
                raise invalid("arm_names", f"at least {count}, one per arm", f"{len(arm_names)} names")
            count = len(arm_names)
        truth = None if contexts is None else _columns("contexts", contexts, None, len(ys))
        if truth is not None and np.isnan(truth).any():
            raise invalid("contexts", "the whole context in every round", "an entry that is NaN")
        unseen = None if hidden is None else _columns("hidden", hidden, None, len(ys))
        return cls(
            observations=ys,
            arms=played,
            rewards=values,
            sensors=_names("sensors", sensors, features, "entry"),
            arm_names=_names("arm_names", arm_names, count, "arm"),
            contexts=truth,
            contexts_name=contexts_name,
            hidden=unseen,
            hidden_names=() if unseen is None else _names("hidden_names", hidden_names, unseen.shape[1], "hidden"),
        )

    @property
    def rounds(self) -> int:
        return len(self.observations)

    @property
    def full_information(self) -> bool:
        """Whether the rewards of every arm are known, played or not."""
        return self.rewards.ndim == 2

    def observed_rewards(self) -> ObservedRewards:
        """Of every arm if they were recorded, of those played if not."""
        if self.full_information:
            # `nonzero` gives strided views of one array; kernels are compiled for contiguous ones
            rounds, arms = map(np.ascontiguousarray, np.nonzero(~np.isnan(self.rewards)))
            return ObservedRewards(rounds, arms, self.rewards[rounds, arms])
        rounds = np.flatnonzero(~np.isnan(self.rewards))
        return ObservedRewards(rounds, self.arms[rounds], self.rewards[rounds])

    def rewards_of_played(self) -> ObservedRewards:
        """Of the arms played, where it is known which."""
        if not self.full_information or len(self.arms) == 0:
            return self.observed_rewards()
        rounds = np.flatnonzero(self.arms >= 0)
        rewards = self.rewards[rounds, self.arms[rounds]]
        known = ~np.isnan(rewards)
        return ObservedRewards(rounds[known], self.arms[rounds[known]], rewards[known])


def _columns(argument: str, value: ArrayLike, columns: int | None, rows: int | None = None) -> Floats:
    array = validation.numbers(argument, value, "a table of numbers")
    if array.ndim != 2 or (columns is not None and array.shape[1] != columns) or array.shape[1] == 0:
        wanted = "a table, one row per round" if columns is None else f"a table of {columns} columns, as the model sees"
        raise invalid(argument, wanted, f"shape {array.shape}")
    if rows is not None and len(array) != rows:
        raise invalid(argument, f"{rows}, one per round", f"{len(array)} rows")
    if len(array) and classify_values(array) == EXCESSIVE:
        raise invalid(argument, f"numbers within ±{LIMIT:g}, NaN for what was not seen", "an entry too large")
    return array


def _arms_played(arms: ArrayLike | None, rewards: Floats, rounds: int) -> Ints:
    if arms is None and rewards.ndim == 2:
        return np.zeros(0, dtype=np.int64)
    if arms is None:
        raise invalid("arms", "the arm played in each round, unless rewards has a column an arm", "nothing")
    played = np.asarray(validation.as_list("arms", arms, "the number of the arm played in each round"))  # type: ignore[arg-type]
    if played.shape != (rounds,) or played.dtype.kind not in "iu" or played.min() < 0:
        raise invalid("arms", f"{rounds} numbers of arms, from 0 on", f"{played.dtype} of shape {played.shape}")
    if rewards.ndim == 2 and played.max() >= rewards.shape[1]:
        raise invalid("arms", f"numbers below {rewards.shape[1]}, the columns of rewards", f"arm {played.max()}")
    return played.astype(np.int64)


def _names(argument: str, names: Sequence[str] | None, count: int, word: str) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{word} {i}" for i in range(count))
    listed = [str(name) for name in validation.as_list(argument, names, f"{count} names")]
    if len(listed) != count or len(set(listed)) != count:
        raise invalid(argument, f"{count} different names", repr(listed))
    return tuple(listed)


@dataclass(frozen=True, eq=False)
class ExaminationSubject:
    """A model, the data it is examined with, and how it is used."""

    model: LinearGaussianModel
    data: ExaminationData
    fitted: bool = False  # the model was fitted to these observations, not known beforehand
    plain: bool = False  # decisions are made on y itself, and the model is the one that was rejected
    alternatives: tuple[LinearGaussianModel, ...] = ()  # of other dimensions, for the same observations
    retired: frozenset[int] = frozenset()  # arms that will not be played again


def subject_of_adaptive(
    estimator: Estimator, row: int, arm_names: Sequence[str], retired: Iterable[int] = ()
) -> ExaminationSubject | None:
    """The model and the history of stream `row` of an adaptive estimator, in its running units.

    None for other estimators, before there is a model, and while the history is too short. Where y itself is the
    context, the model is the one that identification prefers among those with a filter.
    """
    if not isinstance(estimator, Adaptive) or not estimator.identified[row]:
        return None
    count, candidate = int(estimator.history.stored_rounds[row]), int(estimator.candidates.chosen_candidate[row])
    plain = bool(estimator.uses_raw_observation[row])
    if count < ENOUGH_ROUNDS or (plain and candidate < 0):
        return None
    ys, arms, rewards, _ = estimator.window(row)
    scaled = (ys - estimator.centre[row]) / estimator.scale[row]
    data = ExaminationData.from_arrays(scaled, arms, rewards, features=scaled.shape[1], arm_names=list(arm_names))
    candidates = _candidate_models(estimator, row)
    model = candidates.get(candidate) if plain else _model_in_force(estimator, row)
    if model is None:
        return None
    others = tuple(one for at, one in candidates.items() if at != candidate)
    return ExaminationSubject(model, data, fitted=True, plain=plain, alternatives=others, retired=frozenset(retired))


def first_examined_round(estimator: Estimator, row: int) -> int | None:
    """The round from which the history of stream `row` is long enough; None where it is already, or there is none."""
    if not isinstance(estimator, Adaptive) or int(estimator.history.stored_rounds[row]) >= ENOUGH_ROUNDS:
        return None
    return int(estimator.history.dropped_rounds[row]) + ENOUGH_ROUNDS


def history_rounds(estimator: Estimator, row: int) -> slice:
    """The rounds of the stream, counted from 0, that the data of its subject are of."""
    assert isinstance(estimator, Adaptive)
    offset, window = int(estimator.history.dropped_rounds[row]), estimator.window(row)[3]
    return slice(offset + window.start, offset + window.stop)


def _model_in_force(estimator: Adaptive, row: int) -> LinearGaussianModel | None:
    D, Q, R, _, _ = estimator.parameters(row)
    return _model(D, Q, R)


def _candidate_models(estimator: Adaptive, row: int) -> dict[int, LinearGaussianModel]:
    """The models of all dimensions that have been tried, by candidate, in the units of now."""
    models = {}
    for candidate in map(int, np.flatnonzero(estimator.candidates.candidate_fitted[row])):
        D, Q, R, _, _ = estimator.candidates.warm_start(row, candidate, estimator.scale[row])
        model = _model(D, Q, R)
        if model is not None:
            models[candidate] = model
    return models


def _model(D: Floats, Q: Floats, R: Floats) -> LinearGaussianModel | None:
    """None where rounding has left a matrix that is not a covariance."""
    try:
        return LinearGaussianModel(transition=D, process_cov=0.5 * (Q + Q.T), observation_cov=R)
    except HalfseenError:
        return None
