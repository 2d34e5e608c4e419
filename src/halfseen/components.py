"""What an estimator, a learner and a chooser are: the three parts every agent is made of.

All parts work on a batch of streams. Arrays carry a leading axis B (streams); a call names the streams it is
about in `rows` (n,), and its inputs and outputs are aligned with `rows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfseen.errors import HalfseenError, invalid
from halfseen.kernels.random import Floats, Ints, Keys
from halfseen.validation import check_range

State = dict[str, NDArray[Any]]
Mask = NDArray[np.bool_]
IntegerBounds = Mapping[str, tuple[ArrayLike, ArrayLike]]  # of arrays by name: the least and the greatest integer
MAX_COUNT = 2**53  # no count comes that far


@dataclass(frozen=True)
class StreamBatch:
    """The streams that a part is built for: the keys of their random draws, what they see and what they may play."""

    keys: Keys
    observed: int
    arms: int

    @property
    def count(self) -> int:
        return len(self.keys)


def resized(array: NDArray[Any], count: int) -> NDArray[Any]:
    """The first `count` rows of an array; where it has fewer, zeros follow."""
    if count <= len(array):
        return array[:count].copy()
    longer = np.zeros((count, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


class Stateful:
    """Something whose state is arrays with a leading axis of streams.

    The state is the arrays named in `state_names` and the state of the attributes named in `parts`. The arrays named
    in `per_stream` have the same leading axis and are never changed: options that may differ between streams.
    """

    state_names: ClassVar[tuple[str, ...]] = ()
    per_stream: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[tuple[str, ...]] = ()

    def state(self, rows: Ints | None = None) -> State:
        """The arrays by name; with `rows`, a copy of those rows."""
        arrays = self._own_state(rows)
        for part in self.parts:
            arrays |= getattr(self, part).state(rows)
        return arrays

    def _own_state(self, rows: Ints | None) -> State:
        arrays = {name: getattr(self, name) for name in self.state_names}
        return arrays if rows is None else {name: array[rows] for name, array in arrays.items()}

    def check(self, state: State, count: int) -> None:
        """Refuse arrays that are not the state of `count` streams of this kind."""
        for name, mine in self._own_state(None).items():
            given = np.asarray(state.get(name))
            shape = self._state_shape(name, mine, given, count)
            if given.dtype != mine.dtype or given.shape != shape:
                raise invalid(f"state '{name}'", f"{mine.dtype} {shape}", f"{given.dtype} {given.shape}")
        for part in self.parts:
            getattr(self, part).check(state, count)
        self.check_ranges(state)
        self.check_consistency(state)

    def _state_shape(self, name: str, mine: NDArray[Any], given: NDArray[Any], count: int) -> tuple[int, ...]:
        return (count, *mine.shape[1:])

    def integer_bounds(self, state: State) -> IntegerBounds:
        """Between which values integers of the state must lie, where that is not 0 to MAX_COUNT.

        `state` is what is to be restored. That of an estimator holds the `rounds` (B,) of the streams as well.
        """
        return {}

    def check_ranges(self, state: State) -> None:
        """Refuse integers that lie outside their limits: kernels index by them and check no bounds."""
        bounds = self.integer_bounds(state)
        for name in self.state_names:
            given = np.asarray(state[name])
            if given.dtype.kind in "iu":
                check_range(f"state '{name}'", given, *bounds.get(name, (0, MAX_COUNT)))

    def check_consistency(self, state: State) -> None:
        """Refuse arrays of the right shape that contradict each other."""

    def restore(self, state: State, rows: Ints | None = None) -> None:
        """Become what `state()` described; with `rows`, let those rows become what `state(rows)` described."""
        for name in self.state_names:
            if rows is None:
                setattr(self, name, np.array(state[name], order="C"))  # a copy: two agents never share an array
            else:
                getattr(self, name)[rows] = state[name]
        for part in self.parts:
            getattr(self, part).restore(state, rows)
        self.rebuild_caches(rows)

    def resize(self, streams: StreamBatch) -> None:
        """Make room for other streams. Rows stay as they are; the state of new ones is to be restored."""
        for name in self.state_names:
            setattr(self, name, resized(getattr(self, name), streams.count))
        for name in self.per_stream:
            array = getattr(self, name)[: streams.count]
            more = np.repeat(array[:1], streams.count - len(array), axis=0)
            setattr(self, name, np.concatenate([array, more]))
        for part in self.parts:
            getattr(self, part).resize(streams)

    def rebuild_caches(self, rows: Ints | None = None) -> None:
        """Recompute what follows from the state of `rows`, or of all streams, and is not saved with it."""

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        """Facts about stream `row` by name, and a sentence for each thing that is wrong with it."""
        return {}, []


def _drop_inherited(part: type, base: type, shortcut: str, *steps: str) -> None:
    """Undo an inherited `shortcut` in a class that changes one of the `steps` it is a shortcut for, but not itself."""

    def depth(name: str) -> int:
        return next(depth for depth, owner in enumerate(part.__mro__) if name in vars(owner))

    if min(map(depth, steps)) < depth(shortcut):
        setattr(part, shortcut, getattr(base, shortcut))


def _irreplaceable(part: Stateful) -> HalfseenError:
    return HalfseenError(f"{type(part).__name__}: it cannot put another reward in the place of one that it has learnt")


class Estimator(Stateful, ABC):
    """What is the context now?"""

    dimension: int  # of the feature handed to the learner
    reveals_context: ClassVar[bool] = False  # whether `observe` wants the true context
    coordinates: str  # of the features: the world's own ("context"), "canonical" ones, or others ("none")

    @abstractmethod
    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        """Take in y_t (n, k), NaN where not seen (`complete` says there is none); the features (n, p), a copy."""

    def observe_rounds(self, observations: Floats, rounds: Ints, contexts: Floats | None, features: Floats) -> None:
        """`observe` of all streams in n rounds from `rounds` (B,) on, to the last bit.

        All of the observations (n, B, k) is seen; the features are written into (B, n, p).
        """
        everyone = np.arange(len(rounds))
        for t, y in enumerate(observations):
            shown = None if contexts is None else contexts[t]
            features[:, t] = self.observe(everyone, y, rounds + t, True, shown)

    def __init_subclass__(cls) -> None:
        _drop_inherited(cls, Estimator, "observe_rounds", "observe")
        _drop_inherited(cls, Estimator, "replace_rewards", "update_from_rewards", "features_of")

    # What follows is for estimators that learn from rewards or refit their model. The policy does not call what a
    # class leaves as it is here.

    def features_of(self, rows: Ints, rounds: Ints, features: Floats) -> Floats:
        """The beliefs of `rounds` (n,) under the model now in force, given the `features` they were decided on."""
        return features

    def update_from_rewards(self, rows: Ints, rounds: Ints, arms: Ints, rewards: Floats, learner: Learner) -> None:
        """Take in rewards (n,) of `rounds` (n,) that the learner has just learnt; refuses nothing."""

    def replace_rewards(
        self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, learner: Learner
    ) -> Floats:
        """Put rewards (n,) in the place of those taken in before for the same `rounds`; refuses nothing.

        Returns the features (n, p) on which the learner is to correct them, NaN where it is not to. An estimator that
        learns from rewards and does not override this takes no provisional rewards.
        """
        raise _irreplaceable(self)

    def bind_learner(self, learner: Learner) -> None:
        """Receive, once, the learner that the features go to."""

    def due_for_refit(self, rows: Ints) -> Ints:
        """Those of `rows`, just observed, whose model is to be refitted now."""
        return rows[:0]

    def refit(self, rows: Ints, learner: Learner) -> None:
        """Refit the model of `rows`, and bring the learner to what it would know under it."""

    def refit_now(self, row: int) -> None:
        """The same for stream `row`, due or not: what `Agent.refit` asks for."""

    def is_refit_due(self, row: int) -> bool:
        """Whether the model of stream `row` is to be refitted."""
        return False

    def model(self, row: int) -> State:
        """What the last refit of stream `row` found, by name: all that is not folded from its history."""
        return {}

    def accept(self, row: int, model: State) -> None:
        """Go on with what `model` gave for the same stream, here or elsewhere, and fold the kept history under it."""


class Payoffs(NamedTuple):
    """What arms pay in n rounds of B streams."""

    expected: Floats  # (B, n, K) in the mean
    noise: Floats  # (B, n) that comes to it, whatever the arm
    unit: float  # learners hear rewards divided by this


class Learner(Stateful, ABC):
    """What does each arm pay in a context?"""

    prior_precision: float = 1.0  # λ, where the posterior starts from λI
    weighs_propensity: ClassVar[bool] = False  # whether the last feature is to be the probability of the arm played
    arms: int  # K, which grows

    @abstractmethod
    def score(self, rows: Ints, features: Floats) -> tuple[Floats, Floats]:
        """Predicted reward of every arm and the variance of that prediction, both (n, K)."""

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
        """`score`, and into `arms` (n,) what a chooser with a `draw_distribution` picks on it, in one compiled call.

        Optional: the policy scores and picks in two steps where this is not overridden.
        """
        raise HalfseenError(f"{type(self).__name__}: it does not score and pick in one call")

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
        """`score_and_pick` and `learn` of all streams in n rounds from `rounds` (B,) on, to the last bit.

        The features are (B, n, p); the widths are (B, K) for all rounds, or (B, n, K). What was picked and what it paid
        go into `arms` and `rewards`, both (B, n). Optional: where this is not overridden, the policy goes round by
        round.
        """
        raise HalfseenError(f"{type(self).__name__}: it does not play several rounds in one call")

    def __init_subclass__(cls) -> None:
        _drop_inherited(cls, Learner, "play_rounds", "score", "score_and_pick", "learn")
        _drop_inherited(cls, Learner, "replace_rewards", "learn")
        _drop_inherited(cls, Learner, "may_refuse", "learn")

    @abstractmethod
    def learn(self, rows: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        """Credit rewards (n,) to the arms (n,) played on the features (n, p) of their own rounds.

        A row may be named more than once: its rewards are taken in the order given.
        """

    def may_refuse(self, features: Floats) -> bool:
        """Whether `learn` could refuse a reward of these features (n, p); True where that is not known."""
        return True

    def replacement_data(self, rows: Ints, arms: Ints) -> Floats:
        """With which noise variance a reward of the `arms` (n,) would be learnt now, and as which of all; (n, 2).

        For learners that are fitted anew and count rewards from 1; the others leave it as it is.
        """
        return np.tile([1.0, 0.0], (len(rows), 1))

    def replace_rewards(
        self, rows: Ints, features: Floats, arms: Ints, changes: Floats, replacement_data: Floats
    ) -> None:
        """Know what would be known had rewards learnt before been higher by `changes` (n,); refuses nothing.

        `replacement_data` (n, 2) are the results of the method of that name when the rewards were learnt. Rewards of a
        learner that does not override this method are never provisional.
        """
        raise _irreplaceable(self)

    @abstractmethod
    def add_arm(self, params: ArrayLike | None) -> None:
        """One more arm for every stream, after the others; `params` is for learners that must be told."""

    def noise(self, rows: Ints, features: Floats) -> Floats:
        """The variance of a reward around its mean, as believed, (n, K), in the units of `score`'s variances."""
        return np.ones((len(rows), self.arms))

    def reuse(self, rows: Ints, features: Floats) -> Floats:
        """How much of what a reward would teach here is of use in another round, (n, K); 1 is all of it.

        The mean over contexts c' met so far of (cᵀC_a c')²/(cᵀC_a c)², C_a being the covariance of the arm.
        """
        return np.ones((len(rows), self.arms))

    def log_determinants(self, rows: Ints) -> Floats | float:
        """log |B_a| relative to the prior, (n, K): how much each arm has been learnt about."""
        return 0.0

    def arms_without_reward(self, row: int) -> Ints | None:
        """The arms of stream `row` that have taught nothing yet; None where that cannot be known."""
        return None


class Choices(NamedTuple):
    """What was decided for n streams, and all that is needed to credit and to explain it."""

    rounds: Ints  # (n,), from 1
    arms: Ints  # (n,)
    features: Floats  # (n, p) the context each arm was chosen on
    means: Floats  # (n, K) predicted rewards
    variances: Floats  # (n, K) of those predictions
    widths: Floats  # of `Chooser.widths`
    available: Mask  # (n, K) at least one per row
    noise_variances: Floats | None  # (n, K) of a reward around its mean, if the chooser weighs it
    reuse: Floats | None = None  # (n, K) of `Learner.reuse`, if the chooser looks ahead


class Chooser(ABC):
    """Which arm do we play?"""

    weighs_noise: bool = False  # whether `Choices.noise_variances` is wanted
    weighs_reuse: bool = False  # whether `Choices.reuse` is wanted
    draw_distribution: int | None = None  # of ζ_a, where the arm played is the highest of m_a + width_a·std_a·ζ_a
    _constant: Floats = np.empty((0, 0))

    @abstractmethod
    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        """How many standard deviations of exploration each arm gets in this round, (n, K).

        A chooser that explores otherwise returns what its `probabilities` need to be repeated later: FlooredGreedy the
        least probability of each arm, (n, K), and StateSampling what each arm pays in each state, (n, K, S).
        """

    def constant_widths(self, width: float, rows: Ints, learner: Learner) -> Floats:
        """One number as widths (n, K). The array is kept, because most calls are for the same n and K."""
        if self._constant.shape != (len(rows), learner.arms):
            self._constant = np.full((len(rows), learner.arms), width)
        return self._constant

    def widths_for_rounds(self, rows: Ints, rounds: Ints, count: int, learner: Learner) -> Floats | None:
        """`widths` in `count` rounds from `rounds` on: (n, K) for all of them, or (n, count, K).

        None where they depend on what is learnt in these rounds.
        """
        return None

    def __init_subclass__(cls) -> None:
        _drop_inherited(cls, Chooser, "widths_for_rounds", "widths")

    @abstractmethod
    def pick(self, choices: Choices, keys: Keys) -> None:
        """Write an available arm a row into `choices.arms`; draws are those of the keys, the rounds, Purpose.CHOICE."""

    @abstractmethod
    def probabilities(self, choices: Choices) -> Floats:
        """The exact probability with which `pick` plays each arm, (n, K)."""
