"""A stream in memory: a fold over its events, and the way in for new ones.

Live and replayed events change the agent in the same way, so that a stream folded again is, bit for bit, the one that
was here before.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from halfseen.agents import saving as savefile
from halfseen.agents.agent import Agent
from halfseen.agents.catalogue import CATALOG, from_bytes, make
from halfseen.errors import DecisionError, HalfseenError, SaveFileError, invalid, unknown
from halfseen.journal import events
from halfseen.journal.events import Event
from halfseen.journal.journal import Journal, StreamRow
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.service.specs import Arm, StreamSpec

_A_WAITING_DECISION = 700  # bytes in memory beside its features, roughly
_BOOKS = ("version", "time", "last_id", "decisions", "rewards", "retired", "model_seq")
_AN_AGENT = 20_000  # bytes of Python objects beside its arrays, roughly
_WEIGHED_EVERY = 100  # events
_RESERVED = ("observed", "arms", "seed", "name", "refit")  # are no options of a stream


class Waiting(NamedTuple):
    """A decision that no reward has come for."""

    round: int
    time: int  # from which on it waits; never less than that of the one before it


def make_agent(spec: StreamSpec) -> Agent:
    """The agent of a stream at its beginning. What identifies does so when told to, never inside a decision."""
    entry = CATALOG[spec.agent]
    if entry.reveals_context:
        raise invalid("agent", f"'{spec.agent}', which is shown the true context", "an agent that decides without it")
    options: dict[str, Any] = dict(spec.options)
    for reserved in _RESERVED:
        if reserved in options:
            raise invalid("options", f"'{reserved}'", "options of the agent's parts, such as latent or window")
    known = {*entry.options, "max_pending"} - set(_RESERVED)
    for name in options:
        if name not in known:
            raise unknown(f"option of '{spec.agent}'", name, known)
    if "refit" in entry.options:
        options["refit"] = "manual"
    if isinstance(options.get("model"), Mapping):
        try:
            options["model"] = LinearGaussianModel(**options["model"])
        except TypeError:
            wanted = "transition, process_cov, observation_cov and, if need be, the other matrices of a model"
            raise invalid("options.model", ", ".join(map(str, options["model"])), wanted) from None
    observed = spec.observed if isinstance(spec.observed, int) else len(spec.observed)
    try:
        agent = make(spec.agent, observed=observed, arms=spec.arms, seed=spec.seed or 0, **options)
    except (TypeError, ValueError, KeyError, np.linalg.LinAlgError) as error:
        if isinstance(error, HalfseenError):
            raise
        raise invalid("options", repr(spec.options), f"options that '{spec.agent}' takes ({error})") from None
    if spec.defaults_give_way and not agent.takes_provisional:
        wanted = f"'record', or no default: '{spec.agent}' cannot take back what it has learnt"
        raise invalid("late_rewards", "'fold' with a default reward", wanted)
    return agent


class Resident:
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
        self.waiting: dict[str, Waiting] = {}  # by id, oldest first
        self.kept = 0  # version of the last snapshot
        # A wait that is measured ends by itself, and has to, also for what the agent no longer keeps.
        endless = spec.reward_wait is None
        self._most_waiting = int(spec.options.get("max_pending", 100_000)) if endless else math.inf
        self._array_bytes, self._weigh_from = 0, 0  # and from which version on it is to be weighed again

    @property
    def nbytes(self) -> int:
        """Memory it takes, nearly: histories grow, and to weigh an agent takes longer than a decision."""
        if self.version >= self._weigh_from:
            self._array_bytes = sum(array.nbytes for array in self.agent.policy.state().values())
            self._weigh_from = self.version + self.version // 16 + _WEIGHED_EVERY
        each = _A_WAITING_DECISION + 8 * self.agent.policy.estimator.dimension
        return self._array_bytes + _AN_AGENT + each * self.held

    @property
    def held(self) -> int:
        """Decisions in memory that may still be rewarded."""
        return max(len(self.waiting), self.agent.unrewarded)

    @property
    def arms(self) -> list[tuple[Arm, bool]]:
        return [(arm, bool(on)) for arm, on in zip(self.agent.arms, self.agent.policy.active[0], strict=True)]

    def fold(self, record: Iterable[Event]) -> None:
        """Live through events of the journal, in order."""
        for event in record:
            if event.seq != self.version + 1:
                raise events.JournalError(f"journal: got event {event.seq} after event {self.version} of a stream")
            self._replay(event)
            self.note(event)

    def _replay(self, event: Event) -> None:
        """Do to the agent what the event did."""
        content, agent = event.content, self.agent
        if isinstance(content, events.Decided):
            y = np.array(content.observation, dtype=np.float64)
            agent.replay(y, content.arm, propensity=content.propensity or None)  # 0: less than a number can say
        elif isinstance(content, events.Rewarded):
            if content.folded:
                self.credit(content.round, content.value, content.how)
        elif isinstance(content, events.ArmAdded):
            agent.add_arm(content.arm if isinstance(content.arm, str) else None, params=content.params)
        elif isinstance(content, events.ArmRetired):
            agent.retire_arm(content.arm)
        elif isinstance(content, events.ModelAccepted):
            agent.accept(unpack_model(event.blob or b""))

    def credit(self, number: int, value: float, how: str) -> None:
        """Let the agent learn a reward; a default, where late rewards take its place, for the time being."""
        if how == "default" and self.spec.defaults_give_way:
            self.agent.learn(number, value, provisional=True)
        else:
            self.agent.learn(number, value)

    def note(self, event: Event) -> None:
        """Keep the books on an event that the agent has lived through."""
        content = event.content
        self.version, self.time = event.seq, event.time
        if isinstance(content, events.Decided):
            assert event.id is not None
            self.decisions += 1
            self.last_id = event.id
            if content.clock is None:
                self.waiting[event.id] = Waiting(content.round, event.time)
            else:
                self._set_back(content.clock)
                self.waiting[event.id] = Waiting(content.round, content.clock)
            if len(self.waiting) > self._most_waiting:
                del self.waiting[next(iter(self.waiting))]
        elif isinstance(content, events.Rewarded):
            self.rewards += content.how != "default"
            self.waiting.pop(content.decision, None)
            if not content.folded:
                self._give_up(content.round)
        elif isinstance(content, events.Expired):
            waiting = self.waiting.pop(content.decision, None)
            if waiting is not None and self.spec.late_rewards == "record":
                self._give_up(waiting.round)
        elif isinstance(content, events.ModelAccepted):
            self.model_seq = event.seq
            self._weigh_from = 0
        elif isinstance(content, events.ArmAdded):
            self._weigh_from = 0
        elif isinstance(content, events.Retired):
            self.retired = True

    def _set_back(self, clock: int) -> None:
        """The clock says less than it did: what was decided while it was ahead waits from now on."""
        for identity in reversed(self.waiting):
            if self.waiting[identity].time <= clock:
                break
            self.waiting[identity] = self.waiting[identity]._replace(time=clock)

    def _give_up(self, number: int) -> None:
        """What nothing will ever be learnt from, the agent need not keep."""
        with contextlib.suppress(DecisionError):  # or it has not kept it
            self.agent.give_up(number)

    @property
    def due(self) -> int:
        """When the wait for the reward of its oldest decision is over; 0 if for none."""
        wait = self.spec.wait
        if wait is None or not self.waiting:
            return 0
        return next(iter(self.waiting.values())).time + wait

    def packed(self) -> bytes:
        """All of it as bytes, quickly; `snapshot` of them is what is kept."""
        books = {name: getattr(self, name) for name in _BOOKS}
        arrays = {
            "agent": np.frombuffer(self.agent.packed(small=False), dtype=np.uint8),
            "ids": np.array(list(self.waiting), dtype="S36"),
            "rounds": np.array([one.round for one in self.waiting.values()], dtype=np.int64),
            "times": np.array([one.time for one in self.waiting.values()], dtype=np.int64),
        }
        return savefile.to_bytes(books, arrays, small=False)

    @classmethod
    def unpacked(cls, spec: StreamSpec, content: bytes) -> Resident:
        """From a snapshot; a HalfseenError if it is of no use to this version."""
        try:
            books, arrays = savefile.from_bytes(zlib.decompress(content), "snapshot")
            resident = cls(spec, from_bytes(arrays["agent"].tobytes(), "snapshot"))
            for name in _BOOKS:
                setattr(resident, name, books[name])
            rows = zip(arrays["ids"], arrays["rounds"].tolist(), arrays["times"].tolist(), strict=True)
            resident.waiting = {identity.decode(): Waiting(number, time) for identity, number, time in rows}
        except (zlib.error, LookupError, TypeError, ValueError, AttributeError) as error:
            raise SaveFileError(f"snapshot: got one that does not fit together ({error})") from None
        resident.kept = resident.version
        return resident


def refolded(journal: Journal, row: StreamRow) -> Resident:
    """A stream as it follows from the journal alone; an error if it does not."""
    try:
        resident = Resident(msgspec.json.decode(row.spec, type=StreamSpec))
    except msgspec.MsgspecError as error:
        raise events.JournalError(f"stream '{row.name}': got a specification that cannot be read ({error})") from None
    resident.fold(journal.all_events(row.id))
    return resident


def bring_up(journal: Journal, row: StreamRow) -> None:
    """Fold a stream that has just been brought in, to know that it can be, and keep a snapshot of it."""
    try:
        resident = refolded(journal, row)
    except HalfseenError as error:
        raise events.JournalError(f"stream '{row.name}': got a record that does not fold ({error})") from None
    journal.keep_snapshot(row.id, resident.version, snapshot(resident.packed()))


def snapshot(packed: bytes) -> bytes:
    """What is kept of a packed resident. It takes its time, and no thread has to wait for it."""
    return zlib.compress(packed, 1)


def pack_model(model: Mapping[str, Any]) -> bytes:
    """The arrays of `Agent.model` as bytes."""
    return savefile.to_bytes({}, model)


def unpack_model(content: bytes) -> dict[str, Any]:
    return savefile.from_bytes(content, "model")[1]
