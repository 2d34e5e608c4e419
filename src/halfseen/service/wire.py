"""What goes over the wire: requests, replies, errors; JSON in and out by msgspec, and a body read up to its limit."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from halfseen.service.errors import ServiceError
from halfseen.service.specs import Ask, StreamSpec, StreamView, Told

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")


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


class Streams(Struct):
    """Streams by name; `after` the last of them the next ones follow, null where there are no more."""

    streams: list[StreamView]
    after: str | None


encode = msgspec.json.Encoder().encode
decode_decision = msgspec.json.Decoder(Ask).decode
decode_reward = msgspec.json.Decoder(Told).decode
decode_decisions = msgspec.json.Decoder(DecisionBatch).decode
decode_rewards = msgspec.json.Decoder(RewardBatch).decode
decode_spec = msgspec.json.Decoder(StreamSpec).decode
decode_arm = msgspec.json.Decoder(ArmRequest).decode


def parse(decode: Callable[[bytes], T], body: bytes | memoryview) -> T:
    """What the body says, or 400 if it is no JSON and 422 if it is not what is wanted."""
    try:
        return decode(body)  # type: ignore[arg-type]
    except msgspec.ValidationError as error:
        raise ServiceError(422, "invalid", explain(str(error), _fields(decode))) from None
    except msgspec.DecodeError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        got = f"{len(body)} bytes that are not JSON ({reason})" if body else "an empty body"
        raise ServiceError(400, "malformed", f"body: got {got}; want JSON") from None
    except UnicodeDecodeError:
        raise ServiceError(400, "malformed", "body: got bytes that are not UTF-8; want JSON") from None
    except RecursionError:
        raise ServiceError(400, "malformed", "body: got lists or objects nested too deeply; want flat JSON") from None


_PATTERNS = (
    (re.compile(r"Expected (?P<want>.+), got (?P<got>.+)"), "{at}: got {got}; want {want}"),
    (re.compile(r"Expected (?P<want>.+)"), "{at}: got another; want {want}"),
    (re.compile(r"Object contains unknown field (?P<field>.+)"), "{at}: got an unknown field {field}; {known}"),
    (re.compile(r"Invalid enum value (?P<got>.+)"), "{at}: got {got}; want one of: {values}"),
    (re.compile(r"Object missing required field (?P<field>.+)"), "{at}: got no field {field}; want one"),
    (re.compile(r"Number out of range"), "{at}: got a number out of range; want a finite float64"),
)


def explain(said: str, fields: Mapping[str, Any]) -> str:
    """A line of msgspec's in the words of all other errors: the argument, what was given, what is wanted.

    `fields` are those of the body, with their types.
    """
    said, _, path = said.partition(" - at `$")
    at = path.rstrip("`").lstrip(".") or "body"
    for pattern, words in _PATTERNS:
        found = pattern.fullmatch(said)
        if found:
            parts = found.groupdict() | {"values": ", ".join(map(str, get_args(fields.get(at))))}
            if "field" in parts:
                parts["known"] = _known(parts["field"], fields)
            return words.format(at=at, **parts).replace("`", "'")
    return f"{at}: {said}"


def _known(field: str, fields: Iterable[str]) -> str:
    """The fields there are, and the one that was meant."""
    near = difflib.get_close_matches(field.strip("`"), fields, n=1, cutoff=0.5)
    return (f"did you mean '{near[0]}'? " if near else "") + f"want some of: {', '.join(fields)}"


def _fields(decode: Callable[..., Any]) -> dict[str, Any]:
    """What a decoder of objects reads."""
    kind = decode.__self__.type  # type: ignore[attr-defined]
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """The body, or 413 as soon as it is known to be longer than `most` bytes."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if len(body) > most:
        raise too_large(most)
    if not message.get("more_body", False):
        return body
    for name, value in scope["headers"]:
        if name == b"content-length" and (not value.isdigit() or len(value) > 18 or int(value) > most):
            raise too_large(most)
    parts, length = [body], len(body)
    while message.get("more_body", False):
        message = await receive()
        part: bytes = message.get("body", b"")
        length += len(part)
        if length > most:
            raise too_large(most)
        parts.append(part)
    return b"".join(parts)


def too_large(most: int) -> ServiceError:
    return ServiceError(413, "too_large", f"body: got more than {most} bytes; want at most that")


_JSON = (b"content-type", b"application/json")
NO_STORE = (b"cache-control", b"no-store")
_WITH = {  # by status, beside what every reply says; all that is answered here is a POST
    405: [(b"allow", b"POST")],
    413: [(b"connection", b"close")],
    429: [(b"retry-after", b"1")],
    503: [(b"retry-after", b"1")],
}


async def reply(send: Send, body: bytes, status: int = 200) -> None:
    """A JSON reply in the two messages ASGI wants. Written out here: a response object would cost as much again."""
    headers = [_JSON, NO_STORE, (b"content-length", b"%d" % len(body))]
    if status >= 400:
        headers += _WITH.get(status, [])
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def own_error() -> ServiceError:
    """Said of what nobody foresaw: nothing of the inside."""
    return ServiceError(500, "internal", "service: got an error of its own; want a report of it")


def error_body(error: ServiceError) -> bytes:
    return encode(ErrorReply(ErrorDetail(error.code, error.message)))
