"""The command line: thin. Typer, rich and the numerics are loaded when a command needs them."""

# No `from __future__ import annotations`: Typer reads the annotations of commands that are defined in a function.

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from halfseen.errors import HalfseenError, invalid, missing_extra
from halfseen.terminal import (
    cell_progress,
    print_claims,
    print_leaderboard,
    print_results,
    print_table,
    print_written,
    progress,
)

if TYPE_CHECKING:
    import typer

    from halfseen.experiments.result import Result
    from halfseen.experiments.specs import Experiment

_AGENTS_HELP = (
    "Agents, separated by commas; an agent's options follow a colon: "
    "kf-ts,ts-pco:width=0.5,delta=0.2 are two. May be given several times."
)


def main() -> None:
    """The console script."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # not all of them on Windows
            signal.signal(getattr(signal, name), _interrupt)
    sys.exit(run_app(sys.argv[1:]))


_interrupted: list[int] = []


def _interrupt(number: int, _: object) -> None:
    """Remember the signal: what it interrupts, a compilation for one, may turn it into an error of another kind."""
    _interrupted.append(number)
    raise KeyboardInterrupt


def run_app(arguments: list[str]) -> int:
    """Run a command; the exit code. What went wrong is one line on stderr."""
    left = ["nothing was written"]
    try:
        code = build_app(left)(arguments or ["--help"], prog_name="halfseen", standalone_mode=False)
    except HalfseenError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        # Typer's usage errors have this method in every version; their class has moved between packages.
        if hasattr(error, "format_message"):
            return _refuse(error.format_message())
        if not _interrupted and type(error).__name__ != "Abort":  # what older versions make of Ctrl-C
            raise
        code = 130
    if code == 130:
        print(f"interrupted; {left[0]}", file=sys.stderr)
        return 128 + (_interrupted[0] if _interrupted else signal.SIGINT)
    return code if isinstance(code, int) else 0


def _refuse(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return 2


def build_app(left: list[str] | None = None) -> "typer.Typer":
    """The commands. One that keeps what it has done when it is interrupted says so in `left[0]`."""
    try:
        import rich  # noqa: F401 (only to know that it is there)
        import typer
    except ImportError as error:
        raise missing_extra(error.name or "typer", "experiments", "the command line") from None

    app = typer.Typer(
        help="Contextual bandits whose context is only partly seen and moves over time.",
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    FirstSeed = Annotated[int, typer.Option(min=0, help="The first seed; the others follow it.")]
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
        first_seed: FirstSeed = 0,
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
        from halfseen.experiments.files import check_folder
        from halfseen.experiments.reproduce import AGENTS, NOISE, paper_experiment, save_reproduction

        check_folder(out)
        plan = paper_experiment(
            rounds=rounds,
            seeds=seeds,
            first_seed=first_seed,
            noise=NOISE if noise is None else split_numbers("noise", noise),
            agents=AGENTS if agents is None else split_specs(agents),
            quick=quick,
        )
        result = _play(plan, jobs)
        claims = judge_claims(result)
        print_results(result)
        print_claims(claims)
        print_written(save_reproduction(result, claims, out))

    @app.command()
    def run(
        worlds: Annotated[list[str], typer.Argument(metavar="WORLD", help="Worlds, such as: orbit paper:noise=0.5")],
        agents: Annotated[list[str], typer.Option(help=_AGENTS_HELP)],
        rounds: Annotated[int, typer.Option(min=1, help="Rounds to play.")] = 10_000,
        seeds: Annotated[int, typer.Option(min=1, help="Replications.")] = 20,
        first_seed: FirstSeed = 0,
        jobs: Jobs = None,
        out: Annotated[
            Path | None, typer.Option(help="Folder for the figure and data.", show_default="nothing is written")
        ] = None,
    ) -> None:
        """Play any agents in any worlds."""
        from halfseen.experiments.files import check_folder, staged
        from halfseen.experiments.specs import experiment, seed_range

        if out is not None:
            check_folder(out)
        result = _play(experiment(split_specs(agents), worlds, rounds, seed_range(seeds, first_seed)), jobs)
        print_results(result)
        if out is not None:
            with staged(out) as stage:
                result.save(stage)
                names = sorted(path.name for path in stage.iterdir())
            print_written([out / name for name in names])

    @app.command()
    def leaderboard(
        agents: Annotated[list[str] | None, typer.Option(help=_AGENTS_HELP, show_default="all of them")] = None,
        worlds: Annotated[
            list[str] | None,
            typer.Option(help="Worlds, given as agents are: orbit,switch:at=500", show_default="all of them"),
        ] = None,
        rounds: Annotated[int, typer.Option(min=1, help="Rounds to play.")] = 3_000,
        seeds: Annotated[int, typer.Option(min=1, help="Replications.")] = 50,
        first_seed: FirstSeed = 0,
        jobs: Jobs = None,
        out: Annotated[Path, typer.Option(help="Folder for the tables and for what is done so far.")] = Path(
            "results/leaderboard"
        ),
        fresh: Annotated[bool, typer.Option("--fresh", help="Discard what is done so far.")] = False,
        markdown: Annotated[
            Path | None, typer.Option(help="A file for the tables as Markdown, too.", show_default="only in the folder")
        ] = None,
    ) -> None:
        """Play every agent in every world, each beside kf-ts. Interrupted, the same command goes on."""
        from halfseen.experiments import leaderboard as boards
        from halfseen.experiments.files import check_folder
        from halfseen.experiments.leaderboard_tables import failure_lines
        from halfseen.experiments.specs import seed_range
        from halfseen.savefile import write_atomically

        check_folder(out)
        if markdown is not None:
            check_folder(markdown.parent, "markdown")
            if markdown.is_dir():
                raise invalid("markdown", f"'{markdown}'", "the name of a file")
        entrants = None if agents is None else split_specs(agents)
        places = None if worlds is None else split_specs(worlds)
        numbers = seed_range(seeds, first_seed)
        plan = boards.leaderboard_plan(entrants, places, rounds, numbers)
        with cell_progress(_size(plan)) as show:

            def told(now: boards.Progress) -> None:
                kept = now.done - now.failed
                if left is not None and kept:
                    again = "the same command" + " without --fresh" * fresh
                    left[0] = f"{kept} of {now.total} cells are kept in {out}; {again} goes on from there"
                if _interrupted:  # and turned into something else on its way
                    raise KeyboardInterrupt
                show(now)

            board = boards.leaderboard(
                entrants,
                worlds=places,
                rounds=rounds,
                seeds=numbers,
                jobs=jobs or _cores(),
                out=out,
                fresh=fresh,
                progress=told,
            )
        print_leaderboard(board)
        written = [out / name for name in boards.FILES]
        if markdown is not None:
            command = f"{board.summary['command']} --markdown {shlex.quote(str(markdown))}"
            markdown.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(markdown, board.markdown(command).encode())
            written.append(markdown)
        print_written(written)
        for line in failure_lines(board):
            print(f"failed: {line}", file=sys.stderr)
        if board.summary["failures"]:
            raise typer.Exit(1)

    @app.command()
    def agents() -> None:
        """List the agents."""
        from halfseen.catalogue import CATALOG

        print_table(CATALOG.table(), "Agents", least_worth=("learner", "estimator", "chooser", "told"))

    @app.command()
    def worlds() -> None:
        """List the named worlds."""
        from halfseen.worlds.named import world_table

        print_table(world_table(), "Worlds")

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

    with progress(_size(plan)) as told:
        return run_experiment(plan, jobs=jobs or _cores(), progress=told)


def _size(plan: "Experiment") -> str:
    counts = {"agent": len(plan.agents), "world": len(plan.worlds), "seed": len(plan.seeds), "round": plan.rounds}
    return " × ".join(f"{count:,} {word}{'s' * (count > 1)}" for word, count in counts.items())


if __name__ == "__main__":
    main()
