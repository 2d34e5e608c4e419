"""What an estimator, a learner and a chooser are: the three parts every agent is made of.

All parts work on a batch of streams. Arrays carry a leading axis B (streams); a call names the streams it is
about in `rows` (n,), and its inputs and outputs are aligned with `rows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfseen.errors import HalfseenError, invalid
from halfseen.kernels.choice import pick
from halfseen.kernels.random import Floats, Ints, Keys, Purpose, normals

State = dict[str, NDArray[np.generic]]
Mask = NDArray[np.bool_]
Limits = Mapping[str, tuple[ArrayLike, ArrayLike]]  # of arrays by name: the least and the greatest integer
MOST = 2**53  # no count comes that far


@dataclass(frozen=True)
class Streams:
    """The batch a part is built for: how many streams, what they see, what they may play, whose draws they use."""

    keys: Keys
    observed: int
    arms: int

    @property
    def count(self) -> int:
        return len(self.keys)


class Stateful:
    """State is the arrays named in `state_names` and the state of the attributes named in `parts`; all else is fixed
    when the part is built.
    """

    state_names: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[tuple[str, ...]] = ()
    symmetric: ClassVar[tuple[str, ...]] = ()  # of the state: matrices that equal their transposes, to the last bit
    constant: ClassVar[tuple[str, ...]] = ()  # of the state: what never changes, and is the same in all streams
    unused: ClassVar[Mapping[str, float]] = {}  # of the state: what grows along its second axis, and what fills that
    derived: ClassVar[tuple[str, ...]] = ()  # arrays that follow from the state of their stream: carried, never saved

    def settle(self) -> None:
        """Bring up to date what is no array of a stream's own, after arrays were written to from outside."""

    def lengthen(self, slots: int) -> None:
        """See to it that what is named in `unused` has at least so many slots along its second axis."""

    def state(self) -> State:
        arrays = {name: getattr(self, name) for name in self.state_names}
        for part in self.parts:
            arrays |= getattr(self, part).state()
        return arrays

    def check(self, state: State) -> None:
        """Refuse arrays that are not what this part carries."""
        for name in self.state_names:
            mine, given = getattr(self, name), np.asarray(state.get(name))
            if not self._fits(mine, given):
                raise invalid(f"state '{name}'", f"{given.dtype} {given.shape}", f"{mine.dtype} {mine.shape}")
        self.check_ranges(state)
        self.agree(state)
        for part in self.parts:
            getattr(self, part).check(state)

    def _fits(self, mine: NDArray[np.generic], given: NDArray[np.generic]) -> bool:
        return mine.dtype == given.dtype and mine.shape == given.shape

    def limits(self, state: State) -> Limits:
        """Between which values integers of the state must lie, where that is not 0 to MOST.

        `state` is what is to be restored. That of an estimator holds the `rounds` (B,) of the streams as well.
        """
        return {}

    def check_ranges(self, state: State) -> None:
        """Refuse integers that lie outside their limits: kernels index by them and check no bounds."""
        limits = self.limits(state)
        for name in self.state_names:
            if name in state and state[name].dtype.kind in "iu":
                refuse_outside(f"state '{name}'", state[name], *limits.get(name, (0, MOST)))

    def agree(self, state: State) -> None:
        """Refuse arrays that fit one by one and contradict each other."""

    def restore(self, state: State) -> None:
        for name in self.state_names:
            setattr(self, name, np.array(state[name], order="C"))  # a copy: two agents never share an array
        for part in self.parts:
            getattr(self, part).restore(state)

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        """Facts about stream `row` by name, and a sentence for each thing that is wrong with it."""
        return {}, []


def _own_ahead(part: type, base: type, ahead: str, *steps: str) -> None:
    """A part that changes a step no longer does what follows from it as it inherits it, unless it says itself how."""

    def place(name: str) -> int:
        return next(place for place, owner in enumerate(part.__mro__) if name in vars(owner))

    if min(map(place, steps)) < place(ahead):
        setattr(part, ahead, getattr(base, ahead))


def _for_good(part: Stateful) -> HalfseenError:
    return HalfseenError(f"{type(part).__name__}: it cannot put another reward in the place of one that it has learnt")


class Estimator(Stateful, ABC):
    """What is the context now?"""

    dimension: int  # of the feature handed to the learner
    reveals_context: ClassVar[bool] = False  # whether `observe` wants the true context
    estimates: str  # the "context" in the model's coordinates, "canonical" coordinates, or "nothing"

    @abstractmethod
    def observe(
        self, rows: Ints, observations: Floats, rounds: Ints, complete: bool, contexts: Floats | None
    ) -> Floats:
        """Take in y_t (n, k), NaN where not seen (`complete` says there is none); the features (n, p), a copy."""

    def observe_ahead(self, observations: Floats, rounds: Ints, contexts: Floats | None, features: Floats) -> None:
        """`observe` of all streams in n rounds from `rounds` (B,) on, to the last bit.

        All of the observations (n, B, k) is seen; the features are written into (B, n, p).
        """
        everyone = np.arange(len(rounds))
        for t, y in enumerate(observations):
            shown = None if contexts is None else contexts[t]
            features[:, t] = self.observe(everyone, y, rounds + t, True, shown)

    def __init_subclass__(cls) -> None:
        _own_ahead(cls, Estimator, "observe_ahead", "observe")
        _own_ahead(cls, Estimator, "replace", "reward", "features_of")

    # What follows is for estimators that learn from rewards or re-learn their model. A part that leaves it as it is
    # pays nothing for it: the policy does not call what was not overridden.

    def features_of(self, rows: Ints, rounds: Ints, features: Floats) -> Floats:
        """The beliefs of `rounds` (n,) under the model now in force, given the `features` they were decided on."""
        return features

    def reward(self, rows: Ints, rounds: Ints, arms: Ints, rewards: Floats, learner: Learner) -> None:
        """Hear of rewards (n,) of `rounds` (n,) that the learner has just learnt; refuses nothing."""

    def replace(
        self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, learner: Learner
    ) -> Floats:
        """Put rewards (n,) in the place of those heard before of the same `rounds`; refuses nothing.

        The features (n, p) on which the learner is to put them right, NaN where it is not. For estimators that hear
        rewards and can; with the others, and those that do not override this, no reward is provisional.
        """
        raise _for_good(self)

    def meet(self, learner: Learner) -> None:
        """Be told, once, whose posterior the features go to."""

    def due(self, rows: Ints) -> Ints:
        """Those of `rows`, just observed, whose model is to be learnt again now."""
        return rows[:0]

    def refit(self, rows: Ints, learner: Learner) -> None:
        """Learn the model of `rows` again, and bring the learner to what it would know under it."""

    def renew(self, row: int) -> None:
        """The same for stream `row` now, due or not: what `Agent.refit` asks for."""

    def is_due(self, row: int) -> bool:
        """Whether the model of stream `row` is to be learnt again."""
        return False

    def model(self, row: int) -> State:
        """What was learnt of stream `row` when its model was, by name: all that is not folded from its history."""
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
        law: int,
        keys: Keys,
        rounds: Ints,
        available: Mask,
        arms: Ints,
    ) -> tuple[Floats, Floats]:
        """`score`, and into `arms` (n,) what a chooser with a `plain_law` picks on it.

        For learners that do it in one compiled call; where this is not overridden the policy leaves it to the chooser.
        """
        means, variances = self.score(rows, features)
        pick(means, variances, widths, law, normals(keys, rounds, Purpose.CHOICE, self.arms), available, arms)
        return means, variances

    def play_ahead(
        self,
        features: Floats,
        widths: Floats,
        law: int,
        keys: Keys,
        rounds: Ints,
        available: Mask,
        payoffs: Payoffs,
        arms: Ints,
        rewards: Floats,
    ) -> None:
        """`score_and_pick` and `learn` of all streams in n rounds from `rounds` (B,) on, to the last bit.

        Of the features (B, n, p); the widths are (B, K) in all rounds, or (B, n, K). What was picked and what it paid
        go into `arms` and `rewards`, both (B, n). For learners that do it in one call; the policy goes round by round
        where this is not overridden.
        """
        everyone = np.arange(len(rounds))
        for t in range(features.shape[1]):
            now, wide = np.ascontiguousarray(features[:, t]), widths if widths.ndim == 2 else widths[:, t].copy()
            picked = np.empty(len(rounds), dtype=np.int64)
            self.score_and_pick(everyone, now, wide, law, keys, rounds + t, available, picked)
            arms[:, t], rewards[:, t] = picked, payoffs.expected[everyone, t, picked] + payoffs.noise[:, t]
            self.learn(everyone, now, picked, rewards[:, t] / payoffs.unit)

    def __init_subclass__(cls) -> None:
        _own_ahead(cls, Learner, "play_ahead", "score", "score_and_pick", "learn")
        _own_ahead(cls, Learner, "replace", "learn")

    @abstractmethod
    def learn(self, rows: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        """Credit rewards (n,) to the arms (n,) played on the features (n, p) of their own rounds.

        A row may be named more than once: its rewards are taken in the order given.
        """

    def credit(self, rows: Ints, arms: Ints) -> Floats:
        """With which noise variance a reward of the `arms` (n,) would be learnt now, and as which of all; (n, 2).

        For learners that are fitted anew and count rewards from 1; the others leave it as it is.
        """
        return np.tile([1.0, 0.0], (len(rows), 1))

    def replace(self, rows: Ints, features: Floats, arms: Ints, changes: Floats, credits: Floats) -> None:
        """Know what would be known had rewards learnt before been higher by `changes` (n,); refuses nothing.

        `credits` (n, 2) are what `credit` gave when they were learnt. For learners that can: rewards of those that do
        not override this are never provisional.
        """
        raise _for_good(self)

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

    def unrewarded(self, row: int) -> Ints | None:
        """The arms of stream `row` that have taught nothing yet; None where that cannot be known."""
        return None


class Choices(NamedTuple):
    """What was decided for n streams, and all that is needed to credit and to explain it."""

    rounds: Ints  # (n,), from 1
    arms: Ints  # (n,)
    features: Floats  # (n, p) the context each arm was chosen on
    means: Floats  # (n, K) predicted rewards
    variances: Floats  # (n, K) of those predictions
    widths: Floats  # (n, K) standard deviations of exploration, or what else the chooser explores by
    available: Mask  # (n, K) at least one a row
    noise_variances: Floats | None  # (n, K) of a reward around its mean, if the chooser weighs it
    reuse: Floats | None = None  # (n, K) of `Learner.reuse`, if the chooser looks ahead


class Chooser(ABC):
    """Which arm do we play?"""

    weighs_noise: bool = False  # whether `Choices.noise_variances` is wanted
    looks_ahead: bool = False  # whether `Choices.reuse` is wanted
    plain_law: int | None = None  # that of ζ_a, where the arm played is the highest of m_a + width_a·std_a·ζ_a

    @abstractmethod
    def widths(self, rows: Ints, rounds: Ints, learner: Learner) -> Floats:
        """How many standard deviations of exploration each arm gets in this round, (n, K)."""

    def widths_ahead(self, rows: Ints, rounds: Ints, count: int, learner: Learner) -> Floats | None:
        """`widths` in `count` rounds from `rounds` on: (n, K) for all of them, or (n, count, K).

        None where they depend on what is learnt in these rounds.
        """
        return None

    def __init_subclass__(cls) -> None:
        _own_ahead(cls, Chooser, "widths_ahead", "widths")

    @abstractmethod
    def pick(self, choices: Choices, keys: Keys) -> None:
        """Write an available arm a row into `choices.arms`; draws are those of the keys, the rounds, Purpose.CHOICE."""

    @abstractmethod
    def probabilities(self, choices: Choices) -> Floats:
        """The exact probability with which `pick` plays each arm, (n, K)."""
