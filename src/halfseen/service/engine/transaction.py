"""Where requests become events: one stream, for the time of one transaction that has it locked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice, takewhile
from typing import Any, NamedTuple

import msgspec
import numpy as np

from halfseen.agents.decision import Decision, weighed
from halfseen.errors import HalfseenError
from halfseen.errors import unknown as unknown_name
from halfseen.journal import events
from halfseen.journal.events import Event, next_ids
from halfseen.journal.journal import Journal, StreamRow
from halfseen.kernels.random import Floats
from halfseen.service.engine.loaded_stream import Resident, Waiting, unpack_model
from halfseen.service.errors import ServiceError, refusal
from halfseen.service.specs import MOST_KEY, Arm, Ask, Decided, Rewarded, Told
from halfseen.validation import LIMIT

_NUMBERS = {int, float, type(None)}
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOST_NAMED = 20  # arms, in a message
_SLACK = 1_000_000  # microseconds that clocks of several machines may differ by, of which nothing is recorded


class Outcome(NamedTuple):
    """What the record says of a decision."""

    round: int
    reward: events.Rewarded | None = None  # the last one
    expired: bool = False


class Made:
    """A decision whose answer waits for its propensities, which are worked out for many at once."""

    __slots__ = ("answer", "ask", "decision", "observation")
    answer: Decided

    def __init__(self, ask: Ask, observation: Floats, decision: Decision) -> None:
        self.ask, self.observation, self.decision = ask, observation, decision


class Desk:
    """Requests of one stream in, answers out; what happened is in `new`, which is to be committed before any answer.

    A request that is refused changes nothing. If anything else is raised the resident is to be thrown away.
    Of what is overdue, `most` are seen to at once, and the rest when the stream is looked at again.
    """

    def __init__(self, row: StreamRow, resident: Resident, journal: Journal, now: int, most: int) -> None:
        self.row, self.resident, self._journal = row, resident, journal
        self.now = max(now, resident.time)  # the clock may have gone backwards; the record does not
        self._clock = now  # by which waits are measured: if it was ahead once, they end all the same
        self._told_clock = now if self.now - now > _SLACK else None
        self.new: list[Event] = []
        self._by_key: dict[str, tuple[str, events.Decided]] = {}
        self._outcomes: dict[str, Outcome] = {}  # of decisions that do not wait
        self._looked_up: set[str] = set()
        self._made: list[Made] = []
        self._made_keys: set[str] = set()
        self._features, self._observed = resident.spec.features, resident.agent.policy.streams.observed
        wait = resident.spec.wait
        self._over = None if wait is None else self._clock - wait  # for what has waited since then, or before
        self.expired = self._expire(most)

    def look_up(self, keys: Iterable[str | None], decisions: Iterable[str]) -> None:
        """Read at once what the record knows about idempotency keys, and about decisions that do not wait."""
        asked = [key for key in keys if key is not None and _is_key(key)]
        for event in self._journal.with_keys(self.row.id, asked):
            if isinstance(event.content, events.Decided) and event.key is not None and event.id is not None:
                self._by_key[event.key] = (event.id, event.content)
        self._looked_up = {one for one in decisions if one not in self.resident.waiting and _ID.fullmatch(one)}
        for event in self._journal.about(self.row.id, list(self._looked_up)):
            self._remember(event)
        for event in self.new:  # what has expired in this very transaction
            self._remember(event)

    def _look_again(self, identity: str) -> None:
        """Read about a decision that waited when `look_up` came by, and that others have pushed out since."""
        if identity not in self._looked_up and _ID.fullmatch(identity):
            for event in self._journal.about(self.row.id, [identity]):
                self._remember(event)
            for event in self.new:
                if event.id == identity:
                    self._remember(event)
        if identity not in self._outcomes:
            raise refusal("not_found", f"decision: got '{identity[:40]}'; want the id of a decision of this stream")

    def _remember(self, event: Event) -> None:
        content = event.content
        if isinstance(content, events.Decided) and event.id is not None:
            self._outcomes[event.id] = Outcome(content.round)
        elif isinstance(content, events.Rewarded):
            self._outcomes[content.decision] = Outcome(content.round, reward=content)
        elif isinstance(content, events.Expired) and content.decision in self._outcomes:
            self._outcomes[content.decision] = Outcome(self._outcomes[content.decision].round, expired=True)

    def look_around(self) -> bool:
        """Nothing but what is done at every look: waits that are over are ended. Whether there are more of them."""
        return any(self._is_over(waiting) for waiting in islice(self.resident.waiting.values(), 1))

    def begin(self) -> None:
        """The first event of a stream."""
        self._happened(events.Created(msgspec.to_builtins(self.resident.spec)))

    def settled(self) -> StreamRow:
        """The row of the stream after all that has happened."""
        resident, row = self.resident, self.row
        row.version, row.updated, row.retired = resident.version, resident.time, resident.retired
        row.decisions, row.rewards, row.arms, row.due = (
            resident.decisions, resident.rewards, resident.arms, resident.due,
        )  # fmt: skip
        return row

    # ------------------------------------------------------------------ decisions

    def decide(self, ask: Ask) -> Decided | Made:
        """Choose an arm. What is made is answered by `settle`, at the latest when something else happens."""
        resident, agent = self.resident, self.resident.agent
        if ask.key is not None:
            if not _is_key(ask.key):
                raise refusal("invalid", f"key: got {ask.key[:40]!r}; want 1 to {MOST_KEY} printable characters")
            if ask.key in self._made_keys:
                self.settle()
            known = self._by_key.get(ask.key)
            if known is not None:
                identity, made = known
                return Decided(identity, made.arm, made.propensity, made.propensities, made.expected, repeated=True)
        if resident.retired:
            raise refusal("conflict", f"stream: got '{self.row.name}', which is retired; want one in use")
        y = self._observation(ask.observation)
        try:
            fresh = Made(ask, y, agent.decide(y, available=ask.available))
        except HalfseenError:
            self._check_available(ask.available or ())
            raise
        self._made.append(fresh)
        if ask.key is not None:
            self._made_keys.add(ask.key)
        return fresh

    def settle(self) -> None:
        """Record what was decided, and answer it."""
        waiting, self._made = self._made, []
        self._made_keys.clear()
        if not waiting:
            return
        arms = self.resident.agent.arms
        ids = next_ids(self.now // 1000, self.resident.last_id, len(waiting))
        told = weighed([made.decision for made in waiting])
        seens = np.array([made.observation for made in waiting]).tolist()  # NaN becomes null when it is written
        for identity, made, seen, (place, propensities, expected) in zip(ids, waiting, seens, told, strict=True):
            ask, decision = made.ask, made.decision
            arm, propensity = arms[place], propensities[place]
            content = events.Decided(
                decision.id, seen, arm, propensity, propensities, expected, ask.available, ask.key, self._told_clock
            )
            self._happened(content, identity)
            if ask.key is not None:
                self._by_key[ask.key] = (identity, content)
            made.answer = Decided(identity, arm, propensity, propensities, expected)

    def _observation(self, given: Any) -> Floats:
        """y, (k,), with NaN for what was not seen."""
        features = self._features
        if isinstance(given, dict):
            if features is None:
                raise refusal(
                    "invalid", "observation: got names; want a list: the entries of this stream have no names"
                )
            unknown = given.keys() - set(features)
            if unknown:
                raise refusal("invalid", str(unknown_name("observation", min(unknown), features)))
            given = [given.get(name) for name in features]
        if not isinstance(given, list | tuple) or not _NUMBERS.issuperset(map(type, given)):
            raise refusal("invalid", "observation: got something else than numbers; want numbers, null where not seen")
        try:
            y = np.array(given, dtype=np.float64)
        except OverflowError:
            raise refusal("invalid", f"observation: got an entry too large; want numbers within ±{LIMIT:g}") from None
        if len(y) != self._observed:
            raise refusal("invalid", f"observation: got {len(y)} entries; want {self._observed}")
        return y

    def _check_available(self, given: Iterable[Arm]) -> None:
        """Refuse arms that cannot be chosen, in words for those who do not see the agent."""
        arms, active = self.resident.agent.arms, self.resident.agent.active_arms
        for arm in given:
            if arm not in active:
                got = f"'{arm}', which is retired" if arm in arms else f"'{arm}'"
                wanted = ", ".join(str(one) for one in active[:_MOST_NAMED]) + (", …" * (len(active) > _MOST_NAMED))
                raise refusal("invalid", f"available: got {got[:140]}; want some of: {wanted}")

    # ------------------------------------------------------------------ rewards

    def reward(self, told: Told) -> Rewarded:
        resident = self.resident
        if type(told.value) not in (int, float) or not abs(told.value) <= LIMIT:
            raise refusal("invalid", f"value: got {told.value!r}; want a number within ±{LIMIT:g}")
        value = float(told.value)
        waiting = resident.waiting.get(told.decision)
        if waiting is not None and self._is_over(waiting):  # and it has not been its turn
            self._end_wait(told.decision, waiting.round)
        elif waiting is not None:
            return self._credit(told.decision, waiting.round, value, "given", fold=True)
        if told.decision not in self._outcomes:
            self._look_again(told.decision)
        number, before, expired = self._outcomes[told.decision]
        folds_late = resident.spec.late_rewards == "fold"
        if expired:
            return self._credit(told.decision, number, value, "late", fold=folds_late)
        if before is None:  # more wait than are kept in memory
            return self._credit(told.decision, number, value, "given", fold=True)
        if before.how == "default":
            return self._credit(told.decision, number, value, "late", fold=folds_late)
        if before.value != value:
            raise refusal("conflict", f"value: got {value}; the reward of this decision is {before.value}")
        return Rewarded(told.decision, value, before.how, before.folded, repeated=True)

    def _credit(self, identity: str, number: int, value: float, how: Any, *, fold: bool) -> Rewarded:
        folded = fold
        if fold:
            try:
                self.resident.credit(number, value, how)
            except HalfseenError:  # more were waiting than the agent keeps, or it cannot learn from such a context
                folded = False
        content = events.Rewarded(identity, number, value, how, folded)
        self._remember(self._happened(content, identity))
        return Rewarded(identity, value, how, folded)

    def _expire(self, most: int) -> int:
        """End the waits that are over, the oldest first; how many."""
        oldest = islice(self.resident.waiting.items(), most)
        over = list(takewhile(lambda one: self._is_over(one[1]), oldest))
        for identity, waiting in over:
            self._end_wait(identity, waiting.round)
        return len(over)

    def _is_over(self, waiting: Waiting) -> bool:
        return self._over is not None and waiting.time <= self._over

    def _end_wait(self, identity: str, number: int) -> None:
        """The default reward, or no hope of one."""
        default = self.resident.spec.default_reward
        if default is None:
            self._happened(events.Expired(identity), identity)
            self._outcomes[identity] = Outcome(number, expired=True)
        else:
            self._credit(identity, number, default, "default", fold=True)

    # ------------------------------------------------------------------ the stream itself

    def add_arm(self, arm: Arm | None, params: list[float] | None) -> None:
        agent = self.resident.agent
        if arm in agent.arms:
            if arm not in agent.active_arms:
                raise refusal("conflict", f"arm: got {arm!r}, which is retired; want a name that no arm has had")
            return
        self._check_in_use()
        numbered = isinstance(agent.arms[0], int)
        if numbered and arm is not None and arm != len(agent.arms):
            raise refusal("invalid", f"arm: got {arm!r}; want {len(agent.arms)}, the next number, or nothing")
        named = None if numbered else arm
        if named is not None and not isinstance(named, str):
            raise refusal("invalid", f"arm: got {arm!r}; want a name, as the other arms have one")
        self._happened(events.ArmAdded(agent.add_arm(named, params=params), params))

    def retire_arm(self, arm: Arm) -> None:
        agent = self.resident.agent
        if arm not in agent.arms:
            raise refusal("not_found", f"arm: got {arm!r}; want an arm of this stream")
        if arm not in agent.active_arms:
            return
        self._check_in_use()
        agent.retire_arm(arm)
        self._happened(events.ArmRetired(arm))

    def retire(self) -> None:
        if not self.resident.retired:
            self._happened(events.Retired())

    def _check_in_use(self) -> None:
        if self.resident.retired:
            raise refusal("conflict", f"stream: got '{self.row.name}', which is retired; want one in use")

    def accept(self, model: bytes, seen: int, after: int) -> bool:
        """Go on with a model found from the events up to `seen`, unless another came after model `after`."""
        if self.resident.model_seq != after or self.resident.retired:
            return False
        self.row.identifying = 0
        self.resident.agent.accept(unpack_model(model))
        self._happened(events.ModelAccepted(seen), blob=model)
        return True

    def _happened(self, content: events.Content, identity: str | None = None, blob: bytes | None = None) -> Event:
        if self._made:  # in the order in which it came
            self.settle()
        event = Event(self.resident.version + 1, self.now, identity, content, blob)
        self.resident.note(event)
        self.new.append(event)
        return event


def answered(act: Callable[[Any], Any], row: Any) -> Any:
    """What `act` returns for a row, or its refusal."""
    try:
        return act(row)
    except ServiceError as error:
        return error
    except HalfseenError as error:
        return refusal("invalid", str(error))


def _is_key(key: str) -> bool:
    """Whether databases can be asked for it: no NUL, no half of a surrogate pair."""
    return 0 < len(key) <= MOST_KEY and key.isprintable()
