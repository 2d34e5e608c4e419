"""One stream of decisions: ask for an arm, reward it now, late, out of order or never."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation as inputs
from halfseen.agents import saving as savefile
from halfseen.agents.arms import Arm, Arms
from halfseen.agents.decision import Decision
from halfseen.agents.health import stream_health, subject_of
from halfseen.agents.pending import PROVISIONAL, Ledger
from halfseen.agents.policy import Policy
from halfseen.agents.recorded import Record
from halfseen.agents.rewarded import Rewarded
from halfseen.diagnostics.examined import Subject
from halfseen.diagnostics.health import Health
from halfseen.errors import HalfseenError, invalid
from halfseen.kernels.checks import COMPLETE, survey
from halfseen.kernels.random import Floats, Ints
from halfseen.learners.calibrated import with_fits_dated
from halfseen.reports.files import write_atomically
from halfseen.validation import LIMIT

_SINCE_ARMS_COME_AND_GO = {"active", "missed", "silent", "rewards"}  # of the state: older files do without


class Agent(Rewarded):
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
        self._ledger = Ledger(max_pending, policy.estimator.dimension)
        self._reward = np.empty(1)
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
        return self._ledger.decided

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the decisions that may still be rewarded, oldest first."""
        return tuple(self._ledger.waiting)

    @property
    def unrewarded(self) -> int:
        """How many decisions may still be rewarded."""
        return len(self._ledger.waiting)

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
        y = inputs.row("observation", observation, self._observed)
        x = self._context(context) if context is not None or self._wants_context else None
        mask = None if available is None else self._arms.mask(available, policy.active)
        choices = policy.decide(y, contexts=x, available=mask)
        return Decision(self, choices, self._ledger.open(choices))

    def relive(
        self,
        observation: ArrayLike,
        arm: Arm,
        *,
        context: ArrayLike | None = None,
        available: Iterable[Arm] | None = None,
        propensity: float | None = None,
    ) -> Decision:
        """A round in which `arm` was played, whoever chose it: the state is as if this agent had.

        The decision tells what this agent would have done: `propensities` are its own. `propensity` is that of whoever
        chose the arm; agents that learn from it (`meb`) take their own if it is not given. `fold` is many such rounds.
        """
        y = inputs.row("observation", observation, self.policy.streams.observed)
        x = self._context(context)
        place = self._arms.place("arm", arm)
        mask = self.policy.active if available is None else self._arms.mask(available, self.policy.active)
        chance = None if propensity is None else np.array([inputs.number("propensity", propensity)])
        if chance is not None and not 0.0 < chance[0] < 1.0 + 1e-6:
            raise invalid("propensity", repr(propensity), "a probability above 0")
        if chance is None and not mask[0, place]:
            mask = mask.copy()
            mask[0, place] = True
        choices = self.policy.replay(y, np.array([place]), mask, contexts=x, propensities=chance)
        return Decision(self, choices, self._ledger.open(choices))

    def refit(self) -> None:
        """Identify the model from the kept history now: what is due, or if nothing is, all of it all the same.

        For agents made with refit="manual", whose decisions then never stop to learn a model: call it between them,
        as often as the machine has time. Decisions that wait for a reward are credited in the new model. Only agents
        that keep a history have something to identify; the others refuse.
        """
        self._check_renews("refit")
        self.policy.refit()

    @property
    def refit_due(self) -> bool:
        """Whether `refit` has something to do that made itself due."""
        return self.policy.estimator.is_due(0)

    def model(self) -> dict[str, Any]:
        """What the last refit has found, as arrays by name: for `accept`, perhaps of a copy of this agent elsewhere."""
        self._check_renews("model")
        return dict(self.policy.estimator.model(0))

    def accept(self, model: Mapping[str, Any]) -> None:
        """Go on with the `model` that a copy of this agent has found, however many rounds ago it was copied.

        Identification can so run in another process: copy the agent there (`save`, or `state`), refit the copy, accept
        its model here. The kept history is folded under it, which takes milliseconds where the search took seconds.
        """
        self._check_renews("accept")
        if not isinstance(model, Mapping):
            raise invalid("model", repr(model), "what agent.model() gives")
        before = self.state()
        try:
            self.policy.estimator.accept(0, dict(model))
        except (HalfseenError, np.linalg.LinAlgError) as error:
            self.restore(before)
            if isinstance(error, HalfseenError):
                raise
            raise invalid("model", "one that cannot be filtered with", "what agent.model() gives") from None

    def _check_renews(self, asked: str) -> None:
        if not self.policy.renews:
            raise HalfseenError(
                f"{asked}: got '{self.name}', which has nothing to identify; want an agent that learns its model from "
                "a kept history, such as 'adaptive'"
            )

    def add_arm(self, name: str | None = None, *, params: ArrayLike | None = None) -> Arm:
        """One more arm, about which nothing is known yet; what it is called from now on.

        Where arms have names it needs a new one; where they are numbers it gets the next. `params` is for agents that
        are told what their arms pay (`bayes`).
        """
        return self._append(name, params, self.rounds)

    def retire_arm(self, arm: Arm) -> None:
        """Never choose an arm again. Its name or number stays its own; earlier decisions may still be rewarded."""
        place = self._arms.place("arm", arm)
        if not self.policy.active[0, place]:
            raise invalid("arm", f"{arm!r}, which is retired", "one of agent.active_arms")
        if len(self.active_arms) == 1:
            raise invalid("arm", f"{arm!r}, the last active arm", "one that leaves another to be chosen")
        self.policy.retire_arm(place)

    def health(self) -> Health:
        """How the stream is doing: facts, and a note for each thing that wants a look.

        An agent that keeps a history also examines its model and arms by it; `halfseen.examine` does more of that.
        """
        return stream_health(
            self.policy, self._ledger, self.arms, [self._age(place) for place in range(len(self.arms))]
        )

    def subject(self) -> Subject | None:
        """The model in force and the kept history, for an examination; None where there is no history or no model."""
        return subject_of(self.policy, self.arms)

    def fold(
        self,
        observations: ArrayLike,
        arms: Sequence[Arm],
        rewards: ArrayLike,
        *,
        contexts: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
    ) -> Agent:
        """Live through a recorded history: observations (n, k), the arms played, their rewards (NaN: none came).

        The state afterwards is, bit for bit, that of an agent that made these decisions and was rewarded at once.
        `propensities` (n,), `Decision.propensity` of each arm, matter to agents that learn from them (`meb`): if not
        given, the arms count as chosen by this agent, with all its active arms available.
        """
        record = Record.checked(self.policy, self._arms, observations, arms, rewards, contexts, propensities)
        before = self.state()
        try:
            for y, place, context, propensity, reward in record.rounds():
                number = self._relive(y, place, context, propensity)
                if not np.isnan(reward):
                    self.learn(number, reward)
        except HalfseenError:
            self.restore(before)
            raise
        return self

    def retrace(self, observation: ArrayLike, arm: Arm, *, propensity: float | None = None) -> int:
        """One round of a record: see y_t and take `arm` as played; the id that its reward is credited to.

        What `fold` does for many rounds, without the copy of the state that lets it refuse a history halfway.
        """
        y = inputs.row("observation", observation, self.policy.streams.observed)
        if self.policy.estimator.reveals_context:
            raise invalid("arm", f"a record for '{self.name}'", "agent.fold with contexts: it decides on them")
        place = np.array([self._arms.place("arm", arm)])
        return self._relive(y, place, None, None if propensity is None else np.array([propensity]))

    def _relive(self, y: Floats, place: Ints, context: Floats | None, propensity: Floats | None) -> int:
        rounds, features = self.policy.relive(y, place, contexts=context, propensities=propensity)
        return self._ledger.open((rounds, place, features))

    def save(self, path: str | Path) -> None:
        """Write the whole agent to a file; `halfseen.load` gives it back and it goes on bit for bit."""
        if not isinstance(path, str | Path):
            raise invalid("path", repr(path), "the path of a file")
        write_atomically(Path(path), self.packed())

    def packed(self, *, small: bool = True) -> bytes:
        """The whole agent as the content of such a file; not `small` is larger and quicker to make."""
        added = {"added": self._added} if self._added else {}
        return savefile.packed(self._recipe | added, self.state(), small=small)

    def state(self) -> dict[str, Any]:
        """A copy of every array the agent carries from round to round, by name."""
        return {name: array.copy() for name, array in self.policy.state().items()} | self._ledger.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state()` described; a state of another shape, or of other arms, is refused."""
        known = {name: array for name, array in self.state().items() if name != PROVISIONAL}
        state = with_fits_dated(state, known, 1)
        if PROVISIONAL in state and not self.policy.replaces:
            raise invalid("state", "one with provisional rewards", f"one without: '{self.name}' does not take them")
        if state.keys() - {PROVISIONAL} == known.keys() - _SINCE_ARMS_COME_AND_GO:
            state = {**state, **self._unrecorded(state)}
        if state.keys() - {PROVISIONAL} != known.keys():
            raise invalid("state", f"{len(state)} arrays of other names", f"the arrays {', '.join(known)}")
        if np.shape(state["active"]) != known["active"].shape:
            raise invalid("state", f"one of {np.size(state['active'])} arms", f"one of {len(self.arms)} arms")
        if not np.any(state["active"]):
            raise invalid("state", "one without an active arm", "one with an arm to choose")
        self._ledger.check(state, len(self.arms))
        self.policy.restore(dict(state))
        self._ledger.restore(state, int(self.policy.rounds[0]))

    def _unrecorded(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """What a state of before arms came and went leaves out: every arm active, nothing counted as missing."""
        rounds, waiting = int(state["rounds"][0]), len(state["pending.ids"])
        seen = np.zeros((1, self.policy.streams.observed), dtype=np.int64)
        return {
            "active": np.ones((1, len(self.arms)), dtype=np.bool_),
            "missed": seen,
            "silent": seen,
            "rewards": np.array([rounds - waiting, rounds]),
        }

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

    def _age(self, place: int) -> int:
        """Rounds an arm has been there for."""
        nth = place - (len(self.arms) - len(self._added))
        return self.rounds - (int(self._added[nth]["round"]) if nth >= 0 else 0)

    def _context(self, context: ArrayLike | None) -> Floats | None:
        if not self.policy.estimator.reveals_context:
            if context is not None:
                raise invalid("context", "the true context", f"nothing: '{self.name}' decides without it")
            return None
        if context is None:
            raise invalid("context", "nothing", f"the true context: '{self.name}' decides on it")
        x = inputs.row("context", context, self.policy.estimator.dimension)
        if survey(x) != COMPLETE:
            raise invalid("context", "an entry missing or too large", f"numbers within ±{LIMIT:g}")
        return x
