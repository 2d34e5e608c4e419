"""Rounds of many streams of one agent: its parts, called slice by slice on arrays that hold every stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from halfseen.agents.catalogue import Entry
from halfseen.agents.fleet.packing import Array, grown
from halfseen.agents.fleet.parts import Held, hold
from halfseen.agents.policy import Policy
from halfseen.components import MOST, Choices, Estimator, Mask, Streams
from halfseen.errors import HalfseenError, invalid
from halfseen.kernels.checks import COMPLETE, survey
from halfseen.kernels.random import Floats, Ints, Keys
from halfseen.kernels.regression import PRECISE
from halfseen.learners.calibrated import Calibrated
from halfseen.learners.known import Known
from halfseen.learners.ridge import Ridge
from halfseen.validation import refuse_outside

SLICE = 512  # streams a call of a part is about: what is made for them on the way stays in the processor's cache
SLICE_BYTES, LEAST_SLICE = 64 << 20, 8  # fewer, where a stream carries much
GROWTH = 1.5
PER_STREAM = ("rounds", "active", "missed", "silent")  # the state that a policy carries besides its parts


class Engine:
    """Streams live in rows; a row that is nobody's holds whatever it held last."""

    def __init__(self, entry: Entry, observed: int, arms: int, options: Mapping[str, Any], *, packed: bool) -> None:
        self._entry, self._options = entry, dict(options)
        self._observed, self._arms = observed, arms
        self.keys: Keys = np.zeros((2, 2), dtype=np.uint64)
        policy = self._build(self.keys)
        carried = sum(array.nbytes for array in policy.state().values()) // 2
        self._slice = min(SLICE, max(LEAST_SLICE, SLICE_BYTES // carried))
        sliced = self._build(np.zeros((self._slice, 2), dtype=np.uint64))
        kind = type(policy.estimator)
        self._hears = kind.reward is not Estimator.reward or kind.features_of is not Estimator.features_of
        self._refits = kind.due is not Estimator.due
        self._chooser = sliced.chooser  # keeps nothing of a stream's own
        self.estimator: Held = hold(policy.estimator, sliced.estimator, count=2, packed=packed, tied=self._hears)
        self.learner: Held = hold(policy.learner, sliced.learner, count=2, packed=packed, tied=self._hears)
        self.estimator.grow(2, policy.estimator)
        self.learner.grow(2, policy.learner)
        self.rounds: Ints = np.zeros(2, dtype=np.int64)
        self.active: Mask = np.ones((2, arms), dtype=np.bool_)
        self.missed: Ints = np.zeros((2, observed), dtype=np.int64)
        self.silent: Ints = np.zeros((2, observed), dtype=np.int64)
        self._any_silent = False

    def _build(self, keys: Keys) -> Policy:
        return self._entry.build(Streams(keys, self._observed, self._arms), self._options)

    @property
    def _estimator(self) -> Any:
        return self.estimator.part

    @property
    def _learner(self) -> Any:
        return self.learner.part

    @property
    def dimension(self) -> int:
        return int(self._estimator.dimension)

    @property
    def reveals_context(self) -> bool:
        return bool(self._estimator.reveals_context)

    @property
    def hears(self) -> bool:
        """Whether a reward may change what the next one of its stream means."""
        return self._hears

    # ------------------------------------------------------------------ rows

    def make_rows(self, count: int) -> None:
        """Room for `count` streams at least."""
        old = len(self.rounds)
        if count <= old:
            return
        count = max(count, int(old * GROWTH))
        self.keys = grown(self.keys, count)
        policy = self._build(self.keys)
        self.estimator.grow(count, policy.estimator)
        self.learner.grow(count, policy.learner)
        for name in PER_STREAM:
            setattr(self, name, grown(getattr(self, name), count))

    def begin(self, rows: Ints, keys: Keys) -> None:
        """Streams that have not seen anything yet, with keys (n, 2), in rows (n,) that are nobody's."""
        self.keys[rows] = keys
        for part in self._slices(len(rows)):
            self.take(rows[part], self._build(keys[part]))

    def take(self, rows: Ints, policy: Policy) -> None:
        """Let `rows` be the streams of a policy made as those here are."""
        self.estimator.take(rows, policy.estimator)
        self.learner.take(rows, policy.learner)
        for name in PER_STREAM:
            getattr(self, name)[rows] = getattr(policy, name)
        self._any_silent |= bool(policy.silent.any())

    def leave(self, rows: Ints) -> None:
        self.estimator.leave(rows)
        self.learner.leave(rows)

    def read(self, rows: Ints) -> dict[str, Array]:
        """The state of streams, as a policy of them would give it."""
        state = {name: getattr(self, name)[rows] for name in PER_STREAM}
        for kind, held in (("estimator", self.estimator), ("learner", self.learner)):
            state |= {f"{kind}.{name}": array for name, array in held.read(rows).items()}
        return state

    def save(self, rows: Ints) -> dict[str, Array]:
        """All that streams carry, as it is held."""
        state = {name: getattr(self, name)[rows] for name in PER_STREAM}
        for kind, held in (("estimator", self.estimator), ("learner", self.learner)):
            state |= {f"{kind}.{name}": array for name, array in held.save(rows).items()}
        return state

    def fits(self, state: Mapping[str, Array], count: int) -> None:
        """Refuse what is not what `save` gives of so many streams."""
        for name in PER_STREAM:
            mine, given = getattr(self, name), np.asarray(state.get(name))
            if given.dtype != mine.dtype or given.shape != (count, *mine.shape[1:]):
                wanted = f"{mine.dtype} {(count, *mine.shape[1:])}"
                raise invalid(f"state '{name}'", f"{given.dtype} {given.shape}", wanted)
            if given.dtype.kind == "i":
                refuse_outside(f"state '{name}'", given, 0, MOST)
        self.estimator.fits(_under("estimator", state) | {"rounds": state["rounds"]}, count)
        self.learner.fits(_under("learner", state), count)

    def load(self, rows: Ints, keys: Keys, state: Mapping[str, Array]) -> None:
        """What `save` gave, into an engine that has had no streams yet."""
        self.keys[rows] = keys
        for name in PER_STREAM:
            getattr(self, name)[rows] = state[name]
        self.estimator.load(rows, _under("estimator", state))
        self.learner.load(rows, _under("learner", state))
        self._any_silent = bool(self.silent[rows].any())

    # ------------------------------------------------------------------ a round

    def decide(
        self, rows: Ints, observations: Floats, contexts: Floats | None, available: Mask | None
    ) -> list[Choices]:
        """A round of `rows`, all different, with inputs that are known to be in order; slice by slice."""
        return [
            self._decide(
                rows[part],
                observations[part],
                None if contexts is None else contexts[part],
                None if available is None else available[part],
            )
            for part in self._slices(len(rows))
        ]

    def _slices(self, count: int) -> list[slice]:
        return [slice(at, at + self._slice) for at in range(0, count, self._slice)]

    def _decide(self, rows: Ints, observations: Floats, contexts: Floats | None, available: Mask | None) -> Choices:
        estimator, learner, chooser = self._estimator, self._learner, self._chooser
        complete = survey(observations) == COMPLETE
        rounds = self.rounds.take(rows) + 1
        known = self.estimator.enter(rows)
        features = estimator.observe(known, observations, rounds, complete, contexts)
        self.rounds[rows] = rounds
        if self._any_silent or not complete:
            self._count_gaps(rows, np.isnan(observations))
        if self._refits:
            due = estimator.due(known)
            if len(due):
                estimator.refit(due, learner)
                anew = np.isin(known, due)
                features[anew] = estimator.features_of(known[anew], rounds[anew], features[anew])
        self.estimator.leave_off(rows)
        known = self.learner.enter(rows)
        means, variances = learner.score(known, features)
        widths = chooser.widths(known, rounds, learner)
        noise = learner.noise(known, features) if chooser.weighs_noise else None
        reuse = learner.reuse(known, features) if chooser.looks_ahead else None
        arms = np.empty(len(rows), dtype=np.int64)
        there = self.active.take(rows, axis=0) if available is None else available
        choices = Choices(rounds, arms, features, means, variances, widths, there, noise, reuse)
        chooser.pick(choices, self.keys.take(rows, axis=0))
        if learner.weighs_propensity:
            shares = chooser.probabilities(choices)
            features[:, -1] = shares[np.arange(len(rows)), arms]
        return choices

    def propensities(self, choices: Choices) -> Floats:
        return self._chooser.probabilities(choices)

    def _count_gaps(self, rows: Ints, missing: Mask) -> None:
        self.missed[rows] += missing
        self.silent[rows] = np.where(missing, self.silent[rows] + 1, 0)
        self._any_silent = True

    # ------------------------------------------------------------------ rewards

    def learn(self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        """Credit rewards in the order given, all of them or, if refused, none."""
        saved = touched = None
        if self._may_refuse(features):
            touched = np.unique(rows)
            saved = self.learner.save(touched)
        try:
            for part in self._turns(rows):
                self._learn(rows[part], rounds[part], features[part], arms[part], rewards[part])
        except HalfseenError:
            if saved is not None and touched is not None:
                self.learner.load(touched, saved)
            raise

    def _may_refuse(self, features: Floats) -> bool:
        """Whether a reward could turn out to be more than double precision can learn from.

        Ridge refuses when cᵀCc exceeds PRECISE. Its C is never above I/λ, so it cannot where |c|² is well below that.
        """
        learner = self._learner
        if isinstance(learner, Ridge):
            longest = np.einsum("ij,ij->i", features, features).max(initial=0.0)
            return not longest <= 0.1 * PRECISE * learner.prior_precision
        return not isinstance(learner, Known | Calibrated)

    def _turns(self, rows: Ints) -> list[Any]:
        """Parts of a batch of rewards that may be learnt at once, one after the other."""
        if not self._hears:
            return self._slices(len(rows))
        order = np.argsort(rows, kind="stable")
        starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
        nth = np.empty(len(rows), dtype=np.int64)
        nth[order] = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
        turns = [np.flatnonzero(nth == turn) for turn in range(int(nth.max(initial=-1)) + 1)]
        return [turn[part] for turn in turns for part in self._slices(len(turn))]

    def _learn(self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        estimator, learner = self._estimator, self._learner
        if self._hears:  # then both are held in place
            learner.learn(rows, estimator.features_of(rows, rounds, features), arms, rewards)
            estimator.reward(rows, rounds, arms, rewards, learner)
            return
        distinct, at = np.unique(rows, return_inverse=True) if self.learner.staged else (rows, slice(None))
        known = self.learner.enter(distinct)[at]
        learner.learn(known, features, arms, rewards)
        self.learner.leave_off(distinct)


def _under(kind: str, state: Mapping[str, Array]) -> dict[str, Array]:
    prefix = f"{kind}."
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
