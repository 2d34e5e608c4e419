"""The routes that are not in a hurry: streams, arms, the journal, health; and how the service describes itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from halfseen.journal.journal import Token
from halfseen.service.auth import DESCRIBE, Guard
from halfseen.service.docs_page import docs_page, docs_style
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError
from halfseen.service.limits import Limits
from halfseen.service.metrics import CONTENT_TYPE, Meter
from halfseen.service.openapi import EXAMPLE_ARM, EXAMPLE_STREAM, answers, body_of, ref, refusals
from halfseen.service.specs import StreamSpec, StreamView
from halfseen.service.wire import ArmRequest, Streams, decode_arm, decode_spec, encode, parse, read_body

Arm = int | str
_LONGEST_NAME = 100  # of an arm or a feature
After = Annotated[str, Query(max_length=200, description="The last name of the page before")]


def json_reply(value: object, status: int = 200) -> Response:
    return Response(encode(value), status, media_type="application/json")


def needs(guard: Guard, scope: str) -> Callable[[Request], Awaitable[Token | None]]:
    """A dependency: the token of the request, which may do this to the stream of its path."""

    async def admitted(request: Request) -> Token | None:
        return await guard.admit(request.scope["headers"], scope, request.path_params.get("name"))

    return admitted


def whole(guard: Guard, scope: str) -> Callable[[Request], Awaitable[Token | None]]:
    """A dependency: the token of the request, which is for all streams."""

    async def admitted(request: Request) -> Token | None:
        return await guard.admit(request.scope["headers"], scope, "*")  # the name of no stream

    return admitted


def read_guard(guard: Guard) -> Callable[[Request, str | None], Awaitable[Token | None]]:
    """For routes that ask by themselves: whether a request may read a stream."""

    async def admitted(request: Request, stream: str | None) -> Token | None:
        return await guard.admit(request.scope["headers"], "read", stream)

    return admitted


def stream_routes(engine: Engine, guard: Guard, limits: Limits) -> APIRouter:
    router = APIRouter(tags=["streams"])
    reads, rules = Depends(needs(guard, "read")), Depends(needs(guard, "admin"))
    usual_page = Query(min(100, limits.page), ge=1, le=limits.page)

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
        await guard.admit(headers, "admin")
        spec = parse(decode_spec, await read_body(request.scope, request.receive, limits.body_bytes))
        await guard.admit(headers, "admin", spec.name)  # a token for some streams makes no others
        _check("observed", spec.observed, limits.observed)
        _check("arms", spec.arms, limits.arms)
        return json_reply(await engine.create_stream(spec), 201)

    @router.get("/v1/streams", responses=answers(Streams))
    async def list_streams(after: After = "", limit: int = usual_page, token: Token | None = reads) -> Response:
        """Streams by name, a page at a time."""
        if token is not None and token.streams:
            names = sorted(name for name in token.streams if name > after)
            views = [view for view in [await _if_there(engine, name) for name in names[:limit]] if view is not None]
            return json_reply(Streams(views, names[limit - 1] if len(names) > limit else None))
        views = await engine.streams(after=after, limit=limit)
        return json_reply(Streams(views, views[-1].name if len(views) == limit else None))

    @router.get("/v1/streams/{name}", responses=answers(StreamView), dependencies=[Depends(needs(guard, DESCRIBE))])
    async def show_stream(name: str) -> Response:
        """A stream as it stands. The scope decide is enough: lists in answers are in the order of its arms."""
        return json_reply(await engine.stream(name))

    @router.delete("/v1/streams/{name}", responses=answers(StreamView), dependencies=[rules])
    async def retire_stream(name: str) -> Response:
        """The stream decides no more. Its journal stays, and rewards may still come."""
        return json_reply(await engine.retire_stream(name))

    @router.post(
        "/v1/streams/{name}/arms",
        status_code=201,
        responses=answers(StreamView, 201),
        openapi_extra=body_of(ref(ArmRequest), EXAMPLE_ARM),
        dependencies=[rules],
    )
    async def add_arm(name: str, request: Request) -> Response:
        """One more arm: a new name, or null where arms are numbers."""
        asked = parse(decode_arm, await read_body(request.scope, request.receive, limits.body_bytes))
        if asked.arm is not None:
            _check_name("arm", asked.arm)
        view = await engine.stream(name)
        if len(view.arms) >= limits.arms:
            raise ServiceError(413, "too_large", f"arms: got {len(view.arms) + 1}; want at most {limits.arms}")
        return json_reply(await engine.add_arm(name, asked.arm), 201)

    @router.delete("/v1/streams/{name}/arms/{arm:path}", responses=answers(StreamView), dependencies=[rules])
    async def retire_arm(name: str, arm: str) -> Response:
        """The arm is never chosen again."""
        view = await engine.stream(name)
        return json_reply(await engine.retire_arm(name, _as_arm(arm, view)))

    @router.post("/v1/streams/{name}/snapshot", responses=refusals(), dependencies=[rules], status_code=204)
    async def snapshot(name: str) -> Response:
        """Keep the state as it is now, so that the next start need not fold the journal up to here."""
        await engine.snapshot(name)
        return Response(status_code=204)

    return router


def _check(argument: str, given: int | list[str], most: int) -> None:
    size = given if isinstance(given, int) else len(given)
    if size > most:
        raise ServiceError(413, "too_large", f"{argument}: got {size}; want at most {most}")
    for name in () if isinstance(given, int) else given:
        _check_name(argument, name)


def _check_name(argument: str, name: str) -> None:
    """Names go into addresses and onto pages, and one database takes no zero bytes."""
    if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        wanted = f"1 to {_LONGEST_NAME} printable characters"
        raise ServiceError(422, "invalid", f"{argument}: got {name[:60]!a}; want {wanted}")


async def _if_there(engine: Engine, name: str) -> StreamView | None:
    try:
        return await engine.stream(name)
    except ServiceError as error:
        if error.status != 404:
            raise
        return None


def _as_arm(text: str, view: StreamView) -> Arm:
    """The arm of a path, which is text even where arms are numbers."""
    return next((arm for arm in view.arms if str(arm) == text), text)


def service_routes(engine: Engine, guard: Guard, meter: Meter, description: Callable[[], dict[str, Any]]) -> APIRouter:
    router = APIRouter(tags=["service"])

    @router.get("/healthz")
    async def alive() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/readyz", responses=refusals())
    async def ready() -> dict[str, str]:
        """The database answers, too."""
        if not engine.ready():
            raise ServiceError(503, "unavailable", "database: got no answer; want it back")
        return {"status": "ready"}

    @router.get("/metrics", response_class=PlainTextResponse, dependencies=[Depends(whole(guard, "read"))])
    async def metrics() -> Response:
        """Counters and latencies of this worker, for Prometheus."""
        return Response(meter.text(engine.measurements()), media_type=CONTENT_TYPE)

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(description())

    @router.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(docs_page(description(), request.headers.get("host", ""), tokens=guard.required))

    @router.get("/docs.css", include_in_schema=False)
    async def style() -> Response:
        return Response(docs_style(), media_type="text/css")

    return router
