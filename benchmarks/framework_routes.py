"""A service whose routes for decisions and rewards are ordinary routes of a web framework.

python -m benchmarks.framework_routes litestar|litestar-tuned|fastapi DATABASE

Like the routes of `halfseen serve`, these routes use its engine, check tokens and count requests. The framework can
generate their OpenAPI description. All other routes are those of `halfseen serve`. Errors that the framework itself
raises keep the format of the framework, because only successful requests are measured.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import pydantic
from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response
from litestar import Litestar, post
from litestar import Request as LitestarRequest
from litestar import Response as LitestarResponse
from litestar.dto import MsgspecDTO
from litestar.openapi import ResponseSpec
from starlette.types import ASGIApp, Receive, Scope, Send

from halfseen.service import app, serving
from halfseen.service.asgi import error_response, json_response, read_body, send_json
from halfseen.service.auth import Authorizer
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError
from halfseen.service.schemas import (
    DecisionReply,
    DecisionRequest,
    ErrorReply,
    Limits,
    RewardReply,
    RewardRequest,
    decode_decision,
    decode_reward,
    encode,
    parse,
)

NO_STORE = {"cache-control": "no-store"}
build_service = app.build_app


def refused(request: LitestarRequest[Any, Any, Any], error: ServiceError) -> LitestarResponse[ErrorReply]:
    return LitestarResponse(ErrorReply.of(error), status_code=error.status, headers=NO_STORE)


def check_token(authorizer: Authorizer) -> Callable[[LitestarRequest[Any, Any, Any]], Awaitable[None]]:
    """Return a hook that Litestar calls before a route.

    A Litestar guard would be slower, because Litestar copies the route every time it calls a guard.
    """

    async def authorize(request: LitestarRequest[Any, Any, Any]) -> None:
        await authorizer.authorize(request.scope["headers"], "decide", request.scope["path_params"]["name"])

    return authorize


def litestar(engine: Engine, authorizer: Authorizer, limits: Limits) -> ASGIApp:
    """Routes as in the documentation of Litestar: the request is one struct, and the reply is another."""
    options: dict[str, Any] = {
        "status_code": 200,
        "response_headers": NO_STORE,
        "before_request": check_token(authorizer),
        "exception_handlers": {ServiceError: refused},
        "request_max_body_size": limits.body_bytes,
    }

    @post("/v1/streams/{name:str}/decisions", **options)
    async def decide(name: str, data: DecisionRequest) -> DecisionReply:
        return await engine.decide(name, data)

    @post("/v1/streams/{name:str}/rewards", **options)
    async def reward(name: str, data: RewardRequest) -> RewardReply:
        return await engine.reward(name, data)

    return Litestar([decide, reward], logging_config=None)


class DecisionBody(MsgspecDTO[DecisionRequest]):
    def decode_bytes(self, value: bytes) -> DecisionRequest:
        return parse(decode_decision, value)


class RewardBody(MsgspecDTO[RewardRequest]):
    def decode_bytes(self, value: bytes) -> RewardRequest:
        return parse(decode_reward, value)


class JsonReply:
    """A reply that Litestar sends without processing it."""

    def __init__(self, value: object) -> None:
        self._body = encode(value)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, self._body)


def litestar_tuned(engine: Engine, authorizer: Authorizer, limits: Limits) -> ASGIApp:
    """Litestar with the service's own code in place of the parts that read, decode, encode and send."""

    class BodyRequest(LitestarRequest[Any, Any, Any]):
        async def body(self) -> bytes:
            return await read_body(self.scope, self.receive, limits.body_bytes)

    def options(body: Any, reply: type) -> dict[str, Any]:
        return {
            "status_code": 200,
            "dto": body,
            "return_dto": None,
            "responses": {200: ResponseSpec(reply, generate_examples=False)},
            "before_request": check_token(authorizer),
            "exception_handlers": {ServiceError: refused},
        }

    @post("/v1/streams/{name:str}/decisions", **options(DecisionBody, DecisionReply))
    async def decide(name: str, data: DecisionRequest) -> JsonReply:
        return JsonReply(await engine.decide(name, data))

    @post("/v1/streams/{name:str}/rewards", **options(RewardBody, RewardReply))
    async def reward(name: str, data: RewardRequest) -> JsonReply:
        return JsonReply(await engine.reward(name, data))

    return Litestar([decide, reward], request_class=BodyRequest, logging_config=None)


class Decision(pydantic.BaseModel, extra="forbid"):
    observation: list[float | None] | dict[str, float | None]
    available: list[int | str] | None = None
    key: str | None = None


class Reward(pydantic.BaseModel, extra="forbid"):
    decision: str
    value: float


def fastapi(engine: Engine, authorizer: Authorizer, limits: Limits) -> ASGIApp:
    """Routes of FastAPI with pydantic models for requests. Replies are encoded by msgspec."""
    routes = FastAPI(exception_handlers={ServiceError: lambda _, error: error_response(error)})

    async def authorize(name: str, request: Request) -> None:
        await authorizer.authorize(request.scope["headers"], "decide", name)

    @routes.post("/v1/streams/{name}/decisions", dependencies=[Depends(authorize)])
    async def decide(name: str, body: Decision) -> Response:
        reply = await engine.decide(name, DecisionRequest(body.observation, body.available, body.key))
        return json_response(reply, headers=NO_STORE)

    @routes.post("/v1/streams/{name}/rewards", dependencies=[Depends(authorize)])
    async def reward(name: str, body: Reward) -> Response:
        return json_response(await engine.reward(name, RewardRequest(body.decision, body.value)), headers=NO_STORE)

    return routes


FRAMEWORKS = {"litestar": litestar, "litestar-tuned": litestar_tuned, "fastapi": fastapi}


def build_app(framework: str, engine: Engine, authorizer: Authorizer, limits: Limits) -> ASGIApp:
    """The application of `halfseen serve`, with the framework's routes for decisions and rewards."""
    routes, other_routes = FRAMEWORKS[framework](engine, authorizer, limits), build_service(engine, authorizer, limits)

    async def service(scope: Scope, receive: Receive, send: Send) -> None:
        route = scope["path"].rpartition("/")[2]
        if route not in ("decisions", "rewards"):
            await other_routes(scope, receive, send)
            return
        began = perf_counter()
        await routes(scope, receive, send)
        engine.metrics.requests(route, 200).inc()
        engine.metrics.request_seconds(route).observe(perf_counter() - began)

    return service


if __name__ == "__main__":
    framework, database = sys.argv[1:]
    app.build_app = lambda *parts: build_app(framework, *parts)
    serving.serve(
        app.ServeOptions(database),
        host="127.0.0.1",
        port=0,
        announce=lambda address, _: print(f"listens on {address}", file=sys.stderr, flush=True),
    )
