"""Functions that read request bodies and send replies, without a framework."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from halfseen.service.errors import ServiceError, refusal
from halfseen.service.schemas import ErrorReply, encode

NO_STORE = (b"cache-control", b"no-store")
_JSON = (b"content-type", b"application/json")
_ERROR_HEADERS = {
    401: {"www-authenticate": "Bearer"},
    413: {"connection": "close"},
    429: {"retry-after": "1"},
    503: {"retry-after": "1"},
}


async def read_body(scope: Scope, receive: Receive, max_bytes: int) -> bytes:
    """Read the body. Raise 413 as soon as the body is known to be longer than `max_bytes`.

    Raise 400 if the connection ends before the end of the body, even if the part that has arrived is valid JSON.
    """
    message = await receive()
    if message["type"] == "http.disconnect":
        raise body_cut_off()
    body: bytes = message.get("body", b"")
    if len(body) > max_bytes:
        raise body_too_large(max_bytes)
    if not message.get("more_body", False):
        return body
    for name, value in scope["headers"]:
        if name == b"content-length" and (not value.isdigit() or len(value) > 18 or int(value) > max_bytes):
            raise body_too_large(max_bytes)
    parts, length = [body], len(body)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise body_cut_off()
        part: bytes = message.get("body", b"")
        length += len(part)
        if length > max_bytes:
            raise body_too_large(max_bytes)
        parts.append(part)
    return b"".join(parts)


def body_cut_off() -> ServiceError:
    return refusal("malformed", "body: expected a complete body, got the end of the connection before its end")


def body_too_large(max_bytes: int) -> ServiceError:
    return refusal("too_large", f"body: expected at most {max_bytes} bytes, got more")


async def send_json(send: Send, body: bytes) -> None:
    """Send a reply with status 200. Creating a Starlette response would double the time of a request."""
    headers = [_JSON, NO_STORE, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers, "application/json")


def error_response(error: ServiceError, **headers: str) -> Response:
    """Return the reply to a refused request. Its JSON has the same form for all errors."""
    all_headers = {"cache-control": "no-store", **_ERROR_HEADERS.get(error.status, {}), **headers}
    return json_response(ErrorReply.of(error), error.status, all_headers)
