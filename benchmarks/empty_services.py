"""Endpoints that do nothing. They run with the server and the settings of `halfseen serve`, for comparison with it.

python -m benchmarks.empty_services fastapi|litestar|plain PORT
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.routing import Route, Router

from halfseen.service.asgi import read_body, send_json
from halfseen.service.schemas import DecisionRequest, decode_decision, parse
from halfseen.service.serving import server_settings


class Asked(BaseModel):
    observation: list[float | None] | dict[str, float | None]
    available: list[int | str] | None = None
    key: str | None = None


class Answered(BaseModel):
    ok: bool


def fastapi_empty() -> Any:
    """Return an application with the usual FastAPI endpoint, which uses pydantic for input and output."""
    app = FastAPI()

    @app.post("/v1/streams/{name}/decisions")
    async def decide(name: str, asked: Asked) -> Answered:
        return Answered(ok=True)

    return app


def litestar_empty() -> Any:
    """Return an application with the usual Litestar endpoint, which uses msgspec for input and output."""
    from litestar import Litestar, post

    @post("/v1/streams/{name:str}/decisions", status_code=200)
    async def decide(name: str, data: DecisionRequest) -> dict[str, bool]:
        return {"ok": True}

    return Litestar([decide], logging_config=None)


def plain_empty() -> Any:
    """Return an application with a plain route that reads and writes JSON with msgspec, as the service does."""

    class Endpoint:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            parse(decode_decision, await read_body(scope, receive, 1_048_576))
            await send_json(send, b'{"ok":true}')

    return Router([Route("/v1/streams/{name}/decisions", Endpoint(), methods=None)], redirect_slashes=False)


if __name__ == "__main__":
    kind, port = sys.argv[1], int(sys.argv[2])
    app = {"fastapi": fastapi_empty, "litestar": litestar_empty, "plain": plain_empty}[kind]()
    settings = server_settings() | {"http": "auto"}  # uvicorn's default protocol
    uvicorn.run(app, host="127.0.0.1", port=port, lifespan="off", **settings)
