"""The command `halfseen bench`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from halfseen.errors import HalfseenError

CLONE = Path(__file__).resolve().parents[3]  # the root of the repository, if the package is used from a clone


def bench(
    jobs: Annotated[list[str] | None, typer.Argument(metavar="JOB", help="Jobs to run.", show_default="all")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller jobs with fewer repetitions, as a check.")] = False,
    list_jobs: Annotated[bool, typer.Option("--list", help="List the names of the jobs and exit.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for bench.json, the tables and the chart.")] = Path("results/bench"),
) -> None:
    """Measure the speed of halfseen, of other libraries and of plain NumPy in one thread."""
    if not (CLONE / "benchmarks" / "jobs.py").is_file():
        raise HalfseenError(
            "The installed package does not contain the benchmarks. Run `make bench` in a clone of the repository, "
            "which also installs the other libraries."
        )
    if str(CLONE) not in sys.path:
        sys.path.insert(0, str(CLONE))
    arguments = ["bench", *(jobs or []), "--out", str(out), *["--quick"] * quick, *["--list"] * list_jobs]
    _module("harness").restart_single_threaded(arguments)

    from halfseen.cli.terminal import print_written
    from halfseen.reports.files import check_folder

    known = _module("jobs")
    if list_jobs:
        print("\n".join(known.JOBS))
        return
    names = known.chosen(jobs or [])
    check_folder(out)
    with known.job_progress() as on_job:
        results = known.run_jobs(known.JOBS, names, on_job, quick=quick)
    report = _module("report")
    report.show(results)
    print_written(report.save(results, out))


def _module(name: str) -> Any:
    return import_module(f"benchmarks.{name}")
