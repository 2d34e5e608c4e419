"""Routes about the service itself: health checks, metrics, and the description of the routes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from halfseen.service.auth import Authorizer
from halfseen.service.docs_page import docs_page, docs_style
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import refusal
from halfseen.service.openapi import error_responses
from halfseen.service.routes.streams import ALL_STREAMS, requires


def service_routes(engine: Engine, authorizer: Authorizer, describe: Callable[[], dict[str, Any]]) -> APIRouter:
    router = APIRouter(tags=["service"])

    @router.get("/healthz")
    async def alive() -> dict[str, str]:
        """Check that the process is running."""
        return {"status": "ok"}

    @router.get("/readyz", responses=error_responses())
    async def ready() -> dict[str, str]:
        """Check that the process is running and its database answers.

        If decisions and rewards work but no models can be identified, the status is "degraded", with a reason.
        """
        if not engine.ready():
            raise refusal("unavailable", "The database does not answer.")
        if engine.degraded is not None:
            return {"status": "degraded", "reason": engine.degraded}
        return {"status": "ready"}

    @router.get(
        "/metrics", response_class=PlainTextResponse, dependencies=[Depends(requires(authorizer, "read", ALL_STREAMS))]
    )
    async def metrics() -> Response:
        """Return the metrics of all workers in the format of Prometheus."""
        engine.update_gauges()
        text = await asyncio.to_thread(generate_latest, engine.metrics.registry)  # reads two files per worker
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(describe())

    @router.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(docs_page(describe(), request.headers.get("host", ""), tokens=authorizer.required))

    @router.get("/docs.css", include_in_schema=False)
    async def style() -> Response:
        return Response(docs_style(), media_type="text/css")

    return router
