"""The fields of requests, replies and settings, and functions that parse the JSON of requests."""

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
from halfseen.journal.events import STREAM_NAME, step_microseconds
from halfseen.journal.events import Arm as Arm
from halfseen.service.errors import ServiceError, refusal
from halfseen.validation import LIMIT

T = TypeVar("T")
Observation = list[float | None] | dict[str, float | None]
MAX_KEY_LENGTH = 200  # characters of an idempotency key
_MAX_REWARD_WAIT = 1e9  # seconds
_MAX_MICROSECONDS = 2**62  # the sum of this and the current time still fits into a database integer

# ---------------------------------------------------------------------- requests and replies


class GuardrailSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The guardrails of a stream.

    `floor` is the smallest propensity of an available arm. With K available arms, the share K·`floor` of the decisions
    is therefore made uniformly at random. Of the other decisions, the share `holdback` is also made uniformly at
    random. `control` is a pair: an arm, and the share of these other decisions that play this arm.
    """

    floor: float = 0.0
    holdback: float = 0.0
    control: tuple[Arm, float] | None = None


class StreamSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The specification of a stream.

    `options` are the options of the agent. The option `model` is an object with the matrices of the model.

    If a decision has no reward after `reward_wait` seconds, it gets `default_reward`. If `default_reward` is null, the
    decision expires without a reward. A reward that is sent later is recorded. With late_rewards="fold" the agent also
    learns from this reward, which replaces the default reward.

    `guardrails` are the guardrails at the start. `step` is the number of seconds between two rounds of the model. If it
    is given, requests may have a time stamp, which is rounded to a whole number of steps.
    """

    name: str
    observed: int | list[str]
    arms: int | list[str]
    agent: str = "adaptive"
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None  # if None, a seed is drawn and recorded when the stream is created
    reward_wait: float | None = None  # seconds
    default_reward: float | None = None
    late_rewards: Literal["record", "fold"] = "record"
    guardrails: GuardrailSettings | None = None
    step: float | None = None  # seconds between two rounds of the model, for requests with time stamps

    @property
    def step_us(self) -> int | None:
        """The step in microseconds."""
        return None if self.step is None else step_microseconds(self.step)

    @property
    def features(self) -> tuple[str, ...] | None:
        """The names of the observed features, or None if they have no names."""
        return None if isinstance(self.observed, int) else tuple(self.observed)

    @property
    def replaces_defaults(self) -> bool:
        """Whether a late reward replaces the default reward that the agent has learnt."""
        return self.late_rewards == "fold" and self.default_reward is not None

    @property
    def reward_wait_us(self) -> int | None:
        """The reward wait in microseconds."""
        return None if self.reward_wait is None else int(min(self.reward_wait * 1e6, _MAX_MICROSECONDS))

    def check(self) -> None:
        """Check the fields that the agent does not check when it is made. Raise InvalidInput if a field is wrong."""
        if not STREAM_NAME.fullmatch(self.name):
            raise invalid(
                "name",
                "1 to 100 letters, digits, '.', '_' or '-', beginning with a letter or digit",
                repr(self.name),
            )
        names = self.features
        if names is not None and (not names or "" in names or len(set(names)) < len(names)):
            raise invalid("observed", "a number of at least 1, or distinct, non-empty names", repr(self.observed))
        if self.reward_wait is not None and not 0 < self.reward_wait <= _MAX_REWARD_WAIT:
            expected = f"a number of seconds above 0 and at most {_MAX_REWARD_WAIT:g}, or null"
            raise invalid("reward_wait", expected, self.reward_wait)
        if self.step is not None and not 1e-6 <= self.step <= _MAX_REWARD_WAIT:
            expected = f"a number of seconds from 1e-06 to {_MAX_REWARD_WAIT:g}, or null"
            raise invalid("step", expected, self.step)
        if self.late_rewards == "fold" and self.reward_wait is None:
            raise invalid("late_rewards", "'record', because without a reward_wait no reward is late", "'fold'")
        if self.default_reward is not None:
            if self.reward_wait is None:
                raise invalid("default_reward", "null, because there is no reward_wait", self.default_reward)
            if not abs(self.default_reward) <= LIMIT:
                raise invalid("default_reward", f"a number within ±{LIMIT:g}, or null", self.default_reward)


class StreamView(Struct, frozen=True, kw_only=True):
    """The current state of a stream.

    `arms` lists all arms that the stream has ever had, `active` the arms that can be chosen. `version` is the number of
    the last event. `rewards` counts the rewards sent by clients, including late ones but not default rewards.
    `created` and `updated` are microseconds since 1970 (UTC); `updated` is the time of the last event.
    """

    name: str
    spec: StreamSpec  # including the seed that was drawn
    arms: list[Arm]
    active: list[Arm]
    version: int
    decisions: int
    rewards: int
    created: int
    updated: int
    retired: bool


class StreamList(Struct):
    """A page of streams, sorted by name.

    `after` is the value of the query parameter `after` for the next page, or null on the last page.
    """

    streams: list[StreamView]
    after: str | None


class DecisionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a decision.

    In the observation, null stands for a missing value. `available` lists the arms that may be chosen; null stands for
    all arms. `key` is an idempotency key: repeating a request with the same key returns the same decision, and using
    the key for another request is a conflict. `costs` are the costs of all arms, in the order of the stream's `arms` or
    by name. A stream whose agent has a budget requires `costs`.

    `elapsed` is the number of steps since the last decision or observation, 1 by default. For a stream with a `step`,
    `time` can be sent instead: a time stamp with a time zone in ISO 8601, from which `elapsed` is computed.
    """

    observation: Observation
    available: list[Arm] | None = None
    key: str | None = None
    costs: list[float] | dict[str, float] | None = None
    elapsed: int | None = None
    time: str | None = None


class ObservationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """An observation without a decision. `elapsed` and `time` are as for a decision."""

    observation: Observation
    elapsed: int | None = None
    time: str | None = None


class ObservationReply(Struct, frozen=True):
    """An observation that is on disk. `elapsed` is the number of steps since the last decision or observation."""

    elapsed: int


class PreviewReply(Struct, frozen=True):
    """The decision that this request would get now if it were sent to `decisions`. No decision is made."""

    arm: Arm
    propensity: float
    propensities: list[float]
    expected: list[float | None]


class ForecastReply(Struct, frozen=True):
    """Contexts and arm values of the next rounds, one entry per round ahead.

    `context`, `context_lower` and `context_upper` have one number per coordinate, in the order of `context_names`: the
    observed features in their units, then hidden coordinates, which have no unit. `expected`, `std`, `lower`, `upper`
    and `best_arm_probability` have one number per arm, in the order of `arms`. The lower and upper numbers are the ends
    of 90 % intervals. Numbers that are not finite are null.
    """

    arms: list[Arm]
    context_names: list[str]
    context: list[list[float | None]]
    context_lower: list[list[float | None]]
    context_upper: list[list[float | None]]
    expected: list[list[float | None]]
    std: list[list[float | None]]
    lower: list[list[float | None]]
    upper: list[list[float | None]]
    best_arm_probability: list[list[float | None]]


class DecisionReply(Struct, frozen=True):
    """A decision that is on disk.

    The lists have one entry per arm, in the order of the stream's `arms`. `expected` has the expected rewards, with
    null for numbers that are not finite. `repeated` is true if an earlier request with this key made the decision. If
    guardrails are in force, `branch` says what made the decision: "chooser", "floor", "holdback" or "control".
    """

    id: str
    arm: Arm
    propensity: float
    propensities: list[float]
    expected: list[float | None]
    repeated: bool = False
    branch: str | msgspec.UnsetType = msgspec.UNSET


class RewardRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The reward of a decision."""

    decision: str
    value: float


class RewardReply(Struct, frozen=True):
    """A reward that is on disk.

    `how` is "given" for a reward in time and "late" for a reward after the reward wait. `folded` says whether the agent
    has learnt from the reward. `repeated` says whether the same reward was recorded before.
    """

    decision: str
    value: float
    how: str
    folded: bool
    repeated: bool = False


class DecisionBatch(Struct, forbid_unknown_fields=True):
    """Requests for decisions, handled in order. A refused request does not affect the other requests."""

    decisions: list[msgspec.Raw]


class RewardBatch(Struct, forbid_unknown_fields=True):
    """Rewards, recorded in order. A refused reward does not affect the other rewards."""

    rewards: list[msgspec.Raw]


class ArmRequest(Struct, forbid_unknown_fields=True):
    """An arm to add. `arm` is its name, or null if the arms of the stream are numbers."""

    arm: str | None = None


class ErrorDetail(Struct):
    """An error code for programs and a one-line message for people."""

    code: str
    message: str


class ErrorReply(Struct):
    """The reply to a refused request."""

    error: ErrorDetail

    @classmethod
    def of(cls, error: ServiceError) -> ErrorReply:
        return cls(ErrorDetail(error.code, error.message))


# ---------------------------------------------------------------------- settings


@dataclass(frozen=True)
class Limits:
    """The limits of the service, which can be set when it is started. Requests that exceed a limit are refused."""

    body_bytes: int = 1_048_576  # bytes of a request, except for an import
    import_bytes: int = 1_073_741_824
    batch: int = 1_000  # rows of one batch
    streams: int = 10_000
    observed: int = 1_000  # numbers of one observation
    arms: int = 1_000  # arms of one stream, including retired arms
    stream_bytes: int = 1 << 30  # estimated memory of one stream after many rounds
    decision_operations: int = 5_000_000_000  # estimated operations of the most expensive decision of a stream
    identification_operations: int = 1_000_000_000_000  # estimated operations of one identification of a model
    page: int = 1_000  # streams in one reply
    rate: float = 0.0  # requests per second and token; 0 means no limit

    def __post_init__(self) -> None:
        for limit in dataclasses.fields(self):
            value = getattr(self, limit.name)
            minimum = 0 if limit.name == "rate" else 1
            if not value >= minimum:
                raise invalid(limit.name, f"a number of at least {minimum}", value)


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """The settings of an engine."""

    queue_rows: int = 10_000  # rows that may wait in the queue; more are refused with 503
    batch_rows: int = 2_000  # the most rows that share one commit
    max_loaded_bytes: int = 1 << 30  # memory of the loaded streams; beyond it, streams not used recently are unloaded
    # The number of events between two snapshots of a stream, but at least half the number of its open decisions.
    snapshot_every: int = 5_000
    limits: Limits = Limits()
    identify: bool = True  # whether models are identified, in a separate process
    identify_seconds: float = 1_800.0  # after this time the identification of a model is ended
    sweep_seconds: float = 1.0  # between two searches for decisions whose reward wait has ended
    lock_seconds: float = 10.0  # the longest wait for a database to which another process writes
    stall_seconds: float = 30.0  # after this time the requests of an unfinished batch get 503, as do new requests


# ---------------------------------------------------------------------- JSON

encode = msgspec.json.Encoder().encode
decode_decision = msgspec.json.Decoder(DecisionRequest).decode
decode_reward = msgspec.json.Decoder(RewardRequest).decode
decode_observation = msgspec.json.Decoder(ObservationRequest).decode
decode_decisions = msgspec.json.Decoder(DecisionBatch).decode
decode_rewards = msgspec.json.Decoder(RewardBatch).decode
decode_spec = msgspec.json.Decoder(StreamSpec).decode
decode_arm = msgspec.json.Decoder(ArmRequest).decode
decode_guardrails = msgspec.json.Decoder(GuardrailSettings).decode


def parse(decode: Callable[[bytes], T], body: bytes | memoryview) -> T:
    """Decode a body. Raise 400 if it is not JSON and 422 if it does not have the expected fields."""
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
    """Rewrite an error of msgspec in the form of all other errors, "argument: expected ..., got ..."."""
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
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
