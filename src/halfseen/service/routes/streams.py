"""Streams and their arms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from halfseen.journal.journal import Token
from halfseen.service.asgi import json_response, read_body
from halfseen.service.auth import DESCRIBE, Authorizer
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import refusal
from halfseen.service.openapi import EXAMPLE_ARM, EXAMPLE_STREAM, answers, body_of, ref, refusals
from halfseen.service.schemas import (
    Arm,
    ArmRequest,
    Limits,
    StreamList,
    StreamSpec,
    StreamView,
    decode_arm,
    decode_spec,
    parse,
)

ALL_STREAMS = "*"  # the name of no stream, so that only a token for all streams is enough
_LONGEST_NAME = 100  # of an arm or a feature
After = Annotated[str, Query(max_length=200, description="The last name of the page before")]


def requires(
    authorizer: Authorizer, scope: str, stream: str | None = None
) -> Callable[[Request], Awaitable[Token | None]]:
    """A FastAPI dependency: the token of the request, which grants `scope` on `stream` or the stream of the path."""

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
        responses=answers(StreamView, 201),
        openapi_extra=body_of(ref(StreamSpec), EXAMPLE_STREAM),
    )
    async def create_stream(request: Request) -> Response:
        """A new stream. The same again gives the same answer; something else under its name is a conflict, and so is
        the name of one that is retired."""
        headers = request.scope["headers"]
        await authorizer.authorize(headers, "admin")
        spec = parse(decode_spec, await read_body(request.scope, request.receive, limits.body_bytes))
        await authorizer.authorize(headers, "admin", spec.name)  # a token for some streams makes no others
        _check_size("observed", spec.observed, limits.observed)
        _check_size("arms", spec.arms, limits.arms)
        return json_response(await engine.create_stream(spec), 201)

    @router.get("/v1/streams", responses=answers(StreamList))
    async def list_streams(after: After = "", limit: int = default_page, token: Token | None = read) -> Response:
        """Streams by name, a page at a time."""
        if token is not None and token.streams:
            names = sorted(name for name in token.streams if name > after)
            views = await engine.streams_named(names[:limit])
            return json_response(StreamList(views, names[limit - 1] if len(names) > limit else None))
        views = await engine.streams(after=after, limit=limit)
        return json_response(StreamList(views, views[-1].name if len(views) == limit else None))

    @router.get(
        "/v1/streams/{name}", responses=answers(StreamView), dependencies=[Depends(requires(authorizer, DESCRIBE))]
    )
    async def show_stream(name: str) -> Response:
        """A stream as it stands. The scope decide is enough: lists in answers are in the order of its arms."""
        return json_response(await engine.stream(name))

    @router.delete("/v1/streams/{name}", responses=answers(StreamView), dependencies=[admin])
    async def retire_stream(name: str) -> Response:
        """The stream decides no more. Its journal stays, and rewards may still come."""
        return json_response(await engine.retire_stream(name))

    @router.post(
        "/v1/streams/{name}/arms",
        status_code=201,
        responses=answers(StreamView, 201),
        openapi_extra=body_of(ref(ArmRequest), EXAMPLE_ARM),
        dependencies=[admin],
    )
    async def add_arm(name: str, request: Request) -> Response:
        """One more arm: a new name, or null where arms are numbers."""
        arm = parse(decode_arm, await read_body(request.scope, request.receive, limits.body_bytes)).arm
        if arm is not None:
            _check_name("arm", arm)
        view = await engine.stream(name)
        if len(view.arms) >= limits.arms:
            raise refusal("too_large", f"arms: expected at most {limits.arms}, got {len(view.arms) + 1}")
        return json_response(await engine.add_arm(name, arm), 201)

    @router.delete("/v1/streams/{name}/arms/{arm:path}", responses=answers(StreamView), dependencies=[admin])
    async def retire_arm(name: str, arm: str) -> Response:
        """The arm is never chosen again."""
        view = await engine.stream(name)
        return json_response(await engine.retire_arm(name, _find_arm(arm, view)))

    @router.post("/v1/streams/{name}/snapshot", responses=refusals(), dependencies=[admin], status_code=204)
    async def snapshot(name: str) -> Response:
        """Keep the state as it is now, so that the next start need not fold the journal up to here."""
        await engine.snapshot(name)
        return Response(status_code=204)

    return router


def _check_size(argument: str, given: int | list[str], most: int) -> None:
    size = given if isinstance(given, int) else len(given)
    if size > most:
        raise refusal("too_large", f"{argument}: expected at most {most}, got {size}")
    for name in () if isinstance(given, int) else given:
        _check_name(argument, name)


def _check_name(argument: str, name: str) -> None:
    """Names go into URLs and onto pages, and PostgreSQL accepts no NUL characters."""
    if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        wanted = f"1 to {_LONGEST_NAME} printable characters"
        raise refusal("invalid", f"{argument}: expected {wanted}, got {name[:60]!a}")


def _find_arm(text: str, view: StreamView) -> Arm:
    """The arm of a path, which is text even where arms are numbers."""
    return next((arm for arm in view.arms if str(arm) == text), text)
