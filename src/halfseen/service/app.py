"""The application: hot routes first, FastAPI behind them, one engine and one guard for both."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from halfseen.service.auth import Guard
from halfseen.service.dashboard.routes import CONTENT_SECURITY_POLICY, dashboard_routes
from halfseen.service.engine.engine import Engine
from halfseen.service.engine.wait_for_database import AskedToEnd, patiently
from halfseen.service.errors import ServiceError, refusal
from halfseen.service.limits import Limits
from halfseen.service.metrics import Meter
from halfseen.service.openapi import describe
from halfseen.service.routes.decisions import hot_routes
from halfseen.service.routes.journal import journal_routes
from halfseen.service.routes.streams import read_guard, service_routes, stream_routes
from halfseen.service.specs import Settings
from halfseen.service.wire import NO_STORE, error_body, own_error

# Sent with every reply, by the server itself: a middleware would cost every decision a layer.
HEADERS = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
]


@dataclass(frozen=True)
class ServeOptions:
    """How the service is run."""

    database: str = "halfseen.db"
    loopback: bool = True  # reached from this machine only
    no_auth: bool = False
    limits: Limits = field(default_factory=Limits)
    settings: Settings = field(default_factory=Settings)


def assemble(engine: Engine, guard: Guard, limits: Limits) -> Router:
    """The routes around an open engine. What the hot ones do not know goes on to FastAPI."""
    meter = Meter()
    app = FastAPI(
        title="halfseen",
        version=_version(),
        description="Decisions when you see only half of the context: ask for an arm, reward it later.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    looks = dashboard_routes(engine, read_guard(guard))
    routers = [
        stream_routes(engine, guard, limits),
        journal_routes(engine, guard, limits),
        service_routes(engine, guard, meter, lambda: describe(app)),
    ]
    for router in routers:
        app.include_router(router)
    app.router.routes.extend(looks)
    known = [route for router in routers for route in router.routes if isinstance(route, Route)] + looks
    _answer_errors(app, known)
    return Router(hot_routes(engine, guard, meter, limits), default=_noted(app, meter, known), redirect_slashes=False)


def _noted(app: ASGIApp, meter: Meter, routes: Sequence[Route]) -> ASGIApp:
    """Replies are counted, by route; those that say nothing of how long they may be kept are kept nowhere."""
    names: dict[object, str] = {route.endpoint: f"{min(route.methods or {'GET'})} {route.path}" for route in routes}

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                meter.count("other" if status == 405 else names.get(scope.get("endpoint"), "other"), status)
                headers = list(message.get("headers", ()))
                if all(name.lower() != b"cache-control" for name, _ in headers):
                    message = {**message, "headers": [*headers, NO_STORE]}
            await send(message)

        await app(scope, receive, marked)

    return answered


def _version() -> str:
    try:
        return version("halfseen")
    except PackageNotFoundError:  # run from its sources
        return "unreleased"


def _answer_errors(app: FastAPI, routes: Sequence[Route]) -> None:
    """One shape for all refusals."""

    def answer(error: ServiceError) -> Response:
        headers = {"retry-after": "1"} if error.status in (429, 503) else {}
        if error.status == 401:
            headers["www-authenticate"] = "Bearer"
        if error.status == 413:
            headers["connection"] = "close"
        return Response(error_body(error), error.status, headers, "application/json")

    @app.exception_handler(ServiceError)
    async def refused(_: Request, error: ServiceError) -> Response:
        return answer(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "request"
        given = str(first.get("input"))[:60]
        said = str(first["msg"]).removeprefix("Input should be ").replace("Input", "it")
        return answer(ServiceError(422, "invalid", f"{place}: got '{given}'; want {said}"))

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> Response:
        path = request.url.path
        if error.status_code == 404:
            return answer(ServiceError(404, "not_found", f"path: got '{path}'; want one of those at /docs"))
        if error.status_code == 405:
            found_here = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
            allowed = ", ".join(sorted({method for route in found_here for method in route.methods or ()}))
            found = answer(ServiceError(405, "not_allowed", f"method: got {request.method}; want {allowed}"))
            found.headers["allow"] = allowed
            return found
        return answer(ServiceError(error.status_code, "invalid", f"request: {error.detail}"))

    @app.exception_handler(Exception)
    async def failed(_: Request, __: Exception) -> Response:  # the server logs where it came from
        return answer(own_error())


@asynccontextmanager
async def running(options: ServeOptions, *, patient: bool = False) -> AsyncIterator[Router]:
    """The application with its engine open, and what keeps its tokens fresh; closed in good order.

    `patient` is to wait for a database that is away.
    """
    limits = options.limits
    async with AsyncExitStack() as closing:
        engine: Engine | None = None

        async def start() -> tuple[Engine, Guard]:
            nonlocal engine
            if engine is None:  # or it is open, and the tokens could not be read
                engine = await Engine.open(options.database, replace(options.settings, max_streams=limits.streams))
                closing.push_async_callback(engine.close)
            guard = Guard(engine.tokens, open_at_first=options.loopback, always_open=options.no_auth, rate=limits.rate)
            await guard.refresh()
            return engine, guard

        opened, guard = await (patiently(start) if patient else start())
        fresh = asyncio.create_task(guard.keep_fresh())
        closing.callback(fresh.cancel)
        application = assemble(opened, guard, limits)
        calm_collector()
        yield application


def calm_collector() -> None:
    """Let the garbage collector look less often, and never at what was there at the start.

    Decisions that wait for a reward are many small objects and no cycles: to walk over all of them again and again
    would take a third of the speed and make the slowest answers twice as slow.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)


def create_app(options: ServeOptions) -> Router:
    """For a worker process, which opens its engine when it starts and closes it when it ends."""

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        try:
            async with running(options, patient=True) as inner:
                outer.routes, outer.default = inner.routes, inner.default
                yield
        except AskedToEnd:  # the server has heard it too, and ends at once; a start that fails would end all workers
            away = refusal("unavailable", "service: it is shutting down; try again later")
            outer.default = Response(error_body(away), away.status, {"retry-after": "1"}, "application/json")
            yield

    outer = Router(lifespan=lifespan, redirect_slashes=False)
    return outer
