"""`halfseen warmup`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from halfseen.cli.terminal import duration, kernel_progress


def warmup(
    check: Annotated[bool, typer.Option("--check", help="Compile nothing; say whether all is compiled.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes; 0 for one a processor.")] = 0,
) -> None:
    """Compile all numerical kernels now, for instance while an image is built."""
    from halfseen.experiments.warmup import all_kernels, compile_missing, missing_kernels
    from halfseen.kernels.compiling import cache_folder
    from halfseen.validation import at_least

    processes = at_least("jobs", jobs, 0) or None
    everything = f"all {len(all_kernels())} kernels"
    folder, left = cache_folder(), missing_kernels()
    if folder is None:
        print("no folder for compiled kernels can be written to; HALFSEEN_CACHE_DIR names another")
        raise typer.Exit(1)
    if check:
        if left:
            print(f"{len(left)} of {len(all_kernels())} kernels are not compiled: {', '.join(left)}")
            raise typer.Exit(1)
        print(f"{everything} are compiled, in {folder}")
        return
    began = time.perf_counter()
    if left:
        with kernel_progress() as update:
            compile_missing(processes, update)
        left = missing_kernels()
    taken = duration(time.perf_counter() - began)
    if left:
        print(f"compiled in {taken}, but {folder} keeps no {', '.join(left)}")
        raise typer.Exit(1)
    print(f"{everything} are compiled, in {folder}; this took {taken}")
