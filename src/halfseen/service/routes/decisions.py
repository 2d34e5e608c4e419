"""The routes for decisions, rewards, observations and previews.

They are plain ASGI, because a framework would slow them down.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import TypeVar

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from halfseen.service.asgi import error_response, read_body, send_json
from halfseen.service.auth import Authorizer
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError, internal_error, refusal, shutting_down
from halfseen.service.schemas import (
    DecisionRequest,
    ErrorReply,
    Limits,
    RewardRequest,
    decode_decision,
    decode_decisions,
    decode_observation,
    decode_reward,
    decode_rewards,
    encode,
    parse,
)

Row = TypeVar("Row", DecisionRequest, RewardRequest)
Handler = Callable[[str, bytes], Awaitable[object]]  # takes a stream's name and a request body, returns the reply
_PATH = re.compile(r"/v1/streams/([^/]+)/((?:decisions|rewards)(?:/batch)?|observations|preview)")
_LOG = logging.getLogger("halfseen.service")


def decision_app(engine: Engine, authorizer: Authorizer, limits: Limits, other_routes: ASGIApp) -> ASGIApp:
    """Return an ASGI application for the routes of this module. It passes all other requests to `other_routes`."""
    metrics = engine.metrics

    async def decide_all(name: str, body: bytes) -> object:
        rows, errors = _parse_rows(parse(decode_decisions, body).decisions, decode_decision, limits)
        return _batch_reply(await engine.decide_all(name, rows), errors)

    async def reward_all(name: str, body: bytes) -> object:
        rows, errors = _parse_rows(parse(decode_rewards, body).rewards, decode_reward, limits)
        return _batch_reply(await engine.reward_all(name, rows), errors)

    handlers: dict[str, Handler] = {
        "decisions": lambda name, body: engine.decide(name, parse(decode_decision, body)),
        "rewards": lambda name, body: engine.reward(name, parse(decode_reward, body)),
        "observations": lambda name, body: engine.observe(name, parse(decode_observation, body)),
        "preview": lambda name, body: engine.preview(name, parse(decode_decision, body)),
        "decisions/batch": decide_all,
        "rewards/batch": reward_all,
    }

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        match = _PATH.fullmatch(scope["path"])
        if match is None:
            await other_routes(scope, receive, send)
            return
        began, error = perf_counter(), None
        stream, route = match.groups()
        try:
            if scope["method"] != "POST":
                raise refusal("not_allowed", f"method: expected POST, got {scope['method']}")
            await authorizer.authorize(scope["headers"], "decide", stream)
            body = encode(await handlers[route](stream, await read_body(scope, receive, limits.body_bytes)))
        except ServiceError as refused:
            error = refused
        except asyncio.CancelledError:  # when the server ends, it cancels unfinished requests
            error = shutting_down()
        except Exception:
            _LOG.exception("A request to %s failed.", route)  # logs the traceback, but no data of the request
            error = internal_error()
        # Count before the reply is sent, so that a client that has the reply also finds it in the metrics.
        metrics.requests(route, 200 if error is None else error.status).inc()
        metrics.request_seconds(route).observe(perf_counter() - began)
        if error is None:
            await send_json(send, body)
        else:
            headers = {"allow": "POST"} if error.status == 405 else {}
            await error_response(error, **headers)(scope, receive, send)

    return app


def _parse_rows(
    raws: list[msgspec.Raw], decode: Callable[[bytes], Row], limits: Limits
) -> tuple[list[Row], dict[int, ServiceError]]:
    """Return the rows that can be parsed, and the errors of the other rows by index."""
    if len(raws) > limits.batch:
        raise refusal("too_large", f"batch: expected at most {limits.batch} rows, got {len(raws)}")
    rows: list[Row] = []
    errors: dict[int, ServiceError] = {}
    for index, raw in enumerate(raws):
        try:
            rows.append(parse(decode, memoryview(raw)))
        except ServiceError as error:
            errors[index] = error
    return rows, errors


def _batch_reply(replies: Sequence[object], errors: dict[int, ServiceError]) -> dict[str, list[object]]:
    """Return the replies and errors of all rows in the order of the request."""
    results = list(replies)
    for index, error in sorted(errors.items()):
        results.insert(index, error)
    return {"results": [ErrorReply.of(one) if isinstance(one, ServiceError) else one for one in results]}
