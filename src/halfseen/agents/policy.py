"""An estimator, a learner and a chooser composed, for a batch of streams stepped together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation
from halfseen.components import Choices, Chooser, Estimator, Learner, Mask, Payoffs, State, Stateful, StreamBatch
from halfseen.diagnostics.health import LONG_SILENCE
from halfseen.errors import HalfseenError, invalid
from halfseen.kernels.checks import COMPLETE, EXCESSIVE, classify_values
from halfseen.kernels.random import Floats, Ints
from halfseen.kernels.rounds import begin_round
from halfseen.validation import LIMIT

_INT64 = np.dtype(np.int64)  # made once: it takes longer than the array
_empty = np.empty
_NOTHING = np.empty((0, 0))
_OURS = f"{__name__.partition('.')[0]}."


class Policy(Stateful):
    """B streams of one agent. State = fold over (observation, arm, reward): no draw is remembered, none is hidden."""

    state_names = ("rounds", "active", "missing_counts", "missing_streaks")

    def __init__(self, streams: StreamBatch, estimator: Estimator, learner: Learner, chooser: Chooser) -> None:
        self.streams, self.estimator, self.learner, self.chooser = streams, estimator, learner, chooser
        self.rounds: Ints = np.zeros(streams.count, dtype=np.int64)
        self.all_rows: Ints = np.arange(streams.count)
        self.active: Mask = np.ones((streams.count, streams.arms), dtype=np.bool_)  # arms that are not retired
        # In how many rounds each entry of the observation was missing, in all and consecutively up to the last round.
        self.missing_counts: Ints = np.zeros((streams.count, streams.observed), dtype=np.int64)
        self.missing_streaks: Ints = np.zeros((streams.count, streams.observed), dtype=np.int64)
        self._any_silent = False
        self._keys = streams.keys
        self._updates_from_rewards = _overrides(estimator, "features_of", "update_from_rewards")
        # Whether a reward can be learnt provisionally, and another be put in its place.
        self.takes_provisional = type(learner).replace_rewards is not Learner.replace_rewards and (
            not self._updates_from_rewards or _overrides(estimator, "replace_rewards")
        )
        self._refits = _overrides(estimator, "due_for_refit")
        self.can_refit = _overrides(estimator, "refit_now")  # whether `refit` has anything to do
        at_once = type(learner).score_and_pick is not Learner.score_and_pick and not (
            learner.weighs_propensity or chooser.weighs_noise or chooser.weighs_reuse
        )
        self._distribution = chooser.draw_distribution if at_once else None  # None: scored and picked in two steps
        # Features that depend on observations alone can be computed for many rounds before a reward comes.
        features_alone = not (self._updates_from_rewards or self._refits or _overrides(estimator, "bind_learner"))
        self._plays_many_rounds = (
            self._distribution is not None and features_alone and type(learner).play_rounds is not Learner.play_rounds
        )
        # Kernels do not check the arrays they are given. Parts from outside the package may return any layout.
        self._checks_arrays = not all(type(part).__module__.startswith(_OURS) for part in (estimator, chooser))
        estimator.bind_learner(learner)

    def check_contexts(self, argument: str, given: ArrayLike | None, count: int, agent: str) -> Floats | None:
        """The true contexts (n, d) as a user gives them, checked; None for an estimator that does not decide on them.

        `argument` is "context", for one stream, or "contexts"; `agent` is the name that messages give.
        """
        one = argument == "context"
        if not self.estimator.reveals_context:
            if given is not None:
                wanted = f"nothing: '{agent}' decides without {'it' if one else 'them'}"
                raise invalid(argument, wanted, f"the true {argument}")
            return None
        if given is None:
            raise invalid(argument, f"the true {argument}: '{agent}' decides on {'it' if one else 'them'}", "nothing")
        xs = (validation.row_vector if one else validation.table)(argument, given, self.estimator.dimension)
        if len(xs) != count:
            raise invalid(argument, f"{count}, one per stream", f"{len(xs)} rows")
        if classify_values(xs) != COMPLETE:
            raise invalid(argument, f"numbers within ±{LIMIT:g}", "an entry missing or too large")
        return xs

    def observe(
        self, observations: Floats, *, contexts: Floats | None = None, rows: Ints | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """Open the next round of `rows` (all streams if not given) with y_t (n, k): rows, rounds and features."""
        rows = self.all_rows if rows is None else rows
        if contexts is None and self.estimator.reveals_context:  # nothing has changed yet
            raise invalid("context", f"the true context, {self.estimator.dimension} numbers", "nothing")
        rounds = _empty(len(rows), _INT64)
        found = begin_round(rows, observations, self.rounds, rounds)
        if found == EXCESSIVE:
            raise invalid("observation", f"numbers within ±{LIMIT:g}, NaN for what was not seen", "an entry too large")
        features = self.estimator.observe(rows, observations, rounds, found == COMPLETE, contexts)
        if self._any_silent or found != COMPLETE:
            self._count_gaps(rows, np.isnan(observations))
        if self._refits:
            due = self.estimator.due_for_refit(rows)
            if len(due):
                self.estimator.refit(due, self.learner)
                refitted = np.isin(rows, due)  # their learner is of the new model, so their features must be too
                features[refitted] = self.estimator.features_of(rows[refitted], rounds[refitted], features[refitted])
        return rows, rounds, self._contiguous_features(features, len(rows)) if self._checks_arrays else features

    def decide(
        self,
        observations: Floats,
        *,
        contexts: Floats | None = None,
        available: Mask | None = None,
        rows: Ints | None = None,
    ) -> Choices:
        """See y_t (n, k), choose an arm for every stream in `rows`."""
        rows, rounds, features = self.observe(observations, contexts=contexts, rows=rows)
        arms = _empty(len(rows), _INT64)
        if available is None:
            available = self.active if rows is self.all_rows else self.active[rows]
        keys = self._keys if rows is self.all_rows else self._keys[rows]
        if self._distribution is not None:
            widths = self.chooser.widths(rows, rounds, self.learner)
            if self._checks_arrays:
                widths = _contiguous("widths", widths, (len(rows), self.learner.arms))
            means, variances = self.learner.score_and_pick(
                rows, features, widths, self._distribution, keys, rounds, available, arms
            )
            # Calling `Choices(...)` would cost as much as allocating an array.
            return tuple.__new__(Choices, (rounds, arms, features, means, variances, widths, available, None, None))
        choices = self._scored(rows, rounds, features, arms, available)
        self.chooser.pick(choices, keys)
        if self.learner.weighs_propensity:
            self._record_propensity(choices)
        return choices

    def play_rounds(
        self, observations: Floats, payoffs: Payoffs, *, contexts: Floats | None = None
    ) -> tuple[Ints, Floats, Floats] | None:
        """`decide` and `learn` of all streams in n rounds, each paid at once: arms, rewards (B, n), features (B, n, p).

        To the last bit what y_t (n, B, k), one after the other, would give. None, and nothing has changed, where only
        that can be done: where a part looks at rewards before the next decision, or an observation will be refused.
        """
        count, rounds = len(observations), self.rounds + 1
        if not self._plays_many_rounds or (contexts is None and self.estimator.reveals_context):
            return None
        found = classify_values(observations.reshape(-1, observations.shape[-1]))
        widths = self.chooser.widths_for_rounds(self.all_rows, rounds, count, self.learner)
        if found == EXCESSIVE or widths is None:
            return None
        features = np.empty((len(rounds), count, self.estimator.dimension))
        if found == COMPLETE and not self._any_silent:
            self.estimator.observe_rounds(observations, rounds, contexts, features)
            self.rounds += count
        else:
            for t, y in enumerate(observations):
                features[:, t] = self.observe(y, contexts=None if contexts is None else contexts[t])[2]
        arms, rewards = np.empty(payoffs.noise.shape, _INT64), np.empty(payoffs.noise.shape)
        assert self._distribution is not None
        self.learner.play_rounds(
            features, widths, self._distribution, self._keys, rounds, self.active, payoffs, arms, rewards
        )
        return arms, rewards, features

    def replay(
        self,
        observations: Floats,
        arms: Ints,
        available: Mask | None = None,
        *,
        contexts: Floats | None = None,
        propensities: Floats | None = None,
        scored: bool = True,
    ) -> Choices:
        """A round of all streams in which the `arms` (n,) were chosen by somebody else.

        The state is as after `decide`, and the choices say what this policy would have done. With `scored` False they
        do not, which is quicker: they hold rounds, arms and features only. `propensities` (n,) are the probabilities
        with which the arms were chosen; where they are needed and not given, they are this policy's own.
        """
        rows, rounds, features = self.observe(observations, contexts=contexts)
        if available is None:
            available = self.active
        own = self.learner.weighs_propensity and propensities is None
        if own and not available[rows, arms].all():
            available = available.copy()
            available[rows, arms] = True
        if scored or own:
            choices = self._scored(rows, rounds, features, arms, available)
        else:
            choices = Choices(rounds, arms, features, _NOTHING, _NOTHING, _NOTHING, available, None)
        if own:
            self._record_propensity(choices)
        elif self.learner.weighs_propensity:
            features[:, -1] = propensities
        return choices

    def _scored(self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, available: Mask) -> Choices:
        """All that the choice between the arms depends on; `arms` is for the chooser to fill."""
        means, variances = self.learner.score(rows, features)
        widths = self.chooser.widths(rows, rounds, self.learner)
        noise_variances = self.learner.noise(rows, features) if self.chooser.weighs_noise else None
        reuse = self.learner.reuse(rows, features) if self.chooser.weighs_reuse else None
        return Choices(rounds, arms, features, means, variances, widths, available, noise_variances, reuse)

    def _record_propensity(self, choices: Choices) -> None:
        """Let the features carry the probability of the arm played to the time when its reward comes."""
        shares = self.propensities(choices)
        choices.features[:, -1] = shares[np.arange(len(shares)), choices.arms]

    def propensities(self, choices: Choices) -> Floats:
        """The exact probability with which each arm was going to be chosen, (n, K)."""
        return self.chooser.probabilities(choices)

    def learn(self, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, *, rows: Ints | None = None) -> None:
        """Credit rewards (n,) to the arms (n,) played in `rounds` (n,) on features (n, p), whenever they come."""
        rows = self.all_rows if rows is None else rows
        if not self._updates_from_rewards:
            self.learner.learn(rows, features, arms, rewards)
            return
        now = self.estimator.features_of(rows, rounds, features)
        now = self._contiguous_features(now, len(rows)) if self._checks_arrays else now
        self.learner.learn(rows, now, arms, rewards)
        self.estimator.update_from_rewards(rows, rounds, arms, rewards, self.learner)

    def learn_many(self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        """Credit many rewards, of which a stream may have several, all or none.

        The state is that of one call of `learn` per reward, in the order given.
        """
        touched = np.unique(rows) if self.learner.may_refuse(features) else None
        before = None if touched is None else self.state(touched)
        try:
            for part in self._batches(rows):
                self.learn(rounds[part], features[part], arms[part], rewards[part], rows=rows[part])
        except HalfseenError:
            if before is not None:
                self._write(before, touched)
            raise

    def _batches(self, rows: Ints) -> list[Any]:
        """Indices of the rewards that may be learnt at once: a reward may change what the next of its stream means."""
        if not self._updates_from_rewards:
            return [slice(None)]
        order = np.argsort(rows, kind="stable")
        starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
        nth = np.empty(len(rows), dtype=np.int64)
        nth[order] = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
        return [np.flatnonzero(nth == turn) for turn in range(int(nth.max(initial=-1)) + 1)]

    def learn_provisional(
        self, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, *, rows: Ints | None = None
    ) -> Floats:
        """`learn`, for a policy that `takes_provisional`; what `replace_rewards` needs to know of it later, (n, 2)."""
        replacement_data = self.learner.replacement_data(self.all_rows if rows is None else rows, arms)
        self.learn(rounds, features, arms, rewards, rows=rows)
        return replacement_data

    def replace_rewards(
        self,
        rounds: Ints,
        features: Floats,
        arms: Ints,
        before: Floats,
        rewards: Floats,
        replacement_data: Floats,
        *,
        rows: Ints | None = None,
    ) -> None:
        """Replace the rewards `before` (n,) by `rewards` (n,). `learn_provisional` returned `replacement_data`."""
        rows = self.all_rows if rows is None else rows
        if self._updates_from_rewards:
            features = self.estimator.replace_rewards(rows, rounds, features, arms, rewards, self.learner)
        self.learner.replace_rewards(rows, features, arms, rewards - before, replacement_data)

    def refit(self, row: int = 0) -> None:
        """Refit the model of stream `row` now, due or not; nothing for a policy that cannot (`can_refit`).

        Features of rounds decided before are of the old model; `learn` looks up what they are in the new one.
        """
        self.estimator.refit_now(row)

    def add_arm(self, params: ArrayLike | None = None) -> None:
        """One more arm for every stream, after the others and at its prior; `params` where arms must be told."""
        self.learner.add_arm(params)
        self.streams = replace(self.streams, arms=self.streams.arms + 1)
        self.active = np.pad(self.active, ((0, 0), (0, 1)), constant_values=True)

    def retire_arm(self, arm: int, *, rows: Ints | None = None) -> None:
        """Never choose an arm again. Its place stays its own, and its earlier decisions may still be rewarded."""
        active = self.active.copy()  # a new array: choices made before keep what was available to them
        active[self.all_rows if rows is None else rows, arm] = False
        if not active.any(axis=1).all():
            raise invalid("arm", "at least one arm left active", f"{arm}, the last active one")
        self.active = active

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        """What all parts have to say of stream `row`."""
        entries = int(self.rounds[row]) * self.streams.observed
        facts: dict[str, object] = {
            "share of entries not seen": float(self.missing_counts[row].sum() / max(1, entries)),
            "rounds since each entry was seen": self.missing_streaks[row].tolist(),
        }
        notes = [
            f"entry {i} of the observation has not been seen in the last {rounds} rounds"
            for i, rounds in enumerate(self.missing_streaks[row])
            if rounds >= LONG_SILENCE
        ]
        for part in (self.estimator, self.learner):
            more, remarks = part.health(row)
            facts |= more
            notes += remarks
        return facts, notes

    def _contiguous_features(self, features: ArrayLike, count: int) -> Floats:
        return _contiguous("features", features, (count, self.estimator.dimension))

    def _count_gaps(self, rows: Ints, missing: Mask) -> None:
        self.missing_counts[rows] += missing
        self.missing_streaks[rows] = np.where(missing, self.missing_streaks[rows] + 1, 0)
        self._any_silent = bool(missing.any()) or bool(self.missing_streaks.any())

    def state(self, rows: Ints | None = None) -> State:
        parts = {"estimator": self.estimator, "learner": self.learner}
        named = {f"{part}.{name}": value for part, one in parts.items() for name, value in one.state(rows).items()}
        return super().state(rows) | named

    def restore(self, state: State, rows: Ints | None = None) -> None:
        """Become what `state()` described, or let `rows` become it; nothing changes unless all of it fits."""
        count = self.streams.count if rows is None else len(rows)
        self.check(state, count)
        self.estimator.check(_of_part("estimator", state) | {"rounds": state["rounds"]}, count)
        self.learner.check(_of_part("learner", state), count)
        self._write(state, rows)

    def _write(self, state: State, rows: Ints | None) -> None:
        super().restore(state, rows)
        self.estimator.restore(_of_part("estimator", state), rows)
        self.learner.restore(_of_part("learner", state), rows)

    def check_consistency(self, state: State) -> None:
        if not np.asarray(state["active"]).any(axis=1).all():
            raise invalid("state", "one with an arm to choose", "one without an active arm")

    def rebuild_caches(self, rows: Ints | None = None) -> None:
        self._any_silent = bool(self.missing_streaks.any())

    def resize(self, streams: StreamBatch) -> None:
        super().resize(streams)
        self.estimator.resize(streams)
        self.learner.resize(streams)
        self.streams, self._keys, self.all_rows = streams, streams.keys, np.arange(streams.count)


def _of_part(part: str, state: State) -> State:
    prefix = f"{part}."
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


def _contiguous(name: str, array: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """As kernels are compiled for: doubles, row after row."""
    plain = np.ascontiguousarray(array, dtype=np.float64)
    if plain.shape != shape:
        raise invalid(name, f"one of shape {shape}", f"an array of shape {plain.shape} from a part")
    return plain


def _overrides(estimator: Estimator, *names: str) -> bool:
    return any(getattr(type(estimator), name) is not getattr(Estimator, name) for name in names)
