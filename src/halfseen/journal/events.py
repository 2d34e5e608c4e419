"""What can happen to a stream. The state of a stream is a fold over its events."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct

from halfseen.errors import HalfseenError

Arm = int | str
STREAM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # of a stream


class JournalError(HalfseenError):
    """A database that is not what this version reads, or a record that does not fit together."""


class StreamExists(JournalError):
    """A stream to be imported has the name of one that exists."""


class JournalUnavailable(HalfseenError):
    """The database cannot be reached or written to now; trying again later may help."""


class Created(Struct, frozen=True):
    """The stream began, with its specification."""

    spec: dict[str, Any]


class ArmAdded(Struct, frozen=True, omit_defaults=True):
    """One more arm; `params` are its reward coefficients, for agents that are given those of all arms."""

    arm: Arm
    params: list[float] | None = None


class ArmRetired(Struct, frozen=True):
    """An arm that is never chosen again."""

    arm: Arm


class Retired(Struct, frozen=True):
    """The stream ended."""


class Decided(Struct, frozen=True, omit_defaults=True):
    """A decision, with all that was known about it. Lists are by arm; None is what was not seen, or is no number."""

    round: int
    observation: list[float | None]
    arm: Arm
    propensity: float
    propensities: list[float]
    expected: list[float | None]
    available: list[Arm] | None = None
    key: str | None = None
    clock: int | None = None  # what it said, if that was well before the time of the event, which never falls


class Rewarded(Struct, frozen=True):
    """A reward: given in time, the default after the wait, or late. `folded`: the agent has learnt from it.

    After a default that was folded, a late one that is has taken its place.
    """

    decision: str
    round: int  # of the decision
    value: float
    how: Literal["given", "default", "late"]
    folded: bool


class Expired(Struct, frozen=True):
    """The wait for a reward is over, and there is no default."""

    decision: str


class ModelAccepted(Struct, frozen=True):
    """The agent continues with a model identified from the events up to `seen`; its arrays are the blob."""

    seen: int


Content = Created | ArmAdded | ArmRetired | Retired | Decided | Rewarded | Expired | ModelAccepted

KINDS: dict[str, type[Content]] = {
    "created": Created,
    "arm_added": ArmAdded,
    "arm_retired": ArmRetired,
    "retired": Retired,
    "decided": Decided,
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
    """One thing that happened to a stream. `id` is the decision it is about, if it is about one."""

    seq: int  # from 1, without gaps
    time: int  # microseconds since 1970, UTC; never less than that of the event before
    id: str | None
    content: Content
    blob: bytes | None = None

    @property
    def kind(self) -> str:
        return KIND_OF[type(self.content)]

    @property
    def key(self) -> str | None:
        """The caller's idempotency key."""
        return self.content.key if isinstance(self.content, Decided) else None


def encode(content: Content) -> str:
    """The payload of an event as JSON; floats come back exactly."""
    return _ENCODER.encode(content).decode()


def decode(kind: str, payload: str | bytes) -> Content:
    try:
        return _DECODERS[kind].decode(payload)
    except (KeyError, msgspec.MsgspecError) as error:
        raise JournalError(f"Cannot read an event '{kind}' of the journal: {error}") from None


class ExportExtent(Struct, frozen=True):
    """What an export holds, written where a stream begins: tells a file that was cut off from one of an earlier day."""

    events: int  # of this stream, at least
    streams: int  # in all


def to_line(stream: str, event: Event, extent: ExportExtent | None = None) -> bytes:
    """The event as a line of NDJSON."""
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


def from_line(text: bytes) -> tuple[str, Event, ExportExtent | None]:
    """The stream and the event of a line, and what it says of the export, if it does."""
    try:
        line = msgspec.json.decode(text)
        kind = line["kind"]
        moment = datetime.fromisoformat(line["time"])
        blob = base64.b64decode(line["blob"], validate=True) if line.get("blob") is not None else None
        time = (moment - _EPOCH) // timedelta(microseconds=1)
        content = msgspec.convert(line, KINDS[kind])
        extent = msgspec.convert(line.get("exported"), ExportExtent | None)
        return str(line["stream"]), Event(int(line["seq"]), time, line.get("id"), content, blob), extent
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        shown = text[:60].decode(errors="replace")
        raise JournalError(
            f"line: expected an event as written by `halfseen export`, got {shown!r} ({error})"
        ) from None
