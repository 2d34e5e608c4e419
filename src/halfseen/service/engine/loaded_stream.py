"""A stream in memory, with its agent and everything else that follows from its events.

Live and replayed events change the agent in the same way, so replaying the journal gives exactly the same stream.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from halfseen.agents import costs, guardrails, saving
from halfseen.agents.agent import Agent
from halfseen.agents.catalogue import DEFAULT_MAX_PENDING, MAX_PENDING, component_entry, make
from halfseen.agents.loading import from_bytes
from halfseen.errors import DecisionError, HalfseenError, SaveFileError, invalid, unknown
from halfseen.journal import events
from halfseen.journal.events import Event
from halfseen.journal.journal import Journal, StreamRow
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.service.schemas import Arm, StreamSpec
from halfseen.validation import MAX_DIMENSIONS, Arrays

_DECISION_BYTES = 700  # approximate memory of an open decision without its features
_AGENT_BYTES = 20_000  # approximate memory of an agent without its arrays
_EVENTS_BETWEEN_SIZES = 100  # minimum number of events before the size of the agent is computed again
_SNAPSHOT_FIELDS = ("version", "time", "last_id", "decisions", "rewards", "retired", "model_seq", "tick")
_RESERVED = ("observed", "arms", "seed", "name", "refit")  # arguments of `make` that are not options of a stream


class OpenDecision(NamedTuple):
    """A decision that has no reward yet."""

    round: int
    waiting_since: int  # microseconds since 1970; never decreases from one open decision to the next


def agent_options(spec: StreamSpec) -> dict[str, Any]:
    """Check the options of a stream's agent and return them. A model is returned as a LinearGaussianModel.

    If the agent has an option `refit`, it is set to "manual", because the engine identifies models in a separate
    process, not during decisions.
    """
    entry = component_entry(spec.agent)
    if entry.reveals_context:
        raise invalid("agent", "an agent that does not need the true context", f"'{spec.agent}'")
    options: dict[str, Any] = dict(spec.options)
    for reserved in _RESERVED:
        if reserved in options:
            raise invalid("options", "options such as latent or window", f"'{reserved}', which is not an option")
    if spec.agent == "meb" and "floor" in options:  # the name of the option in version 0.2.0
        options["minimum_probability"] = options.pop("floor")
    known = {*entry.options, "max_pending", costs.OPTION} - set(_RESERVED)
    for name in options:
        if name in guardrails.OPTIONS:
            raise invalid("options", "options such as latent or window", f"'{name}', which belongs to guardrails")
        if name not in known:
            raise unknown("option", name, known, f"'{spec.agent}'")
    if "refit" in entry.options:
        options["refit"] = "manual"
    if isinstance(options.get("model"), Mapping):
        for name, matrix in options["model"].items():
            Arrays(MAX_DIMENSIONS).check(f"options.model.{name}", matrix)
        try:
            options["model"] = LinearGaussianModel(**options["model"])
        except TypeError:
            expected = "transition, process_cov, observation_cov and optionally other matrices of a model"
            raise invalid("options.model", expected, ", ".join(map(str, options["model"]))) from None
    MAX_PENDING.check("max_pending", options.get("max_pending"))
    entry.check_bounds(options)
    return options


def max_pending(options: Mapping[str, Any]) -> int:
    """Return how many decisions of a stream with these options can wait for their rewards."""
    given = options.get("max_pending")
    return given if isinstance(given, int) else DEFAULT_MAX_PENDING


def make_agent(spec: StreamSpec) -> Agent:
    """Make the agent of a new stream."""
    options = agent_options(spec)
    observed = spec.observed if isinstance(spec.observed, int) else len(spec.observed)
    try:
        agent = make(spec.agent, observed=observed, arms=spec.arms, seed=spec.seed or 0, **options)
    except (TypeError, ValueError, KeyError, np.linalg.LinAlgError) as error:
        if isinstance(error, HalfseenError):
            raise
        raise invalid("options", f"valid options of '{spec.agent}' ({error})", repr(spec.options)) from None
    if spec.guardrails is not None:
        agent.set_guardrails(**msgspec.structs.asdict(spec.guardrails))
    if spec.replaces_defaults and not agent.takes_provisional:
        expected = f"'record' or no default_reward, because '{spec.agent}' cannot replace a reward that it has learnt"
        raise invalid("late_rewards", expected, "'fold' with a default_reward")
    allowed = agent.policy.learner.reward_range
    if spec.default_reward is not None and not allowed.low <= spec.default_reward <= allowed.high:
        raise invalid("default_reward", f"{allowed}, or null", spec.default_reward)
    return agent


class LoadedStream:
    """A stream in memory. Its `agent` and everything else follow from its events up to number `version`."""

    def __init__(self, spec: StreamSpec, agent: Agent | None = None) -> None:
        self.spec = spec
        self.agent = make_agent(spec) if agent is None else agent
        self.version = 0
        self.time = 0  # time of the last event
        self.last_id: str | None = None  # id of the last decision
        self.decisions, self.rewards = 0, 0
        self.retired = False
        self.tick: int | None = None  # the time of the last decision or observation in steps since 1970, if known
        self.model_seq = 0  # number of the event in which the last model was accepted
        self.skipped_models = 0  # models accepted in earlier events that this version of the package cannot use
        # By id, oldest first. In a plain dict, the search for the oldest key would pass over all deleted keys.
        self.open_decisions: OrderedDict[str, OpenDecision] = OrderedDict()
        self.snapshot_version = 0
        # If there is a reward wait, every open decision must expire, even if the agent no longer remembers it.
        no_wait = spec.reward_wait is None
        self._max_open = max_pending(spec.options) if no_wait else math.inf
        self._array_bytes, self._size_stale_at = 0, 0  # the size is computed again from version `_size_stale_at` on

    @property
    def nbytes(self) -> int:
        """Approximate memory use. Computing the size of an agent is slow, so it is done only after many events."""
        if self.version >= self._size_stale_at:
            self._array_bytes = sum(array.nbytes for array in self.agent.policy.state().values())
            self._size_stale_at = self.version + self.version // 16 + _EVENTS_BETWEEN_SIZES
        decision_bytes = _DECISION_BYTES + 8 * self.agent.policy.estimator.dimension
        return self._array_bytes + _AGENT_BYTES + decision_bytes * self.unrewarded

    @property
    def unrewarded(self) -> int:
        """The number of decisions in memory that may still be rewarded."""
        return max(len(self.open_decisions), self.agent.unrewarded)

    @property
    def arms(self) -> list[tuple[Arm, bool]]:
        """Pairs: an arm of the stream, and whether the arm is active."""
        return [(arm, bool(active)) for arm, active in zip(self.agent.arms, self.agent.policy.active[0], strict=True)]

    def fold(self, next_events: Iterable[Event]) -> None:
        """Apply the next events of the journal, in order."""
        for event in next_events:
            if event.seq != self.version + 1:
                raise events.JournalError(
                    f"journal: expected event {self.version + 1} of the stream, got event {event.seq}"
                )
            self._replay(event)
            self.advance(event)

    def _replay(self, event: Event) -> None:
        """Change the agent in the same way as the original request did."""
        content, agent = event.content, self.agent
        if isinstance(content, events.Decided):
            y = np.array(content.observation, dtype=np.float64)
            propensity = content.propensity or None  # a propensity of 0 has underflowed
            agent.replay(
                y, content.arm, propensity=propensity, branch=content.branch, costs=content.costs,
                elapsed=content.elapsed,
            )  # fmt: skip
        elif isinstance(content, events.Observed):
            agent.observe(np.array(content.observation, dtype=np.float64), elapsed=content.elapsed)
        elif isinstance(content, events.Rewarded):
            if content.folded:
                self.learn(content.round, content.value, content.how)
        elif isinstance(content, events.ArmAdded):
            agent.add_arm(content.arm if isinstance(content.arm, str) else None, params=content.params)
        elif isinstance(content, events.ArmRetired):
            agent.retire_arm(content.arm)
        elif isinstance(content, events.GuardrailsSet):
            agent.set_guardrails(**msgspec.structs.asdict(content))
        elif isinstance(content, events.ModelAccepted):
            try:
                agent.accept(unpack_model(event.blob or b""))
            except HalfseenError:  # the model was saved by a version of this package that had other state arrays
                self.skipped_models += 1

    def learn(self, round_: int, value: float, how: str) -> None:
        """Let the agent learn a reward. A default reward is provisional if a late reward can replace it."""
        if how == "default" and self.spec.replaces_defaults:
            self.agent.learn(round_, value, provisional=True)
        else:
            self.agent.learn(round_, value)

    def advance(self, event: Event) -> None:
        """Update everything except the agent, which has processed the event already."""
        content = event.content
        self.version, self.time = event.seq, event.time
        if isinstance(content, events.Decided | events.Observed):
            self.tick = content.tick
        if isinstance(content, events.Decided):
            assert event.id is not None
            self.decisions += 1
            self.last_id = event.id
            if content.clock is None:
                self.open_decisions[event.id] = OpenDecision(content.round, event.time)
            else:
                self._set_clock_back(content.clock)
                self.open_decisions[event.id] = OpenDecision(content.round, content.clock)
            if len(self.open_decisions) > self._max_open:
                self.open_decisions.popitem(last=False)
        elif isinstance(content, events.Rewarded):
            self.rewards += content.how != "default"
            self.open_decisions.pop(content.decision, None)
            if not content.folded:
                self._give_up(content.round)
        elif isinstance(content, events.Expired):
            expired = self.open_decisions.pop(content.decision, None)
            if expired is not None and self.spec.late_rewards == "record":
                self._give_up(expired.round)
        elif isinstance(content, events.ModelAccepted):
            self.model_seq = event.seq
            self._size_stale_at = 0
        elif isinstance(content, events.ArmAdded):
            self._size_stale_at = 0
        elif isinstance(content, events.Retired):
            self.retired = True

    def _set_clock_back(self, clock: int) -> None:
        """If the clock was set back to `clock`, let decisions with a later time wait for rewards from `clock` on."""
        for decision_id in reversed(self.open_decisions):
            if self.open_decisions[decision_id].waiting_since <= clock:
                break
            self.open_decisions[decision_id] = self.open_decisions[decision_id]._replace(waiting_since=clock)

    def _give_up(self, round_: int) -> None:
        """Let the agent forget a decision from which it will never learn."""
        with contextlib.suppress(DecisionError):  # the agent has already forgotten the decision
            self.agent.give_up(round_)

    @property
    def next_expiry(self) -> int:
        """The time in microseconds when the oldest open decision expires, or 0 if none will expire."""
        wait = self.spec.reward_wait_us
        if wait is None or not self.open_decisions:
            return 0
        return next(iter(self.open_decisions.values())).waiting_since + wait

    def to_bytes(self) -> bytes:
        """Return the state as bytes. This is quick; `compress_snapshot` then makes the snapshot that is stored."""
        fields = {name: getattr(self, name) for name in _SNAPSHOT_FIELDS}
        arrays = {
            "agent": np.frombuffer(self.agent.packed(small=False), dtype=np.uint8),
            "ids": np.array(list(self.open_decisions), dtype="S36"),
            "rounds": np.array([decision.round for decision in self.open_decisions.values()], dtype=np.int64),
            "times": np.array([decision.waiting_since for decision in self.open_decisions.values()], dtype=np.int64),
        }
        return saving.to_bytes(fields, arrays, small=False)

    @classmethod
    def from_snapshot(cls, spec: StreamSpec, snapshot: bytes) -> LoadedStream:
        """Load a snapshot. Raise a HalfseenError if this version of the package cannot use it."""
        try:
            fields, arrays = saving.from_bytes(zlib.decompress(snapshot), "snapshot")
            stream = cls(spec, from_bytes(arrays["agent"].tobytes(), "snapshot"))
            for name in _SNAPSHOT_FIELDS:
                setattr(stream, name, fields[name] if name != "tick" else fields.get(name))  # version 0.2.0 had no tick
            rows = zip(arrays["ids"], arrays["rounds"].tolist(), arrays["times"].tolist(), strict=True)
            stream.open_decisions = OrderedDict(
                (decision_id.decode(), OpenDecision(round_, since)) for decision_id, round_, since in rows
            )
        except (zlib.error, LookupError, TypeError, ValueError, AttributeError) as error:
            raise SaveFileError(f"The snapshot is inconsistent: {error}") from None
        stream.snapshot_version = stream.version
        return stream


def compress_snapshot(state: bytes) -> bytes:
    """Compress the result of `LoadedStream.to_bytes`. This is slow, so it should not run in the store's thread."""
    return zlib.compress(state, 1)


def read_spec(row: StreamRow) -> StreamSpec:
    try:
        return msgspec.json.decode(row.spec, type=StreamSpec)
    except msgspec.MsgspecError as error:
        raise events.JournalError(f"Cannot read the specification of stream '{row.name}': {error}") from None


def fold_stream(journal: Journal, row: StreamRow) -> LoadedStream:
    """Replay a stream from its first event, without a snapshot."""
    stream = LoadedStream(read_spec(row))
    stream.fold(journal.all_events(row.id))
    return stream


def pack_model(model: Mapping[str, Any]) -> bytes:
    """Convert the arrays of `Agent.model` to bytes."""
    return saving.to_bytes({}, model)


def unpack_model(content: bytes) -> dict[str, Any]:
    return saving.from_bytes(content, "model")[1]
