"""What requests, replies and settings look like, and how the JSON of requests is read."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import msgspec
from msgspec import Struct, field

from halfseen.errors import invalid
from halfseen.journal.events import STREAM_NAME
from halfseen.journal.events import Arm as Arm
from halfseen.service.errors import ServiceError, refusal
from halfseen.validation import LIMIT

T = TypeVar("T")
Observation = list[float | None] | dict[str, float | None]
MAX_KEY_LENGTH = 200  # characters of an idempotency key
_LONGEST_WAIT = 1e9  # seconds
_FOREVER = 2**62  # microseconds, which databases can still hold when the time is added

# ---------------------------------------------------------------------- requests and replies


class StreamSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a stream is made. `options` are those of the agent; a `model` among them is a table of its matrices.

    A decision without a reward after `reward_wait` seconds is credited `default_reward`, or with None given up. What
    comes later is recorded, and with late_rewards="fold" learnt, in the place of the default if there is one.
    """

    name: str
    observed: int | list[str]
    arms: int | list[str]
    agent: str = "adaptive"
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None  # drawn when the stream is created, and recorded
    reward_wait: float | None = None  # seconds
    default_reward: float | None = None
    late_rewards: Literal["record", "fold"] = "record"

    @property
    def features(self) -> tuple[str, ...] | None:
        """The names of the observed entries, if they have names."""
        return None if isinstance(self.observed, int) else tuple(self.observed)

    @property
    def replaces_defaults(self) -> bool:
        """Whether a late reward replaces the default reward that was learnt."""
        return self.late_rewards == "fold" and self.default_reward is not None

    @property
    def reward_wait_us(self) -> int | None:
        """The reward wait in microseconds."""
        return None if self.reward_wait is None else int(min(self.reward_wait * 1e6, _FOREVER))

    def check(self) -> None:
        """Raise InvalidInput for what the agent does not check itself when it is made."""
        if not STREAM_NAME.fullmatch(self.name):
            raise invalid(
                "name", "up to 100 letters, digits, '.', '_' and '-', a letter or digit first", repr(self.name)
            )
        names = self.features
        if names is not None and (not names or "" in names or len(set(names)) < len(names)):
            raise invalid(
                "observed", "a count of at least 1, or names that differ from each other", repr(self.observed)
            )
        if self.reward_wait is not None and not 0 < self.reward_wait <= _LONGEST_WAIT:
            raise invalid("reward_wait", f"seconds above 0, at most {_LONGEST_WAIT:g}, or nothing", self.reward_wait)
        if self.late_rewards == "fold" and self.reward_wait is None:
            raise invalid("late_rewards", "a reward_wait with it: without one no reward is late", "'fold'")
        if self.default_reward is not None:
            if self.reward_wait is None:
                raise invalid("default_reward", "a reward_wait with it", self.default_reward)
            if not abs(self.default_reward) <= LIMIT:
                raise invalid("default_reward", f"a number within ±{LIMIT:g}, or nothing", self.default_reward)


class StreamView(Struct, frozen=True, kw_only=True):
    """A stream as it stands."""

    name: str
    spec: StreamSpec  # as created, with its seed
    arms: list[Arm]  # all there have ever been, in order
    active: list[Arm]  # those that can be chosen
    version: int  # number of its last event
    decisions: int
    rewards: int  # given by callers, late ones too; defaults are not counted
    created: int  # microseconds since 1970, UTC
    updated: int  # of the last event
    retired: bool


class StreamList(Struct):
    """A page of streams by name. `after` is what to ask the next page with, null on the last one."""

    streams: list[StreamView]
    after: str | None


class DecisionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The observation (null: not seen), the arms that may be played (null: all), and an idempotency key."""

    observation: Observation
    available: list[Arm] | None = None
    key: str | None = None


class DecisionReply(Struct, frozen=True):
    """A decision that is on disk. Lists have one entry per arm, in the order of all arms the stream has had."""

    id: str
    arm: Arm
    propensity: float
    propensities: list[float]
    expected: list[float | None]  # None where it is beyond all numbers
    repeated: bool = False  # the key was known: this is the decision made then


class RewardRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The reward of a decision."""

    decision: str
    value: float


class RewardReply(Struct, frozen=True):
    """A reward that is on disk. `how` is "given", "default" (the wait was over) or "late".

    `folded` says whether the agent has learnt from it. A late reward that was learnt replaces the default, if there was
    one.
    """

    decision: str
    value: float
    how: str
    folded: bool
    repeated: bool = False


class DecisionBatch(Struct, forbid_unknown_fields=True):
    """Decisions in order; a row that is refused leaves the others as they are."""

    decisions: list[msgspec.Raw]


class RewardBatch(Struct, forbid_unknown_fields=True):
    """Rewards in order; a row that is refused leaves the others as they are."""

    rewards: list[msgspec.Raw]


class ArmRequest(Struct, forbid_unknown_fields=True):
    """An arm to add: a name, or nothing where arms are numbers."""

    arm: str | None = None


class ErrorDetail(Struct):
    """A code to branch on and one line to read."""

    code: str
    message: str


class ErrorReply(Struct):
    """What every refusal looks like."""

    error: ErrorDetail

    @classmethod
    def of(cls, error: ServiceError) -> ErrorReply:
        return cls(ErrorDetail(error.code, error.message))


# ---------------------------------------------------------------------- settings


@dataclass(frozen=True)
class Limits:
    """The most that the service accepts. Each can be set when it is started; what exceeds one is refused."""

    body_bytes: int = 1_048_576  # of a request, other than an import
    import_bytes: int = 1_073_741_824
    batch: int = 1_000  # rows of one batch
    streams: int = 10_000
    observed: int = 1_000  # numbers of one observation
    arms: int = 1_000  # of one stream, retired ones counted
    page: int = 1_000  # streams or events of one answer
    rate: float = 0.0  # requests a second and token; 0: no such limit

    def __post_init__(self) -> None:
        for limit in dataclasses.fields(self):
            value = getattr(self, limit.name)
            least = 0 if limit.name == "rate" else 1
            if not value >= least:
                raise invalid(limit.name, f"a number of at least {least}", value)


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """How an engine runs."""

    queue_rows: int = 10_000  # that may wait; more are refused with 503
    batch_rows: int = 2_000  # that share one commit at most
    max_loaded_bytes: int = 1 << 30  # of streams in memory; the least recently used are unloaded
    snapshot_every: int = 5_000  # events of a stream; or half its open decisions, if that is more
    max_streams: int = 100_000
    identify: bool = True  # models in a process beside this one
    sweep_seconds: float = 1.0  # between searches for reward waits that are over
    lock_seconds: float = 10.0  # to wait for a database that others are writing to
    stall_seconds: float = 30.0  # after which callers no longer wait for a batch, and get 503 until it is done


# ---------------------------------------------------------------------- JSON

encode = msgspec.json.Encoder().encode
decode_decision = msgspec.json.Decoder(DecisionRequest).decode
decode_reward = msgspec.json.Decoder(RewardRequest).decode
decode_decisions = msgspec.json.Decoder(DecisionBatch).decode
decode_rewards = msgspec.json.Decoder(RewardBatch).decode
decode_spec = msgspec.json.Decoder(StreamSpec).decode
decode_arm = msgspec.json.Decoder(ArmRequest).decode


def parse(decode: Callable[[bytes], T], body: bytes | memoryview) -> T:
    """Decode a body. Raise 400 if it is not JSON and 422 if it does not have the fields expected."""
    try:
        return decode(body)  # type: ignore[arg-type]
    except msgspec.ValidationError as error:
        raise refusal("invalid", _explain(str(error), _field_types(decode))) from None
    except msgspec.DecodeError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        got = f"{len(body)} bytes that are not JSON ({reason})" if body else "an empty body"
        raise refusal("malformed", f"body: expected JSON, got {got}") from None
    except UnicodeDecodeError:
        raise refusal("malformed", "body: expected JSON, got bytes that are not UTF-8") from None
    except RecursionError:
        raise refusal("malformed", "body: expected flat JSON, got lists or objects nested too deeply") from None


_MESSAGES = (
    (re.compile(r"Expected (?P<expected>.+), got (?P<got>.+)"), "{at}: expected {expected}, got {got}"),
    (re.compile(r"Expected (?P<expected>.+)"), "{at}: expected {expected}"),
    (re.compile(r"Object contains unknown field (?P<field>.+)"), "{at}: there is no field {field}. {known}"),
    (re.compile(r"Invalid enum value (?P<got>.+)"), "{at}: expected one of: {values}, got {got}"),
    (re.compile(r"Object missing required field (?P<field>.+)"), "{at}: expected a field {field}, got none"),
    (re.compile(r"Number out of range"), "{at}: expected a finite float64, got a number out of range"),
)


def _explain(error: str, types: Mapping[str, Any]) -> str:
    """Rewrite an error of msgspec like every other error: the argument, what was expected, what was received."""
    error, _, path = error.partition(" - at `$")
    at = path.rstrip("`").lstrip(".") or "body"
    for pattern, template in _MESSAGES:
        match = pattern.fullmatch(error)
        if match:
            parts = match.groupdict() | {"values": ", ".join(map(str, get_args(types.get(at))))}
            if "field" in parts:
                parts["known"] = _known_fields(parts["field"], types)
            return template.format(at=at, **parts).replace("`", "'")
    return f"{at}: {error}"


def _known_fields(given: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(given.strip("`"), known, n=1, cutoff=0.5)
    return (f"Did you mean '{near[0]}'? " if near else "") + f"The fields are: {', '.join(known)}"


def _field_types(decode: Callable[..., Any]) -> dict[str, Any]:
    kind = decode.__self__.type  # type: ignore[attr-defined]
    return {one.encode_name: one.type for one in msgspec.structs.fields(kind)}
