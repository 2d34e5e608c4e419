"""The events of a stream, from which its state can be computed at any time."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct

from halfseen.agents.guardrails import Branch
from halfseen.errors import HalfseenError

Arm = int | str
STREAM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class JournalError(HalfseenError):
    """The database has another format, or its events contradict each other."""


class StreamExists(JournalError):
    """An imported stream has the name of an existing stream."""


class JournalUnavailable(HalfseenError):
    """The database cannot be reached or written at the moment. A later attempt may succeed."""


class Created(Struct, frozen=True):
    """The stream was created with a specification."""

    spec: dict[str, Any]


class ArmAdded(Struct, frozen=True, omit_defaults=True):
    """An arm was added.

    `params` are the reward coefficients of the arm, for agents that know the coefficients of all arms.
    """

    arm: Arm
    params: list[float] | None = None


class ArmRetired(Struct, frozen=True):
    """An arm was retired and is never chosen again."""

    arm: Arm


class GuardrailsSet(Struct, frozen=True):
    """The guardrails were changed. They hold for all later decisions, until the next event of this kind."""

    floor: float
    holdback: float
    control: tuple[Arm, float] | None


class Retired(Struct, frozen=True):
    """The stream was retired."""


class Decided(Struct, frozen=True, omit_defaults=True):
    """A decision was made. `propensities` and `expected` have one entry per arm.

    None stands for a missing entry of the observation or for an expected reward that is not finite.
    """

    round: int
    observation: list[float | None]
    arm: Arm
    propensity: float
    propensities: list[float]
    expected: list[float | None]
    available: list[Arm] | None = None
    key: str | None = None
    clock: int | None = None  # the time on the clock, if it was more than a second behind `Event.time`
    branch: Branch | None = None  # what made the decision, None without guardrails
    costs: list[float] | None = None  # of the arms, None if the request had none
    elapsed: int = 1  # steps since the last observation or decision
    tick: int | None = None  # the time stamp in steps since 1970, if the stream has a step and has seen a time stamp
    # If the decision was made elsewhere, some propensities may be estimates: "all" of them, or those of the arms that
    # were not played.
    estimated: Literal["all", "others"] | None = None


class Observed(Struct, frozen=True, omit_defaults=True):
    """Something was observed without a decision. `elapsed` and `tick` are as for a decision."""

    observation: list[float | None]
    elapsed: int = 1
    tick: int | None = None


class Rewarded(Struct, frozen=True):
    """A decision got a reward. `folded` says whether the agent has learnt from the reward.

    `how` is "given" for a reward that came in time, "late" for a reward that came after the stream's reward wait, and
    "default" for the default reward, which is used if no reward came in time. If the agent learns from a late reward,
    the late reward replaces the default reward that the agent may have learnt before.
    """

    decision: str
    round: int  # the round of the decision
    value: float
    how: Literal["given", "default", "late"]
    folded: bool


class Expired(Struct, frozen=True):
    """The wait for a reward is over and the stream has no default reward."""

    decision: str


class ModelAccepted(Struct, frozen=True):
    """The agent accepted a model that was identified from the events up to number `seen`.

    The arrays of the model are stored in `Event.blob`.
    """

    seen: int


Content = (
    Created | ArmAdded | ArmRetired | GuardrailsSet | Retired | Decided | Observed | Rewarded | Expired | ModelAccepted
)

KINDS: dict[str, type[Content]] = {
    "created": Created,
    "arm_added": ArmAdded,
    "arm_retired": ArmRetired,
    "guardrails_set": GuardrailsSet,
    "retired": Retired,
    "decided": Decided,
    "observed": Observed,
    "rewarded": Rewarded,
    "expired": Expired,
    "model_accepted": ModelAccepted,
}
KIND_OF: dict[type[Content], str] = {kind: name for name, kind in KINDS.items()}
_DECODERS: dict[str, msgspec.json.Decoder[Content]] = {
    name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()
}  # fmt: skip
_ENCODER = msgspec.json.Encoder()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Event(Struct, frozen=True):
    """An event of a stream. `id` is the id of the decision that the event belongs to, if there is one."""

    seq: int  # 1, 2, 3, ... within the stream
    time: int  # microseconds since 1970, UTC; never less than the time of the previous event
    id: str | None
    content: Content
    blob: bytes | None = None

    @property
    def kind(self) -> str:
        return KIND_OF[type(self.content)]

    @property
    def key(self) -> str | None:
        """The idempotency key of a decision."""
        return self.content.key if isinstance(self.content, Decided) else None


def step_microseconds(step: float) -> int:
    """Convert a step from seconds to whole microseconds, at least 1."""
    return max(1, round(step * 1e6))


def tick_at(time: int, step: int) -> int:
    """Convert a time to steps since 1970, rounded to the nearest integer. Both arguments are in microseconds."""
    return (2 * time + step) // (2 * step)


def encode(content: Content) -> str:
    """Encode the content of an event as JSON, from which `decode` restores it exactly."""
    return _ENCODER.encode(content).decode()


def decode(kind: str, payload: str | bytes) -> Content:
    try:
        return _DECODERS[kind].decode(payload)
    except (KeyError, msgspec.MsgspecError) as error:
        raise JournalError(f"Cannot read an event of kind '{kind}' from the journal: {error}") from None


class ExportExtent(Struct, frozen=True):
    """The size of an export, written with the first event of each stream so that a truncated file can be detected."""

    events: int  # events of this stream
    streams: int  # streams in the file


def to_line(stream: str, event: Event, extent: ExportExtent | None = None) -> bytes:
    """Encode an event as a line of NDJSON."""
    line: dict[str, Any] = {
        "stream": stream,
        "seq": event.seq,
        "time": (_EPOCH + timedelta(microseconds=event.time)).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "kind": event.kind,
        "id": event.id,
    }
    line |= msgspec.to_builtins(event.content)
    if event.blob is not None:
        line["blob"] = base64.b64encode(event.blob).decode()
    if extent is not None:
        line["exported"] = msgspec.to_builtins(extent)
    return _ENCODER.encode(line)


class _Line(Struct, frozen=True):
    """The fields of a line that all kinds of events have."""

    stream: str
    seq: int
    time: str
    kind: str
    id: str | None = None
    blob: bytes | None = None  # base64
    exported: ExportExtent | None = None


_LINE = msgspec.json.Decoder(_Line)


def from_line(text: bytes) -> tuple[str, Event, ExportExtent | None]:
    """Decode a line into the name of the stream, the event and, if present, the size of the export."""
    try:
        line = _LINE.decode(text)
        if line.kind not in KINDS:
            raise JournalError(f"kind: expected one of: {', '.join(KINDS)}, got {line.kind[:60]!r}")
        content = _DECODERS[line.kind].decode(text)
        return line.stream, Event(line.seq, microseconds(line.time), line.id, content, line.blob), line.exported
    except msgspec.ValidationError as error:
        raise JournalError(explain(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        start = text[:60].decode(errors="replace")
        raise JournalError(f"expected an event from `halfseen export`, got {start!r} ({error})") from None


def microseconds(text: str) -> int:
    """Convert a time stamp in ISO 8601, with a time zone, to microseconds since 1970."""
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, TypeError, OverflowError):
        raise JournalError(f"time: expected a time with a time zone in ISO 8601, got {text[:60]!r}") from None


def explain(error: msgspec.ValidationError) -> str:
    """Return an error of msgspec as "field: expected ..., got ..."."""
    reason, _, path = str(error).replace("`", "'").partition(" - at '$")
    field = path.rstrip("'").lstrip(".") or "event"
    if reason.startswith("Object missing required field "):
        return f"{reason.removeprefix('Object missing required field ').strip(chr(39))}: expected a value, got none"
    return f"{field}: {reason[:1].lower()}{reason[1:]}"
