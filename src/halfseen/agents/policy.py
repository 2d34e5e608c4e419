"""The composition of an estimator, a learner and a chooser, for a batch of streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation
from halfseen.agents.arms import Arm, Arms
from halfseen.agents.costs import Budget, StreamBudgets, check_costs
from halfseen.agents.guardrails import Guardrails, StreamGuardrails
from halfseen.components import (
    Choices,
    Chooser,
    Estimator,
    IntegerBounds,
    Learner,
    Mask,
    Payoffs,
    State,
    Stateful,
    StreamBatch,
    distinct_batches,
)
from halfseen.diagnostics.health import LONG_SILENCE
from halfseen.errors import HalfseenError, InvalidInput, invalid
from halfseen.kernels.checks import COMPLETE, EXCESSIVE, classify_values
from halfseen.kernels.random import Floats, Ints
from halfseen.kernels.rounds import begin_round
from halfseen.validation import LIMIT

_INT64 = np.dtype(np.int64)  # a constant, because making it takes longer than making a small array
_empty = np.empty
_NOT_SCORED = np.empty((0, 0))
_PACKAGE = f"{__name__.partition('.')[0]}."


class Policy(Stateful):
    """B streams of one agent.

    The state follows from the observations, the arms and the rewards alone. Random draws are computed from the key of
    the stream and the round, so the state contains no random generator.
    """

    state_names = ("rounds", "extra_rounds", "active", "missing_counts", "missing_streaks")

    def __init__(
        self,
        streams: StreamBatch,
        estimator: Estimator,
        learner: Learner,
        chooser: Chooser,
        budget: Budget | None = None,
    ) -> None:
        self.streams, self.estimator, self.learner, self.chooser = streams, estimator, learner, chooser
        self.guardrails: StreamGuardrails | None = None
        self.budgets = None if budget is None else StreamBudgets(streams, budget)
        self.rounds: Ints = np.zeros(streams.count, dtype=np.int64)  # rounds with a decision
        # Rounds without a decision, which `elapsed` skipped or which were only observed. The estimator counts them too.
        self.extra_rounds: Ints = np.zeros(streams.count, dtype=np.int64)
        self._any_extra = False
        self.all_rows: Ints = np.arange(streams.count)
        self.active: Mask = np.ones((streams.count, streams.arms), dtype=np.bool_)  # arms that are not retired
        # The number of rounds in which each entry of the observation was missing: in total, and since it was last seen.
        self.missing_counts: Ints = np.zeros((streams.count, streams.observed), dtype=np.int64)
        self.missing_streaks: Ints = np.zeros((streams.count, streams.observed), dtype=np.int64)
        self._any_missing = False
        self._keys = streams.keys
        self._updates_from_rewards = _overrides(estimator, "features_of", "update_from_rewards")
        # Whether all components can replace a learnt reward by another one.
        self.takes_provisional = type(learner).replace_rewards is not Learner.replace_rewards and (
            not self._updates_from_rewards or _overrides(estimator, "replace_rewards")
        )
        self._refits = _overrides(estimator, "due_for_refit")
        self.can_refit = _overrides(estimator, "refit_now")  # whether `refit` does anything
        fused = type(learner).score_and_pick is not Learner.score_and_pick and not (
            learner.weighs_propensity or chooser.weighs_noise or chooser.weighs_reuse
        )
        self._fused_distribution = chooser.draw_distribution if fused else None
        self._distribution = self._fused_distribution  # None: score and pick in two steps
        self.guarded = False  # whether guardrails are in force; then scoring and picking are two steps
        # Features that do not depend on rewards can be computed for many rounds ahead.
        features_ignore_rewards = not (
            self._updates_from_rewards or self._refits or _overrides(estimator, "bind_learner")
        )
        self._plays_many_rounds = (
            self._fused_distribution is not None
            and features_ignore_rewards
            and type(learner).play_rounds is not Learner.play_rounds
        )
        # Kernels do not check their arrays, and components from outside of the package may return any memory layout.
        self._checks_arrays = not all(type(part).__module__.startswith(_PACKAGE) for part in (estimator, chooser))
        estimator.bind_learner(learner)

    def check_costs(
        self, given: ArrayLike | Mapping[Arm, float] | None, rows: int, arms: Sequence[Arm]
    ) -> Floats | None:
        """Check the costs that a user has given and return them as an array (n, K), or None if none are given."""
        if given is not None:
            return check_costs(given, rows, arms)
        if self.budgets is not None:
            raise invalid("costs", f"{len(arms)} numbers, one per arm, because the agent has a budget", "none")
        return None

    def check_affordable(self, rows: Ints, costs: Floats, available: Mask | None = None) -> Mask:
        """Return the available arms (n, K) that the budget allows. Raise an error if it allows none in some stream."""
        available = self.active[rows] if available is None else available
        if self.budgets is None:
            return available
        affordable = self.budgets.affordable(rows, self.rounds[rows], costs, available)
        if self.guarded:
            assert self.guardrails is not None
            self.guardrails.check_affordable(rows, affordable)
        return affordable

    def check_contexts(
        self, argument: str, given: ArrayLike | None, count: int, agent: str, per: str = "stream"
    ) -> Floats | None:
        """Check the true contexts that a user has given. Return an array (n, d), or None if the agent needs none.

        `argument` is "context" for one vector, or "contexts" for a table. `per` says whether a row of the table is a
        stream or a round. `agent` is the name of the agent in error messages.
        """
        if not self.estimator.reveals_context:
            if given is not None:
                raise InvalidInput(f"'{agent}' does not decide on the true context, so it takes no {argument}.")
            return None
        if given is None:
            raise invalid(argument, f"the true {argument}, which '{agent}' needs", "none")
        check = validation.row_vector if argument == "context" else validation.table
        xs = check(argument, given, self.estimator.dimension)
        if len(xs) != count:
            raise invalid(argument, f"{count} rows, one per {per}", f"{len(xs)} rows")
        if classify_values(xs) != COMPLETE:
            raise invalid(argument, f"numbers within ±{LIMIT:g}", "an entry that is missing or too large")
        return xs

    def observe(
        self,
        observations: Floats,
        *,
        contexts: Floats | None = None,
        rows: Ints | None = None,
        elapsed: Ints | None = None,
        decides: bool = True,
    ) -> tuple[Ints, Ints, Floats]:
        """Start the next round of `rows`, or of all streams, with the observations y_t (n, k).

        `elapsed` (n,) is the number of steps since the last round, 1 by default. If `decides` is false, the round is
        not counted as a round with a decision. Returns rows, rounds and features. The numbers of the rounds include
        rounds without a decision.
        """
        rows = self.all_rows if rows is None else rows
        if not decides and self.estimator.reveals_context:  # later contexts will be given, so y is not needed
            if classify_values(observations) == EXCESSIVE:
                raise validation.too_large("observation")
            return rows, self.rounds[rows], _NOT_SCORED
        if contexts is None and self.estimator.reveals_context:
            raise invalid("context", f"the true context, {self.estimator.dimension} numbers", "none")
        if elapsed is not None:
            elapsed = self.check_elapsed(elapsed)
        rounds = _empty(len(rows), _INT64)
        found = begin_round(rows, observations, self.rounds, rounds)
        if found == EXCESSIVE:
            raise validation.too_large("observation")
        if not decides:
            self.rounds[rows] -= 1
            self.extra_rounds[rows] += 1
            self._any_extra = True
        if elapsed is not None:
            self._pass_rounds(rows, elapsed)
        if self._any_extra:
            rounds = self.rounds[rows] + self.extra_rounds[rows]
        if elapsed is None or elapsed.all():
            features = self.estimator.observe(rows, observations, rounds, found == COMPLETE, contexts)
        else:
            features = self._look_again(rows, observations, rounds, elapsed == 0, contexts)
        if self._any_missing or found != COMPLETE:
            self._count_missing(rows, np.isnan(observations))
        if self._refits:
            due = self.estimator.due_for_refit(rows)
            if len(due):
                self.estimator.refit(due, self.learner)
                refitted = np.isin(rows, due)  # the features must use the new model, as the learner does
                features[refitted] = self.estimator.features_of(rows[refitted], rounds[refitted], features[refitted])
        return rows, rounds, self._contiguous_features(features, len(rows)) if self._checks_arrays else features

    def check_elapsed(self, elapsed: Ints) -> Ints | None:
        """Return the steps (n,) since the last round, or None if all are 1 or the estimator does not use time."""
        return None if not self.estimator.uses_time or (elapsed == 1).all() else elapsed

    def _pass_rounds(self, rows: Ints, elapsed: Ints) -> None:
        """Let the estimator process the rounds that were skipped between the last round and the present round."""
        gaps = np.flatnonzero(elapsed > 1)
        if len(gaps) == 0:
            return
        late = rows[gaps]
        last = self.rounds[late] + self.extra_rounds[late] - 1
        passed = self.estimator.pass_rounds(late, last, elapsed[gaps] - 1) - last
        self.extra_rounds[late] += passed
        self._any_extra = True
        if passed.any():
            self.missing_counts[late] += passed[:, None]
            self.missing_streaks[late] += passed[:, None]
            self._any_missing = True

    def _look_again(
        self, rows: Ints, observations: Floats, rounds: Ints, again: Mask, contexts: Floats | None
    ) -> Floats:
        """Process observations. Those marked in `again` (n,) belong to the same moment as the stream's last round."""
        features = np.empty((len(rows), self.estimator.dimension))
        revealed = None if contexts is None else contexts[again]
        features[again] = self.estimator.look_again(rows[again], observations[again], rounds[again], revealed)
        if not again.all():
            rest = ~again
            revealed = None if contexts is None else contexts[rest]
            complete = classify_values(observations[rest]) == COMPLETE
            features[rest] = self.estimator.observe(rows[rest], observations[rest], rounds[rest], complete, revealed)
        return features

    def decide(
        self,
        observations: Floats,
        *,
        contexts: Floats | None = None,
        available: Mask | None = None,
        costs: Floats | None = None,
        rows: Ints | None = None,
        elapsed: Ints | None = None,
    ) -> Choices:
        """Observe y_t (n, k) and choose an arm for every stream in `rows`.

        `costs` (n, K) are the costs of the arms. `elapsed` (n,) are the steps since the last round, 1 by default.
        """
        rows = self.all_rows if rows is None else rows
        if available is None:
            available = self.active if rows is self.all_rows else self.active[rows]
        if costs is not None:
            available = self.check_affordable(rows, costs, available)
        elif self.budgets is not None:
            raise invalid("costs", "the costs of all arms, because the agent has a budget", "none")
        rows, rounds, features = self.observe(observations, contexts=contexts, rows=rows, elapsed=elapsed)
        arms = _empty(len(rows), _INT64)
        keys = self._keys if rows is self.all_rows else self._keys[rows]
        if self._distribution is not None and costs is None:
            numbers = self.rounds[rows] if self._any_extra else None
            decisions = rounds if numbers is None else numbers
            widths = self.chooser.widths(rows, decisions, self.learner)
            if self._checks_arrays:
                widths = _contiguous("widths", widths, (len(rows), self.learner.arms))
            means, variances = self.learner.score_and_pick(
                rows, features, widths, self._distribution, keys, decisions, available, arms
            )
            # Calling `Choices(...)` would cost as much as allocating an array.
            return tuple.__new__(
                Choices,
                (
                    rounds, arms, features, means, variances, widths, available, None, None, None, None, None, None,
                    numbers,
                ),
            )  # fmt: skip
        choices = self._scored(rows, rounds, features, arms, available, costs)
        self.chooser.pick(choices if costs is None else self.chooser.with_penalties(choices), keys)
        if self.guarded:
            assert self.guardrails is not None
            self.guardrails.draw(rows, keys, choices)
        if self.learner.weighs_propensity:
            self._record_propensity(choices)
        self._charge(rows, arms, costs)
        return choices

    def _charge(self, rows: Ints, arms: Ints, costs: Floats | None) -> None:
        """Charge the costs (n, K) of the arms played in the present round."""
        if self.budgets is not None:
            assert costs is not None
            self.budgets.spend(rows, self.rounds[rows] - 1, costs[np.arange(len(rows)), arms])

    def play_rounds(
        self, observations: Floats, payoffs: Payoffs, *, contexts: Floats | None = None
    ) -> tuple[Ints, Floats, Floats] | None:
        """Play n rounds of all streams with immediate rewards.

        Returns the arms (B, n), the rewards (B, n) and the features (B, n, p).

        The result equals, bit for bit, the result of calling `decide` and `learn` for each y_t of `observations`
        (n, B, k) in turn. Returns None and changes nothing if a component needs the rewards before the next decision,
        or if an observation would be refused.
        """
        count, rounds, decisions = len(observations), self.rounds + self.extra_rounds + 1, self.rounds + 1
        if not self._plays_many_rounds or self._distribution is None or self.budgets is not None:
            return None
        if contexts is None and self.estimator.reveals_context:
            return None
        found = classify_values(observations.reshape(-1, observations.shape[-1]))
        widths = self.chooser.widths_for_rounds(self.all_rows, decisions, count, self.learner)
        if found == EXCESSIVE or widths is None:
            return None
        features = np.empty((len(rounds), count, self.estimator.dimension))
        if found == COMPLETE and not self._any_missing:
            self.estimator.observe_rounds(observations, rounds, contexts, features)
            self.rounds += count
        else:
            for t, y in enumerate(observations):
                features[:, t] = self.observe(y, contexts=None if contexts is None else contexts[t])[2]
        arms, rewards = np.empty(payoffs.noise.shape, _INT64), np.empty(payoffs.noise.shape)
        self.learner.play_rounds(
            features, widths, self._distribution, self._keys, decisions, self.active, payoffs, arms, rewards
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
        branches: Ints | None = None,
        costs: Floats | None = None,
        elapsed: Ints | None = None,
        scored: bool = True,
    ) -> Choices:
        """Process a round of all streams in which another policy chose the `arms` (n,).

        Afterwards the state is the same as if `decide` had chosen these arms. The returned choices describe what this
        policy would have done. If `scored` is False, the choices contain only rounds, arms and features, which is
        faster. `propensities` (n,) are the probabilities with which the arms were chosen. If a learner needs them and
        they are not given, the probabilities of this policy are used. `branches` (n,) are the branches of the
        decisions, and `costs` (n, K) are the costs of all arms.
        """
        rows, rounds, features = self.observe(observations, contexts=contexts, elapsed=elapsed)
        if available is None:
            available = self.active
        own = self.learner.weighs_propensity and propensities is None
        if own and not available[rows, arms].all():
            available = available.copy()
            available[rows, arms] = True
        if scored or own:
            choices = self._scored(rows, rounds, features, arms, available, costs)
        else:
            choices = Choices(rounds, arms, features, _NOT_SCORED, _NOT_SCORED, _NOT_SCORED, available, None)
        if self.guarded:
            choices = choices._replace(branches=np.full(len(rows), -1) if branches is None else branches)
        if own:
            self._record_propensity(choices)
        elif self.learner.weighs_propensity:
            features[:, -1] = propensities
        self._charge(rows, arms, costs)
        return choices

    def _scored(
        self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, available: Mask, costs: Floats | None
    ) -> Choices:
        """Compute everything the choice depends on. The chooser later writes the chosen arms into `arms`."""
        means, variances = self.learner.score(rows, features)
        numbers = self.rounds[rows] if self._any_extra else None
        widths = self.chooser.widths(rows, rounds if numbers is None else numbers, self.learner)
        weighs_noise = self.chooser.weighs_noise or self.learner.weighs_noise
        noise_variances = self.learner.noise(rows, features) if weighs_noise else None
        reuse = self.learner.reuse(rows, features) if self.chooser.weighs_reuse else None
        reserved = branches = None
        if self.guarded:
            assert self.guardrails is not None
            reserved, branches = self.guardrails.reserved(rows, available), np.empty(len(rows), dtype=np.int64)
        penalties = costs
        if costs is not None and self.budgets is not None:
            penalties = costs * self.budgets.prices(rows)[:, None]
        return Choices(
            rounds, arms, features, means, variances, widths, available, noise_variances, reuse, reserved, branches,
            penalties, None if penalties is None else self.learner.link, numbers,
        )  # fmt: skip

    def _record_propensity(self, choices: Choices) -> None:
        """Store the probability of the played arm as the last feature, from which `learn` reads it later."""
        propensities = self.propensities(choices)
        choices.features[:, -1] = propensities[np.arange(len(propensities)), choices.arms]

    def propensities(self, choices: Choices) -> Floats:
        """Return the exact probability of choosing each arm, (n, K)."""
        weights = self.chooser.probabilities(
            choices if choices.penalties is None else self.chooser.with_penalties(choices)
        )
        if choices.reserved is None:
            return weights
        remaining = np.maximum(1.0 - choices.reserved.sum(axis=1, keepdims=True), 0.0)
        return np.asarray(choices.reserved + remaining * weights)

    def learn(self, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, *, rows: Ints | None = None) -> None:
        """Learn rewards (n,) of `arms` (n,), played in `rounds` (n,) with `features` (n, p). Rewards may be late."""
        rows = self.all_rows if rows is None else rows
        if not self._updates_from_rewards:
            self.learner.learn(rows, features, arms, rewards)
        else:
            current = self.estimator.features_of(rows, rounds, features)
            current = self._contiguous_features(current, len(rows)) if self._checks_arrays else current
            self.learner.learn(rows, current, arms, rewards)
            self.estimator.update_from_rewards(rows, rounds, arms, rewards, self.learner)
        if self.budgets is not None:
            self.budgets.learn(rows, rewards)

    def learn_many(self, rows: Ints, rounds: Ints, features: Floats, arms: Ints, rewards: Floats) -> None:
        """Learn either all of the rewards or, if one is refused, none. A stream may have several rewards.

        The result equals that of one call of `learn` per reward, in the given order.
        """
        touched = np.unique(rows) if self.learner.may_refuse(features) else None
        before = None if touched is None else self.state(touched)
        try:
            for part in distinct_batches(rows) if self._updates_from_rewards else [slice(None)]:
                self.learn(rounds[part], features[part], arms[part], rewards[part], rows=rows[part])
        except HalfseenError:
            if before is not None:
                self.write(before, touched)
            raise

    def learn_provisional(
        self, rounds: Ints, features: Floats, arms: Ints, rewards: Floats, *, rows: Ints | None = None
    ) -> Floats:
        """Learn rewards that `replace_rewards` may replace. Return the data (n, 2) that `replace_rewards` needs."""
        replacement_data = self.learner.replacement_data(self.all_rows if rows is None else rows, arms)
        self.learn(rounds, features, arms, rewards, rows=rows)
        return replacement_data

    def replace_rewards(
        self,
        rounds: Ints,
        features: Floats,
        arms: Ints,
        old_rewards: Floats,
        rewards: Floats,
        replacement_data: Floats,
        *,
        rows: Ints | None = None,
    ) -> None:
        """Replace `old_rewards` (n,), for which `learn_provisional` returned `replacement_data`, by `rewards` (n,)."""
        rows = self.all_rows if rows is None else rows
        if self._updates_from_rewards:
            features = self.estimator.replace_rewards(rows, rounds, features, arms, rewards, self.learner)
        self.learner.replace_rewards(rows, features, arms, old_rewards, rewards, replacement_data)
        if self.budgets is not None:
            self.budgets.replace(rows, old_rewards, rewards)

    def refit(self, row: int = 0) -> None:
        """Refit the model of stream `row` now, even if no refit is due. Does nothing unless `can_refit` is true.

        Features of earlier rounds belong to the old model, and `learn` converts them to the new model.
        """
        self.estimator.refit_now(row)

    def add_arm(self, params: ArrayLike | None = None) -> None:
        """Add an arm to every stream.

        The new arm starts from the prior. Some learners require `params`, the parameters of the arm.
        """
        active = np.pad(self.active, ((0, 0), (0, 1)), constant_values=True)
        if self.guardrails is not None:
            self.guardrails.check_arms(active)
        self.learner.add_arm(params)
        self.streams = replace(self.streams, arms=self.streams.arms + 1)
        self.active = active

    def retire_arm(self, arm: int, *, rows: Ints | None = None) -> None:
        """Never choose an arm again.

        The index of the arm is not reused, and its earlier decisions can still be rewarded.
        """
        active = self.active.copy()  # a copy, because earlier choices refer to the old array
        active[self.all_rows if rows is None else rows, arm] = False
        if not active.any(axis=1).all():
            raise invalid("arm", "an arm that is not the only active one", f"{arm}, the last active arm")
        self.active = active

    def set_guardrails(self, guardrails: Guardrails, arms: Arms, *, active: Mask | None = None) -> Mask:
        """Change the guardrails of all streams.

        `active` (n, K) are the arms that can be chosen, by default the active arms of all streams. Returns a mask (B,)
        of the streams in which the counts of rewards per branch restart at 0.
        """
        control = 0 if guardrails.control is None else arms.index("control", guardrails.control[0])
        guardrails.check_arms(control, self.active if active is None else active)
        changed = StreamGuardrails(self.streams) if self.guardrails is None else self.guardrails
        restarted = changed.set(guardrails, control)
        self._use_guardrails(changed)
        return restarted

    def _use_guardrails(self, guardrails: StreamGuardrails | None) -> None:
        self.guardrails = guardrails
        self.guarded = guardrails is not None and guardrails.in_force
        self._distribution = None if self.guarded else self._fused_distribution

    def health(self, row: int) -> tuple[dict[str, object], list[str]]:
        """Return the facts (by name) and the notes of all components about stream `row`."""
        entries = int(self.rounds[row] + self.extra_rounds[row]) * self.streams.observed
        facts: dict[str, object] = {
            "share of entries not seen": float(self.missing_counts[row].sum() / max(1, entries)),
            "rounds since each entry was seen": self.missing_streaks[row].tolist(),
        }
        notes = [
            f"entry {i} of the observation has not been seen in the last {rounds} rounds"
            for i, rounds in enumerate(self.missing_streaks[row])
            if rounds >= LONG_SILENCE
        ]
        if not self.estimator.uses_time:
            facts["time between rounds"] = "does not matter, because no filter predicts the context"
        for part in (self.estimator, self.learner):
            part_facts, part_notes = part.health(row)
            facts |= part_facts
            notes += part_notes
        if self.budgets is not None:
            facts |= self.budgets.facts(row, int(self.rounds[row]))
        return facts, notes

    def _contiguous_features(self, features: ArrayLike, count: int) -> Floats:
        return _contiguous("features", features, (count, self.estimator.dimension))

    def _count_missing(self, rows: Ints, missing: Mask) -> None:
        self.missing_counts[rows] += missing
        self.missing_streaks[rows] = np.where(missing, self.missing_streaks[rows] + 1, 0)
        self._any_missing = bool(missing.any()) or bool(self.missing_streaks.any())

    def state(self, rows: Ints | None = None) -> State:
        state = super().state(rows)
        for prefix, part in self.parts():
            state |= {f"{prefix}.{name}": array for name, array in part.state(rows).items()}
        return state

    def parts(self) -> list[tuple[str, Stateful]]:
        """Return everything that has a state, with the prefix of its arrays."""
        optional = [("guardrails", self.guardrails), ("budget", self.budgets)]
        return [
            ("estimator", self.estimator),
            ("learner", self.learner),
            *((prefix, part) for prefix, part in optional if part is not None),
        ]

    def restore(self, state: State, rows: Ints | None = None) -> None:
        """Replace the state of all streams or of `rows`. Nothing changes if any part of `state` is invalid."""
        self.check(state, self.streams.count if rows is None else len(rows))
        self.write(state, rows)

    def check(self, state: State, count: int) -> None:
        super().check(state, count)
        all_rounds = {"rounds": np.asarray(state["rounds"]) + np.asarray(state["extra_rounds"])}
        for prefix, part in (("learner", self.learner), ("estimator", self.estimator)):
            # The estimator also gets the arrays of the learner (prefix "learner."), to compare its state with them.
            part.check(state | all_rounds | _part_of_state(prefix, state), count)
        if guardrails := _part_of_state("guardrails", state):
            own = {name: state[name] for name in ("rounds", "active")}
            (self.guardrails or StreamGuardrails(self.streams)).check(own | guardrails, count)
        if self.budgets is not None:
            self.budgets.check({"rounds": state["rounds"]} | _part_of_state("budget", state), count)

    def write(self, state: State, rows: Ints | None = None) -> None:
        """Replace the state as `restore` does, but without checking it."""
        super().restore(state, rows)
        if rows is None:  # only a state of all streams says whether there are guardrails
            guarded = any(name.startswith("guardrails.") for name in state)
            self.guardrails = (self.guardrails or StreamGuardrails(self.streams)) if guarded else None
        for prefix, part in self.parts():
            part.restore(_part_of_state(prefix, state), rows)
        self._use_guardrails(self.guardrails)

    def integer_bounds(self, state: State) -> IntegerBounds:
        rounds = (0, (np.asarray(state["rounds"]) + np.asarray(state["extra_rounds"]))[:, None])
        return {"missing_counts": rounds, "missing_streaks": rounds}

    def check_consistency(self, state: State) -> None:
        if not np.asarray(state["active"]).any(axis=1).all():
            raise invalid("state", "at least one active arm per stream", "a stream without an active arm")

    def rebuild_caches(self, rows: Ints | None = None) -> None:
        self._any_missing = bool(self.missing_streaks.any())
        self._any_extra = bool(self.extra_rounds.any())

    def resize(self, streams: StreamBatch) -> None:
        super().resize(streams)
        for _, part in self.parts():
            part.resize(streams)
        self.streams, self._keys, self.all_rows = streams, streams.keys, np.arange(streams.count)


def _part_of_state(part: str, state: State) -> State:
    prefix = f"{part}."
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


def _contiguous(name: str, array: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Convert an array to the memory layout that the kernels are compiled for: float64 in C order."""
    contiguous = np.ascontiguousarray(array, dtype=np.float64)
    if contiguous.shape != shape:
        raise invalid(name, f"an array of shape {shape} from the component", f"shape {contiguous.shape}")
    return contiguous


def _overrides(estimator: Estimator, *names: str) -> bool:
    return any(getattr(type(estimator), name) is not getattr(Estimator, name) for name in names)
