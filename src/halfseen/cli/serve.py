"""The command `halfseen serve`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from halfseen.cli.journal import Database
from halfseen.errors import invalid, missing_extra, unknown
from halfseen.journal.address import sqlite_path

if TYPE_CHECKING:
    from halfseen.service.schemas import Limits


def serve(
    database: Database = "halfseen.db",
    host: Annotated[
        str, typer.Option(help="The address to listen on. Other machines need a token to connect.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port. 0 chooses a free port.")] = 8400,
    workers: Annotated[
        int, typer.Option(min=1, max=256, help="Number of processes. More than one requires PostgreSQL.")
    ] = 1,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Do not require tokens. Allowed only on a loopback address.")
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(help="A limit as NAME=VALUE, such as batch=5000. Can be given several times."),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log one line per request, which reduces the throughput.")
    ] = False,
) -> None:
    """Serve decisions over HTTP. Every decision is stored before it is returned."""
    try:
        from halfseen.service.app import ServeOptions
        from halfseen.service.serving import serve as run
        from halfseen.service.serving import stopped_message
    except ImportError as error:
        raise missing_extra(error.name or "fastapi", "service", "halfseen serve") from None

    options = ServeOptions(database=database, no_auth=no_auth, limits=_limits(limit or []))

    def announce(address: str, closed: bool) -> None:
        lines = [
            f"halfseen listens on {address}",
            f"database: {_without_password(database)}",
            f"tokens: {'required' if closed else 'not required; only this machine can connect'}",
            f"dashboard: {address}/    API documentation: {address}/docs",
        ]
        if not closed:
            lines += [
                "try:",
                f"""  curl {address}/v1/streams -d '{{"name": "demo", "observed": 2, "arms": ["a", "b"]}}'""",
                f"""  curl {address}/v1/streams/demo/decisions -d '{{"observation": [0.3, null]}}'""",
            ]
        print("\n".join(lines), file=sys.stderr, flush=True)

    run(options, host=host, port=port, workers=workers, access_log=access_log, announce=announce)
    print(stopped_message(options), file=sys.stderr)


def _without_password(database: str) -> str:
    path = sqlite_path(database)
    if path is not None:
        return str(path)
    parts = urlsplit(database)
    who = f"{parts.username}@" if parts.username else ""
    return f"{parts.scheme}://{who}{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _limits(given: list[str]) -> Limits:
    from dataclasses import fields

    from halfseen.service.schemas import Limits

    kinds = {field.name: float if field.name == "rate" else int for field in fields(Limits)}
    values: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in kinds:
            raise unknown("limit", name, kinds)
        try:
            values[name] = kinds[name](value)
        except ValueError:
            raise invalid(f"limit {name}", "a number", f"'{value}'") from None
    return Limits(**values)  # type: ignore[arg-type]
