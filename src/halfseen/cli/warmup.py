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
    from halfseen.compiler.cache import folder
    from halfseen.kernels.warmup import compile_missing, missing, units
    from halfseen.validation import at_least

    processes = at_least("jobs", jobs, 0) or None
    everything = f"all {sum(len(unit.kernels) for unit in units().values())} kernels"
    left = missing()
    if check:
        if left:
            print(f"{len(left)} of {len(units())} files of kernels are not compiled: {', '.join(left)}")
            raise typer.Exit(1)
        print(f"{everything} are compiled, in {folder()}")
        return
    began = time.perf_counter()
    if left:
        with kernel_progress() as update:
            compile_missing(processes, update)
        left = missing()
    taken = duration(time.perf_counter() - began)
    if left:
        print(f"compiled in {taken}, but {folder()} keeps no {', '.join(left)}")
        raise typer.Exit(1)
    print(f"{everything} are compiled, in {folder()}; this took {taken}")
