"""Every kernel, compiled ahead of its first use, in parallel."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pkgutil
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from halfseen import kernels
from halfseen.compiler.units import Unit, all_units
from halfseen.errors import HalfseenError


def units() -> dict[str, Unit]:
    """All files with kernels, by name."""
    for one in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        importlib.import_module(one.name)
    importlib.import_module("halfseen.kernels.random")
    return {one.name: one for one in all_units() if one.module.startswith("halfseen.")}


def missing() -> list[str]:
    """The files whose kernels are not compiled: they would be when first used."""
    return [name for name, unit in units().items() if not unit.compiled]


def compile_missing(jobs: int | None = None, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Compile them in `jobs` processes (as many as there are processors); `progress` hears files done, all.

    Each process takes the next when it has finished one, the longest first.
    """
    everything = units()
    names = sorted(missing(), key=lambda name: -_size(everything[name]))
    progress(0, len(names))
    workers = min(jobs or _processors(), len(names)) or 1
    try:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            for done, finished in enumerate(as_completed([pool.submit(_compile, name) for name in names]), 1):
                finished.result()
                progress(done, len(names))
    except BrokenProcessPool:
        raise HalfseenError("warmup: a process that compiled ended early; want memory for all, or fewer jobs") from None


def _size(unit: Unit) -> int:
    return sum(len(one.python.__code__.co_code) for one in unit.kernels)


def _compile(name: str) -> None:
    units()[name].compile()


def _processors() -> int:
    affinity: Sequence[int] | set[int] = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    return len(affinity)
