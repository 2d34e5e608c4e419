"""The model and the data of an examination, given by the user or taken from an adaptive agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation
from halfseen.components import Estimator, Mask
from halfseen.diagnostics.health import ENOUGH_ROUNDS
from halfseen.errors import HalfseenError, invalid
from halfseen.estimators.adaptive.estimator import Adaptive
from halfseen.estimators.adaptive.history import BREAK
from halfseen.kernels.checks import EXCESSIVE, classify_values
from halfseen.kernels.random import Floats, Ints
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.validation import LIMIT


class ObservedRewards(NamedTuple):
    """Rewards of the arms played, or of all arms. The arrays have one entry per reward."""

    rounds: Ints
    arms: Ints
    rewards: Floats


@dataclass(frozen=True, eq=False)
class ExaminationData:
    """Observations and rewards of n rounds. Rewards are those of the arm played (n,) or of all arms (n, K)."""

    observations: Floats  # (n, k), NaN for entries that were not observed
    arms: Ints  # (n,) arms played, −1 if unknown; (0,) if no arms were played
    rewards: Floats  # (n,) or (n, K), NaN if there is none
    sensors: tuple[str, ...]  # names of the k features
    arm_names: tuple[str, ...]
    contexts: Floats | None = None  # (n, d) true contexts, known in simulations
    contexts_name: str = "true context"
    hidden: Floats | None = None  # (n, h) recorded features that the model does not observe, NaN if missing
    hidden_names: tuple[str, ...] = ()
    breaks: Mask | None = None  # (n,) rounds that stand for a long gap, after which another series begins

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
        """Check the arrays. `features` is the number of features that the model observes."""
        ys = _columns("observations", observations, features)
        if len(ys) == 0:
            raise invalid("observations", "at least one row", "none")
        values = validation.numbers("rewards", rewards, "numbers, one per round, or one per round and arm")
        if values.ndim not in (1, 2) or len(values) != len(ys) or 0 in values.shape:
            expected = f"shape ({len(ys)},), for the arms played, or ({len(ys)}, arms)"
            raise invalid("rewards", expected, f"shape {values.shape}")
        if classify_values(values.reshape(len(ys), -1)) == EXCESSIVE:
            raise invalid("rewards", f"numbers within ±{LIMIT:g} or NaN", "a larger number")
        played = _arms_played(arms, values, len(ys))
        count = values.shape[1] if values.ndim == 2 else int(played.max()) + 1
        if arm_names is not None and values.ndim == 1:
            if len(arm_names) < count:
                raise invalid("arm_names", f"at least {count} names, one per arm", str(len(arm_names)))
            count = len(arm_names)
        truth = None if contexts is None else _columns("contexts", contexts, None, len(ys))
        if truth is not None and np.isnan(truth).any():
            raise invalid("contexts", "numbers without NaN", "an entry that is NaN")
        features_hidden = None if hidden is None else _columns("hidden", hidden, None, len(ys))
        return cls(
            observations=ys,
            arms=played,
            rewards=values,
            sensors=_names("sensors", sensors, features, "entry"),
            arm_names=_names("arm_names", arm_names, count, "arm"),
            contexts=truth,
            contexts_name=contexts_name,
            hidden=features_hidden,
            hidden_names=()
            if features_hidden is None
            else _names("hidden_names", hidden_names, features_hidden.shape[1], "hidden"),
        )

    @property
    def rounds(self) -> int:
        return len(self.observations)

    @property
    def series(self) -> Floats:
        """The observations, with a row of infinite entries at each of `breaks`, as the kernels expect them."""
        return self.observations if self.breaks is None else np.where(self.breaks[:, None], np.inf, self.observations)

    @property
    def full_information(self) -> bool:
        """Whether the rewards of all arms are known, not only those of the arms played."""
        return self.rewards.ndim == 2

    def observed_rewards(self) -> ObservedRewards:
        """Return the rewards of all arms if they are known, otherwise those of the arms played."""
        if self.full_information:
            # `nonzero` returns strided views, but kernels are compiled for contiguous arrays.
            rounds, arms = map(np.ascontiguousarray, np.nonzero(~np.isnan(self.rewards)))
            return ObservedRewards(rounds, arms, self.rewards[rounds, arms])
        rounds = np.flatnonzero(~np.isnan(self.rewards))
        return ObservedRewards(rounds, self.arms[rounds], self.rewards[rounds])

    def rewards_of_played(self) -> ObservedRewards:
        """Return the rewards of the arms played, in the rounds in which the arm is known."""
        if not self.full_information or len(self.arms) == 0:
            return self.observed_rewards()
        rounds = np.flatnonzero(self.arms >= 0)
        rewards = self.rewards[rounds, self.arms[rounds]]
        known = ~np.isnan(rewards)
        return ObservedRewards(rounds[known], self.arms[rounds[known]], rewards[known])


def _columns(argument: str, value: ArrayLike, columns: int | None, rows: int | None = None) -> Floats:
    array = validation.numbers(argument, value, "a table of numbers")
    if array.ndim != 2 or (columns is not None and array.shape[1] != columns) or array.shape[1] == 0:
        expected = "a table with one row per round" if columns is None else f"a table of {columns} columns"
        raise invalid(argument, expected, f"shape {array.shape}")
    if rows is not None and len(array) != rows:
        raise invalid(argument, f"{rows} rows, one per round", str(len(array)))
    if len(array) and classify_values(array) == EXCESSIVE:
        raise invalid(argument, f"numbers within ±{LIMIT:g} or NaN", "a larger number")
    return array


def _arms_played(arms: ArrayLike | None, rewards: Floats, rounds: int) -> Ints:
    if arms is None and rewards.ndim == 2:
        return np.zeros(0, dtype=np.int64)
    if arms is None:
        raise invalid("arms", "the arm played in each round, or rewards with one column per arm", "nothing")
    played = np.asarray(validation.as_list("arms", arms, "the index of the arm played in each round"))  # type: ignore[arg-type]
    if played.shape != (rounds,) or played.dtype.kind not in "iu" or played.min() < 0:
        raise invalid("arms", f"{rounds} indices of arms", f"{played.dtype} values of shape {played.shape}")
    if rewards.ndim == 2 and played.max() >= rewards.shape[1]:
        raise invalid("arms", f"indices below {rewards.shape[1]}, the number of columns of rewards", str(played.max()))
    return played.astype(np.int64)


def _names(argument: str, names: Sequence[str] | None, count: int, word: str) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{word} {i}" for i in range(count))
    listed = [str(name) for name in validation.as_list(argument, names, f"{count} names")]
    if len(listed) != count or len(set(listed)) != count:
        raise invalid(argument, f"{count} distinct names", repr(listed))
    return tuple(listed)


@dataclass(frozen=True, eq=False)
class ExaminationSubject:
    """A model, the data for its examination, and how the model is used."""

    model: LinearGaussianModel
    data: ExaminationData
    fitted: bool = False  # whether the model was fitted to these observations
    plain: bool = False  # whether the agent rejected the model and uses the raw observation
    alternatives: tuple[LinearGaussianModel, ...] = ()  # models of other dimensions for the same observations
    retired: frozenset[int] = frozenset()  # indices of retired arms
    first_round: int = 1  # number of the first round of the data, counted from the start of the stream


def subject_of_adaptive(
    estimator: Estimator,
    row: int,
    arm_names: Sequence[str],
    retired: Iterable[int] = (),
    sensors: Sequence[str] | None = None,
) -> ExaminationSubject | None:
    """Return the model and the history of stream `row` of an adaptive estimator, in the units of the estimator.

    Return None for other estimators, before there is a model, and while the history is too short. If the agent rejected
    the model and uses the raw observation or a level (a random walk observed with noise), return the best of the
    identified candidates. A level is never returned, because it is selected for predicting rewards and not for
    describing how the observations move.
    """
    if not isinstance(estimator, Adaptive) or not estimator.identified[row]:
        return None
    count, candidate = int(estimator.history.stored_rounds[row]), int(estimator.candidates.chosen_candidate[row])
    plain = bool(estimator.uses_raw_observation[row])
    rejected = plain or bool(estimator.uses_level[row])
    if count < ENOUGH_ROUNDS or (rejected and candidate < 0):
        return None
    ys, arms, rewards, window = estimator.window(row)
    scaled = (ys - estimator.centre[row]) / estimator.scale[row]
    data = ExaminationData.from_arrays(
        scaled, arms, rewards, features=scaled.shape[1], sensors=sensors, arm_names=list(arm_names)
    )
    breaks = estimator.history.gaps[row, window] == BREAK
    if breaks.any():
        data = replace(data, breaks=breaks)
    candidates = _candidate_models(estimator, row)
    model = candidates.get(candidate) if rejected else _current_model(estimator, row)
    if model is None:
        return None
    others = tuple(one for at, one in candidates.items() if at not in (candidate, estimator.candidates.level))
    return ExaminationSubject(
        model,
        data,
        fitted=True,
        plain=plain,
        alternatives=others,
        retired=frozenset(retired),
        first_round=history_rounds(estimator, row).start + 1,
    )


def first_examined_round(estimator: Estimator, row: int) -> int | None:
    """Return the round in which the history of stream `row` will be long enough.

    Return None if the history is long enough already, or if the estimator has no history.
    """
    if not isinstance(estimator, Adaptive) or int(estimator.history.stored_rounds[row]) >= ENOUGH_ROUNDS:
        return None
    return int(estimator.history.dropped_rounds[row]) + ENOUGH_ROUNDS


def history_decisions(estimator: Estimator, row: int, decisions: int) -> Ints:
    """Return, for every round in the examination data, the number of its decision from 0 on, or −1 for a gap.

    `decisions` is the number of decisions of the stream. The stream must have no observations without a decision.
    """
    assert isinstance(estimator, Adaptive)
    decided = np.flatnonzero(estimator.history.gaps[row, estimator.window(row)[3]] == 0)
    numbers = np.full(estimator.window(row)[3].stop - estimator.window(row)[3].start, -1)
    numbers[decided] = np.arange(decisions - len(decided), decisions)
    return numbers


def observed_without_deciding(estimator: Estimator, row: int, extra_rounds: int) -> bool:
    """Return whether some rounds without a decision may have an observation, and so are not gaps.

    After a detected change of the dynamics, earlier gaps are no longer counted, so the result may be True even if there
    were no such observations.
    """
    assert isinstance(estimator, Adaptive)
    return extra_rounds != int(estimator.gap_rounds[row])


def history_rounds(estimator: Estimator, row: int) -> slice:
    """Return the rounds of the estimator, counted from 0, that are in its examination data."""
    assert isinstance(estimator, Adaptive)
    offset, window = int(estimator.history.dropped_rounds[row]), estimator.window(row)[3]
    return slice(offset + window.start, offset + window.stop)


def _current_model(estimator: Adaptive, row: int) -> LinearGaussianModel | None:
    D, Q, R, _, _ = estimator.parameters(row)
    return _model(D, Q, R)


def _candidate_models(estimator: Adaptive, row: int) -> dict[int, LinearGaussianModel]:
    """Return the identified models of all dimensions, by candidate, in the current units of the estimator."""
    models = {}
    for candidate in map(int, np.flatnonzero(estimator.candidates.candidate_fitted[row])):
        D, Q, R, _, _ = estimator.candidates.warm_start(row, candidate, estimator.scale[row])
        model = _model(D, Q, R)
        if model is not None:
            models[candidate] = model
    return models


def _model(D: Floats, Q: Floats, R: Floats) -> LinearGaussianModel | None:
    """Return a model, or None if a matrix is not a covariance because of rounding."""
    try:
        return LinearGaussianModel(transition=D, process_cov=0.5 * (Q + Q.T), observation_cov=R)
    except HalfseenError:
        return None
