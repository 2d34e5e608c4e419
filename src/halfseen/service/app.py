"""The application. Decisions, rewards, observations and previews have plain ASGI routes. FastAPI serves the rest."""

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
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from halfseen.service.asgi import NO_STORE, body_cut_off, error_response
from halfseen.service.auth import Authorizer
from halfseen.service.dashboard.routes import CONTENT_SECURITY_POLICY, dashboard_routes
from halfseen.service.engine.engine import Engine
from halfseen.service.engine.wait_for_database import ShutdownRequested, wait_for_database
from halfseen.service.errors import ServiceError, internal_error, refusal, shutting_down
from halfseen.service.metrics import Metrics
from halfseen.service.openapi import describe
from halfseen.service.routes.decisions import decision_app
from halfseen.service.routes.journal import journal_routes
from halfseen.service.routes.status import service_routes
from halfseen.service.routes.streams import stream_routes
from halfseen.service.schemas import EngineSettings, Limits

# The server itself adds these headers to every reply, because a middleware would slow down every decision.
HEADERS = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
]


@dataclass(frozen=True)
class ServeOptions:
    """Options of the service."""

    database: str = "halfseen.db"
    loopback: bool = True  # whether only programs on the same machine can reach the service
    no_auth: bool = False
    limits: Limits = field(default_factory=Limits)
    settings: EngineSettings = field(default_factory=EngineSettings)


def build_app(engine: Engine, authorizer: Authorizer, limits: Limits) -> ASGIApp:
    """Return the application for an open engine. The routes of routes/decisions.py bypass FastAPI to save time."""
    app = FastAPI(
        title="halfseen",
        version=_version(),
        description="Decisions when you see only half of the context. Ask for a decision, and send its reward later.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # the redirect would lead to whatever host the request names
    )
    routers = [
        stream_routes(engine, authorizer, limits),
        journal_routes(engine, authorizer, limits),
        service_routes(engine, authorizer, lambda: describe(app)),
    ]
    for router in routers:
        app.include_router(router)
    dashboard = dashboard_routes(
        engine, lambda request, stream: authorizer.authorize(request.scope["headers"], "read", stream)
    )
    app.router.routes.extend(dashboard)
    routes = [route for router in routers for route in router.routes if isinstance(route, Route)] + dashboard
    _handle_errors(app, routes)
    return decision_app(engine, authorizer, limits, _count_replies(app, engine.metrics, routes))


def _count_replies(app: ASGIApp, metrics: Metrics, routes: Sequence[Route]) -> ASGIApp:
    """Count replies by route, and forbid the caching of replies that have no `cache-control` header."""
    names: dict[object, str] = {route.endpoint: f"{min(route.methods or {'GET'})} {route.path}" for route in routes}

    async def counting_app(scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def counting_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                status = message["status"]
                route = "other" if status == 405 else names.get(scope.get("endpoint"), "other")
                metrics.requests(route, status).inc()
                headers = list(message.get("headers", ()))
                if all(name.lower() != b"cache-control" for name, _ in headers):
                    message = {**message, "headers": [*headers, NO_STORE]}
            await send(message)

        try:
            await app(scope, receive, counting_send)
        except asyncio.CancelledError:  # the server cancels requests that are unfinished when it ends
            if not started:
                await error_response(shutting_down())(scope, receive, counting_send)

    return counting_app


def _version() -> str:
    try:
        return version("halfseen")
    except PackageNotFoundError:  # the package is not installed
        return "unreleased"


def _handle_errors(app: FastAPI, routes: Sequence[Route]) -> None:
    """Give the errors of FastAPI and Starlette the same form as the errors of the service."""

    @app.exception_handler(ServiceError)
    async def refused(_: Request, error: ServiceError) -> Response:
        return error_response(error)

    @app.exception_handler(ClientDisconnect)
    async def disconnected(_: Request, __: ClientDisconnect) -> Response:
        return error_response(body_cut_off())

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        argument = ".".join(str(part) for part in first["loc"][1:]) or "request"
        got = str(first.get("input"))[:60]
        expected = str(first["msg"]).removeprefix("Input should be ").replace("Input", "it")
        return error_response(refusal("invalid", f"{argument}: expected {expected}, got '{got}'"))

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404:
            path = request.url.path
            return error_response(refusal("not_found", f"There is no path '{path}'. The paths are listed at /docs."))
        if error.status_code == 405:
            matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
            allowed = ", ".join(sorted({method for route in matching for method in route.methods or ()}))
            message = f"method: expected {allowed}, got {request.method}"
            return error_response(refusal("not_allowed", message), allow=allowed)
        return error_response(ServiceError(error.status_code, "invalid", f"request: {error.detail}"))

    @app.exception_handler(Exception)
    async def unexpected(_: Request, __: Exception) -> Response:  # the server logs the traceback
        return error_response(internal_error())


@asynccontextmanager
async def running_app(options: ServeOptions, *, wait: bool = False) -> AsyncIterator[ASGIApp]:
    """Open the engine and yield the application. With `wait`, wait until the database is available."""
    limits = options.limits
    async with AsyncExitStack() as stack:
        engine: Engine | None = None

        async def start() -> tuple[Engine, Authorizer]:
            nonlocal engine
            if engine is None:  # the engine may be open from an earlier attempt that could not read the tokens
                engine = await Engine.open(options.database, replace(options.settings, limits=limits))
                stack.push_async_callback(engine.close)
            authorizer = Authorizer(
                engine.tokens, open_at_first=options.loopback, always_open=options.no_auth, rate=limits.rate
            )
            await authorizer.refresh()
            return engine, authorizer

        opened, authorizer = await (wait_for_database(start) if wait else start())
        for task in (authorizer.refresh_forever(), opened.update_gauges_forever()):
            stack.callback(asyncio.create_task(task).cancel)
        app = build_app(opened, authorizer, limits)
        _tune_garbage_collector()
        yield app


def _tune_garbage_collector() -> None:
    """Make the garbage collector run less often, and make it ignore the objects that exist now.

    Open decisions are many small objects without reference cycles. Traversing all of them again and again would cost a
    third of the throughput and double the longest latencies.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)


def create_app(options: ServeOptions) -> Router:
    """Return the application of a worker process. It opens its engine at startup and closes it at shutdown."""

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        try:
            async with running_app(options, wait=True) as app:
                router.default = app
                yield
        except ShutdownRequested:
            # uvicorn has received the signal too and will end. Failing here instead would end all workers.
            router.default = error_response(shutting_down())
            yield

    router = Router(lifespan=lifespan, redirect_slashes=False)
    return router
