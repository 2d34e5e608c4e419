"""One stream of decisions: ask for an arm, reward it now, late, out of order or never."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation
from halfseen.agents import saving
from halfseen.agents.arms import Arm, Arms
from halfseen.agents.decision import Decision
from halfseen.agents.pending import PROVISIONAL, HasProvisional, PendingDecisions, Provisional
from halfseen.agents.policy import Policy
from halfseen.diagnostics.examination_data import ExaminationSubject, first_examined_round, subject_of_adaptive
from halfseen.diagnostics.findings import brief_findings
from halfseen.diagnostics.health import LONG_SILENCE, Health, Verdict
from halfseen.errors import DecisionError, HalfseenError, invalid
from halfseen.kernels.checks import COMPLETE, EXCESSIVE, classify_values
from halfseen.kernels.random import Floats, Ints
from halfseen.reports.files import write_atomically
from halfseen.validation import LIMIT


class Agent:
    """A catalogued agent on one stream. Make one with `halfseen.make`."""

    def __init__(
        self,
        policy: Policy,
        recipe: Mapping[str, Any],
        *,
        arms: Sequence[Arm],
        max_pending: int,
        added: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.policy = policy
        self._observed, self._wants_context = policy.streams.observed, policy.estimator.reveals_context
        self._recipe = dict(recipe)
        self._arms = Arms(arms)
        self._added: list[dict[str, Any]] = []
        self._pending = PendingDecisions(max_pending, policy.estimator.dimension)
        self._reward = np.empty(1)  # the one being learnt: nobody keeps it
        for arm in added:
            self._append(arm["name"], arm["params"], arm["round"])

    @property
    def name(self) -> str:
        """Its name in the catalogue."""
        return str(self._recipe["name"])

    @property
    def recipe(self) -> dict[str, Any]:
        """What it was made of: the arguments of `halfseen.make`."""
        return dict(self._recipe)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """All arms there have ever been, in order."""
        return self._arms.names

    @property
    def active_arms(self) -> tuple[Arm, ...]:
        """The arms that can be chosen: those not retired."""
        return tuple(arm for arm, active in zip(self.arms, self.policy.active[0], strict=True) if active)

    @property
    def rounds(self) -> int:
        """Decisions made so far."""
        return self._pending.decided

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the decisions that may still be rewarded, oldest first."""
        return tuple(self._pending.waiting)

    @property
    def unrewarded(self) -> int:
        """How many decisions may still be rewarded."""
        return len(self._pending.waiting)

    def decide(
        self,
        observation: ArrayLike,
        *,
        context: ArrayLike | None = None,
        available: Iterable[Arm] | None = None,
    ) -> Decision:
        """See y_t (NaN or None where not seen) and choose an arm, from `available` if given.

        Agents named `oracle-…` also want the true `context`.
        """
        policy = self.policy
        y = validation.row_vector("observation", observation, self._observed)
        x = self._context(context) if context is not None or self._wants_context else None
        mask = None if available is None else self._arms.mask(available, policy.active)
        choices = policy.decide(y, contexts=x, available=mask)
        return Decision(self, choices, self._pending.open(choices))

    def replay(
        self,
        observation: ArrayLike,
        arm: Arm,
        *,
        context: ArrayLike | None = None,
        available: Iterable[Arm] | None = None,
        propensity: float | None = None,
    ) -> Decision:
        """A round in which `arm` was chosen by somebody else: the state is as if this agent had chosen it.

        The decision says what this agent would have done: `propensities` are its own. `propensity` is that of whoever
        chose the arm; agents that learn from it (`meb`) take their own if it is not given. `fold` is many such rounds.
        """
        y = validation.row_vector("observation", observation, self.policy.streams.observed)
        x = self._context(context)
        index = self._arms.index("arm", arm)
        mask = self.policy.active if available is None else self._arms.mask(available, self.policy.active)
        chance = None if propensity is None else np.array([validation.number("propensity", propensity)])
        if chance is not None and not 0.0 < chance[0] < 1.0 + 1e-6:
            raise invalid("propensity", "a probability above 0", repr(propensity))
        if chance is None and not mask[0, index]:
            mask = mask.copy()
            mask[0, index] = True
        choices = self.policy.replay(y, np.array([index]), mask, contexts=x, propensities=chance)
        return Decision(self, choices, self._pending.open(choices))

    @property
    def takes_provisional(self) -> bool:
        """Whether `learn` takes provisional rewards: whether all its parts can put another in the place of one."""
        return self.policy.takes_provisional

    def learn(self, decision_id: int | Decision, reward: float, *, provisional: bool = False) -> None:
        """Credit a reward to its decision (or the id of it), with the context of that decision's own round.

        A `provisional` one is learnt, and the decision stays open: the next reward that it gets is put in the place of
        this one, as if it had come instead. Ids are numbers of this agent's rounds: they mean nothing to another agent.
        """
        value = reward if isinstance(reward, float) else validation.number("reward", reward)
        if not abs(value) <= LIMIT:  # NaN and ±inf alike
            raise invalid("reward", f"a number within ±{LIMIT:g}", repr(reward))
        if isinstance(decision_id, Decision):
            decision_id = decision_id.id_for(self)
        try:
            rounds, arms, features = self._pending.find(decision_id)
        except HasProvisional:
            self._replace(decision_id, value, provisional)
            return
        if provisional:
            self._learn_provisional(decision_id, value)
            return
        self._reward[0] = value
        self.policy.learn(rounds, features, arms, self._reward)
        self._pending.close(decision_id)

    def _learn_provisional(self, number: int, value: float) -> None:
        if not self.policy.takes_provisional:
            wanted = f"False: '{self.name}' cannot put another reward in the place of one that it has learnt"
            raise invalid("provisional", wanted, "True")
        made = rounds, arms, features = self._pending.find(number)
        (credit,) = self.policy.learn_provisional(rounds, features, arms, np.array([value]))
        self._pending.set_provisional(number, Provisional(made, value, *credit.tolist()))

    def _replace(self, number: int, value: float, provisional: bool) -> None:
        """Put a reward in the place of the provisional one; the decision stays open if it is `provisional` itself."""
        held = self._pending.provisional[number]
        rounds, arms, features = held.made
        replacement_data = np.array([[held.variance, held.number]])
        self.policy.replace_rewards(rounds, features, arms, np.array([held.value]), np.array([value]), replacement_data)
        if provisional:
            self._pending.set_provisional(number, held._replace(value=value))
        else:
            self._pending.close_provisional(number)

    def learn_many(self, ids: Iterable[int | Decision], rewards: ArrayLike) -> None:
        """Credit many rewards, in the order given: the same as one by one, but all of them or, if refused, none."""
        given = validation.as_list("ids", ids, "a list of decisions or their ids")
        numbers = [one.id_for(self) if isinstance(one, Decision) else one for one in given]
        waiting = [self._pending.get(number) for number in numbers]
        values = validation.numbers("rewards", rewards, "numbers, one per decision")
        if values.shape != (len(numbers),):
            raise invalid("rewards", f"{len(numbers)} numbers, one per decision", f"shape {values.shape}")
        if not (fine := np.abs(values) <= LIMIT).all():
            raise invalid("rewards", f"numbers within ±{LIMIT:g}", f"{values[~fine][0]}")
        if not numbers:
            return
        often, times = Counter(numbers).most_common(1)[0]
        if times > 1:
            raise DecisionError(f"ids: expected distinct decisions, got {often} more than once")
        if not self._pending.provisional.keys().isdisjoint(numbers):
            self._learn_one_by_one(numbers, values.tolist())
            return
        rounds, arms, features = (np.concatenate(part) for part in zip(*waiting, strict=True))
        self.policy.learn_many(np.zeros_like(rounds), rounds, features, arms, values)
        for number in numbers:
            self._pending.close(number)

    def _learn_one_by_one(self, numbers: Sequence[int], values: Sequence[float]) -> None:
        before = self.state()
        try:
            for number, value in zip(numbers, values, strict=True):
                self.learn(number, value)
        except HalfseenError:
            self.restore(before)
            raise

    def give_up(self, decision_id: int | Decision) -> None:
        """Expect no reward of a decision any more, and forget it; a provisional one stands."""
        self._pending.give_up(decision_id.id_for(self) if isinstance(decision_id, Decision) else decision_id)

    def refit(self) -> None:
        """Identify the model from the kept history now: what is due, or if nothing is, all of it all the same.

        For agents made with refit="manual", whose decisions then never stop to learn a model: call it between them,
        as often as the machine has time. Decisions that wait for a reward are credited in the new model. Only agents
        that keep a history have something to identify; the others refuse.
        """
        self._check_can_refit("refit")
        self.policy.refit()

    @property
    def refit_due(self) -> bool:
        """Whether `refit` has something to do that made itself due."""
        return self.policy.estimator.is_refit_due(0)

    def model(self) -> dict[str, Any]:
        """What the last refit has found, as arrays by name: for `accept`, perhaps of a copy of this agent elsewhere."""
        self._check_can_refit("model")
        return dict(self.policy.estimator.model(0))

    def accept(self, model: Mapping[str, Any]) -> None:
        """Go on with the `model` that a copy of this agent has found, however many rounds ago it was copied.

        Identification can so run in another process: copy the agent there (`save`, or `state`), refit the copy, accept
        its model here. The kept history is folded under it, which takes milliseconds where the search took seconds.
        """
        self._check_can_refit("accept")
        if not isinstance(model, Mapping):
            raise invalid("model", "what agent.model() gives", repr(model))
        before = self.state()
        try:
            self.policy.estimator.accept(0, dict(model))
        except (HalfseenError, np.linalg.LinAlgError) as error:
            self.restore(before)
            if isinstance(error, HalfseenError):
                raise
            raise invalid("model", "what agent.model() gives", "one that cannot be filtered with") from None

    def _check_can_refit(self, asked: str) -> None:
        if not self.policy.can_refit:
            raise HalfseenError(
                f"{asked}: expected an agent that identifies a model from its history, such as 'adaptive', got "
                f"'{self.name}'"
            )

    def add_arm(self, name: str | None = None, *, params: ArrayLike | None = None) -> Arm:
        """One more arm, about which nothing is known yet; what it is called from now on.

        Where arms have names it needs a new one; where they are numbers it gets the next. `params` is for agents that
        are told what their arms pay (`bayes`).
        """
        return self._append(name, params, self.rounds)

    def retire_arm(self, arm: Arm) -> None:
        """Never choose an arm again. Its name or number stays its own; earlier decisions may still be rewarded."""
        index = self._arms.index("arm", arm)
        if not self.policy.active[0, index]:
            raise invalid("arm", "one of agent.active_arms", f"{arm!r}, which is retired")
        if len(self.active_arms) == 1:
            raise invalid("arm", "one that leaves another to be chosen", f"{arm!r}, the last active arm")
        self.policy.retire_arm(index)

    def health(self) -> Health:
        """How the stream is doing: facts, and a note for each thing that wants a look.

        An agent that keeps a history also examines its model and arms by it; `halfseen.examine` does more of that.
        """
        policy, arms, active = self.policy, self.arms, self.policy.active[0]
        facts, notes = self._pending.health()
        policy_facts, policy_notes = policy.health(0)
        facts |= {"arms": len(arms), "arms retired": len(arms) - int(active.sum())} | policy_facts
        notes += policy_notes
        unrewarded = policy.learner.arms_without_reward(0)
        if unrewarded is not None:
            never = [index for index in unrewarded if active[index]]
            facts["arms never rewarded"] = [arms[index] for index in never]
            old = [arms[index] for index in never if self._age(index) >= max(LONG_SILENCE, 20 * len(arms))]
            if old and self._pending.rewarded:
                notes.append(f"in many rounds these arms have never been rewarded: {', '.join(map(str, old))}")
        findings = brief_findings(self.subject())
        if (first := first_examined_round(policy.estimator, 0)) is not None:
            facts["findings"] = f"from round {first} on"
        notes += [finding.sentence for finding in findings if finding.verdict is Verdict.BAD]
        return Health(tuple(notes), facts, findings)

    def subject(self) -> ExaminationSubject | None:
        """The model in force and the kept history, for an examination; None where there is no history or no model."""
        retired = [index for index in range(len(self.arms)) if not self.policy.active[0, index]]
        names = [arm if isinstance(arm, str) else f"arm {arm}" for arm in self.arms]
        return subject_of_adaptive(self.policy.estimator, 0, names, retired)

    def fold(
        self,
        observations: ArrayLike,
        arms: Iterable[Arm],
        rewards: ArrayLike,
        *,
        contexts: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
    ) -> Agent:
        """Replay a recorded history: observations (n, k), the arms played, their rewards (NaN: none came).

        The state afterwards is, bit for bit, that of an agent that made these decisions and was rewarded at once.
        `propensities` (n,), `Decision.propensity` of each arm, matter to agents that learn from them (`meb`): if not
        given, the arms count as chosen by this agent, with all its active arms available. Tables may be DataFrames and
        vectors Series, of pandas or polars; columns are taken in order.
        """
        history = RecordedRounds.checked(self.policy, self._arms, observations, arms, rewards, contexts, propensities)
        before = self.state()
        try:
            for y, index, context, propensity, reward in history:
                choices = self.policy.replay(y, index, contexts=context, propensities=propensity, scored=False)
                number = self._pending.open(choices)
                if not np.isnan(reward):
                    self.learn(number, reward)
        except HalfseenError:
            self.restore(before)
            raise
        return self

    def save(self, path: str | Path) -> None:
        """Write the whole agent to a file; `halfseen.load` gives it back and it goes on bit for bit."""
        if not isinstance(path, str | Path):
            raise invalid("path", "the path of a file", repr(path))
        write_atomically(Path(path), self.packed())

    def packed(self, *, small: bool = True) -> bytes:
        """The whole agent as the content of such a file; not `small` is larger and quicker to make."""
        added = {"added": self._added} if self._added else {}
        return saving.to_bytes(self._recipe | added, self.state(), small=small)

    def state(self) -> dict[str, Any]:
        """A copy of every array the agent carries from round to round, by name."""
        return {name: array.copy() for name, array in self.policy.state().items()} | self._pending.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state()` described; a state of another shape, or of other arms, is refused."""
        known = {name: array for name, array in self.state().items() if name != PROVISIONAL}
        if PROVISIONAL in state and not self.policy.takes_provisional:
            raise invalid("state", f"one without: '{self.name}' does not take them", "one with provisional rewards")
        if state.keys() - {PROVISIONAL} != known.keys():
            raise invalid("state", f"the arrays {', '.join(known)}", f"{len(state)} arrays of other names")
        if np.shape(state["active"]) != known["active"].shape:
            raise invalid("state", f"one of {len(self.arms)} arms", f"one of {np.size(state['active'])} arms")
        self._pending.check(state, len(self.arms))
        self.policy.restore(dict(state))
        self._pending.restore(state, int(self.policy.rounds[0]))

    def __repr__(self) -> str:
        k = self.policy.streams.observed
        return f"<{self.name}: {k} observed, {len(self.arms)} arms, {self.rounds} rounds, {self.unrewarded} unrewarded>"

    def _append(self, name: str | None, params: ArrayLike | None, since: int) -> Arm:
        arm = self._arms.next(name)
        self.policy.add_arm(params)
        self._arms.append(arm)
        told = None if params is None else np.array(params, dtype=np.float64)
        self._added.append({"name": name, "params": told, "round": since})
        return arm

    def _age(self, index: int) -> int:
        """Rounds an arm has been there for."""
        nth = index - (len(self.arms) - len(self._added))
        return self.rounds - (int(self._added[nth]["round"]) if nth >= 0 else 0)

    def _context(self, context: ArrayLike | None) -> Floats | None:
        return self.policy.check_contexts("context", context, 1, self.name)


@dataclass(frozen=True)
class RecordedRounds:
    """The recorded history of one stream: n rounds, checked before any of them is replayed."""

    observations: Floats  # (n, k), NaN: not seen
    indices: Ints  # (n,) of the arms played
    rewards: Floats  # (n,), NaN: none came
    contexts: Floats | None  # (n, d), for agents that decide on them
    propensities: Floats | None  # (n,)

    @classmethod
    def checked(
        cls,
        policy: Policy,
        known: Arms,
        observations: ArrayLike,
        arms: Iterable[Arm],
        rewards: ArrayLike,
        contexts: ArrayLike | None,
        propensities: ArrayLike | None,
    ) -> RecordedRounds:
        """What users hand over, for an agent with this policy and the arms `known`."""
        ys = validation.table("observations", observations, policy.streams.observed)
        values = validation.numbers("rewards", rewards, "numbers, one per round")
        played = validation.as_list("arms", arms, "a list of arms")
        indices = np.array([known.index("arms", arm) for arm in played], dtype=np.int64)
        if classify_values(ys) == EXCESSIVE:
            raise invalid("observations", f"numbers within ±{LIMIT:g}, NaN for what was not seen", "an entry too large")
        if values.shape != (len(ys),) or classify_values(values[None]) == EXCESSIVE:
            wanted = f"{len(ys)} numbers within ±{LIMIT:g}, one per round, NaN where none came"
            raise invalid("rewards", wanted, f"shape {values.shape}")
        if len(indices) != len(ys):
            raise invalid("arms", f"{len(ys)}, one per round", f"{len(indices)} arms")
        xs = None
        if policy.estimator.reveals_context:
            xs = validation.table("contexts", () if contexts is None else contexts, policy.estimator.dimension)
            if len(xs) != len(ys) or classify_values(xs) != COMPLETE:
                raise invalid("contexts", f"{len(ys)} rows of numbers within ±{LIMIT:g}", f"{len(xs)} rows")
        return cls(ys, indices, values, xs, _chances(propensities, len(ys)))

    def __iter__(self) -> Iterator[tuple[Floats, Ints, Floats | None, Floats | None, float]]:
        """Observation, index, context, propensity and reward of one round after the other; all but the last (1, …)."""
        for t in range(len(self.rewards)):
            one = slice(t, t + 1)
            context = None if self.contexts is None else self.contexts[one]
            propensity = None if self.propensities is None else self.propensities[one]
            yield self.observations[one], self.indices[one], context, propensity, float(self.rewards[t])


def _chances(propensities: ArrayLike | None, rounds: int) -> Floats | None:
    if propensities is None:
        return None
    chances = validation.numbers("propensities", propensities, "numbers, one per round")
    if chances.shape != (rounds,):
        raise invalid("propensities", f"{rounds} probabilities, one per round", f"shape {chances.shape}")
    if not (fine := (chances > 0.0) & (chances < 1.0 + 1e-6)).all():
        raise invalid("propensities", "probabilities above 0", f"{chances[~fine][0]}")
    return chances
