"""The entry point of the command line. Typer, rich and the kernels are imported only when they are needed."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from halfseen.cli import interruption
from halfseen.cli.tracebacks import own_traceback
from halfseen.errors import HalfseenError, missing_extra

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Run the console script."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # Windows lacks some of these signals
            signal.signal(getattr(signal, name), interruption.handle)
    sys.exit(run_app(sys.argv[1:]))


def run_app(arguments: list[str]) -> int:
    """Run a command and return its exit code. An error is printed as one line on stderr.

    An exception in the user's own code is printed with a traceback of that code.
    """
    interruption.written[0] = interruption.NOTHING_WRITTEN
    try:
        code = build_app()(arguments or ["--help"], prog_name="halfseen", standalone_mode=False)
    except HalfseenError as error:
        return _print_error(" ".join([str(error), *(f"({note})" for note in getattr(error, "__notes__", ()))]))
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        # Usage errors have this method in all versions of Typer, but their class is not always from the same package.
        if hasattr(error, "format_message"):
            return _print_error(error.format_message())
        if not interruption.signals and type(error).__name__ != "Abort":  # older Typer raises Abort for Ctrl-C
            own = own_traceback(error)
            if own is None:
                raise
            print(own, end="", file=sys.stderr)
            return 1
        code = 130
    if code == 130:
        print(f"Interrupted. {interruption.written[0]}", file=sys.stderr)
        return 128 + (interruption.signals[0] if interruption.signals else signal.SIGINT)
    return code if isinstance(code, int) else 0


def _print_error(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return 2


def build_app() -> typer.Typer:
    """Return the application with all commands."""
    try:
        import rich  # noqa: F401 (checks that it is installed)
        import typer
    except ImportError as error:
        raise missing_extra(error.name or "typer", "experiments", "the command line") from None
    from halfseen.cli.arguments import Command, CommandGroup, global_options
    from halfseen.cli.bench import bench
    from halfseen.cli.catalogue import agents, worlds
    from halfseen.cli.evaluate import evaluate
    from halfseen.cli.health import health
    from halfseen.cli.journal import export_journal, import_journal
    from halfseen.cli.leaderboard import leaderboard
    from halfseen.cli.reproduce import reproduce
    from halfseen.cli.run import run
    from halfseen.cli.serve import serve
    from halfseen.cli.study import study
    from halfseen.cli.token import token_app
    from halfseen.cli.warmup import warmup

    app = typer.Typer(
        cls=CommandGroup,
        help="Contextual bandits whose context is partly hidden and moves over time.",
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(global_options)
    for command in (study, reproduce, run, leaderboard, health, serve, evaluate, bench, warmup, agents, worlds):
        app.command(cls=Command)(command)
    app.command("export", cls=Command)(export_journal)
    app.command("import", cls=Command)(import_journal)
    app.add_typer(token_app, name="token")
    return app


if __name__ == "__main__":
    main()
