"""Routes that create, list, show and retire streams and their arms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from halfseen.agents.forecast import MAX_HORIZON
from halfseen.journal.journal import Token
from halfseen.service.asgi import json_response, read_body
from halfseen.service.auth import DESCRIBE, Authorizer
from halfseen.service.engine.engine import Engine
from halfseen.service.engine.stream_limits import check_name
from halfseen.service.openapi import (
    EXAMPLE_ARM,
    EXAMPLE_GUARDRAILS,
    EXAMPLE_STREAM,
    error_responses,
    ref,
    request_body,
    responses,
)
from halfseen.service.schemas import (
    Arm,
    ArmRequest,
    ForecastReply,
    GuardrailSettings,
    Limits,
    StreamList,
    StreamSpec,
    StreamView,
    decode_arm,
    decode_guardrails,
    decode_spec,
    parse,
)

ALL_STREAMS = "*"  # no stream can have this name, so a token that is limited to some streams does not allow it
After = Annotated[str, Query(max_length=200, description="The last name on the previous page.")]

Horizon = Annotated[int, Query(ge=1, le=MAX_HORIZON, description="Number of rounds ahead.")]


def requires(
    authorizer: Authorizer, scope: str, stream: str | None = None
) -> Callable[[Request], Awaitable[Token | None]]:
    """Return a FastAPI dependency that checks the token of a request and returns it.

    The token must have the scope `scope` for `stream`, or for the stream in the path if `stream` is None.
    """

    async def authorize(request: Request) -> Token | None:
        return await authorizer.authorize(request.scope["headers"], scope, stream or request.path_params.get("name"))

    return authorize


def stream_routes(engine: Engine, authorizer: Authorizer, limits: Limits) -> APIRouter:
    router = APIRouter(tags=["streams"])
    read, admin = Depends(requires(authorizer, "read")), Depends(requires(authorizer, "admin"))
    default_page = Query(min(100, limits.page), ge=1, le=limits.page)

    @router.post(
        "/v1/streams",
        status_code=201,
        responses=responses(StreamView, 201),
        openapi_extra=request_body(ref(StreamSpec), EXAMPLE_STREAM),
    )
    async def create_stream(request: Request) -> Response:
        """Create a stream. Repeating the request changes nothing. The request is a conflict if the name belongs to a
        stream with another specification, or to a retired stream."""
        headers = request.scope["headers"]
        await authorizer.authorize(headers, "admin")
        spec = parse(decode_spec, await read_body(request.scope, request.receive, limits.body_bytes))
        await authorizer.authorize(headers, "admin", spec.name)  # the token may be limited to some streams
        return json_response(await engine.create_stream(spec), 201)

    @router.get("/v1/streams", responses=responses(StreamList))
    async def list_streams(after: After = "", limit: int = default_page, token: Token | None = read) -> Response:
        """List the streams by name, one page per request."""
        if token is not None and token.streams:
            names = sorted(name for name in token.streams if name > after)
            views = await engine.streams_named(names[:limit])
            return json_response(StreamList(views, names[limit - 1] if len(names) > limit else None))
        views = await engine.streams(after=after, limit=limit)
        return json_response(StreamList(views, views[-1].name if len(views) == limit else None))

    @router.get(
        "/v1/streams/{name}", responses=responses(StreamView), dependencies=[Depends(requires(authorizer, DESCRIBE))]
    )
    async def show_stream(name: str) -> Response:
        """Show the current state of a stream. A token with any scope is enough, because clients that ask for decisions
        need the order of the arms."""
        return json_response(await engine.stream(name))

    @router.delete("/v1/streams/{name}", responses=responses(StreamView), dependencies=[admin])
    async def retire_stream(name: str) -> Response:
        """Retire a stream. It makes no more decisions, but its journal remains and rewards are still accepted."""
        return json_response(await engine.retire_stream(name))

    @router.post(
        "/v1/streams/{name}/arms",
        status_code=201,
        responses=responses(StreamView, 201),
        openapi_extra=request_body(ref(ArmRequest), EXAMPLE_ARM),
        dependencies=[admin],
    )
    async def add_arm(name: str, request: Request) -> Response:
        """Add an arm. Send a new name, or null if the arms of the stream are numbers."""
        arm = parse(decode_arm, await read_body(request.scope, request.receive, limits.body_bytes)).arm
        if arm is not None:
            check_name("arm", arm)
        return json_response(await engine.add_arm(name, arm), 201)

    @router.delete("/v1/streams/{name}/arms/{arm:path}", responses=responses(StreamView), dependencies=[admin])
    async def retire_arm(name: str, arm: str) -> Response:
        """Retire an arm, so that it is never chosen again."""
        view = await engine.stream(name)
        return json_response(await engine.retire_arm(name, _find_arm(arm, view)))

    @router.get("/v1/streams/{name}/forecast", responses=responses(ForecastReply), dependencies=[read])
    async def forecast(name: str, horizon: Horizon = 10) -> Response:
        """Predict contexts and arm values for the next rounds. Streams whose agent has no linear-Gaussian model of the
        context refuse the request."""
        return json_response(await engine.forecast(name, horizon))

    @router.get("/v1/streams/{name}/guardrails", responses=responses(GuardrailSettings), dependencies=[read])
    async def show_guardrails(name: str) -> Response:
        """Show the guardrails that are in force."""
        return json_response(await engine.guardrails(name))

    @router.put(
        "/v1/streams/{name}/guardrails",
        responses=responses(GuardrailSettings),
        openapi_extra=request_body(ref(GuardrailSettings), EXAMPLE_GUARDRAILS),
        dependencies=[admin],
    )
    async def set_guardrails(name: str, request: Request) -> Response:
        """Replace the guardrails of a stream. They hold from the next decision on. A share that is not given is 0."""
        body = await read_body(request.scope, request.receive, limits.body_bytes)
        return json_response(await engine.set_guardrails(name, parse(decode_guardrails, body)))

    @router.post("/v1/streams/{name}/snapshot", responses=error_responses(), dependencies=[admin], status_code=204)
    async def snapshot(name: str) -> Response:
        """Save the current state of a stream, so that loading it later need not replay its earlier events."""
        await engine.snapshot(name)
        return Response(status_code=204)

    return router


def _find_arm(text: str, view: StreamView) -> Arm:
    """Return the arm that a path names. In a path, the number of an arm is a string."""
    return next((arm for arm in view.arms if str(arm) == text), text)
