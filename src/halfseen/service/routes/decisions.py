"""Decisions and rewards: plain routes that read, ask the engine and answer, with no framework in between."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any, TypeVar

import msgspec
from starlette.routing import Route

from halfseen.service.auth import Guard
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError
from halfseen.service.limits import Limits
from halfseen.service.metrics import Meter
from halfseen.service.specs import Ask, Told
from halfseen.service.wire import (
    ErrorDetail,
    ErrorReply,
    Receive,
    Scope,
    Send,
    decode_decision,
    decode_decisions,
    decode_reward,
    decode_rewards,
    encode,
    error_body,
    own_error,
    parse,
    read_body,
    reply,
)

log = logging.getLogger("halfseen.service")
Row = TypeVar("Row", Ask, Told)
Work = Callable[[str, bytes], Awaitable[Any]]


class HotRoute:
    """One POST. `work` takes the stream's name and the body; `shown` makes its result the body of the reply."""

    def __init__(
        self, route: str, work: Work, shown: Callable[[Any], bytes], guard: Guard, meter: Meter, limits: Limits
    ) -> None:
        self._route, self._work, self._shown, self._guard, self._meter = route, work, shown, guard, meter
        self._most = limits.body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = perf_counter(), 200
        try:
            if scope["method"] != "POST":
                raise ServiceError(405, "not_allowed", f"method: got {scope['method']}; want POST")
            name = scope["path_params"]["name"]
            if not self._guard.admits(scope["headers"], "decide", name):
                await self._guard.admit(scope["headers"], "decide", name)
            answer = self._shown(await self._work(name, await read_body(scope, receive, self._most)))
        except ServiceError as error:
            status, answer = error.status, error_body(error)
        except Exception:
            log.exception("a request to %s failed", self._route)  # the route and the trace, nothing of the request
            status, answer = 500, error_body(own_error())
        await reply(send, answer, status)
        self._meter.time(self._route, status, perf_counter() - began)


def hot_routes(engine: Engine, guard: Guard, meter: Meter, limits: Limits) -> list[Route]:
    def decide(name: str, body: bytes) -> Awaitable[Any]:
        return engine.asked("decide", name, (parse(decode_decision, body),))

    def reward(name: str, body: bytes) -> Awaitable[Any]:
        return engine.asked("reward", name, (parse(decode_reward, body),))

    async def decide_all(name: str, body: bytes) -> bytes:
        rows, errors = _rows(parse(decode_decisions, body).decisions, decode_decision, limits)
        return _merged(await engine.decide_all(name, rows), errors)

    async def reward_all(name: str, body: bytes) -> bytes:
        rows, errors = _rows(parse(decode_rewards, body).rewards, decode_reward, limits)
        return _merged(await engine.reward_all(name, rows), errors)

    def route(end: str, work: Work, shown: Callable[[Any], bytes]) -> Route:
        return Route(f"/v1/streams/{{name}}/{end}", HotRoute(end, work, shown, guard, meter, limits), methods=None)

    return [
        route("decisions", decide, _only),
        route("rewards", reward, _only),
        route("decisions/batch", decide_all, bytes),
        route("rewards/batch", reward_all, bytes),
    ]


def _only(results: Sequence[object]) -> bytes:
    """The reply of a request of one row."""
    (result,) = results
    if isinstance(result, ServiceError):
        raise result
    return encode(result)


def _rows(
    raws: list[msgspec.Raw], decode: Callable[[bytes], Row], limits: Limits
) -> tuple[list[Row], dict[int, ServiceError]]:
    """The rows that can be read, and what is wrong with the others by their place."""
    if len(raws) > limits.batch:
        raise ServiceError(413, "too_large", f"batch: got {len(raws)} rows; want at most {limits.batch}")
    rows: list[Row] = []
    errors: dict[int, ServiceError] = {}
    for place, raw in enumerate(raws):
        try:
            rows.append(parse(decode, memoryview(raw)))
        except ServiceError as error:
            errors[place] = error
    return rows, errors


def _merged(answers: Sequence[object], errors: dict[int, ServiceError]) -> bytes:
    """All rows in the order they came in."""
    results: list[object] = list(answers)
    for place, error in sorted(errors.items()):
        results.insert(place, error)
    shown = [_shown(result) if isinstance(result, ServiceError) else result for result in results]
    return encode({"results": shown})


def _shown(error: ServiceError) -> ErrorReply:
    return ErrorReply(ErrorDetail(error.code, error.message))
