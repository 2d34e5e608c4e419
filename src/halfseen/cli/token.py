"""The commands `halfseen token create`, `halfseen token list` and `halfseen token revoke`."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from halfseen.cli.arguments import Command, CommandGroup
from halfseen.cli.journal import Database, opened_journal
from halfseen.cli.terminal import print_table
from halfseen.errors import unknown
from halfseen.journal.address import is_new_file
from halfseen.reports.tables import Table

token_app = typer.Typer(
    cls=CommandGroup, help="Create, list and revoke the tokens of the decision service.", no_args_is_help=True
)


@token_app.command(cls=Command)
def create(
    scope: Annotated[
        list[str],
        typer.Option(help="read, decide, or admin, which includes the other two. Can be given several times."),
    ],
    stream: Annotated[
        list[str] | None,
        typer.Option(help="Allow only this stream. Can be given several times.", show_default="all streams"),
    ] = None,
    expires: Annotated[
        float | None, typer.Option(help="Number of days until the token expires.", show_default="never")
    ] = None,
    name: Annotated[str, typer.Option(help="A note on the purpose of the token.")] = "",
    database: Database = "halfseen.db",
) -> None:
    """Create a token and print it. It cannot be printed again, because only its hash is stored."""
    with opened_journal(database, "halfseen token") as journal:
        from halfseen.service.auth import new_token

        secret, token = new_token(scope, stream or (), name=name, days=expires)
        journal.add_token(token)
        missing = [name for name in token.streams or () if journal.stream(name) is None]
    print(secret)
    if missing:
        print(f"These streams do not exist yet: {', '.join(missing)}", file=sys.stderr)
    print("Store this token now. It cannot be shown again.", file=sys.stderr)


@token_app.command("list", cls=Command)
def list_tokens(database: Database = "halfseen.db") -> None:
    """List all tokens, including those that have expired or were revoked, but not their secrets."""
    if is_new_file(database):
        print("There are no tokens.")
        return
    with opened_journal(database, "halfseen token") as journal:
        from halfseen.service.auth import describe_token

        rows = [describe_token(token, time.time()) for token in journal.tokens()]
    if rows:
        print_table(Table(rows), "Tokens", optional=("created", "name"))
    else:
        print("There are no tokens.")


@token_app.command(cls=Command)
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="The ID of the token, as shown by 'halfseen token list'.")],
    database: Database = "halfseen.db",
) -> None:
    """Revoke a token. A running service rejects it within seconds."""
    if is_new_file(database):
        raise unknown("token", token, [])
    with opened_journal(database, "halfseen token") as journal:
        if not journal.revoke_token(token, int(1e6 * time.time())):
            raise unknown("token", token, [stored.id for stored in journal.tokens() if stored.revoked is None])
    print(f"Revoked {token}.")
