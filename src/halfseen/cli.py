"""The command line: thin. Typer, rich and the numerics are loaded when a command needs them."""

# No `from __future__ import annotations`: Typer reads the annotations of commands that are defined in a function.

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halfseen.errors import HalfseenError, invalid, missing_extra

if TYPE_CHECKING:
    import typer
    from rich.console import Console

    from halfseen.experiments.claims import Claim
    from halfseen.experiments.result import Result
    from halfseen.experiments.specs import Experiment
    from halfseen.table import Table

_AGENTS_HELP = (
    "Agents, separated by commas; an agent's options follow a colon: "
    "kf-ts,ts-pco:width=0.5,delta=0.2 are two. May be given several times."
)
_COMPILING = "on the first run the kernels are compiled, once: this takes about half a minute"
_PATIENCE_SECONDS = 4.0  # importing takes up to two; longer without a round played means compiling
_NAME_WIDTH = 20  # a longer name may wrap before a column is left out
_LEAST_WORTH = ("rounds/s", "mean ‖x−x̂‖", "median")  # columns left out first where the terminal is narrow


def main() -> None:
    """The console script."""
    sys.exit(run_app(sys.argv[1:]))


def run_app(arguments: list[str]) -> int:
    """Run a command; the exit code. What went wrong is one line on stderr."""
    try:
        code = build_app()(arguments, prog_name="halfseen", standalone_mode=False)
    except HalfseenError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        # Typer's usage errors have this method in every version; their common class has moved between packages.
        if not hasattr(error, "format_message"):
            if type(error).__name__ != "Abort":
                raise
            code = 130
        else:
            return _refuse(error.format_message())
    if code == 130:
        print("interrupted; nothing was written", file=sys.stderr)
    return code if isinstance(code, int) else 0


def _refuse(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return 2


def build_app() -> "typer.Typer":
    """The commands."""
    try:
        import rich  # noqa: F401 (only to know that it is there)
        import typer
    except ImportError as error:
        raise missing_extra(error.name or "typer", "experiments", "the command line") from None

    app = typer.Typer(
        help="Contextual bandits whose context is only partly seen and moves over time.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    Jobs = Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="all cores")]

    def show_version(wanted: bool) -> None:
        if wanted:
            print(f"halfseen {_version()}")
            raise typer.Exit

    @app.callback()
    def halfseen_app(
        version: Annotated[
            bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
        ] = False,
    ) -> None:
        pass

    @app.command()
    def reproduce(
        rounds: Annotated[
            int | None, typer.Option(min=1, help="Rounds to play.", show_default="10000, quick: 1000")
        ] = None,
        seeds: Annotated[int | None, typer.Option(min=1, help="Replications.", show_default="20, quick: 5")] = None,
        noise: Annotated[
            list[str] | None, typer.Option(help="Noise levels ε, separated by commas.", show_default="0.01,0.1,1")
        ] = None,
        agents: Annotated[list[str] | None, typer.Option(help=_AGENTS_HELP, show_default="those of the paper")] = None,
        jobs: Jobs = None,
        out: Annotated[Path, typer.Option(help="Folder for the figure, report and data.")] = Path("results/paper"),
        quick: Annotated[bool, typer.Option("--quick", help="A small run, in seconds.")] = False,
    ) -> None:
        """Run the paper's experiment: figure, report with a verdict on every claim, data."""
        from halfseen.experiments.claims import judge_claims
        from halfseen.experiments.reproduce import (
            AGENTS,
            NOISE,
            check_folder,
            paper_experiment,
            save_reproduction,
        )

        check_folder(out)
        plan = paper_experiment(
            rounds=rounds,
            seeds=seeds,
            noise=NOISE if noise is None else split_numbers("noise", noise),
            agents=AGENTS if agents is None else split_specs(agents),
            quick=quick,
        )
        result = _play(plan, jobs)
        claims = judge_claims(result)
        written = save_reproduction(result, claims, out)
        _print_results(result)
        _print_claims(claims)
        _print_written(written)

    @app.command()
    def run(
        worlds: Annotated[list[str], typer.Argument(metavar="WORLD", help="Worlds, such as: orbit paper:noise=0.5")],
        agents: Annotated[list[str], typer.Option(help=_AGENTS_HELP)],
        rounds: Annotated[int, typer.Option(min=1, help="Rounds to play.")] = 10_000,
        seeds: Annotated[int, typer.Option(min=1, help="Replications.")] = 20,
        jobs: Jobs = None,
        out: Annotated[
            Path | None, typer.Option(help="Folder for the figure and data.", show_default="nothing is written")
        ] = None,
    ) -> None:
        """Play any agents in any worlds."""
        from halfseen.experiments.reproduce import check_folder, staged
        from halfseen.experiments.specs import experiment

        if out is not None:
            check_folder(out)
        result = _play(experiment(split_specs(agents), worlds, rounds, seeds), jobs)
        if out is not None:
            with staged(out) as stage:
                result.save(stage)
                names = sorted(path.name for path in stage.iterdir())
        _print_results(result)
        if out is not None:
            _print_written([out / name for name in names])

    @app.command()
    def agents() -> None:
        """List the agents."""
        from halfseen.catalogue import CATALOG

        _print_table(CATALOG.table(), "Agents", least_worth=("learner", "estimator", "chooser", "told"))

    @app.command()
    def worlds() -> None:
        """List the named worlds."""
        _print_table(_world_table(), "Worlds")

    return app


def split_specs(given: Sequence[str]) -> list[str]:
    """Agents out of comma lists. A part that starts with `key=` is a further option of the agent before it."""
    specs: list[str] = []
    for part in (part.strip() for text in given for part in text.split(",") if part.strip()):
        if specs and "=" in part.partition(":")[0]:
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return specs


def split_numbers(argument: str, given: Sequence[str]) -> list[float]:
    """Numbers out of comma lists."""
    numbers = []
    for part in (part.strip() for text in given for part in text.split(",")):
        try:
            numbers.append(float(part))
        except ValueError:
            raise invalid(argument, f"'{part}'", "numbers separated by commas") from None
    return numbers


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("halfseen")
    except PackageNotFoundError:
        return "(not installed)"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _play(plan: "Experiment", jobs: int | None) -> "Result":
    from halfseen.experiments.run import run_experiment

    size = f"{len(plan.agents)} agents × {len(plan.worlds)} worlds × {len(plan.seeds)} seeds × {plan.rounds:,} rounds"
    with _progress(size) as told:
        return run_experiment(plan, jobs=jobs or _cores(), progress=told)


@contextmanager
def _progress(size: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr with the time left and the speed, or two plain lines where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[speed]}"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    task = bar.add_task("playing", total=None, speed="")
    began = time.perf_counter()

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    def told(done: int, total: int) -> None:
        if done:
            notice.cancel()
            speed = f"{done / (time.perf_counter() - began):,.0f} rounds/s"
            bar.update(task, completed=done, total=total, speed=speed)

    say(f"playing {size}")
    notice = threading.Timer(_PATIENCE_SECONDS, say, [_COMPILING])
    notice.daemon = True
    notice.start()
    try:
        with bar:
            yield told
    finally:
        notice.cancel()
    say(f"done in {time.perf_counter() - began:.1f} s")


def _print_results(result: "Result") -> None:
    from halfseen.table import Table

    rows = result.table().rows
    for world in result.worlds:
        own = [{k: v for k, v in row.items() if k != "world"} for row in rows if row["world"] == world]
        _print_table(Table(own), world, least_worth=_LEAST_WORTH, numeric=True)


def _print_claims(claims: Sequence["Claim"]) -> None:
    from halfseen.table import Table

    rows = [
        {"claim": claim.title, "paper's setting": claim.verdict, "beside it": claim.verdict_elsewhere}
        for claim in claims
    ]
    _print_table(Table([{name: str(cell) for name, cell in row.items()} for row in rows]), "The paper's claims")


def _print_written(paths: Sequence[Path]) -> None:
    print("\nwritten:")
    for path in paths:
        print(f"  {path}")


def _world_table() -> "Table":
    import inspect

    from halfseen.table import Table
    from halfseen.worlds import NAMED

    rows = []
    for name, make in NAMED.items():
        settings = make().settings()
        rows.append(
            {
                "world": name,
                "d": str(settings["latent"]),
                "k": str(settings["observed"]),
                "K": str(settings["arms"]),
                "options": ", ".join(f"{p.name}={p.default:g}" for p in inspect.signature(make).parameters.values()),
                "what it is": (make.__doc__ or "").strip(),
            }
        )
    return Table(rows)


def _print_table(
    table: "Table", title: str, *, least_worth: Sequence[str] = (), numeric: bool = False, to: "Console | None" = None
) -> None:
    """A table as wide as the terminal allows: columns of least worth go first, then text wraps; numbers never do."""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = to or Console()
    widths: dict[str, int] = {
        column: max(cell_len(text) for text in [column, *[row[column] for row in table.rows]])
        for column in table.columns
    }
    first = table.columns[0]
    widths[first] = min(widths[first], _NAME_WIDTH)
    for column in least_worth:
        if sum(widths.values()) + 3 * len(widths) <= console.width:
            break
        widths.pop(column, None)
    view = RichTable(title=Text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for at, column in enumerate(widths):
        is_number = numeric and at > 0
        view.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in table.rows:
        view.add_row(*[_coloured(row[column]) for column in widths])
    console.print(view)


def _coloured(text: str) -> Any:
    from rich.text import Text

    return Text(text, style={"holds": "green", "does not hold": "red", "undecided": "yellow"}.get(text, ""))


if __name__ == "__main__":
    main()
