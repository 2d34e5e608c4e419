"""The command `halfseen warmup`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from halfseen.cli.terminal import duration, kernel_progress


def warmup(
    check: Annotated[bool, typer.Option("--check", help="Only check whether all kernels are compiled.")] = False,
    jobs: Annotated[int, typer.Option(help="Number of processes. 0 means one per processor.")] = 0,
) -> None:
    """Compile all numerical kernels, for example while a container image is built."""
    from halfseen.experiments.warmup import all_kernels, compile_missing, missing_kernels
    from halfseen.kernels.compiling import cache_folder
    from halfseen.validation import at_least

    processes = at_least("jobs", jobs, 0) or None
    count = len(all_kernels())
    folder, missing = cache_folder(), missing_kernels()
    if folder is None:
        print("No folder for compiled kernels is writable. Set HALFSEEN_CACHE_DIR to a writable folder.")
        raise typer.Exit(1)
    if check:
        if missing:
            print(f"{len(missing)} of {count} kernels are not compiled: {', '.join(missing)}")
            raise typer.Exit(1)
        print(f"All {count} kernels are compiled in {folder}.")
        return
    began = time.perf_counter()
    if missing:
        with kernel_progress() as update:
            compile_missing(processes, update)
        missing = missing_kernels()
    elapsed = duration(time.perf_counter() - began)
    if missing:
        print(f"After {elapsed} of compilation, {folder} still lacks these kernels: {', '.join(missing)}")
        raise typer.Exit(1)
    print(f"All {count} kernels are compiled in {folder}. This took {elapsed}.")
