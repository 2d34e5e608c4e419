"""The dashboard without the rest of the service, in a server that runs in a thread of the tests."""

import asyncio
import threading
from contextlib import contextmanager

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response

from halfseen.service.dashboard.routes import dashboard_routes
from halfseen.service.engine.engine import Engine
from halfseen.service.errors import ServiceError
from halfseen.service.schemas import EngineSettings


def error_reply(_, error):
    body = {"error": {"code": error.code, "message": error.message}}
    return Response(msgspec.json.encode(body), error.status, media_type="application/json")


class Served:
    """A running dashboard. `call` runs coroutines of its engine from any thread."""

    def __init__(self, url, engine, loop, secrets):
        self.url, self.engine, self._loop, self.secrets = url, engine, loop, secrets

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)


@contextmanager
def served(database, *, secrets=None, identify=True):
    """Serve the dashboard. `secrets` maps secrets to tokens, or is None if no token is required."""
    ready, running = threading.Event(), {}

    async def guard(request, name):
        if secrets is None:
            return None
        token = secrets.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        if token is None:
            raise ServiceError(401, "unauthorised", "token: expected a header 'Authorization: Bearer …', got none")
        if name is not None and token.streams is not None and name not in token.streams:
            raise ServiceError(403, "forbidden", "token: expected a token for this stream, got one for other streams")
        return token

    async def main():
        engine = await Engine.open(database, EngineSettings(identify=identify))
        app = Starlette(routes=dashboard_routes(engine, guard), exception_handlers={ServiceError: error_reply})
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", ws="none"))
        server.install_signal_handlers = lambda: None
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            running["served"] = Served(f"http://127.0.0.1:{port}", engine, asyncio.get_running_loop(), secrets)
            running["server"] = server
            ready.set()
            await serving
        finally:
            await engine.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield running["served"]
    finally:
        running["server"].should_exit = True
        thread.join(30)
