"""The journal over HTTP: a stream's events out as NDJSON or Parquet, a line or a row at a time, and in again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response, StreamingResponse

from halfseen.journal.events import as_line
from halfseen.service.auth import Guard
from halfseen.service.engine import Engine
from halfseen.service.limits import Limits
from halfseen.service.openapi import refusals
from halfseen.service.routes import needs

_PAGE = 1_000  # events read at a time
NDJSON = "application/x-ndjson"


def journal_routes(engine: Engine, guard: Guard, limits: Limits) -> APIRouter:
    router = APIRouter(tags=["journal"])

    @router.get(
        "/v1/streams/{name}/journal",
        responses={200: {"description": "An event a line", "content": {NDJSON: {}}}, **refusals()},
        dependencies=[Depends(needs(guard, "read"))],
    )
    async def export_journal(name: str, after: Annotated[int, Query(ge=0, le=2**62)] = 0) -> Response:
        """All events of a stream, an event a line; `after`: from the one that follows that number."""
        first = await engine.events(name, after, _PAGE)  # a stream that is not there is said before anything is sent

        async def lines() -> AsyncIterator[bytes]:
            page = first
            while page:
                yield b"".join(as_line(name, event) + b"\n" for event in page)
                page = await engine.events(name, page[-1].seq, _PAGE)

        return StreamingResponse(lines(), media_type=NDJSON)

    return router
