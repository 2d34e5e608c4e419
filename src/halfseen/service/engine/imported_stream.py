"""Checks of imported streams. An event that no service could have recorded is refused."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import NamedTuple

import msgspec
import numpy as np

from halfseen.components import MAX_COUNT
from halfseen.errors import HalfseenError, invalid
from halfseen.journal import events
from halfseen.journal.decision_ids import DECISION_ID, stamp_of
from halfseen.journal.events import Event, JournalError, explain
from halfseen.journal.journal import Journal, StreamRow
from halfseen.journal.transfer import MAX_TIME
from halfseen.service.engine.loaded_stream import compress_snapshot
from halfseen.service.engine.stream_limits import check_name, check_stream
from halfseen.service.engine.transaction import StreamCreation, is_valid_key
from halfseen.service.schemas import MAX_KEY_LENGTH, Arm, Limits, StreamSpec
from halfseen.validation import LIMIT, elapsed_steps

_TOLERANCE = 1e-3  # largest error of propensities, and of their sum
# The largest time stamp in an imported decision id. It leaves room for later ids, which must be greater.
_MAX_STAMP = MAX_TIME // 1000 << 12


class Importer:
    """Opens the streams of one import, and counts the accepted models that this version of the package cannot use."""

    def __init__(self, limits: Limits, existing_streams: int) -> None:
        self._limits = limits
        self._streams = existing_streams
        self.skipped_models: dict[str, int] = {}

    def open_stream(self, name: str, created: events.Created) -> ImportedStream:
        self._streams += 1
        if self._streams > self._limits.streams:
            raise JournalError(f"streams: expected at most {self._limits.streams}, got {self._streams}")
        return ImportedStream(name, created, self._limits, self.skipped_models)


class _PastDecision(NamedTuple):
    """A decision that may still get a reward."""

    round: int
    wait_ended: bool = False  # whether it expired or got the default reward, so that only a late reward may follow


class ImportedStream:
    """Checks the events of one imported stream and applies them, in order."""

    def __init__(self, name: str, created: events.Created, limits: Limits, skipped_models: dict[str, int]) -> None:
        self._name, self._limits, self._skipped_models = name, limits, skipped_models
        try:
            spec = msgspec.convert(created.spec | {"name": name}, StreamSpec)
            # check that it can be decoded again when it is read from the database
            msgspec.json.decode(msgspec.json.encode(spec), type=StreamSpec)
        except msgspec.ValidationError as error:
            raise JournalError(f"spec.{explain(error)}") from None
        except (msgspec.MsgspecError, RecursionError, OverflowError) as error:
            raise JournalError(f"spec: expected the specification of a stream, got another object ({error})") from None
        try:
            seed = 0 if spec.seed is None else spec.seed
            self._stream = StreamCreation.prepare(msgspec.structs.replace(spec, seed=seed), limits).stream
        except HalfseenError as error:
            raise JournalError(f"spec.{error}") from None
        self._decisions: dict[str, _PastDecision] = {}
        self._keys: set[str] = set()

    def check(self, event: Event) -> None:
        """Check the next event and apply it."""
        content, first = event.content, self._stream.version == 0
        if isinstance(content, events.Created) != first:
            raise invalid("kind", "'created' for the first event only", f"'{event.kind}'")
        if event.blob is not None and not isinstance(content, events.ModelAccepted):
            raise invalid("blob", "nothing, because only accepted models have one", f"{len(event.blob)} bytes")
        if self._stream.retired and not isinstance(content, events.Rewarded | events.Expired):
            raise invalid("kind", "'rewarded' or 'expired', because the stream is retired", f"'{event.kind}'")
        match content:
            case events.Decided():
                self._check_decision(event, content)
            case events.Observed():
                _check_numbers("observation", content.observation, self._stream.agent.policy.streams.observed, LIMIT)
                self._check_time(content)
            case events.Rewarded():
                self._check_reward(event, content)
            case events.Expired():
                self._check_expiry(event, content)
            case events.ArmAdded():
                self._check_new_arm(content.arm)
            case events.GuardrailsSet():
                self._check_new_guardrails(content)
            case events.ModelAccepted():
                if not 0 <= content.seen <= MAX_COUNT:
                    raise invalid("seen", "the number of an event", content.seen)
            case _:
                pass
        if event.id is not None and not isinstance(content, events.Decided | events.Rewarded | events.Expired):
            raise invalid("id", "nothing, because the event belongs to no decision", repr(event.id[:60]))
        try:
            self._stream.fold([event])
        except HalfseenError:
            raise
        except Exception as error:  # the agent fails in a way that no request could have caused
            raise JournalError(f"The agent cannot replay the event ({type(error).__name__}: {error}).") from None

    def finish(self, journal: Journal, row: StreamRow) -> None:
        """Save a snapshot, so that loading the stream later need not replay its events."""
        if self._stream.skipped_models:
            self._skipped_models[self._name] = self._stream.skipped_models
        journal.save_snapshot(row.id, self._stream.version, compress_snapshot(self._stream.to_bytes()))

    # ------------------------------------------------------------------ one kind of event each

    def _check_decision(self, event: Event, decided: events.Decided) -> None:
        agent, last = self._stream.agent, self._stream.last_id or ""
        arms = agent.arms
        if event.id is None or not DECISION_ID.fullmatch(event.id) or stamp_of(event.id) > _MAX_STAMP:
            raise invalid("id", "a UUID of version 7, in lower case", repr((event.id or "")[:60]))
        if event.id <= last:
            raise invalid("id", f"an id above {last}, that of the previous decision", repr(event.id))
        if decided.round != agent.rounds + 1:
            raise invalid("round", f"{agent.rounds + 1}, the next round", decided.round)
        _check_numbers("observation", decided.observation, agent.policy.streams.observed, LIMIT)
        self._check_time(decided)
        allowed = self._check_affordable(decided, self._check_available(decided.available))
        if decided.arm not in allowed:
            raise invalid("arm", "an arm that could be chosen", _text(decided.arm))
        _check_numbers("expected", decided.expected, len(arms), sys.float_info.max)
        _check_propensities(decided, arms)
        self._check_guardrails(decided, allowed)
        if decided.key is not None:
            if not is_valid_key(decided.key):
                raise invalid("key", f"1 to {MAX_KEY_LENGTH} printable characters", repr(decided.key[:60]))
            if decided.key in self._keys:
                raise invalid("key", "a key that no other decision has", repr(decided.key))
            self._keys.add(decided.key)
        if decided.clock is not None and not 0 <= decided.clock <= event.time:
            raise invalid("clock", "a time that is not after that of the event", decided.clock)
        self._decisions[event.id] = _PastDecision(decided.round)

    def _check_time(self, content: events.Decided | events.Observed) -> None:
        elapsed_steps("elapsed", content.elapsed)
        last = self._stream.tick
        expected = None if last is None else last + content.elapsed
        if content.tick != expected and (last is not None or self._stream.spec.step is None):
            raise invalid("tick", "null" if expected is None else f"{expected}, from the steps since the last one",
                          content.tick)  # fmt: skip
        if content.tick is not None and not abs(content.tick) <= 2 * MAX_TIME:
            raise invalid("tick", f"a number within ±{2 * MAX_TIME}", content.tick)

    def _check_available(self, available: list[Arm] | None) -> tuple[Arm, ...]:
        active = self._stream.agent.active_arms
        if available is None:
            return active
        for arm in available:
            if arm not in active:
                raise invalid("available", "active arms", _text(arm))
        if not available:
            raise invalid("available", "at least one arm, or null", "no arms")
        return tuple(available)

    def _check_affordable(self, decided: events.Decided, available: tuple[Arm, ...]) -> tuple[Arm, ...]:
        """Check the costs, and return the available arms that the stream's budget allows."""
        agent = self._stream.agent
        policy, arms = agent.policy, agent.arms
        costs = policy.check_costs(decided.costs, 1, arms)
        if costs is None:
            return available
        mask = np.array([[arm in available for arm in arms]])
        affordable = policy.check_affordable(policy.all_rows, costs, mask)[0]
        return tuple(arm for arm, can_be_chosen in zip(arms, affordable, strict=True) if can_be_chosen)

    def _check_guardrails(self, decided: events.Decided, allowed: tuple[Arm, ...]) -> None:
        """Check that the decision is possible with the guardrails in force."""
        policy, arms = self._stream.agent.policy, self._stream.agent.arms
        guardrails = policy.guardrails if policy.guarded else None
        if guardrails is None:
            if decided.branch is not None:
                raise invalid("branch", "null, because no guardrails are in force", f"'{decided.branch}'")
            return
        available = np.array([[arm in allowed for arm in arms]])
        guardrails.check_available(policy.all_rows, available, arms)
        reserved = guardrails.reserved(policy.all_rows, available)[0]
        if (np.array(decided.propensities) < reserved - _TOLERANCE).any():
            least = f"at least {reserved.min():g} for every arm, and more for the control arm"
            raise invalid("propensities", f"{least}, because of the guardrails", f"{min(decided.propensities):g}")
        possible = guardrails.possible_branches(0, available, arms.index(decided.arm))
        if decided.branch not in possible:
            raise invalid("branch", f"one of: {', '.join(possible)}", repr(decided.branch))

    def _check_reward(self, event: Event, rewarded: events.Rewarded) -> None:
        decision = self._past_decision(event, rewarded.decision)
        if rewarded.round != decision.round:
            raise invalid("round", f"{decision.round}, the round of the decision", rewarded.round)
        allowed = self._stream.agent.policy.learner.reward_range
        if not allowed.low <= rewarded.value <= allowed.high:
            raise invalid("value", str(allowed), rewarded.value)
        if (rewarded.how == "late") != decision.wait_ended:
            expected = (
                "'late', because the wait for the reward is over" if decision.wait_ended else "'given' or 'default'"
            )
            raise invalid("how", expected, f"'{rewarded.how}'")
        if rewarded.how == "default":
            if self._stream.spec.default_reward is None:
                raise invalid("how", "'given', because the stream has no default reward", "'default'")
            self._decisions[rewarded.decision] = decision._replace(wait_ended=True)
        else:
            del self._decisions[rewarded.decision]

    def _check_expiry(self, event: Event, expired: events.Expired) -> None:
        decision = self._past_decision(event, expired.decision)
        if self._stream.spec.reward_wait is None or decision.wait_ended:
            raise invalid("kind", "another kind, because no wait for a reward ends here", "'expired'")
        self._decisions[expired.decision] = decision._replace(wait_ended=True)

    def _past_decision(self, event: Event, decision_id: str) -> _PastDecision:
        if decision_id not in self._decisions:
            raise invalid("decision", "an earlier decision without a final reward", repr(decision_id[:60]))
        if event.id != decision_id:
            raise invalid("id", f"'{decision_id}', as in the field decision", repr(event.id and event.id[:60]))
        return self._decisions[decision_id]

    def _check_new_guardrails(self, content: events.GuardrailsSet) -> None:
        """Check what the agent does not check when it replays the event."""
        if content.control is not None:
            arm, share = content.control
            if arm not in self._stream.agent.arms:
                raise invalid("control", "an arm of the stream", _text(arm))
            if not share > 0.0:
                raise invalid("control", "a share above 0, or null", share)
        if msgspec.structs.asdict(content) == asdict(self._stream.agent.guardrails):
            raise invalid("kind", "another kind, because the guardrails do not change", "'guardrails_set'")

    def _check_new_arm(self, arm: Arm) -> None:
        arms = self._stream.agent.arms
        check_stream(self._stream.spec, self._limits, arms=len(arms) + 1)
        if isinstance(arms[0], str) and isinstance(arm, str):
            check_name("arm", arm)
        elif isinstance(arms[0], str) or arm != len(arms):
            expected = "a name, because the other arms have names" if isinstance(arms[0], str) else f"{len(arms)}"
            raise invalid("arm", expected, _text(arm))


def _text(arm: Arm) -> str:
    return repr(arm)[:60]


def _check_numbers(field: str, numbers: list[float | None], count: int, limit: float) -> None:
    if len(numbers) != count:
        raise invalid(field, f"{count} numbers", len(numbers))
    for number in numbers:
        if number is not None and not abs(number) <= limit:
            raise invalid(field, f"numbers within ±{limit:g}, or null", number)


def _check_propensities(decided: events.Decided, arms: tuple[Arm, ...]) -> None:
    """Check that there is one probability per arm, and that they sum to 1."""
    propensities = decided.propensities
    if len(propensities) != len(arms):
        raise invalid("propensities", f"{len(arms)} numbers, one per arm", len(propensities))
    for propensity in propensities:
        if not 0.0 <= propensity <= 1.0 + _TOLERANCE:
            raise invalid("propensities", "numbers from 0 to 1", propensity)
    if not abs(sum(propensities) - 1.0) <= _TOLERANCE:
        raise invalid("propensities", "a sum of 1", sum(propensities))
    of_arm = propensities[arms.index(decided.arm)]
    if not abs(decided.propensity - of_arm) <= _TOLERANCE or not 0.0 <= decided.propensity <= 1.0 + 1e-9:
        raise invalid("propensity", f"{of_arm}, the propensity of the arm", decided.propensity)
