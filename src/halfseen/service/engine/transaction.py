"""Operations on a stream, and the transaction that turns them into journal events."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, takewhile
from math import isfinite
from typing import Any, NamedTuple

import msgspec
import numpy as np

from halfseen.agents.decision import Decision, decision_rows
from halfseen.errors import HalfseenError
from halfseen.errors import unknown as unknown_name
from halfseen.journal import events
from halfseen.journal.decision_ids import next_ids
from halfseen.journal.events import Event
from halfseen.journal.journal import Journal, StreamRow
from halfseen.kernels.random import Floats
from halfseen.service.engine.loaded_stream import LoadedStream, OpenDecision, make_agent, unpack_model
from halfseen.service.engine.stream_limits import check_stream
from halfseen.service.errors import as_service_error, refusal
from halfseen.service.schemas import (
    MAX_KEY_LENGTH,
    Arm,
    DecisionReply,
    DecisionRequest,
    GuardrailSettings,
    Limits,
    ObservationReply,
    ObservationRequest,
    PreviewReply,
    RewardReply,
    RewardRequest,
    StreamSpec,
)
from halfseen.validation import LIMIT, elapsed_steps

_NUMBERS = {int, float, type(None)}
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAX_NAMED_ARMS = 20  # in a message
_CLOCK_TOLERANCE = 1_000_000  # microseconds; if the clock is further behind the last event, decisions record it


class DecisionOutcome(NamedTuple):
    """The outcome of a decision that is no longer open, as recorded in the journal."""

    round: int
    reward: events.Rewarded | None = None  # the last reward
    expired: bool = False


class Passed(NamedTuple):
    """The time between a request and the observation or decision before it."""

    elapsed: int  # steps
    tick: int | None  # the time of the request in steps since 1970, if this is known


class UnrecordedDecision:
    """A decision that is not recorded yet. Decisions are recorded together to save time."""

    __slots__ = ("decision", "observation", "passed", "reply", "request")
    reply: DecisionReply

    def __init__(self, request: DecisionRequest, observation: Floats, decision: Decision, passed: Passed) -> None:
        self.request, self.observation, self.decision, self.passed = request, observation, decision, passed


class StreamTransaction:
    """Turns the requests of one batch into journal events for a single, locked stream.

    The events are collected in `new_events` and must be on disk before any reply is sent. A refused request changes
    nothing. After any other exception the stream in memory must be discarded. At most `max_expired` overdue decisions
    are expired. A later transaction expires the rest.
    """

    def __init__(self, row: StreamRow, stream: LoadedStream, journal: Journal, now: int, max_expired: int) -> None:
        self.row, self.stream, self._journal = row, stream, journal
        self.now = max(now, stream.time)  # times in the journal never decrease, even if the clock was set back
        self._recorded_clock = now if self.now - now > _CLOCK_TOLERANCE else None
        self.new_events: list[Event] = []
        self.changed = False  # whether there is anything to write; `finish` sets it
        self._by_key: dict[str, tuple[str, events.Decided]] = {}
        self._outcomes: dict[str, DecisionOutcome] = {}
        self._looked_up: set[str] = set()
        self._unrecorded: list[UnrecordedDecision] = []
        self._unrecorded_keys: set[str] = set()
        self._features, self._observed = stream.spec.features, stream.agent.policy.streams.observed
        # Waits are measured by the clock (`now`), because `self.now` is ahead of a clock that was set back.
        self._overdue_since = None if stream.spec.reward_wait_us is None else now - stream.spec.reward_wait_us
        self.expired = self._expire_overdue(max_expired)

    def find_decisions(self, keys: Iterable[str | None], decision_ids: Iterable[str]) -> None:
        """Read the decisions with these keys, and the outcomes of those of `decision_ids` that are not open."""
        valid = [key for key in keys if key is not None and is_valid_key(key)]
        for event in self._journal.decisions_with_keys(self.row.id, valid):
            if isinstance(event.content, events.Decided) and event.key is not None and event.id is not None:
                self._by_key[event.key] = (event.id, event.content)
        self._looked_up = {one for one in decision_ids if one not in self.stream.open_decisions and _ID.fullmatch(one)}
        for event in self._journal.events_of_decisions(self.row.id, list(self._looked_up)):
            self._add_outcome(event)
        for event in self.new_events:  # decisions that have expired in this transaction
            self._add_outcome(event)

    def _outcome(self, decision_id: str) -> DecisionOutcome:
        if decision_id not in self._outcomes and decision_id not in self._looked_up and _ID.fullmatch(decision_id):
            # The decision was open when `find_decisions` ran. Later decisions of the batch pushed it out of memory.
            for event in self._journal.events_of_decisions(self.row.id, [decision_id]):
                self._add_outcome(event)
            for event in self.new_events:
                if event.id == decision_id:
                    self._add_outcome(event)
        if decision_id not in self._outcomes:
            raise refusal("not_found", f"There is no decision '{decision_id[:40]}' in stream '{self.row.name}'.")
        return self._outcomes[decision_id]

    def _add_outcome(self, event: Event) -> None:
        content = event.content
        if isinstance(content, events.Decided) and event.id is not None:
            self._outcomes[event.id] = DecisionOutcome(content.round)
        elif isinstance(content, events.Rewarded):
            self._outcomes[content.decision] = DecisionOutcome(content.round, reward=content)
        elif isinstance(content, events.Expired) and content.decision in self._outcomes:
            self._outcomes[content.decision] = DecisionOutcome(self._outcomes[content.decision].round, expired=True)

    def finish(self) -> None:
        """Record the decisions and update the row. After this, `new_events` and `row` are ready to be written."""
        self._record_decisions()
        stream, row = self.stream, self.row
        self.changed = bool(self.new_events) or row.due != stream.next_expiry
        row.version, row.updated, row.retired = stream.version, stream.time, stream.retired
        row.decisions, row.rewards, row.arms = stream.decisions, stream.rewards, stream.arms
        row.due = stream.next_expiry

    def _append(self, content: events.Content, decision_id: str | None = None, blob: bytes | None = None) -> Event:
        if self._unrecorded:  # they were made before this event, so their events come first
            self._record_decisions()
        event = Event(self.stream.version + 1, self.now, decision_id, content, blob)
        self.stream.advance(event)
        self.new_events.append(event)
        return event

    # ------------------------------------------------------------------ decisions

    def decide(self, request: DecisionRequest) -> DecisionReply | UnrecordedDecision:
        """Make a decision. The reply to a new decision is filled in when the decision is recorded."""
        if request.key is not None:
            if not is_valid_key(request.key):
                expected = f"1 to {MAX_KEY_LENGTH} printable characters"
                raise refusal("invalid", f"key: expected {expected}, got {request.key[:40]!r}")
            if request.key in self._unrecorded_keys:
                self._record_decisions()
            known = self._by_key.get(request.key)
            if known is not None:
                decision_id, made = known
                self._check_same_request(request, made)
                return DecisionReply(
                    decision_id, made.arm, made.propensity, made.propensities, made.expected,
                    repeated=True, branch=made.branch or msgspec.UNSET,
                )  # fmt: skip
        self._check_not_retired()
        y, passed = self._observation(request.observation), self._passed(request)
        try:
            decision = self.stream.agent.decide(
                y, available=request.available, costs=self._costs(request), elapsed=passed.elapsed
            )
        except HalfseenError:
            self._check_available(request.available or ())
            raise
        self.stream.tick = passed.tick
        unrecorded = UnrecordedDecision(request, y, decision, passed)
        self._unrecorded.append(unrecorded)
        if request.key is not None:
            self._unrecorded_keys.add(request.key)
        return unrecorded

    def observe(self, request: ObservationRequest) -> ObservationReply:
        """Record an observation without a decision."""
        self._check_not_retired()
        y, passed = self._observation(request.observation), self._passed(request)
        self._record_decisions()
        self.stream.agent.observe(y, elapsed=passed.elapsed)
        self._append(events.Observed(y.tolist(), passed.elapsed, passed.tick))  # NaN becomes null when encoded
        return ObservationReply(passed.elapsed)

    def preview(self, request: DecisionRequest) -> PreviewReply:
        """Return what `decide` would answer. Nothing changes."""
        self._check_not_retired()
        y, passed = self._observation(request.observation), self._passed(request)
        try:
            decision = self.stream.agent.preview(
                y, available=request.available, costs=self._costs(request), elapsed=passed.elapsed
            )
        except HalfseenError:
            self._check_available(request.available or ())
            raise
        ((index, propensities, expected),) = decision_rows([decision])
        return PreviewReply(decision.arm, propensities[index], propensities, finite_or_none(expected))

    def _passed(self, request: DecisionRequest | ObservationRequest) -> Passed:
        """Return how much time has passed since the last observation or decision."""
        last, step = self.stream.tick, self.stream.spec.step_us
        if request.time is None:
            elapsed = 1 if request.elapsed is None else elapsed_steps("elapsed", request.elapsed)
            return Passed(elapsed, None if last is None else last + elapsed)
        if request.elapsed is not None:
            raise refusal("invalid", "elapsed: expected either elapsed or time, got both")
        tick = self._tick(request.time, step)
        elapsed = 1 if last is None else tick - last
        if elapsed < 0:
            message = f"time: expected a time that is not before the last one, got {request.time[:40]!r}"
            raise refusal("invalid", message)
        return Passed(elapsed_steps("time", elapsed), tick)

    def _tick(self, stamp: str, step: int | None) -> int:
        """Return a time stamp in steps since 1970."""
        if step is None:
            raise refusal("invalid", f"time: expected nothing, because the stream has no step, got {stamp[:40]!r}")
        try:
            return events.tick_at(events.microseconds(stamp), step)
        except HalfseenError as error:
            raise refusal("invalid", str(error)) from None

    def _check_same_request(self, request: DecisionRequest, made: events.Decided) -> None:
        """Raise a conflict unless the decision `made` came from an equal request.

        The order of the available arms does not matter.
        """
        recorded = np.array(made.observation, dtype=np.float64)  # None becomes NaN
        if not np.array_equal(self._observation(request.observation), recorded, equal_nan=True):
            other = "another observation"
        elif _as_set(request.available) != _as_set(made.available):
            other = "other available arms"
        elif self._costs(request) != made.costs:
            other = "other costs"
        elif not self._same_time(request, made):
            other = "another time"
        else:
            return
        key = str(request.key)[:40]
        raise refusal("conflict", f"key: expected a new key, got {key!r}, which was used with {other}")

    def _same_time(self, request: DecisionRequest, made: events.Decided) -> bool:
        if request.time is not None:
            return self._tick(request.time, self.stream.spec.step_us) == made.tick
        return request.elapsed is None or request.elapsed == made.elapsed

    def _record_decisions(self) -> None:
        """Compute the propensities of the unrecorded decisions, append their events and fill in their replies."""
        unrecorded, self._unrecorded = self._unrecorded, []
        self._unrecorded_keys.clear()
        if not unrecorded:
            return
        arms = self.stream.agent.arms
        ids = next_ids(self.now // 1000, self.stream.last_id, len(unrecorded))
        weights = decision_rows([one.decision for one in unrecorded])
        observations = np.array([one.observation for one in unrecorded]).tolist()  # NaN becomes null when encoded
        for decision_id, one, y, (index, propensities, expected) in zip(
            ids, unrecorded, observations, weights, strict=True
        ):
            request, arm, propensity, branch = one.request, arms[index], propensities[index], one.decision.branch
            content = events.Decided(
                one.decision.id, y, arm, propensity, propensities, expected,
                request.available, request.key, self._recorded_clock, branch, self._costs(request),
                one.passed.elapsed, one.passed.tick,
            )  # fmt: skip
            self._append(content, decision_id)
            if request.key is not None:
                self._by_key[request.key] = (decision_id, content)
            one.reply = DecisionReply(
                decision_id, arm, propensity, propensities, expected, False, branch or msgspec.UNSET
            )

    def _costs(self, request: DecisionRequest) -> list[float] | None:
        """Return the costs of a request in the order of the arms."""
        costs = request.costs
        if not isinstance(costs, dict):
            return costs
        arms = [str(arm) for arm in self.stream.agent.arms]
        for arm in arms:
            if arm not in costs:
                raise refusal("invalid", f"costs: expected a number for every arm, got none for '{arm[:60]}'")
        if len(costs) > len(arms):
            raise refusal("invalid", str(unknown_name("arm", min(costs.keys() - set(arms)), arms, "This stream")))
        return [costs[arm] for arm in arms]

    def _observation(self, given: Any) -> Floats:
        """Return the observation as an array, with NaN for missing values."""
        features = self._features
        if isinstance(given, dict):
            if features is None:
                raise refusal(
                    "invalid",
                    "observation: expected a list, because the features of this stream have no names, got an object",
                )
            unknown = given.keys() - set(features)
            if unknown:
                raise refusal("invalid", str(unknown_name("feature", min(unknown), features, "This stream")))
            given = [given.get(name) for name in features]
        if not isinstance(given, list | tuple) or not _NUMBERS.issuperset(map(type, given)):
            raise refusal("invalid", "observation: expected numbers, or null for missing values, got something else")
        try:
            y = np.array(given, dtype=np.float64)
        except OverflowError:
            raise refusal("invalid", f"observation: expected numbers within ±{LIMIT:g}, got a larger number") from None
        if len(y) != self._observed:
            raise refusal("invalid", f"observation: expected {self._observed} numbers, got {len(y)}")
        return y

    def _check_available(self, given: Iterable[Arm]) -> None:
        """Raise an error that lists the active arms of the stream if one of the given arms cannot be chosen."""
        arms, active = self.stream.agent.arms, self.stream.agent.active_arms
        for arm in given:
            if arm not in active:
                got = f"'{arm}', which is retired" if arm in arms else f"'{arm}'"
                more = ", …" if len(active) > _MAX_NAMED_ARMS else ""
                expected = ", ".join(str(one) for one in active[:_MAX_NAMED_ARMS]) + more
                raise refusal("invalid", f"available: expected some of: {expected}, got {got[:140]}")

    # ------------------------------------------------------------------ rewards

    def reward(self, request: RewardRequest) -> RewardReply:
        """Record a reward. Sending the same reward again changes nothing, but a different value is a conflict."""
        decision_id = request.decision
        allowed = self.stream.agent.policy.learner.reward_range
        if type(request.value) not in (int, float) or not allowed.low <= request.value <= allowed.high:
            raise refusal("invalid", f"value: expected {allowed}, got {request.value!r}")
        value = float(request.value)
        open_decision = self.stream.open_decisions.get(decision_id)
        if open_decision is not None:
            if not self._is_overdue(open_decision):
                return self._credit(decision_id, open_decision.round, value, "given", fold=True)
            self._expire(decision_id, open_decision.round)
        round_, before, expired = self._outcome(decision_id)
        if expired or (before is not None and before.how == "default"):
            return self._credit(decision_id, round_, value, "late", fold=self.stream.spec.late_rewards == "fold")
        if before is None:  # the decision is open, but there are more open decisions than fit into memory
            return self._credit(decision_id, round_, value, "given", fold=True)
        if before.value != value:
            raise refusal(
                "conflict", f"value: expected {before.value}, the recorded reward of this decision, got {value}"
            )
        return RewardReply(decision_id, value, before.how, before.folded, repeated=True)

    def _credit(self, decision_id: str, round_: int, value: float, how: Any, *, fold: bool) -> RewardReply:
        if fold:
            try:
                self.stream.learn(round_, value, how)
            except HalfseenError:  # the agent no longer remembers the decision, or cannot learn from its context
                fold = False
        self._add_outcome(self._append(events.Rewarded(decision_id, round_, value, how, fold), decision_id))
        return RewardReply(decision_id, value, how, fold)

    def has_overdue(self) -> bool:
        """Return whether overdue decisions are left for another transaction."""
        return any(self._is_overdue(one) for one in islice(self.stream.open_decisions.values(), 1))

    def _expire_overdue(self, maximum: int) -> int:
        oldest = islice(self.stream.open_decisions.items(), maximum)
        overdue = list(takewhile(lambda item: self._is_overdue(item[1]), oldest))
        for decision_id, decision in overdue:
            self._expire(decision_id, decision.round)
        return len(overdue)

    def _is_overdue(self, decision: OpenDecision) -> bool:
        return self._overdue_since is not None and decision.waiting_since <= self._overdue_since

    def _expire(self, decision_id: str, round_: int) -> None:
        """End the wait for a reward. The decision gets the default reward if there is one."""
        default = self.stream.spec.default_reward
        if default is None:
            self._append(events.Expired(decision_id), decision_id)
            self._outcomes[decision_id] = DecisionOutcome(round_, expired=True)
        else:
            self._credit(decision_id, round_, default, "default", fold=True)

    # ------------------------------------------------------------------ the stream itself

    def create(self) -> None:
        """Append the first event of the stream."""
        self._append(events.Created(msgspec.to_builtins(self.stream.spec)))

    def add_arm(self, arm: Arm | None, limits: Limits) -> None:
        agent = self.stream.agent
        if arm in agent.arms:
            if arm not in agent.active_arms:
                raise refusal("conflict", f"arm: expected a new name, got {arm!r}, which is a retired arm")
            return
        self._check_not_retired()
        numbered = isinstance(agent.arms[0], int)
        if numbered and arm is not None and arm != len(agent.arms):
            raise refusal("invalid", f"arm: expected {len(agent.arms)} (the next number) or null, got {arm!r}")
        name = None if numbered else arm
        if name is not None and not isinstance(name, str):
            raise refusal("invalid", f"arm: expected a name, because the other arms have names, got {arm!r}")
        check_stream(self.stream.spec, limits, len(agent.arms) + 1)
        self._append(events.ArmAdded(agent.add_arm(name)))

    def retire_arm(self, arm: Arm) -> None:
        agent = self.stream.agent
        if arm not in agent.arms:
            raise refusal("not_found", f"There is no arm {arm!r} in stream '{self.row.name}'.")
        if arm not in agent.active_arms:
            return
        self._check_not_retired()
        agent.retire_arm(arm)
        self._append(events.ArmRetired(arm))

    def set_guardrails(self, settings: GuardrailSettings) -> None:
        agent = self.stream.agent
        self._check_not_retired()
        before = agent.guardrails
        agent.set_guardrails(**msgspec.structs.asdict(settings))
        if agent.guardrails != before:
            self._append(events.GuardrailsSet(**asdict(agent.guardrails)))

    def retire(self) -> None:
        if not self.stream.retired:
            self._append(events.Retired())

    def _check_not_retired(self) -> None:
        if self.stream.retired:
            raise refusal("conflict", f"Stream '{self.row.name}' is retired.")

    def accept_model(self, model: bytes, seen: int, after: int) -> bool:
        """Accept a model that was identified from the events up to number `seen`.

        Return False if the stream is retired or has accepted another model after event number `after`.
        """
        if self.stream.model_seq != after or self.stream.retired:
            return False
        self.row.identifying = 0
        self.stream.agent.accept(unpack_model(model))
        self._append(events.ModelAccepted(seen), blob=model)
        return True


def finite_or_none(numbers: Iterable[float | None]) -> list[float | None]:
    """Return the numbers, with None for those that are not finite."""
    return [number if number is not None and isfinite(number) else None for number in numbers]


def _as_set(arms: Sequence[Arm] | None) -> frozenset[Arm] | None:
    return None if arms is None else frozenset(arms)


def is_valid_key(key: str) -> bool:
    """Return whether databases can store and find the key. A key must not have NUL characters or lone surrogates."""
    return 0 < len(key) <= MAX_KEY_LENGTH and key.isprintable()


# ---------------------------------------------------------------------- operations


@dataclass(eq=False, slots=True)
class Operation:
    """An operation on the stream `name`. Its future gets the results, which are a reply or an error per row."""

    name: str
    run: Callable[[StreamTransaction], list[Any]]
    future: asyncio.Future[list[Any]]
    size: int = 1  # number of rows
    keys: Sequence[str | None] = ()
    decision_ids: Sequence[str] = ()
    creates: StreamCreation | None = None
    kind: str | None = None  # "decide" or "reward" for operations that are counted and timed
    began: float = 0.0

    @classmethod
    def single(
        cls,
        name: str,
        act: Callable[[StreamTransaction], Any],
        future: asyncio.Future[list[Any]],
        *,
        size: int = 1,
        creates: StreamCreation | None = None,
    ) -> Operation:
        return cls(name, lambda transaction: [_result_or_error(act, transaction)], future, size, creates=creates)

    @classmethod
    def decide(cls, name: str, rows: Sequence[DecisionRequest], future: asyncio.Future[list[Any]]) -> Operation:
        began, keys = time.perf_counter(), [row.key for row in rows if row.key is not None]
        run = lambda transaction: [_result_or_error(transaction.decide, row) for row in rows]  # noqa: E731
        return cls(name, run, future, len(rows), keys=keys, kind="decide", began=began)

    @classmethod
    def reward(cls, name: str, rows: Sequence[RewardRequest], future: asyncio.Future[list[Any]]) -> Operation:
        began, decision_ids = time.perf_counter(), [row.decision for row in rows]
        run = lambda transaction: [_result_or_error(transaction.reward, row) for row in rows]  # noqa: E731
        return cls(name, run, future, len(rows), decision_ids=decision_ids, kind="reward", began=began)


def _result_or_error(act: Callable[[Any], Any], row: Any) -> Any:
    try:
        return act(row)
    except HalfseenError as error:
        return as_service_error(error, "invalid")


@dataclass(eq=False)
class StreamCreation:
    """A stream that is to be created, with its initial state."""

    spec: StreamSpec  # including the seed
    stream: LoadedStream
    seed_given: bool

    @classmethod
    def prepare(cls, spec: StreamSpec, limits: Limits) -> StreamCreation:
        """Check the specification and make the agent.

        A second agent makes a trial decision. This checks that the agent works, and loads its kernels.
        """
        try:
            spec.check()
            check_stream(spec, limits)
            seed_given = spec.seed is not None
            if not seed_given:
                # Some JSON parsers read numbers as float64, which represents integers of up to 53 bits exactly.
                spec = msgspec.structs.replace(spec, seed=secrets.randbits(53))
            msgspec.json.encode(spec)
            trial = make_agent(spec)
            free = None if trial.policy.budgets is None else np.zeros(len(trial.arms))
            decision = trial.decide(np.zeros(trial.policy.streams.observed), costs=free)
            decision.propensities.sum()
            trial.learn(decision.id, 0.0)
            del trial, decision  # free its memory before the agent of the stream needs as much
            return cls(spec, LoadedStream(spec), seed_given)
        except HalfseenError as error:
            raise as_service_error(error, "invalid") from None
        except (TypeError, ValueError, OverflowError, MemoryError, np.linalg.LinAlgError) as error:
            raise refusal("invalid", f"The specification of the stream is invalid: {error}") from None

    def check(self, transaction: StreamTransaction) -> None:
        """Raise an error if the stream existed before and is retired or has another specification."""
        spec = transaction.stream.spec
        if transaction.stream.retired:
            raise refusal("conflict", f"name: expected a new name, got '{spec.name}', which is a retired stream")
        requested = self.spec if self.seed_given else msgspec.structs.replace(self.spec, seed=spec.seed)
        if msgspec.json.encode(requested, order="deterministic") != msgspec.json.encode(spec, order="deterministic"):
            raise refusal(
                "conflict",
                f"name: expected a new name, got '{spec.name}', which is a stream with another specification",
            )
