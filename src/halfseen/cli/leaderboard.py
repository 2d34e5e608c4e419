"""The command `halfseen leaderboard`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from halfseen.cli import interruption
from halfseen.cli.arguments import AGENTS_HELP, Cluster, FirstSeed, Import, Jobs, import_modules, split_specs
from halfseen.cli.experiment import describe_size, processes
from halfseen.cli.terminal import print_leaderboard, print_written, slice_progress
from halfseen.errors import invalid


def leaderboard(
    agents: Annotated[list[str] | None, typer.Option(help=AGENTS_HELP, show_default="all agents")] = None,
    worlds: Annotated[
        list[str] | None,
        typer.Option(help="Worlds, separated by commas, such as orbit,switch:at=500.", show_default="twelve worlds"),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")] = 3_000,
    seeds: Annotated[int, typer.Option(min=1, help="Number of replications.")] = 50,
    first_seed: FirstSeed = 0,
    jobs: Jobs = None,
    cluster: Cluster = None,
    out: Annotated[Path, typer.Option(help="Folder for the tables and the saved slices.")] = Path(
        "results/leaderboard"
    ),
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the saved slices. This is the default.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the saved slices and start again.")] = False,
    markdown: Annotated[
        Path | None,
        typer.Option(help="Another file for the tables as Markdown.", show_default="only in the folder"),
    ] = None,
    modules: Import = None,
) -> None:
    """Compare every agent with kf-ts in every world. To continue an interrupted run, repeat the command."""
    from halfseen.experiments import leaderboard as boards
    from halfseen.experiments.plan import seed_range
    from halfseen.experiments.slice_schedule import Progress
    from halfseen.reports.files import check_folder, write_atomically
    from halfseen.reports.tables import failure_lines

    if resume and fresh:
        raise invalid("resume", "either --resume or --fresh", "both")
    count = processes(jobs, cluster)
    import_modules(modules)
    check_folder(out)
    if markdown is not None:
        check_folder(markdown.parent, "markdown")
        if markdown.is_dir():
            raise invalid("markdown", "the name of a file", f"'{markdown}'")
    specs = None if agents is None else split_specs(agents)
    world_specs = None if worlds is None else split_specs(worlds)
    numbers = seed_range(seeds, first_seed)
    plan = boards.leaderboard_plan(specs, world_specs, rounds, numbers)
    with slice_progress(describe_size(plan)) as show:

        def update(now: Progress) -> None:
            done = now.done - now.failed
            if done:
                command = "the same command" + " without --fresh" * fresh
                interruption.written[0] = (
                    f"{done} of {now.total} slices are saved in {out}. To continue, run {command}."
                )
            if interruption.signals:  # the slice may have failed because of the signal
                raise KeyboardInterrupt
            show(now)

        board = boards.leaderboard(
            specs,
            worlds=world_specs,
            rounds=rounds,
            seeds=numbers,
            jobs=count,
            cluster=cluster,
            out=out,
            fresh=fresh,
            progress=update,
        )
    print_leaderboard(board)
    written = [out / name for name in boards.FILES]
    if markdown is not None:
        command = board.summary["command"] and f"{board.summary['command']} --markdown {shlex.quote(str(markdown))}"
        markdown.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(markdown, board.markdown(command).encode())
        written.append(markdown)
    print_written(written)
    for line in failure_lines(board.summary):
        print(f"failed: {line}", file=sys.stderr)
    if board.summary["failures"]:
        raise typer.Exit(1)
