"""`halfseen --version`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer


def _show(wanted: bool) -> None:
    if wanted:
        print(f"halfseen {_installed()}")
        raise typer.Exit


def halfseen_app(
    version: Annotated[
        bool, typer.Option("--version", callback=_show, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """What comes before the command."""


def _installed() -> str:
    try:
        return version("halfseen")
    except PackageNotFoundError:
        return "(not installed)"
