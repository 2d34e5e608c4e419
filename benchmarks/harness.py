"""Contenders of one job take turns; each is judged by its best of several short runs, after agreeing on the result."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

REPEATS = 7


@dataclass
class Contender:
    """`work`, which is timed, does `units` units of the job; `result` is what is compared with the others."""

    name: str
    work: Callable[[], Any]
    units: int
    note: str = ""
    result: Callable[[], Any] | None = None  # None: what `work` returns
    seconds: Callable[[Any], float] | None = None  # of what `work` returned; None: by the clock on the wall


@dataclass
class Job:
    """One thing to be done, by several contenders; the first is ours."""

    title: str
    unit: str
    contenders: list[Contender]
    agree: Callable[[Any, Any], None]
    missing: list[str] = field(default_factory=list)
    targets: dict[str, float] = field(default_factory=dict)  # contender -> how many times slower than us, at least
    limits: dict[str, float] = field(default_factory=dict)  # ... and at most
    repeats: int = REPEATS


def measure(job: Job) -> list[dict[str, Any]]:
    """Rows: microseconds a unit and the ratio to us. Contenders that do not agree stop the run."""
    results = {contender.name: (contender.result or contender.work)() for contender in job.contenders}
    ours = job.contenders[0]
    for contender in job.contenders[1:]:
        job.agree(results[ours.name], results[contender.name])
    for contender in job.contenders:
        contender.work()  # compiles whatever is still to compile
    best = {contender.name: float("inf") for contender in job.contenders}
    for _ in range(job.repeats):
        for contender in job.contenders:
            began = time.perf_counter()
            done = contender.work()
            taken = contender.seconds(done) if contender.seconds else time.perf_counter() - began
            best[contender.name] = min(best[contender.name], taken / contender.units)
    return [
        {
            "job": job.title,
            "contender": contender.name,
            "microseconds": 1e6 * best[contender.name],
            "unit": job.unit,
            "times_ours": best[contender.name] / best[ours.name],
            "wanted": job.targets.get(contender.name),
            "at_most": job.limits.get(contender.name),
            "note": contender.note,
        }
        for contender in job.contenders
    ]


def peer(module: str, package: str, missing: list[str]) -> tuple[Any, str]:
    """A peer's module and 'name version', or None and a note that it is missing."""
    try:
        return importlib.import_module(module), f"{package} {version(package)}"
    except (ImportError, PackageNotFoundError):
        missing.append(package)
        return None, package
