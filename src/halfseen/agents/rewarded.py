"""How an agent hears of rewards: now, late, out of order, many at a time, for now, or never."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen import validation as inputs
from halfseen.agents.arms import Arm
from halfseen.agents.decision import Decision
from halfseen.agents.pending import HasProvisional, Ledger, Provisional
from halfseen.agents.policy import Policy
from halfseen.errors import DecisionError, HalfseenError, invalid
from halfseen.kernels.random import Floats
from halfseen.validation import LIMIT


class Rewarded(ABC):
    """The part of `Agent` that credits rewards to the decisions of its ledger."""

    policy: Policy
    _ledger: Ledger
    _reward: Floats  # (1,), the one being learnt: nobody keeps it

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def arms(self) -> tuple[Arm, ...]: ...

    @abstractmethod
    def state(self) -> dict[str, Any]: ...

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None: ...

    @property
    def takes_provisional(self) -> bool:
        """Whether `learn` takes provisional rewards: whether all its parts can put another in the place of one."""
        return self.policy.replaces

    def learn(self, decision_id: int | Decision, reward: float, *, provisional: bool = False) -> None:
        """Credit a reward to its decision (or the id of it), with the context of that decision's own round.

        A `provisional` one is learnt, and the decision stays open: the next reward that it gets is put in the place of
        this one, as if it had come instead. Ids are numbers of this agent's rounds: they mean nothing to another agent.
        """
        value = reward if isinstance(reward, float) else inputs.number("reward", reward)
        if not abs(value) <= LIMIT:  # NaN and ±inf alike
            raise invalid("reward", repr(reward), f"a number within ±{LIMIT:g}")
        if isinstance(decision_id, Decision):
            decision_id = decision_id.id_for(self)
        try:
            rounds, arms, features = self._ledger.find(decision_id)
        except HasProvisional:
            self._replace(decision_id, value, provisional)
            return
        if provisional:
            self._learn_for_now(decision_id, value)
            return
        self._reward[0] = value
        self.policy.learn(rounds, features, arms, self._reward)
        self._ledger.close(decision_id)

    def _learn_for_now(self, number: int, value: float) -> None:
        if not self.policy.replaces:
            wanted = f"False: '{self.name}' cannot put another reward in the place of one that it has learnt"
            raise invalid("provisional", "True", wanted)
        made = rounds, arms, features = self._ledger.find(number)
        (credit,) = self.policy.learn_for_now(rounds, features, arms, np.array([value]))
        self._ledger.hold(number, Provisional(made, value, *credit.tolist()))

    def _replace(self, number: int, value: float, provisional: bool) -> None:
        """Put a reward in the place of the one for now; the decision stays open if it is `provisional` itself."""
        held = self._ledger.provisional[number]
        rounds, arms, features = held.made
        credits = np.array([[held.variance, held.number]])
        self.policy.replace(rounds, features, arms, np.array([held.value]), np.array([value]), credits)
        if provisional:
            self._ledger.hold(number, held._replace(value=value))
        else:
            self._ledger.settle(number)

    def learn_many(self, ids: Iterable[int | Decision], rewards: ArrayLike) -> None:
        """Credit many rewards, in the order given: the same as one by one, but all of them or, if refused, none."""
        given = inputs.listed("ids", ids, "a list of decisions or their ids")
        numbers = [one.id_for(self) if isinstance(one, Decision) else one for one in given]
        waiting = [self._ledger.made(number) for number in numbers]
        values = inputs.numbers("rewards", rewards, "numbers, one a decision")
        if values.shape != (len(numbers),):
            raise invalid("rewards", f"shape {values.shape}", f"{len(numbers)} numbers, one a decision")
        if not (fine := np.abs(values) <= LIMIT).all():
            raise invalid("rewards", f"{values[~fine][0]}", f"numbers within ±{LIMIT:g}")
        if not numbers:
            return
        often, times = Counter(numbers).most_common(1)[0]
        if times > 1:
            raise DecisionError(f"ids: got {often} more than once; want every decision once")
        if not self._ledger.provisional.keys().isdisjoint(numbers):
            self._learn_in_turn(numbers, values.tolist())
            return
        rounds, arms, features = (np.concatenate(part) for part in zip(*waiting, strict=True))
        self.policy.learn_many(rounds, features, arms, values)
        for number in numbers:
            self._ledger.close(number)

    def _learn_in_turn(self, numbers: Sequence[int], values: Sequence[float]) -> None:
        before = self.state()
        try:
            for number, value in zip(numbers, values, strict=True):
                self.learn(number, value)
        except HalfseenError:
            self.restore(before)
            raise

    def give_up(self, decision_id: int | Decision) -> None:
        """Expect no reward of a decision any more, and forget it; a provisional one stands."""
        self._ledger.give_up(decision_id.id_for(self) if isinstance(decision_id, Decision) else decision_id)
