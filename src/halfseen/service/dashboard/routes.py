"""The routes of the dashboard: the page, its files and its three queries. None of them changes a stream."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import importlib.util
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from halfseen.journal.journal import Token
from halfseen.service.dashboard.queries import DashboardQueries
from halfseen.service.dashboard.series import MAX_POINTS
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError, refusal

# A guard takes a request and the name of a stream, or None for the list of streams. It returns the token of the
# request, if there is one, and raises a ServiceError if the request is not allowed.
ReadGuard = Callable[[Request, str | None], Awaitable[Token | None]]
Endpoint = Callable[[Request], Awaitable[Response]]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HERE = Path(__file__).parent
_PLOTLY = "plotly.min.js"
_MAX_LISTED = 1_000
_ENCODE = msgspec.json.Encoder().encode


def dashboard_routes(engine: Engine, guard: ReadGuard) -> list[Route]:
    """Return the routes. The application must handle ServiceError. Tokens are checked for queries, not for files."""
    queries = DashboardQueries(engine)

    async def overview(request: Request) -> Response:
        token = await guard(request, None)
        limit = _number(request, "limit", 100, 1, _MAX_LISTED)
        after = request.query_params.get("after", "")
        return _reply(await queries.overview(after, limit, token.streams if token is not None else None))

    async def stream_series(request: Request) -> Response:
        name = request.path_params["name"]
        await guard(request, name)
        points = _number(request, "points", 300, 1, MAX_POINTS)
        coordinate = _number(request, "coordinate", 0, 0, 1_000_000)
        return _reply(await queries.series(name, points, coordinate))

    async def stream_health(request: Request) -> Response:
        name = request.path_params["name"]
        await guard(request, name)
        return _reply(await queries.health(name))

    async def page(request: Request) -> Response:
        return await _file(request, "index.html")

    async def file(request: Request) -> Response:
        return await _file(request, request.path_params["file"])

    return [
        Route("/", page),
        Route("/dashboard/{file}", file),
        Route("/v1/overview", overview),
        Route("/v1/streams/{name}/series", stream_series),
        Route("/v1/streams/{name}/health", stream_health),
    ]


def _reply(value: object) -> Response:
    return Response(_ENCODE(value), media_type="application/json")


def _number(request: Request, name: str, default: int, minimum: int, maximum: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and minimum <= int(text) <= maximum):
        raise refusal("invalid", f"{name}: expected an integer from {minimum} to {maximum}, got '{text[:40]}'")
    return int(text)


async def _file(request: Request, name: str) -> Response:
    path = _files().get(name)
    if path is None:
        raise ServiceError(404, "not_found", f"There is no file '{name[:100]}'.")
    headers = {"content-security-policy": CONTENT_SECURITY_POLICY, "x-content-type-options": "nosniff"}
    media_type = _TYPES[path.suffix]
    if name != _PLOTLY:
        return Response(_content(path), headers=headers, media_type=media_type)
    compressed = "gzip" in request.headers.get("accept-encoding", "")
    tag = f'"{_digest(path)}{"-gzip" if compressed else ""}"'
    headers |= {"vary": "accept-encoding", "cache-control": "no-cache", "etag": tag}  # cached, but revalidated
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if compressed:
        body = await asyncio.to_thread(_compressed, path)
        return Response(body, headers=headers | {"content-encoding": "gzip"}, media_type=media_type)
    return Response(_content(path), headers=headers, media_type=media_type)


@lru_cache(1)
def _files() -> dict[str, Path]:
    """Return the static files by name. Only these files are served, so a request cannot name another path."""
    files = {path.name: path for path in _HERE.iterdir() if path.suffix in _TYPES}
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "package_data" / _PLOTLY
        if path.exists():
            files[_PLOTLY] = path
    return files


@lru_cache(32)
def _content(path: Path) -> bytes:
    return path.read_bytes()


@lru_cache(1)
def _digest(path: Path) -> str:
    return hashlib.sha256(_content(path)).hexdigest()[:32]


@lru_cache(1)
def _compressed(path: Path) -> bytes:
    """Compress plotly.js, because its 5 MB take long to download on a phone."""
    return gzip.compress(_content(path), 6, mtime=0)
