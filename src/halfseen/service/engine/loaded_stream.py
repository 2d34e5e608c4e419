"""A stream in memory: its agent and everything else that follows from its events.

Live and replayed events change the agent in the same way, so folding the journal again gives the same stream exactly.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from halfseen.agents import saving
from halfseen.agents.agent import Agent
from halfseen.agents.catalogue import CATALOG, make
from halfseen.agents.loading import from_bytes
from halfseen.errors import DecisionError, HalfseenError, SaveFileError, invalid, unknown
from halfseen.journal import events
from halfseen.journal.events import Event
from halfseen.journal.journal import Journal, StreamRow
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.service.schemas import Arm, StreamSpec

_DECISION_BYTES = 700  # in memory for an open decision, beside its features; roughly
_AGENT_BYTES = 20_000  # of Python objects beside its arrays; roughly
_EVENTS_BETWEEN_SIZES = 100  # at least, before the size of the agent is computed again
_SNAPSHOT_FIELDS = ("version", "time", "last_id", "decisions", "rewards", "retired", "model_seq")
_RESERVED = ("observed", "arms", "seed", "name", "refit")  # are no options of a stream


class OpenDecision(NamedTuple):
    """A decision that has no reward yet."""

    round: int
    waiting_since: int  # microseconds; never less than that of the decision before it


def make_agent(spec: StreamSpec) -> Agent:
    """Make the agent of a new stream. It never identifies a model inside a decision: the engine starts that."""
    entry = CATALOG[spec.agent]
    if entry.reveals_context:
        raise invalid("agent", "an agent that decides without it", f"'{spec.agent}', which is shown the true context")
    options: dict[str, Any] = dict(spec.options)
    for reserved in _RESERVED:
        if reserved in options:
            raise invalid("options", "options of the agent's parts, such as latent or window", f"'{reserved}'")
    known = {*entry.options, "max_pending"} - set(_RESERVED)
    for name in options:
        if name not in known:
            raise unknown("option", name, known, f"'{spec.agent}'")
    if "refit" in entry.options:
        options["refit"] = "manual"
    if isinstance(options.get("model"), Mapping):
        try:
            options["model"] = LinearGaussianModel(**options["model"])
        except TypeError:
            wanted = "transition, process_cov, observation_cov and, if need be, the other matrices of a model"
            raise invalid("options.model", wanted, ", ".join(map(str, options["model"]))) from None
    observed = spec.observed if isinstance(spec.observed, int) else len(spec.observed)
    try:
        agent = make(spec.agent, observed=observed, arms=spec.arms, seed=spec.seed or 0, **options)
    except (TypeError, ValueError, KeyError, np.linalg.LinAlgError) as error:
        if isinstance(error, HalfseenError):
            raise
        raise invalid("options", f"options that '{spec.agent}' takes ({error})", repr(spec.options)) from None
    if spec.replaces_defaults and not agent.takes_provisional:
        wanted = f"'record', or no default: '{spec.agent}' cannot take back what it has learnt"
        raise invalid("late_rewards", wanted, "'fold' with a default reward")
    return agent


class LoadedStream:
    """One stream: `agent` and everything else that follows from its events up to `version`."""

    def __init__(self, spec: StreamSpec, agent: Agent | None = None) -> None:
        self.spec = spec
        self.agent = make_agent(spec) if agent is None else agent
        self.version = 0
        self.time = 0  # of the last event
        self.last_id: str | None = None
        self.decisions, self.rewards = 0, 0
        self.retired = False
        self.model_seq = 0  # of the last model accepted
        self.skipped_models = 0  # accepted models in the events folded so far that this version cannot use
        self.open_decisions: dict[str, OpenDecision] = {}  # by id, oldest first
        self.snapshot_version = 0
        # With a reward wait, every open decision has to be expired, also those that the agent no longer remembers.
        endless = spec.reward_wait is None
        self._max_open = int(spec.options.get("max_pending", 100_000)) if endless else math.inf
        self._array_bytes, self._size_stale_at = 0, 0  # the version from which on the size is computed again

    @property
    def nbytes(self) -> int:
        """Approximate memory use. Measuring the agent takes longer than a decision, so it is done now and then."""
        if self.version >= self._size_stale_at:
            self._array_bytes = sum(array.nbytes for array in self.agent.policy.state().values())
            self._size_stale_at = self.version + self.version // 16 + _EVENTS_BETWEEN_SIZES
        each = _DECISION_BYTES + 8 * self.agent.policy.estimator.dimension
        return self._array_bytes + _AGENT_BYTES + each * self.unrewarded

    @property
    def unrewarded(self) -> int:
        """The number of decisions in memory that may still be rewarded."""
        return max(len(self.open_decisions), self.agent.unrewarded)

    @property
    def arms(self) -> list[tuple[Arm, bool]]:
        return [(arm, bool(on)) for arm, on in zip(self.agent.arms, self.agent.policy.active[0], strict=True)]

    def fold(self, record: Iterable[Event]) -> None:
        """Apply events of the journal, in order."""
        for event in record:
            if event.seq != self.version + 1:
                raise events.JournalError(
                    f"journal: expected event {self.version + 1} of the stream, got event {event.seq}"
                )
            self._replay(event)
            self.advance(event)

    def _replay(self, event: Event) -> None:
        """Do to the agent what the event did."""
        content, agent = event.content, self.agent
        if isinstance(content, events.Decided):
            y = np.array(content.observation, dtype=np.float64)
            agent.replay(y, content.arm, propensity=content.propensity or None)  # 0: less than a number can say
        elif isinstance(content, events.Rewarded):
            if content.folded:
                self.learn(content.round, content.value, content.how)
        elif isinstance(content, events.ArmAdded):
            agent.add_arm(content.arm if isinstance(content.arm, str) else None, params=content.params)
        elif isinstance(content, events.ArmRetired):
            agent.retire_arm(content.arm)
        elif isinstance(content, events.ModelAccepted):
            try:
                agent.accept(unpack_model(event.blob or b""))
            except HalfseenError:  # the model was saved by a version of this package that had other state arrays
                self.skipped_models += 1

    def learn(self, round_: int, value: float, how: str) -> None:
        """Let the agent learn a reward; provisionally, if it is a default that a late reward would replace."""
        if how == "default" and self.spec.replaces_defaults:
            self.agent.learn(round_, value, provisional=True)
        else:
            self.agent.learn(round_, value)

    def advance(self, event: Event) -> None:
        """Update everything but the agent, which has seen the event already."""
        content = event.content
        self.version, self.time = event.seq, event.time
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
                del self.open_decisions[next(iter(self.open_decisions))]
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
        """The clock was put back: decisions made while it was ahead wait from now on."""
        for decision_id in reversed(self.open_decisions):
            if self.open_decisions[decision_id].waiting_since <= clock:
                break
            self.open_decisions[decision_id] = self.open_decisions[decision_id]._replace(waiting_since=clock)

    def _give_up(self, round_: int) -> None:
        """Let the agent drop a decision from which it will never learn."""
        with contextlib.suppress(DecisionError):  # it has dropped it before
            self.agent.give_up(round_)

    @property
    def next_expiry(self) -> int:
        """When the oldest open decision expires, in microseconds; 0 if none does."""
        wait = self.spec.reward_wait_us
        if wait is None or not self.open_decisions:
            return 0
        return next(iter(self.open_decisions.values())).waiting_since + wait

    def to_bytes(self) -> bytes:
        """The state as bytes, quickly. `compress_snapshot` makes of them what is stored."""
        fields = {name: getattr(self, name) for name in _SNAPSHOT_FIELDS}
        arrays = {
            "agent": np.frombuffer(self.agent.packed(small=False), dtype=np.uint8),
            "ids": np.array(list(self.open_decisions), dtype="S36"),
            "rounds": np.array([one.round for one in self.open_decisions.values()], dtype=np.int64),
            "times": np.array([one.waiting_since for one in self.open_decisions.values()], dtype=np.int64),
        }
        return saving.to_bytes(fields, arrays, small=False)

    @classmethod
    def from_snapshot(cls, spec: StreamSpec, snapshot: bytes) -> LoadedStream:
        """Load a snapshot; a HalfseenError if this version cannot use it."""
        try:
            fields, arrays = saving.from_bytes(zlib.decompress(snapshot), "snapshot")
            stream = cls(spec, from_bytes(arrays["agent"].tobytes(), "snapshot"))
            for name in _SNAPSHOT_FIELDS:
                setattr(stream, name, fields[name])
            rows = zip(arrays["ids"], arrays["rounds"].tolist(), arrays["times"].tolist(), strict=True)
            stream.open_decisions = {
                decision_id.decode(): OpenDecision(round_, since) for decision_id, round_, since in rows
            }
        except (zlib.error, LookupError, TypeError, ValueError, AttributeError) as error:
            raise SaveFileError(f"The snapshot is inconsistent: {error}") from None
        stream.snapshot_version = stream.version
        return stream


def compress_snapshot(state: bytes) -> bytes:
    """Compress `LoadedStream.to_bytes`. This takes time, and is done in a thread that nobody waits for."""
    return zlib.compress(state, 1)


def read_spec(row: StreamRow) -> StreamSpec:
    try:
        return msgspec.json.decode(row.spec, type=StreamSpec)
    except msgspec.MsgspecError as error:
        raise events.JournalError(f"Cannot read the specification of stream '{row.name}': {error}") from None


def fold_stream(journal: Journal, row: StreamRow) -> LoadedStream:
    """Fold a stream from its first event on, without snapshots."""
    stream = LoadedStream(read_spec(row))
    stream.fold(journal.all_events(row.id))
    return stream


def fold_imported_stream(journal: Journal, row: StreamRow) -> None:
    """Fold a stream that has just been imported, to be sure that it folds, and store a snapshot of it."""
    try:
        stream = fold_stream(journal, row)
    except HalfseenError as error:
        raise events.JournalError(f"Cannot replay the events of stream '{row.name}': {error}") from None
    journal.save_snapshot(row.id, stream.version, compress_snapshot(stream.to_bytes()))


def pack_model(model: Mapping[str, Any]) -> bytes:
    """The arrays of `Agent.model` as bytes."""
    return saving.to_bytes({}, model)


def unpack_model(content: bytes) -> dict[str, Any]:
    return saving.from_bytes(content, "model")[1]
