"""Routes that export and import the journal. NDJSON has one event per line, Parquet one decision per row."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import FileResponse, Response, StreamingResponse
from starlette.background import BackgroundTask

from halfseen.journal.events import to_line
from halfseen.service.asgi import body_too_large, json_response
from halfseen.service.auth import Authorizer
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import refusal
from halfseen.service.openapi import error_responses
from halfseen.service.routes.streams import ALL_STREAMS, requires
from halfseen.service.schemas import Limits

_PAGE = 1_000  # events read at a time
NDJSON, PARQUET = "application/x-ndjson", "application/vnd.apache.parquet"
Format = Annotated[
    Literal["ndjson", "parquet"],
    Query(alias="format", description="NDJSON has one event per line, Parquet one decision per row."),
]
_CONTENT = {media: {"schema": {"type": "string", "format": "binary"}} for media in (NDJSON, PARQUET)}
_FILES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The exported file.", "content": _CONTENT},
    **error_responses(),
}
_BODY = {"requestBody": {"required": True, "content": _CONTENT}}


def journal_routes(engine: Engine, authorizer: Authorizer, limits: Limits) -> APIRouter:
    router = APIRouter(tags=["journal"])

    @router.get("/v1/streams/{name}/journal", responses=_FILES, dependencies=[Depends(requires(authorizer, "read"))])
    async def export_stream(
        name: str,
        form: Format = "ndjson",
        after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    ) -> Response:
        """Export the journal of a stream. In NDJSON, only the events after number `after` are included."""
        if form == "parquet":
            await engine.stream(name)
            return await file_response([name], form)
        first = await engine.events(name, after, _PAGE)  # read before the reply starts, so that it can still be a 404

        async def lines() -> AsyncIterator[bytes]:
            page = first
            while page:
                yield b"".join(to_line(name, event) + b"\n" for event in page)
                page = await engine.events(name, page[-1].seq, _PAGE)

        return StreamingResponse(lines(), media_type=NDJSON)

    @router.get("/v1/journal", responses=_FILES, dependencies=[Depends(requires(authorizer, "read", ALL_STREAMS))])
    async def export_all(form: Format = "ndjson") -> Response:
        """Export the journals of all streams. The token must be for all streams."""
        return await file_response([], form)

    @router.post("/v1/journal", status_code=201, responses=error_responses(), openapi_extra=_BODY)
    async def import_journal(request: Request) -> Response:
        """Import an exported file. Add either all of its streams or none. Their names must be new to this service."""
        await authorizer.authorize(request.scope["headers"], "admin", ALL_STREAMS)
        with tempfile.TemporaryDirectory() as folder:
            path = await _save_body(request, Path(folder), limits.import_bytes)
            return json_response({"streams": await engine.import_streams(path, limits)}, 201)

    async def file_response(names: list[str], form: str) -> Response:
        folder = tempfile.TemporaryDirectory()
        try:
            path = Path(folder.name) / f"{names[0] if names else 'journal'}.{form}"
            await engine.export_streams(path, names)
        except BaseException:
            folder.cleanup()
            raise
        media = PARQUET if form == "parquet" else NDJSON
        return FileResponse(path, media_type=media, filename=path.name, background=BackgroundTask(folder.cleanup))

    return router


async def _save_body(request: Request, folder: Path, max_bytes: int) -> Path:
    """Write the body to a file with the suffix of its format."""
    path, size = folder / "body", 0
    with path.open("wb") as file:
        async for part in request.stream():
            size += len(part)
            if size > max_bytes:
                raise body_too_large(max_bytes)
            file.write(part)
    if not size:
        raise refusal("malformed", "body: expected an exported file, NDJSON or Parquet, got an empty body")
    with path.open("rb") as file:
        suffix = ".parquet" if file.read(4) == b"PAR1" else ".ndjson"
    return path.rename(path.with_suffix(suffix))
