"""Decisions and rewards. These endpoints are plain ASGI, because a framework would take most of the time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import TypeVar

import msgspec
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from halfseen.service.asgi import error_response, internal_error, read_body, send_json
from halfseen.service.auth import Authorizer
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError, refusal
from halfseen.service.metrics import RequestMetrics
from halfseen.service.schemas import (
    DecisionRequest,
    ErrorReply,
    Limits,
    RewardRequest,
    decode_decision,
    decode_decisions,
    decode_reward,
    decode_rewards,
    encode,
    parse,
)

Row = TypeVar("Row", DecisionRequest, RewardRequest)
Handler = Callable[[str, bytes], Awaitable[object]]  # from a stream's name and the body of the request to the reply
_LOG = logging.getLogger("halfseen.service")


class PostEndpoint:
    """An ASGI endpoint that authorizes a POST, reads its body and sends the reply of `handle` as JSON."""

    def __init__(
        self, name: str, handle: Handler, authorizer: Authorizer, metrics: RequestMetrics, limits: Limits
    ) -> None:
        self._name, self._handle, self._authorizer, self._metrics = name, handle, authorizer, metrics
        self._max_bytes = limits.body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, error = perf_counter(), None
        try:
            if scope["method"] != "POST":
                raise refusal("not_allowed", f"method: got {scope['method']}; want POST")
            stream = scope["path_params"]["name"]
            await self._authorizer.authorize(scope["headers"], "decide", stream)
            body = encode(await self._handle(stream, await read_body(scope, receive, self._max_bytes)))
        except ServiceError as refused:
            error = refused
        except Exception:
            _LOG.exception("a request to %s failed", self._name)  # the traceback, and nothing of the request
            error = internal_error()
        if error is None:
            await send_json(send, body)
        else:
            headers = {"allow": "POST"} if error.status == 405 else {}
            await error_response(error, **headers)(scope, receive, send)
        self._metrics.observe(self._name, 200 if error is None else error.status, perf_counter() - began)


def decision_routes(engine: Engine, authorizer: Authorizer, metrics: RequestMetrics, limits: Limits) -> list[Route]:
    async def decide(name: str, body: bytes) -> object:
        return await engine.decide(name, parse(decode_decision, body))

    async def reward(name: str, body: bytes) -> object:
        return await engine.reward(name, parse(decode_reward, body))

    async def decide_all(name: str, body: bytes) -> object:
        rows, errors = _parse_rows(parse(decode_decisions, body).decisions, decode_decision, limits)
        return _batch_reply(await engine.decide_all(name, rows), errors)

    async def reward_all(name: str, body: bytes) -> object:
        rows, errors = _parse_rows(parse(decode_rewards, body).rewards, decode_reward, limits)
        return _batch_reply(await engine.reward_all(name, rows), errors)

    handlers = {"decisions": decide, "rewards": reward, "decisions/batch": decide_all, "rewards/batch": reward_all}
    return [
        Route(f"/v1/streams/{{name}}/{end}", PostEndpoint(end, handle, authorizer, metrics, limits), methods=None)
        for end, handle in handlers.items()
    ]


def _parse_rows(
    raws: list[msgspec.Raw], decode: Callable[[bytes], Row], limits: Limits
) -> tuple[list[Row], dict[int, ServiceError]]:
    """The rows that can be parsed, and the errors of the others by index."""
    if len(raws) > limits.batch:
        raise refusal("too_large", f"batch: got {len(raws)} rows; want at most {limits.batch}")
    rows: list[Row] = []
    errors: dict[int, ServiceError] = {}
    for index, raw in enumerate(raws):
        try:
            rows.append(parse(decode, memoryview(raw)))
        except ServiceError as error:
            errors[index] = error
    return rows, errors


def _batch_reply(replies: Sequence[object], errors: dict[int, ServiceError]) -> dict[str, list[object]]:
    """The replies and errors of all rows, in the order of the request."""
    results = list(replies)
    for index, error in sorted(errors.items()):
        results.insert(index, error)
    return {"results": [ErrorReply.of(one) if isinstance(one, ServiceError) else one for one in results]}
