"""`halfseen token create`, `list` and `revoke`."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from halfseen.cli.arguments import Command, CommandGroup
from halfseen.cli.journal import Database, is_new_file, opened_journal
from halfseen.cli.terminal import print_table
from halfseen.errors import unknown
from halfseen.reports.tables import Table

token_app = typer.Typer(cls=CommandGroup, help="Tokens of the decision service.", no_args_is_help=True)


@token_app.command(cls=Command)
def create(
    scope: Annotated[
        list[str], typer.Option(help="read, decide or admin, which may do all; several times for several.")
    ],
    stream: Annotated[
        list[str] | None, typer.Option(help="Only for this stream; several times for several.", show_default="all")
    ] = None,
    expires: Annotated[float | None, typer.Option(help="Days until it ends.", show_default="never")] = None,
    name: Annotated[str, typer.Option(help="What it is for, to know it by.")] = "",
    database: Database = "halfseen.db",
) -> None:
    """Make a token and print it, this once: only its hash is kept."""
    with opened_journal(database, "halfseen token") as journal:
        from halfseen.service.auth import new_token

        secret, kept = new_token(scope, stream or (), name=name, days=expires)
        journal.add_token(kept)
        missing = [one for one in kept.streams or () if journal.stream(one) is None]
    print(secret)
    if missing:
        print(f"These streams do not exist yet: {', '.join(missing)}", file=sys.stderr)
    print("keep it: it is not shown again", file=sys.stderr)


@token_app.command("list", cls=Command)
def list_tokens(database: Database = "halfseen.db") -> None:
    """List the tokens, the ended ones too; the tokens themselves are not kept."""
    if is_new_file(database):
        print("no tokens")
        return
    with opened_journal(database, "halfseen token") as journal:
        from halfseen.service.auth import describe_token

        rows = [describe_token(token, time.time()) for token in journal.tokens()]
    if rows:
        print_table(Table(rows), "Tokens", least_worth=("created", "name"))
    else:
        print("no tokens")


@token_app.command(cls=Command)
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="As 'halfseen token list' shows it.")],
    database: Database = "halfseen.db",
) -> None:
    """End a token. A service that runs refuses it within seconds."""
    if is_new_file(database):
        raise unknown("token", token, [])
    with opened_journal(database, "halfseen token") as journal:
        if not journal.revoke_token(token, int(1e6 * time.time())):
            raise unknown("token", token, [kept.id for kept in journal.tokens() if kept.revoked is None])
    print(f"revoked {token}")
