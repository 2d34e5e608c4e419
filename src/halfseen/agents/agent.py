"""The agent of one stream: it decides, and it learns from rewards that may be late, out of order or missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation
from halfseen.agents import saving
from halfseen.agents.arms import Arm, Arms
from halfseen.agents.decision import Decision
from halfseen.agents.forecast import Forecast, forecast
from halfseen.agents.guardrails import BRANCHES, Guardrails, StreamGuardrails, split_guardrails
from halfseen.agents.pending import MARKS, PROVISIONAL, HasProvisional, PendingDecisions, ProvisionalReward
from halfseen.agents.policy import Policy
from halfseen.components import Choices, Mask
from halfseen.diagnostics.examination_data import ExaminationSubject, first_examined_round, subject_of_adaptive
from halfseen.diagnostics.family_calibration import family_calibration
from halfseen.diagnostics.findings import brief_findings
from halfseen.diagnostics.health import LONG_SILENCE, Health, Verdict
from halfseen.errors import DecisionError, HalfseenError, InvalidInput, invalid
from halfseen.kernels.checks import EXCESSIVE, classify_values
from halfseen.kernels.random import Floats, Ints
from halfseen.reports.files import write_atomically
from halfseen.validation import LIMIT

_GUARDRAILS = {f"guardrails.{name}" for name in StreamGuardrails.state_names}
_OPTIONAL = {PROVISIONAL, MARKS, *_GUARDRAILS}  # arrays that not every state has


class Agent:
    """A catalogued agent that decides and learns on one stream.

    Call `halfseen.make` to make an agent. If a method raises a `HalfseenError`, the state of the agent is unchanged.

    Examples
    --------
    >>> import halfseen as hs
    >>> agent = hs.make("ts-pco", observed=2, arms=["low", "high"], seed=1)
    >>> decision = agent.decide([0.5, -1.0])
    >>> agent.learn(decision, 1.0)
    >>> agent
    <ts-pco: 2 observed, 2 arms, 1 rounds, 0 unrewarded>
    """

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
        self._observed, self._needs_context = policy.streams.observed, policy.estimator.reveals_context
        self._recipe = dict(recipe)
        self._arms = Arms(arms)
        self._added: list[dict[str, Any]] = []
        self._pending = PendingDecisions(max_pending, policy.estimator.dimension)
        _, self._least_reward, self._most_reward = policy.learner.reward_range
        self._reward = np.empty(1)  # reused by every call of `learn`, because no component keeps a reference to it
        for arm in added:
            self._append_arm(arm["name"], arm["params"], arm["round"])

    @property
    def name(self) -> str:
        """The name of the agent in the catalogue."""
        return str(self._recipe["name"])

    @property
    def recipe(self) -> dict[str, Any]:
        """The arguments with which `halfseen.make` made the agent."""
        return dict(self._recipe)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """All arms in the order in which they were added, including retired arms."""
        return self._arms.names

    @property
    def active_arms(self) -> tuple[Arm, ...]:
        """The arms that can be chosen, which are all arms that are not retired."""
        return tuple(arm for arm, active in zip(self.arms, self.policy.active[0], strict=True) if active)

    @property
    def rounds(self) -> int:
        """The number of decisions made so far."""
        return self._pending.decision_count

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the decisions that can still be rewarded, oldest first."""
        return tuple(self._pending.waiting)

    @property
    def unrewarded(self) -> int:
        """The number of decisions that can still be rewarded."""
        return len(self._pending.waiting)

    def decide(
        self,
        observation: ArrayLike,
        *,
        context: ArrayLike | None = None,
        available: Iterable[Arm] | None = None,
        costs: ArrayLike | Mapping[Arm, float] | None = None,
        elapsed: int = 1,
    ) -> Decision:
        """Start the next round with an observation and choose an arm.

        Parameters
        ----------
        observation : array_like of shape (k,)
            The observed features. NaN or None marks a missing entry.
        context : array_like of shape (d,), optional
            The true context. Agents named ``oracle-...`` require the true context, and all other agents refuse it.
        available : iterable of arms, optional
            The arms to choose from. All active arms by default.
        costs : array_like of shape (K,) or mapping from arms to numbers, optional
            The cost of each arm, in the order of `arms`. Without a budget the costs are in units of reward, and the
            agent prefers arms with a high reward minus cost. An agent with a budget requires the costs, which may be in
            any unit. Arms that cost more than the rest of the budget are not chosen.
        elapsed : int, default 1
            The number of steps since the last round. If it is n, nothing was observed in the n − 1 steps in between.
            0 means that this observation and the last one belong to the same moment. Agents whose estimate of the
            context does not depend on time, such as `ts-pco`, accept any number of steps and ignore it.

        Returns
        -------
        Decision
            The chosen arm, its propensity and the id of the decision.

        Raises
        ------
        HalfseenError
            If an argument is invalid.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=["low", "mid", "high"], seed=1)
        >>> agent.decide([0.5, None], available=["mid"]).arm
        'mid'
        >>> agent.decide([0.5, None], costs={"low": 0.0, "mid": 100.0, "high": 100.0}).arm
        'low'
        """
        choices = self._decide(self.policy, observation, context, available, costs, elapsed)
        decision_id = self._pending.add(choices)
        if self.policy.guarded:
            self._mark(decision_id, choices)
        return Decision(self, choices, decision_id)

    def _elapsed(self, elapsed: int) -> Ints | None:
        """Check the number of steps since the last round. Return None if it is 1, or if the agent ignores time."""
        if type(elapsed) is int and elapsed == 1:
            return None
        return self.policy.check_elapsed(np.array([validation.elapsed_steps("elapsed", elapsed)]))

    def observe(self, observation: ArrayLike, *, elapsed: int = 1) -> None:
        """Process an observation without deciding, so that the next decision knows more about the context.

        The observation gets no id, and `rounds` does not count it. Agents that learn a model of the context, such as
        `adaptive`, learn from it too.

        Parameters
        ----------
        observation : array_like of shape (k,)
            The observed features. NaN or None marks a missing entry.
        elapsed : int, default 1
            The number of steps since the last round, as for `decide`.

        Raises
        ------
        HalfseenError
            If an argument is invalid.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("adaptive", observed=2, arms=2, seed=1)
        >>> agent.observe([0.5, -1.0])
        >>> agent.observe([0.4, -1.1], elapsed=3)
        >>> agent.decide([0.3, -1.2]).id
        1
        """
        y = validation.row_vector("observation", observation, self._observed)
        self.policy.observe(y, elapsed=self._elapsed(elapsed), decides=False)

    def preview(
        self,
        observation: ArrayLike,
        *,
        context: ArrayLike | None = None,
        available: Iterable[Arm] | None = None,
        costs: ArrayLike | Mapping[Arm, float] | None = None,
        elapsed: int = 1,
    ) -> Decision:
        """Return the decision that `decide` would return for the same arguments. The agent is unchanged.

        Parameters
        ----------
        observation, context, available, costs, elapsed
            As for `decide`.

        Returns
        -------
        Decision
            The decision that would be made. It is not recorded, so it cannot be rewarded.

        Raises
        ------
        HalfseenError
            If an argument is invalid.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=["low", "high"], seed=1)
        >>> expected = agent.preview([0.5, -1.0]).arm
        >>> agent.decide([0.5, -1.0]).arm == expected, agent.rounds
        (True, 1)
        """
        copy = deepcopy(self.policy)
        choices = self._decide(copy, observation, context, available, costs, elapsed)
        return Decision(_Copy(copy, self.arms), choices, self.rounds + 1)

    def _decide(
        self,
        policy: Policy,
        observation: ArrayLike,
        context: ArrayLike | None,
        available: Iterable[Arm] | None,
        costs: ArrayLike | Mapping[Arm, float] | None,
        elapsed: int,
    ) -> Choices:
        """Check the arguments of `decide`, and let `policy` (the policy of the agent, or a copy) decide."""
        y = validation.row_vector("observation", observation, self._observed)
        x = self._context(context) if context is not None or self._needs_context else None
        mask = None if available is None else self._available(available)
        arm_costs = None
        if costs is not None or policy.budgets is not None:
            arm_costs = policy.check_costs(costs, 1, self.arms)
        steps = self._elapsed(elapsed)
        return policy.decide(y, contexts=x, available=mask, costs=arm_costs, elapsed=steps)

    def _available(self, available: Iterable[Arm]) -> Mask:
        mask = self._arms.mask(available, self.policy.active)
        if self.policy.guardrails is not None:
            self.policy.guardrails.check_available(self.policy.all_rows, mask, self.arms)
        return mask

    def _mark(self, decision_id: int, choices: Choices) -> None:
        """Store the branch of a decision until its reward is received."""
        if choices.branches is not None and choices.branches[0] >= 0:
            self._pending.branches[decision_id] = int(choices.branches[0])

    def forecast(self, horizon: int) -> Forecast:
        """Predict contexts and arm values for the next rounds.

        Parameters
        ----------
        horizon : int
            Number of rounds ahead, from 1 to 1,000.

        Returns
        -------
        Forecast
            Means and covariances of the context and, for every arm, the expected reward, its standard deviation and
            the probability that the arm is the best, per round ahead.

        Raises
        ------
        HalfseenError
            If the horizon is not a number from 1 to 1,000, or if the agent has no linear-Gaussian model of the context.

        Notes
        -----
        x_{t+j} ~ N(D^j x_t, P_j) with P_j = D P_{j-1} D' + Q.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("adaptive", observed=2, arms=["low", "high"], seed=1)
        >>> agent.forecast(3).best_arm_probability.shape
        (3, 2)
        """
        return forecast(self.policy, self.name, self.arms, horizon)

    def replay(
        self,
        observation: ArrayLike,
        arm: Arm,
        *,
        context: ArrayLike | None = None,
        available: Iterable[Arm] | None = None,
        propensity: float | None = None,
        branch: str | None = None,
        costs: ArrayLike | Mapping[Arm, float] | None = None,
        elapsed: int = 1,
    ) -> Decision:
        """Process a round in which another policy chose the arm.

        Afterwards the agent is in the state it would have if it had chosen this arm itself. `fold` replays many rounds.

        Parameters
        ----------
        observation : array_like of shape (k,)
            The observed features. NaN or None marks a missing entry.
        arm : int or str
            The arm that was played.
        context : array_like of shape (d,), optional
            The true context. Agents named ``oracle-...`` require the true context, and all other agents refuse it.
        available : iterable of arms, optional
            The arms that were available. All active arms by default.
        propensity : float, optional
            The probability with which the other policy chose `arm`. If it is not given, agents that learn from
            propensities, such as ``meb``, use their own probability of choosing `arm`.
        branch : str, optional
            The `branch` of the decision, if this agent made it with guardrails. The lift in `health` counts only
            decisions whose branch is known.
        costs : array_like of shape (K,) or mapping from arms to numbers, optional
            The cost of each arm, as for `decide`. The cost of `arm` is charged to the budget.
        elapsed : int, default 1
            The number of steps since the last round, as for `decide`.

        Returns
        -------
        Decision
            The replayed decision. Its `propensities` and `expected` describe what this agent would have done.

        Raises
        ------
        HalfseenError
            If an argument is invalid.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=["low", "high"], seed=1)
        >>> decision = agent.replay([0.5, -1.0], "high", propensity=0.5)
        >>> agent.learn(decision, 1.0)
        >>> decision.arm, agent.rounds
        ('high', 1)
        """
        y = validation.row_vector("observation", observation, self._observed)
        x = self._context(context)
        index = self._arms.index("arm", arm)
        mask = self.policy.active if available is None else self._available(available)
        branches = None if branch is None else self._branches("branch", [branch])
        propensities = None
        if propensity is not None:
            propensities = np.array([validation.number("propensity", propensity)])
            validation.check_propensities("propensity", propensities)
        elif not mask[0, index]:
            mask = mask.copy()
            mask[0, index] = True
        arm_costs = self.policy.check_costs(costs, 1, self.arms)
        choices = self.policy.replay(
            y, np.array([index]), mask, contexts=x, propensities=propensities, branches=branches, costs=arm_costs,
            elapsed=self._elapsed(elapsed),
        )  # fmt: skip
        decision_id = self._pending.add(choices)
        self._mark(decision_id, choices)
        return Decision(self, choices, decision_id)

    def _branches(self, argument: str, given: Sequence[object]) -> Ints:
        """Return the index in BRANCHES of each branch name that a user has given, −1 for None."""
        if not self.policy.guarded:
            raise invalid(argument, "None, because no guardrails are in force", repr(given[0]) if given else "none")
        for one in given:
            if one is not None and one not in BRANCHES:
                raise invalid(argument, f"one of: {', '.join(BRANCHES)}, or None", repr(one))
        return np.array([-1 if one is None else BRANCHES.index(str(one)) for one in given], dtype=np.int64)

    @property
    def takes_provisional(self) -> bool:
        """Whether `learn` accepts provisional rewards. All agents of the catalogue accept them."""
        return self.policy.takes_provisional

    def learn(self, decision_id: int | Decision, reward: float, *, provisional: bool = False) -> None:
        """Learn the reward of a decision.

        The reward is learnt with the context of the round in which the decision was made, however late it arrives.

        Parameters
        ----------
        decision_id : int or Decision
            A decision of this agent, or its id. The id is the number of the round, so decisions of different agents can
            have the same id.
        reward : float
            The reward.
        provisional : bool, default False
            Whether a later reward may replace this one. The agent learns a provisional reward at once and keeps the
            decision open. The next reward of the decision replaces the provisional reward, as if the provisional reward
            had never been received.

        Raises
        ------
        DecisionError
            If the decision is unknown, already rewarded, given up or too old.
        HalfseenError
            If the reward is not a finite number, is outside of the range of the reward family, or cannot be learnt.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=2, seed=1)
        >>> first, second = agent.decide([0.5, -1.0]), agent.decide([0.1, 0.3])
        >>> agent.learn(second, 1.0)
        >>> agent.learn(first.id, 0.0, provisional=True)
        >>> agent.pending
        (1,)
        >>> agent.learn(first, 0.5)
        >>> agent.pending
        ()
        """
        value = reward if isinstance(reward, float) else validation.number("reward", reward)
        if not self._least_reward <= value <= self._most_reward:  # also refuses NaN
            raise invalid("reward", str(self.policy.learner.reward_range), repr(reward))
        if isinstance(decision_id, Decision):
            decision_id = decision_id.id_for(self)
        try:
            rounds, arms, features = self._pending.find(decision_id)
        except HasProvisional:
            self._replace_reward(decision_id, value, provisional)
            return
        if provisional:
            self._learn_provisional(decision_id, value)
            return
        self._reward[0] = value
        self.policy.learn(rounds, features, arms, self._reward)
        if self._pending.branches:
            self._count_rewards([decision_id], self._reward)
        self._pending.complete(decision_id)

    def _count_rewards(self, decision_ids: Sequence[int], rewards: Floats) -> None:
        """Add each reward, in the given order, to the reward statistics of the branch that made the decision."""
        assert self.policy.guardrails is not None
        branches = np.array([self._pending.branches.get(decision_id, -1) for decision_id in decision_ids])
        self.policy.guardrails.learn(np.zeros_like(branches), branches, rewards)

    def _learn_provisional(self, decision_id: int, value: float) -> None:
        if not self.policy.takes_provisional:
            raise InvalidInput(
                f"'{self.name}' takes no provisional rewards, because it cannot replace a learnt reward."
            )
        decision = rounds, arms, features = self._pending.find(decision_id)
        (credit,) = self.policy.learn_provisional(rounds, features, arms, np.array([value]))
        if self._pending.branches:
            self._count_rewards([decision_id], np.array([value]))
        self._pending.set_provisional(decision_id, ProvisionalReward(decision, value, *credit.tolist()))

    def _replace_reward(self, decision_id: int, value: float, provisional: bool) -> None:
        """Replace the provisional reward of a decision.

        The decision stays open if the new reward is `provisional` too.
        """
        old = self._pending.provisional[decision_id]
        rounds, arms, features = old.decision
        replacement_data = np.array([[old.noise_variance, old.reward_number]])
        self.policy.replace_rewards(rounds, features, arms, np.array([old.value]), np.array([value]), replacement_data)
        if (branch := self._pending.branches.get(decision_id)) is not None:
            assert self.policy.guardrails is not None
            self.policy.guardrails.replace(0, branch, old.value, value)
        if provisional:
            self._pending.set_provisional(decision_id, old._replace(value=value))
        else:
            self._pending.complete_provisional(decision_id)

    def learn_many(self, ids: Iterable[int | Decision], rewards: ArrayLike) -> None:
        """Learn the rewards of several decisions.

        The result equals that of one call of `learn` per decision, in the given order. If one reward is refused, none
        of them is learnt.

        Parameters
        ----------
        ids : iterable of int or Decision
            Distinct decisions of this agent, or their ids.
        rewards : array_like of shape (n,)
            One reward per decision.

        Raises
        ------
        DecisionError
            If a decision is unknown, already rewarded, given up, too old or named twice.
        HalfseenError
            If a reward is not a finite number, is outside of the range of the reward family, or cannot be learnt.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=2, seed=1)
        >>> decisions = [agent.decide([0.5, -1.0]) for _ in range(3)]
        >>> agent.learn_many(decisions[:2], [1.0, 0.0])
        >>> agent.pending
        (3,)
        """
        given = validation.as_list("ids", ids, "a list of decisions or their ids")
        decision_ids = [one.id_for(self) if isinstance(one, Decision) else one for one in given]
        decisions = [self._pending.get(decision_id) for decision_id in decision_ids]
        values = validation.rewards_of_decisions(rewards, len(decision_ids), self.policy.learner.reward_range)
        if not decision_ids:
            return
        most_frequent, times = Counter(decision_ids).most_common(1)[0]
        if times > 1:
            raise DecisionError(f"ids: expected distinct decisions, got {most_frequent} more than once")
        if not self._pending.provisional.keys().isdisjoint(decision_ids):
            self._learn_one_by_one(decision_ids, values.tolist())
            return
        rounds, arms, features = (np.concatenate(part) for part in zip(*decisions, strict=True))
        self.policy.learn_many(np.zeros_like(rounds), rounds, features, arms, values)
        if self._pending.branches:
            self._count_rewards(decision_ids, values)
        for decision_id in decision_ids:
            self._pending.complete(decision_id)

    def _learn_one_by_one(self, decision_ids: Sequence[int], values: Sequence[float]) -> None:
        before = self.state()
        try:
            for decision_id, value in zip(decision_ids, values, strict=True):
                self.learn(decision_id, value)
        except HalfseenError:
            self._write(before)
            raise

    def give_up(self, decision_id: int | Decision) -> None:
        """Stop waiting for the reward of a decision.

        The decision can no longer be rewarded. A provisional reward becomes final.

        Parameters
        ----------
        decision_id : int or Decision
            A decision of this agent that is in `pending`, or its id.

        Raises
        ------
        DecisionError
            If the decision is unknown, already rewarded, given up or too old.
        """
        self._pending.give_up(decision_id.id_for(self) if isinstance(decision_id, Decision) else decision_id)

    def refit(self) -> None:
        """Identify the model from the stored history now, even if no refit is due.

        Agents made with ``refit="manual"`` refit only when this method is called, so their decisions are never delayed
        by a refit. Later rewards of earlier decisions are learnt under the new model.

        Raises
        ------
        HalfseenError
            If the agent does not identify a model. Only `adaptive` and its variants identify a model.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("adaptive", observed=1, arms=2, seed=1, refit="manual")
        >>> for t in range(8):
        ...     agent.learn(agent.decide([0.1 * t]), 1.0)
        >>> agent.refit_due
        True
        >>> agent.refit()
        >>> agent.refit_due
        False
        """
        self._check_can_refit("refit")
        self.policy.refit()

    @property
    def refit_due(self) -> bool:
        """Whether a refit is due, because enough rounds or rewards have been added since the last refit."""
        return self.policy.estimator.is_refit_due(0)

    def model(self) -> dict[str, Any]:
        """Return the model that the last refit identified, for `accept`.

        Returns
        -------
        dict of str to ndarray
            The arrays, by name, that the last refit computed and that do not follow from the history alone.

        Raises
        ------
        HalfseenError
            If the agent does not identify a model. Only `adaptive` and its variants identify a model.
        """
        self._check_can_refit("model")
        return dict(self.policy.estimator.model(0))

    def accept(self, model: Mapping[str, Any]) -> None:
        """Continue with a model that a copy of this agent identified.

        Identification takes seconds and can run in another process: copy the agent there (with `save` or `state`), call
        `refit` on the copy, and give its `model()` to this agent. This agent may have made further decisions in the
        meantime. The agent replays its stored history under the new model, which takes milliseconds.

        Parameters
        ----------
        model : mapping of str to ndarray
            The result of the method `model` of the copy.

        Raises
        ------
        HalfseenError
            If the model does not fit this agent, or if the agent identifies no model.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("adaptive", observed=1, arms=2, seed=1, refit="manual")
        >>> copy = hs.make(**agent.recipe)
        >>> for t in range(8):
        ...     agent.learn(agent.decide([0.1 * t]), 1.0)
        >>> copy.restore(agent.state())
        >>> copy.refit()
        >>> agent.accept(copy.model())
        """
        self._check_can_refit("accept")
        if not isinstance(model, Mapping):
            raise invalid("model", "a result of agent.model()", repr(model))
        before = self.state()
        try:
            self.policy.estimator.accept(0, validation.arrays("model", model))
            self.policy.check(self.policy.state(), 1)
        except HalfseenError:
            self._write(before)
            raise
        except Exception as error:  # the arrays have the right shapes, but the filter fails for their values
            self._write(before)
            got = f"a model for which the filter fails ({type(error).__name__})"
            raise invalid("model", "a result of agent.model()", got) from None

    def _check_can_refit(self, method: str) -> None:
        if not self.policy.can_refit:
            raise HalfseenError(
                f"{method}: expected an agent that identifies a model from its history, such as 'adaptive', got "
                f"'{self.name}'"
            )

    def add_arm(self, name: str | None = None, *, params: ArrayLike | None = None) -> Arm:
        """Add an arm, which starts from the prior.

        Parameters
        ----------
        name : str, optional
            The name of the arm. It must differ from the names of all arms, including retired arms. A name is required
            if the other arms have names. If arms are numbered, the new arm gets the next number.
        params : array_like, optional
            The reward coefficients of the arm. Agents that know the coefficients of all arms, such as ``bayes``,
            require them, and agents that learn the coefficients refuse them.

        Returns
        -------
        int or str
            The number or the name of the new arm.

        Raises
        ------
        HalfseenError
            If an argument is invalid.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=2, seed=1)
        >>> agent.add_arm()
        2
        """
        return self._append_arm(name, params, self.rounds)

    def retire_arm(self, arm: Arm) -> None:
        """Never choose an arm again.

        Earlier decisions for the arm can still be rewarded. The name or number of the arm is not used again.

        Parameters
        ----------
        arm : int or str
            The arm to retire, which must be active and must not be the only active arm.

        Raises
        ------
        HalfseenError
            If the arm is unknown, retired, the last active arm or the control arm.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=["low", "high"], seed=1)
        >>> agent.retire_arm("low")
        >>> agent.active_arms
        ('high',)
        """
        index = self._arms.index("arm", arm)
        if not self.policy.active[0, index]:
            raise invalid("arm", "an arm of agent.active_arms", f"{arm!r}, which is retired")
        if self.guardrails.control is not None and arm == self.guardrails.control[0]:
            raise invalid("arm", "an arm that is not the control arm of the guardrails", repr(arm))
        if len(self.active_arms) == 1:
            raise invalid("arm", "an arm that is not the only active one", f"{arm!r}, the last active arm")
        self.policy.retire_arm(index)

    @property
    def guardrails(self) -> Guardrails:
        """The guardrails in force. Without guardrails, all shares are 0."""
        guardrails = self.policy.guardrails
        return Guardrails() if guardrails is None else guardrails.settings(0, self.arms)

    def set_guardrails(
        self, *, floor: float = 0.0, holdback: float = 0.0, control: tuple[Arm, float] | None = None
    ) -> None:
        """Change the guardrails from the next decision on.

        With K available arms, the propensity of arm a becomes f + (1 − K f)(h/K + s·[a is the control arm] +
        (1 − h − s) w_a), where w_a is the probability with which the agent would choose the arm without guardrails.
        `Decision.branch` says what made a decision. The agent learns from all rewards. `health` reports the lift over
        `control` and `holdback`, which is how much more the agent's own choices earn on average. The lift is computed
        from the decisions since `control` or `holdback` was last changed.

        Parameters
        ----------
        floor : float, default 0
            f, the smallest propensity of an available arm. At most 1/K.
        holdback : float, default 0
            h, the share of decisions made uniformly at random, among those that are not due to the floor.
        control : pair of an arm and a float, optional
            An active arm and s, the share of decisions that always play this arm, among those that are not due to the
            floor. The arm cannot be retired while it is the control arm, and must be available in every round.

        Raises
        ------
        HalfseenError
            If a share is not a number from 0 to 1, if the floor exceeds 1/K, if holdback and the share of the control
            arm sum to more than 1, or if the control arm is unknown or retired.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=["low", "high"], seed=1)
        >>> agent.set_guardrails(floor=0.05, control=("low", 0.2))
        >>> decision = agent.decide([0.5, -1.0])
        >>> decision.branch, decision.arm
        ('control', 'low')
        """
        options = {"floor": floor, "holdback": holdback, "control": control}
        guardrails = Guardrails.checked(self._arms, options)
        if guardrails == self.guardrails:
            return
        if self.policy.set_guardrails(guardrails, self._arms)[0]:
            self._pending.branches.clear()  # the lift ignores decisions made with other shares

    def health(self, *, sensors: Sequence[str] | None = None) -> Health:
        """Report the state of the stream, with a note for each problem.

        Agents that store a history also examine their model and their arms. `halfseen.examine` examines more.

        Parameters
        ----------
        sensors : sequence of str, optional
            The names of the observed features in the findings. The default is "entry 0", "entry 1" and so on.

        Returns
        -------
        Health
            The answer to whether the hidden part of the context matters, facts by name, notes and findings.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=2, seed=1)
        >>> agent.learn(agent.decide([0.5, None]), 1.0)
        >>> health = agent.health()
        >>> health.ok, health.facts["share of entries not seen"]
        (True, 0.5)
        """
        policy, arms, active = self.policy, self.arms, self.policy.active[0]
        facts, notes = self._pending.health()
        policy_facts, policy_notes = policy.health(0)
        facts |= {"arms": len(arms), "arms retired": len(arms) - int(active.sum())} | policy_facts
        notes += policy_notes
        without_reward = policy.learner.arms_without_reward(0)
        if without_reward is not None:
            unrewarded = [index for index in without_reward if active[index]]
            facts["arms never rewarded"] = [arms[index] for index in unrewarded]
            old = [arms[index] for index in unrewarded if self._age(index) >= max(LONG_SILENCE, 20 * len(arms))]
            if old and self._pending.reward_count:
                notes.append(f"these arms are many rounds old and have never been rewarded: {', '.join(map(str, old))}")
        answer, findings = brief_findings(self.subject(sensors))
        if policy.guardrails is not None:
            guardrail_facts, lift_findings = policy.guardrails.report(policy.all_rows, self.arms)
            facts, findings = facts | guardrail_facts, findings + lift_findings
        family_facts, family_findings = family_calibration(policy.learner, policy.all_rows, self.arms)
        facts, findings = facts | family_facts, findings + family_findings
        if (first := first_examined_round(policy.estimator, 0)) is not None:
            facts["findings"] = f"from round {first} on"
        notes += [finding.sentence for finding in findings if finding.verdict is Verdict.BAD]
        return Health(tuple(notes), facts, findings, answer)

    def subject(self, sensors: Sequence[str] | None = None) -> ExaminationSubject | None:
        """Return the current model and the stored history to examine, or None if there is nothing to examine."""
        retired = [index for index in range(len(self.arms)) if not self.policy.active[0, index]]
        names = [arm if isinstance(arm, str) else f"arm {arm}" for arm in self.arms]
        return subject_of_adaptive(self.policy.estimator, 0, names, retired, sensors)

    def fold(
        self,
        observations: ArrayLike,
        arms: Iterable[Arm],
        rewards: ArrayLike,
        *,
        contexts: ArrayLike | None = None,
        propensities: ArrayLike | None = None,
        branches: Iterable[str | None] | None = None,
        costs: ArrayLike | None = None,
        elapsed: ArrayLike = 1,
    ) -> Agent:
        """Replay a recorded history.

        Afterwards the state equals, bit for bit, the state of an agent that made these decisions itself and received
        each reward at once.

        Parameters
        ----------
        observations : array_like of shape (n, k)
            One observation per round, with NaN for missing entries.
        arms : sequence of arms or None, of length n
            The arms that were played, and None in rounds that were observed without a decision.
        rewards : array_like of shape (n,)
            The rewards, with NaN for rewards that were never received.
        contexts : array_like of shape (n, d), optional
            The true contexts. Agents named ``oracle-...`` require the true contexts, and all other agents refuse them.
        propensities : array_like of shape (n,), optional
            The probabilities with which the arms were chosen. If they are not given, agents that learn from
            propensities, such as ``meb``, use their own probabilities of choosing these arms from all active arms.
        branches : sequence of str or None, of length n, optional
            The `branch` of each decision, if this agent made the decisions with guardrails.
        costs : array_like of shape (n, K) or (K,), optional
            The cost of each arm, per round or the same in all rounds. An agent with a budget requires the costs.
        elapsed : int or array_like of shape (n,), default 1
            The number of steps between each round and the one before it, as for `decide`.

        Returns
        -------
        Agent
            The agent itself.

        Raises
        ------
        HalfseenError
            If an argument is invalid, or if a reward cannot be learnt. In both cases, no round is replayed.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=2, seed=1)
        >>> agent.fold([[0.5, -1.0], [0.1, 0.3]], arms=[0, 1], rewards=[1.0, float("nan")])
        <ts-pco: 2 observed, 2 arms, 2 rounds, 1 unrewarded>
        """
        history = RecordedRounds.checked(
            self, observations, arms, rewards, contexts, propensities, branches, costs, elapsed
        )
        before = self.state()
        try:
            for y, index, context, propensity, branch, arm_costs, steps, reward in history:
                if index[0] < 0:
                    self.policy.observe(y, elapsed=steps, decides=False)
                    continue
                choices = self.policy.replay(
                    y, index, contexts=context, propensities=propensity, branches=branch, costs=arm_costs,
                    elapsed=steps, scored=False,
                )  # fmt: skip
                decision_id = self._pending.add(choices)
                self._mark(decision_id, choices)
                if not np.isnan(reward):
                    self.learn(decision_id, reward)
        except HalfseenError:
            self._write(before)
            raise
        return self

    def save(self, path: str | Path) -> None:
        """Write the agent to a file, from which `halfseen.load` restores it bit for bit.

        Parameters
        ----------
        path : str or Path
            The file. An existing file is replaced only when the new one is complete.

        Raises
        ------
        SaveFileError
            If the file cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=2, seed=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     agent.save(f"{folder}/agent.hs")
        ...     hs.load(f"{folder}/agent.hs")
        <ts-pco: 2 observed, 2 arms, 0 rounds, 0 unrewarded>
        """
        write_atomically(validation.file_path("path", path), self.packed())

    def packed(self, *, small: bool = True) -> bytes:
        """Return the content of a save file.

        Parameters
        ----------
        small : bool, default True
            Whether to compress the content, which takes longer.

        Returns
        -------
        bytes
            What `save` would write.
        """
        added = {"added": self._added} if self._added else {}
        # If the state has no guardrails, the recipe must have none. Otherwise `load` would read "floor" as the old name
        # of an option of `meb`.
        recipe = split_guardrails(self._recipe)[1] if self.policy.guardrails is None else self._recipe
        return saving.to_bytes(recipe | added, self.state(), small=small)

    def state(self) -> dict[str, Any]:
        """Return a copy of the state.

        Returns
        -------
        dict of str to ndarray
            All arrays that the agent keeps from one round to the next, by name.
        """
        return {name: array.copy() for name, array in self.policy.state().items()} | self._pending.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the state by one that `state` returned.

        Parameters
        ----------
        state : mapping of str to ndarray
            The state of an agent that was made with the same arguments and has the same arms.

        Raises
        ------
        HalfseenError
            If the state does not fit this agent.

        Examples
        --------
        >>> import halfseen as hs
        >>> agent = hs.make("ts-pco", observed=2, arms=2, seed=1)
        >>> before = agent.state()
        >>> decision = agent.decide([0.5, -1.0])
        >>> agent.restore(before)
        >>> agent.rounds
        0
        """
        if not isinstance(state, Mapping):
            raise invalid("state", "a result of agent.state()", repr(state))
        known = {name: array for name, array in self.state().items() if name not in _OPTIONAL}
        if PROVISIONAL in state and not self.policy.takes_provisional:
            expected = f"a state without provisional rewards, because '{self.name}' takes no provisional rewards"
            raise invalid("state", expected, "a state with provisional rewards")
        if state.keys() - _OPTIONAL != known.keys():
            raise invalid("state", f"the arrays {', '.join(known)}", f"{len(state)} arrays with other names")
        given = _GUARDRAILS & state.keys()
        if (given and given != _GUARDRAILS) or (MARKS in state and not given):
            raise invalid("state", "all arrays of guardrails or none of them", "some of them")
        arrays = validation.arrays("state", state)
        if arrays["active"].shape != known["active"].shape:
            raise invalid("state", f"a state of {len(self.arms)} arms", f"a state of {arrays['active'].size} arms")
        self.policy.check(arrays, 1)
        self._pending.check(arrays, len(self.arms))
        self._write(arrays)

    def _write(self, state: Mapping[str, Any]) -> None:
        """Replace the state as `restore` does, but without checking it."""
        self.policy.write(dict(state))
        self._pending.restore(state, int(self.policy.rounds[0]))

    def __repr__(self) -> str:
        return (
            f"<{self.name}: {self._observed} observed, {len(self.arms)} arms, {self.rounds} rounds, "
            f"{self.unrewarded} unrewarded>"
        )

    def _append_arm(self, name: str | None, params: ArrayLike | None, added_in_round: int) -> Arm:
        arm = self._arms.next(name)
        self.policy.add_arm(params)
        self._arms.append(arm)
        array = None if params is None else np.array(params, dtype=np.float64)
        self._added.append({"name": name, "params": array, "round": added_in_round})
        return arm

    def _age(self, index: int) -> int:
        """Return the number of rounds since an arm was added."""
        added_index = index - (len(self.arms) - len(self._added))
        return self.rounds - (int(self._added[added_index]["round"]) if added_index >= 0 else 0)

    def _context(self, context: ArrayLike | None) -> Floats | None:
        return self.policy.check_contexts("context", context, 1, self.name)


@dataclass(eq=False)
class _Copy:
    """Takes the place of the agent in a decision returned by `preview`, which was never made."""

    policy: Policy
    arms: tuple[Arm, ...]

    def __repr__(self) -> str:
        return "a preview"


@dataclass(frozen=True)
class RecordedRounds:
    """The recorded history of one stream, checked before any round is replayed."""

    observations: Floats  # (n, k), NaN where missing
    indices: Ints  # (n,), indices of the arms played; −1 in rounds without a decision
    rewards: Floats  # (n,), NaN where no reward was received
    contexts: Floats | None  # (n, d), for agents that base their decisions on the true context
    propensities: Floats | None  # (n,)
    branches: Ints | None  # (n,)
    costs: Floats | None  # (n, K)
    elapsed: Ints | None  # (n,)

    @classmethod
    def checked(
        cls,
        agent: Agent,
        observations: ArrayLike,
        arms: Iterable[Arm],
        rewards: ArrayLike,
        contexts: ArrayLike | None,
        propensities: ArrayLike | None,
        branches: Iterable[str | None] | None,
        costs: ArrayLike | None,
        elapsed: ArrayLike,
    ) -> RecordedRounds:
        """Check the arguments of `Agent.fold`."""
        ys = validation.table("observations", observations, agent._observed)
        if classify_values(ys) == EXCESSIVE:
            raise validation.too_large("observations")
        n = len(ys)
        indices = [
            -1 if arm is None else agent._arms.index("arms", arm)
            for arm in validation.as_list("arms", arms, "a list of arms")
        ]
        if len(indices) != n:
            raise invalid("arms", f"{n} arms, one per round", f"{len(indices)} arms")
        expected = f"{n} numbers within ±{LIMIT:g}, one per round, NaN where no reward was received"
        values = validation.numbers("rewards", rewards, expected)
        if values.shape != (n,):
            raise invalid("rewards", expected, f"shape {values.shape}")
        if classify_values(values[None]) == EXCESSIVE:
            raise invalid("rewards", expected, "a number that is too large")
        agent.policy.learner.reward_range.check("rewards", values)
        for t, index in enumerate(indices):
            if index < 0 and not np.isnan(values[t]):
                raise invalid("rewards", "NaN in rounds without a decision", f"{values[t]:g} in round {t + 1}")
        xs = agent.policy.check_contexts("contexts", contexts, n, agent.name, per="round")
        probabilities = None
        if propensities is not None:
            expected = f"{n} probabilities, one per round"
            probabilities = validation.numbers("propensities", propensities, expected)
            if probabilities.shape != (n,):
                raise invalid("propensities", expected, f"shape {probabilities.shape}")
            validation.check_propensities("propensities", probabilities)
        marks = None
        if branches is not None:
            marks = agent._branches("branches", validation.as_list("branches", branches, "a list of branches"))
            if len(marks) != n:
                raise invalid("branches", f"{n} branches, one per round", f"{len(marks)} branches")
        arm_costs = agent.policy.check_costs(costs, n, agent.arms)
        steps = agent.policy.check_elapsed(validation.elapsed_series("elapsed", elapsed, n, "round"))
        return cls(ys, np.array(indices, dtype=np.int64), values, xs, probabilities, marks, arm_costs, steps)

    def __iter__(
        self,
    ) -> Iterator[tuple[Floats, Ints, Floats | None, Floats | None, Ints | None, Floats | None, Ints | None, float]]:
        """Yield the observation, arm index, context, propensity, branch, costs, steps and reward of each round.

        All of them except the reward have a leading axis of length 1.
        """
        for t in range(len(self.rewards)):
            one = slice(t, t + 1)
            context = None if self.contexts is None else self.contexts[one]
            propensity = None if self.propensities is None else self.propensities[one]
            branch = None if self.branches is None else self.branches[one]
            costs = None if self.costs is None else self.costs[one]
            steps = None if self.elapsed is None else self.elapsed[one]
            reward = float(self.rewards[t])
            yield self.observations[one], self.indices[one], context, propensity, branch, costs, steps, reward
