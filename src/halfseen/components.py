"""The base classes of the three components of an agent: `Estimator`, `Learner` and `Chooser`.

Every component works on a batch of B streams. The arrays of a component have a leading axis of length B. A method that
concerns some of the streams takes their indices as `rows` (n,), and its other arguments and its results have one entry
per row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfseen.errors import HalfseenError, invalid
from halfseen.kernels.random import Floats, Ints, Keys
from halfseen.validation import ANY_REWARD, RewardRange, check_finite, check_range

State = dict[str, NDArray[Any]]
Mask = NDArray[np.bool_]
IntegerBounds = Mapping[str, tuple[ArrayLike, ArrayLike]]  # smallest and largest allowed value, by name of the array
MAX_COUNT = 2**53  # the default upper bound of the integers in a state
# Estimators that learn their model process gaps (rounds without an observation) of up to this length round by round.
# The estimator decides what happens in a longer gap. For example, `adaptive` begins another series of observations.
LONGEST_GAP = 100
ROW_GROWTH = 1.5  # factor by which arrays grow when they need more rows


@dataclass(frozen=True)
class StreamBatch:
    """The streams that a component is built for.

    `keys` are the keys of their random draws, `observed` is the number k of observed features and `arms` is the
    number K of arms.
    """

    keys: Keys
    observed: int
    arms: int

    @property
    def count(self) -> int:
        return len(self.keys)


def resized(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Return a copy of an array with `count` rows. Further rows are cut off, and missing rows are filled with zeros."""
    if count <= len(array):
        return array[:count].copy()
    longer = np.zeros((count, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def distinct_batches(rows: Ints) -> list[Ints]:
    """Split `rows` (n,), in which a stream may occur several times, into batches without repetitions.

    Each batch is an array of indices into `rows`. The entries of one stream keep their order.
    """
    order = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
    nth = np.empty(len(rows), dtype=np.int64)
    nth[order] = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    return [np.flatnonzero(nth == n) for n in range(int(nth.max(initial=-1)) + 1)]


class Stateful:
    """An object whose state is a set of arrays with one row per stream.

    The state consists of the arrays named in `state_names` and of the states of the attributes named in `nested`. The
    arrays named in `recorded` contain observations or rewards as they were given, with NaN for missing numbers. All
    other numbers of a state are finite. The arrays named in `per_stream` also have one row per stream, but never
    change: they are options that may differ between streams.
    """

    state_names: ClassVar[tuple[str, ...]] = ()
    recorded: ClassVar[tuple[str, ...]] = ()
    per_stream: ClassVar[tuple[str, ...]] = ()
    nested: ClassVar[tuple[str, ...]] = ()

    def state(self, rows: Ints | None = None) -> State:
        """Return the arrays of the state by name. If `rows` is given, return copies of these rows only."""
        arrays = self._own_state(rows)
        for name in self.nested:
            arrays |= getattr(self, name).state(rows)
        return arrays

    def _own_state(self, rows: Ints | None) -> State:
        arrays = {name: getattr(self, name) for name in self.state_names}
        return arrays if rows is None else {name: array[rows] for name, array in arrays.items()}

    def check(self, state: State, count: int) -> None:
        """Raise an error unless `state` is a possible state of `count` streams."""
        for name, mine in self._own_state(None).items():
            given = np.asarray(state.get(name))
            shape = self._state_shape(name, mine, given, count)
            if given.dtype != mine.dtype or given.shape != shape:
                raise invalid(f"state '{name}'", f"{mine.dtype} {shape}", f"{given.dtype} {given.shape}")
        for name in self.nested:
            getattr(self, name).check(state, count)
        self.check_ranges(state)
        self.check_consistency(state)

    def _state_shape(self, name: str, mine: NDArray[Any], given: NDArray[Any], count: int) -> tuple[int, ...]:
        return (count, *mine.shape[1:])

    def integer_bounds(self, state: State) -> IntegerBounds:
        """Return the allowed ranges of the integer arrays whose range is not 0 to MAX_COUNT.

        `state` is the state to be checked. The state of an estimator or a learner also contains `rounds` (B,), the
        number of rounds of each stream.
        """
        return {}

    def check_ranges(self, state: State) -> None:
        """Raise an error if a number is out of range. Kernels use integers as indices without checking bounds."""
        bounds = self.integer_bounds(state)
        for name in self.state_names:
            given = np.asarray(state[name])
            if given.dtype.kind in "iu":
                check_range(f"state '{name}'", given, *bounds.get(name, (0, MAX_COUNT)))
            elif given.dtype.kind == "f":
                check_finite(f"state '{name}'", given, recorded=name in self.recorded)

    def check_consistency(self, state: State) -> None:
        """Raise an error if arrays of the right shape contradict each other."""

    def restore(self, state: State, rows: Ints | None = None) -> None:
        """Take over a state that `state()` returned or, if `rows` is given, a state that `state(rows)` returned."""
        for name in self.state_names:
            if rows is None:
                setattr(self, name, np.array(state[name], order="C"))  # a copy: two agents never share an array
            else:
                getattr(self, name)[rows] = state[name]
        for name in self.nested:
            getattr(self, name).restore(state, rows)
        self.rebuild_caches(rows)

    def resize(self, streams: StreamBatch) -> None:
        """Change the number of streams. The state of additional streams is zero and must be restored."""
        for name in self.state_names:
            setattr(self, name, resized(getattr(self, name), streams.count))
        for name in self.per_stream:
            array = getattr(self, name)[: streams.count]
            more = np.repeat(array[:1], streams.count - len(array), axis=0)
            setattr(self, name, np.concatenate([array, more]))
        for name in self.nested:
            getattr(self, name).resize(streams)

    def rebuild_caches(self, rows: Ints | None = None) -> None:
        """Recompute the arrays that are not saved because they follow from the state, for `rows` or for all streams."""

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        """Return facts about stream `row` by name, and one sentence for each problem of the stream."""
        return {}, []


def _drop_inherited(component: type, base: type, shortcut: str, *steps: str) -> None:
    """Give a class that overrides one of the methods `steps`, but not `shortcut`, the `shortcut` of `base`.

    A shortcut inherited from a class in between would not call the overriding methods.
    """

    def depth(name: str) -> int:
        return next(depth for depth, owner in enumerate(component.__mro__) if name in vars(owner))

    if min(map(depth, steps)) < depth(shortcut):
        setattr(component, shortcut, getattr(base, shortcut))


def _not_implemented(component: Stateful, what: str) -> HalfseenError:
    return HalfseenError(f"{type(component).__name__} cannot {what}.")


class Estimator(Stateful, ABC):
    """Estimates the context of each round from the observations.

    The estimate is a feature vector, which the learner uses as the context. An estimator counts the rounds in which a
    decision was made or something was observed. If it uses time, it may also count rounds without an observation.
    """

    dimension: int  # p, the length of a feature vector
    reveals_context: ClassVar[bool] = False  # whether `observe` needs the true context
    scales_observations: ClassVar[bool] = False  # whether decisions are independent of the units of observations
    coordinates: str  # the coordinates of the features: "context" (as in the world), "canonical", or "none" of these

    @abstractmethod
    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        """Process the observations y_t (n, k) and return the features (n, p) as a new array.

        Missing entries of y_t are NaN; `complete` is true if no entry is missing. `contexts` (n, d) are the true
        contexts, for estimators that set `reveals_context`.
        """

    def observe_rounds(self, observations: Floats, rounds: Ints, contexts: Floats | None, features: Floats) -> None:
        """Observe n rounds of all streams, starting with round `rounds` (B,).

        The result is the same as that of n calls of `observe`. The observations (n, B, k) have no missing entries. The
        features are written into `features` (B, n, p).
        """
        all_rows = np.arange(len(rounds))
        for t, y in enumerate(observations):
            revealed = None if contexts is None else contexts[t]
            features[:, t] = self.observe(all_rows, y, rounds + t, True, revealed)

    # The next two methods are for estimators with `uses_time`, for which the time between observations matters.

    uses_time: ClassVar[bool] = False

    def pass_rounds(self, rows: Ints, rounds: Ints, missing: Ints) -> Ints:
        """Process `missing` (n,) rounds without an observation, which follow the rounds `rounds` (n,).

        Each entry of `missing` is at least 1. Returns the number (n,) of the last round passed. An estimator may count
        fewer rounds than are missing.
        """
        return rounds + missing

    def look_again(self, rows: Ints, observations: Floats, rounds: Ints, contexts: Floats | None) -> Floats:
        """Process an observation that was made at the same time as the last one.

        Unless an estimator overrides this method, the observation is treated as an observation of the next round.
        """
        return self.observe(rows, observations, rounds, not np.isnan(observations).any(), contexts)

    def forecast(self, row: int, horizon: int) -> tuple[Floats, Floats]:
        """Return mean (h, p) and covariance (h, p, p) of the features 1, ..., `horizon` rounds ahead.

        Estimators without a model of how contexts move do not override the method.
        """
        raise _not_implemented(self, "forecast contexts")

    def __init_subclass__(cls) -> None:
        _drop_inherited(cls, Estimator, "observe_rounds", "observe")
        _drop_inherited(cls, Estimator, "replace_rewards", "update_from_rewards", "features_of")

    # The methods below are for estimators that learn from rewards or refit their model. The policy calls only those
    # methods that a class overrides.

    def features_of(self, rows: Ints, rounds: Ints, features: Floats) -> Floats:
        """Return the features of past `rounds` (n,) under the current model.

        `features` (n, p) are the features on which the decisions of these rounds were based.
        """
        return features

    def update_from_rewards(self, rows: Ints, rounds: Ints, arms: Ints, rewards: Floats, learner: Learner) -> None:
        """Update the belief from the rewards (n,) of `rounds` (n,), which `learner` has just learnt. Never raises."""

    def replace_rewards(
        self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, learner: Learner
    ) -> Floats:
        """Replace the rewards that `update_from_rewards` was given for `rounds` (n,). Never raises.

        Returns the features (n, p) with which the learner has to replace the rewards. They are NaN for rewards that the
        learner must not replace. If an estimator learns from rewards but does not override this method, its agents do
        not accept provisional rewards.
        """
        raise _not_implemented(self, "replace rewards that it has learnt")

    def bind_learner(self, learner: Learner) -> None:
        """Receive the learner that learns on the features. The policy calls this method once."""

    def due_for_refit(self, rows: Ints) -> Ints:
        """Return the streams among `rows` whose model has to be refitted now. All `rows` have just been observed."""
        return rows[:0]

    def refit(self, rows: Ints, learner: Learner) -> None:
        """Refit the models of `rows`, and give the learner the state that it would have under the new models."""

    def refit_now(self, row: int) -> None:
        """Refit the model of stream `row`, even if no refit is due. `Agent.refit` calls this method."""

    def is_refit_due(self, row: int) -> bool:
        return False

    def model(self, row: int) -> State:
        """Return the result of the last refit of stream `row`.

        The result consists of the arrays that `accept` cannot compute from the history.
        """
        return {}

    def accept(self, row: int, model: State) -> None:
        """Give stream `row` a model that the method `model` returned, and process the stored history again with it.

        The model may come from another process that has refitted a copy of the stream.
        """


def observe_nothing(estimator: Estimator, rows: Ints, rounds: Ints, missing: Ints, observed: int) -> None:
    """Call `observe` for the `missing` (n,) rounds that follow the rounds `rounds` (n,), with `observed` NaNs each."""
    for i in range(int(missing.max(initial=0))):
        part = missing > i
        nothing = np.full((int(part.sum()), observed), np.nan)
        estimator.observe(rows[part], nothing, rounds[part] + i + 1, False, None)


class Payoffs(NamedTuple):
    """The rewards of all arms in n rounds of B streams."""

    expected: Floats  # (B, n, K) expected rewards
    noise: Floats  # (B, n) added to the expected reward of whichever arm is played
    unit: float  # learners receive rewards divided by this number


class Learner(Stateful, ABC):
    """Predicts the reward of every arm from the features of a round."""

    prior_precision: float = 1.0  # λ, if the prior of the arm parameters is N(0, I/λ)
    link: Link | None = None  # set if `score` predicts linear predictors instead of rewards
    weighs_propensity: ClassVar[bool] = False  # whether the last feature must be the propensity of the arm played
    arms: int  # K; `add_arm` increases it
    reward_range: RewardRange = ANY_REWARD  # the rewards that can be learnt
    weighs_noise: bool = False  # whether `expected_rewards` needs `Choices.noise_variances`

    @abstractmethod
    def score(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        """Predict the reward of every arm. Returns the predictions and their variances, both (n, K).

        The predictions may be on another scale than the rewards, but larger ones must mean larger expected rewards.
        `expected_rewards` converts them to rewards.
        """

    def predict(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the variance (n, K) of the prediction of every arm under one posterior.

        The results differ from those of `score` if the learner scores an arm by the most optimistic of several
        posteriors.
        """
        return self.score(rows, features)

    def expected_rewards(self, choices: Choices) -> Floats:
        """Convert the predictions in `choices`, which `score` has made, to expected rewards (n, K)."""
        return choices.means

    def score_and_pick(
        self,
        rows: Ints,
        features: Floats,
        widths: Floats,
        distribution: int,
        keys: Keys,
        rounds: Ints,
        available: Mask,
        arms: Ints,
    ) -> tuple[Floats, Floats]:
        """Do the work of `score` and of a chooser with a `draw_distribution` in one compiled call.

        Returns the results of `score` and writes the chosen arms into `arms` (n,). This method is optional: if a
        learner does not override it, the policy calls `score` and `Chooser.pick`.
        """
        raise _not_implemented(self, "score and pick in one call")

    def play_rounds(
        self,
        features: Floats,
        widths: Floats,
        distribution: int,
        keys: Keys,
        rounds: Ints,
        available: Mask,
        payoffs: Payoffs,
        arms: Ints,
        rewards: Floats,
    ) -> None:
        """Play n rounds of all streams, starting with round `rounds` (B,).

        The result is the same, bit for bit, as if `score_and_pick` and `learn` were called in every round. The
        features are (B, n, p). The widths are (B, K) if they are the same in all rounds, and (B, n, K) otherwise. The
        arms and rewards are written into `arms` and `rewards`, both (B, n). This method is optional: if a learner does
        not override it, the policy plays round by round.
        """
        raise _not_implemented(self, "play several rounds in one call")

    def __init_subclass__(cls) -> None:
        _drop_inherited(cls, Learner, "play_rounds", "score", "score_and_pick", "learn")
        _drop_inherited(cls, Learner, "replace_rewards", "learn")
        _drop_inherited(cls, Learner, "may_refuse", "learn")

    @abstractmethod
    def learn(self, rows: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        """Learn the rewards (n,) of the arms (n,), which were played in rounds with the features (n, p).

        `rows` may contain a stream several times. The rewards of one stream are learnt in the given order.
        """

    def may_refuse(self, features: Floats) -> bool:
        """Whether `learn` could raise an error for these features (n, p). True if this is not known."""
        return True

    def replacement_data(self, rows: Ints, arms: Ints) -> Floats:
        """Return the data (n, 2) that `replace_rewards` will need for rewards of `arms` (n,) that are learnt now.

        The first column is the noise variance with which the reward would be learnt. The second column is the number
        of the reward, counted from 1 per arm or, in some learners, per stream. Only learners that are refitted to their
        history need this data; other learners do not override this method.
        """
        return np.tile([1.0, 0.0], (len(rows), 1))

    def replace_rewards(
        self, rows: Ints, features: Floats, arms: Ints, old_rewards: Floats, rewards: Floats, replacement_data: Floats
    ) -> None:
        """Replace `old_rewards` (n,), as if `rewards` (n,) had been learnt instead. Never raises.

        `replacement_data` (n, 2) is what the method `replacement_data` returned before each reward was learnt. If a
        learner does not override this method, its agents do not accept provisional rewards.
        """
        raise _not_implemented(self, "replace rewards that it has learnt")

    @abstractmethod
    def add_arm(self, params: ArrayLike | None) -> None:
        """Add an arm to every stream, after the existing arms.

        `params` are the parameters of the arm, for learners that are given the parameters and do not estimate them.
        """

    def noise(self, rows: Ints, features: Floats) -> Floats:
        """Return the estimated noise variance of a reward per arm, (n, K), on the scale of the variances of `score`."""
        return np.ones((len(rows), self.arms))

    def reuse(self, rows: Ints, features: Floats) -> Floats:
        """Return, per arm, how much a reward in the context c tells about rewards in other contexts, (n, K).

        `features` (n, p) are the contexts c. The result is the mean of (cᵀC_a c')²/(cᵀC_a c)² over the contexts c' so
        far, where C_a is the posterior covariance of the arm's parameters. The value 1 means that the reward tells as
        much about rewards in other contexts as about rewards in the context c.
        """
        return np.ones((len(rows), self.arms))

    def log_determinants(self, rows: Ints) -> Floats | float:
        """Return log |B_a| − log |λI| per arm, (n, K). B_a is the posterior precision, λI the prior precision."""
        return 0.0

    def arms_without_reward(self, row: int) -> Ints | None:
        """Return the arms of stream `row` that have no reward yet, or None if the learner does not count rewards."""
        return None


class Link(NamedTuple):
    """The relation between the linear predictor of an arm and its expected reward, for clicks and counts."""

    mean: Callable[[Floats], Floats]  # from linear predictors to expected rewards, increasing
    inverse: Callable[[Floats], Floats]  # from rewards to linear predictors; ±inf outside of the range of `mean`


class Choices(NamedTuple):
    """The decisions of n streams in one round, with everything that their probabilities depend on."""

    rounds: Ints  # (n,) rounds of the estimator, from 1
    arms: Ints  # (n,) the chosen arms
    features: Floats  # (n, p) on which the choices were based
    means: Floats  # (n, K) predicted rewards, on the scale of `Learner.score`
    variances: Floats  # (n, K) of the predictions
    widths: Floats  # the result of `Chooser.widths`
    available: Mask  # (n, K) at least one arm per row
    noise_variances: Floats | None  # (n, K) the result of `Learner.noise`, if the chooser needs it
    reuse: Floats | None = None  # (n, K) the result of `Learner.reuse`, if the chooser needs it
    reserved: Floats | None = None  # (n, K) the part of each propensity that guardrails determine, if there are any
    branches: Ints | None = None  # (n,) what made each decision (`guardrails.BRANCHES`), or −1 if this is not known
    penalties: Floats | None = None  # (n, K) the cost of each arm in units of reward, if there are costs
    link: Link | None = None  # the learner's link, if there are penalties and `means` are linear predictors
    numbers: Ints | None = None  # (n,) the numbers of the decisions, if they differ from `rounds`

    @property
    def decisions(self) -> Ints:
        """The numbers (n,) of the decisions, from 1. The random draws depend on these numbers."""
        return self.rounds if self.numbers is None else self.numbers


class Chooser(ABC):
    """Chooses one of the available arms from the predictions of the learner."""

    weighs_noise: bool = False  # whether the chooser needs `Choices.noise_variances`
    weighs_reuse: bool = False  # whether the chooser needs `Choices.reuse`
    # For choosers that play the arm with the highest score m_a + width_a·std_a·ζ_a: the distribution of the draws ζ_a.
    draw_distribution: int | None = None
    _constant: Floats = np.empty((0, 0))

    @abstractmethod
    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        """Return the width of exploration of each arm, in standard deviations of its prediction, (n, K).

        Choosers that explore in another way return what `probabilities` needs instead of widths: FlooredGreedy returns
        the smallest probability of each arm, (n, K), and StateSampling the reward of each arm in each state, (n, K, S).
        """

    def constant_widths(self, width: float, rows: Ints, learner: Learner) -> Floats:
        """Return an array (n, K) filled with `width`. The array is cached, as most calls have the same n and K."""
        if self._constant.shape != (len(rows), learner.arms):
            self._constant = np.full((len(rows), learner.arms), width)
        return self._constant

    def widths_for_rounds(self, rows: Ints, rounds: Ints, count: int, learner: Learner) -> Floats | None:
        """Return the widths of `count` rounds, starting with round `rounds` (n,).

        The result is (n, K) if the widths are the same in all rounds, (n, count, K) if they are not, and None if they
        depend on rewards of these rounds.
        """
        return None

    def __init_subclass__(cls) -> None:
        _drop_inherited(cls, Chooser, "widths_for_rounds", "widths")

    def with_penalties(self, choices: Choices) -> Choices:
        """Return `choices` with predicted rewards from which the penalties (n, K) are subtracted.

        If the predictions are linear predictors, they are first converted to rewards, with approximate variances.
        """
        assert choices.penalties is not None
        means, variances = choices.means, choices.variances
        if choices.link is not None:
            stds = np.sqrt(variances)
            means, up, down = (choices.link.mean(means + shift) for shift in (0.0, 0.5 * stds, -0.5 * stds))
            variances = (up - down) ** 2
        return choices._replace(means=means - choices.penalties, variances=variances, link=None)

    @abstractmethod
    def pick(self, choices: Choices, keys: Keys) -> None:
        """Write one available arm per row into `choices.arms`.

        Every random number is a function of the keys, `choices.decisions` and Purpose.CHOICE.
        """

    @abstractmethod
    def probabilities(self, choices: Choices) -> Floats:
        """Return the exact probability with which `pick` chooses each arm, (n, K)."""
