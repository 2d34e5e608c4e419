"""Contenders of one job take turns; each is judged by its best of several short runs, after agreeing on the result.

Times are those of the processor, spent by this process in all its threads: a neighbour on the machine is not counted,
and a second thread gains nothing. No run is shorter than SHORTEST, for anybody: a shorter one is mostly the change
from the caches of the contender before.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.errors import HalfseenError

REPEATS, QUICK_REPEATS = 7, 2
SHORTEST = 0.03  # seconds of a run: work that takes less is done several times

OnStep = Callable[[str, float], None]  # what is being done, and the share of the job that is done by then


@dataclass
class Contender:
    """`work`, which is timed, does `units` units of the job; `result` is what is compared with ours."""

    name: str
    work: Callable[[], Any]
    units: int
    note: str = ""
    result: Callable[[], Any] | None = None  # None: what `work` returns
    seconds: Callable[[Any], float] | None = None  # of what `work` returned; None: of the processor
    differs: str = ""  # what it computes instead of ours, for all the checks can tell
    check: Callable[[Any], None] | None = None  # of its result, instead of the comparison with ours
    at_least: float | None = None  # the aim: how many times longer than ours it takes
    at_most: float | None = None  # ... or at most
    at_most_seconds: float | None = None  # ... or a time, where the aim is one


@dataclass
class Job:
    """One thing to be done, by several contenders; the first is ours."""

    title: str
    unit: str
    flops: float  # of one unit, in the form that needs fewest: the formula is in the job's file
    contenders: list[Contender]
    agree: Callable[[Any, Any], None]
    absent: list[str] = field(default_factory=list)  # a line for every peer that does not take part, and why
    repeats: int = REPEATS
    rehearsed: bool = True  # False: what it takes the first time is what is asked for, and the only run
    flop_limit: float | None = None  # the aim: within how many times the time its flops would take in dgemm

    def enter(self, package: str, module: str, make: Callable[[Any, str], Contender]) -> None:
        """Add what `make(module, "package version")` returns, or to `absent` why the peer does not take part."""
        try:
            label = f"{package} {version(package)}"
            loaded = importlib.import_module(module)
        except (ImportError, PackageNotFoundError):
            if (line := f"{package}: not installed") not in self.absent:
                self.absent.append(line)
            return
        try:
            self.contenders.append(make(loaded, label))
        except Exception as error:
            self.absent.append(f"{label}: failed: {_one_line(error)}")


def measure(job: Job, on_step: OnStep = lambda _, __: None, *, quick: bool = False) -> list[dict[str, Any]]:
    """A row a contender: microseconds a unit and the ratio to ours.

    A contender that does not agree stops the run; a peer that fails is named in `job.absent` and left out.
    """
    ours = job.contenders[0]
    repeats = min(job.repeats, QUICK_REPEATS) if quick else job.repeats
    steps, done = len(job.contenders) * (repeats + 1), 0
    ours_result, running, first = None, [], {}
    for contender in job.contenders:
        on_step(f"{contender.name}: checking", done / steps)
        try:
            result = (contender.result or contender.work)()
            if not job.rehearsed and contender.seconds is not None:
                first[contender.name] = contender.seconds(result) / contender.units
            elif contender.result is not None:
                contender.work()  # compiles whatever is still to compile
        except Exception as error:
            if contender is ours:
                raise
            job.absent.append(f"{contender.name}: failed: {_one_line(error)}")
            steps -= repeats + 1
            continue
        done += 1
        if contender is ours:
            ours_result = result
        else:
            _compare(job, contender, ours_result, result)
        running.append(contender)
    samples: dict[str, list[float]] = {contender.name: [] for contender in running}
    times = {contender.name: 1 for contender in running}  # the work is done in one run
    for _ in range(repeats if job.rehearsed else 0):
        for contender in list(running):
            on_step(contender.name, done / steps)
            try:
                taken = _timed(contender, times)
            except Exception as error:
                if contender is ours:
                    raise
                job.absent.append(f"{contender.name}: failed: {_one_line(error)}")
                running.remove(contender)
                continue
            samples[contender.name].append(taken / contender.units)
            done += 1
    best = {contender.name: min(samples[contender.name] or [first[contender.name]]) for contender in running}
    return [
        {
            "contender": contender.name,
            "microseconds": 1e6 * best[contender.name],
            "times_ours": best[contender.name] / best[ours.name],
            "samples": [1e6 * one for one in samples[contender.name] or [first[contender.name]]],
            "at_least": contender.at_least,
            "at_most": contender.at_most,
            "at_most_seconds": contender.at_most_seconds,
            "note": contender.note,
            "differs": contender.differs,
        }
        for contender in running
    ]


def _timed(contender: Contender, times: dict[str, int]) -> float:
    """Seconds of the work, done as often as it takes to fill the shortest run; how often is found out at the first."""
    if contender.seconds is not None:
        return contender.seconds(contender.work())
    while True:
        often = times[contender.name]
        began = time.process_time()
        for _ in range(often):
            contender.work()
        taken = time.process_time() - began
        if taken >= SHORTEST:
            return taken / often
        times[contender.name] = often * 2


def _compare(job: Job, contender: Contender, ours: Any, result: Any) -> None:
    try:
        if contender.check is not None:
            contender.check(result)
        else:
            job.agree(ours, result)
    except AssertionError as error:
        raise HalfseenError(
            f"bench: '{contender.name}' and '{job.contenders[0].name}' disagree in '{job.title}', so nothing is timed "
            f"({_one_line(error)})"
        ) from None


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


# What `make bench` installs beside us, by package.
PACKAGES = (
    "bayesianbandits",
    "contextualbandits",
    "dynamax",
    "filterpy",
    "jax",
    "mabwiser",
    "pykalman",
    "river",
    "simdkalman",
    "statsmodels",
    "vowpalwabbit",
)


def peer_versions() -> dict[str, str]:
    """The version of every peer that is installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


DGEMM_SIZE = 512  # three matrices of 2 MB: large enough for dgemm to reach its rate, small enough for the cache
PRODUCTS = 8  # in one sample
ALONE = 1.2  # the time of all threads, at most, as a multiple of that of the one which asked for the product


def dgemm_seconds(samples: int = 5) -> list[float]:
    """Seconds of one product by this machine's own dgemm, sampled. Refuses to go on if it is not done in one thread:
    the rate would be wrong, and so would the times of all who use BLAS.
    """
    rng = np.random.default_rng(0)
    a, b, out = rng.normal(size=(3, DGEMM_SIZE, DGEMM_SIZE))
    np.dot(a, b, out=out)
    taken = []
    alone = time.thread_time()
    together = time.process_time()
    for _ in range(samples):
        began = time.process_time()
        for _ in range(PRODUCTS):
            np.dot(a, b, out=out)
        taken.append((time.process_time() - began) / PRODUCTS)
    together, alone = time.process_time() - together, time.thread_time() - alone
    if together > ALONE * alone:
        raise HalfseenError(
            f"bench: expected a BLAS with one thread, got one with {together / alone:.1f}. Set OMP_NUM_THREADS and the "
            "variables like it to 1 before NumPy is loaded"
        )
    return taken


def dgemm_rate(seconds: list[float]) -> float:
    """Flops a second, by the best of the samples."""
    return 2.0 * DGEMM_SIZE**3 / min(seconds)


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine_facts() -> dict[str, Any]:
    """What the run was made on."""
    ours = {name: version(name) for name in ("numpy", "scipy", "numba")}
    return {"processor": processor(), "cores": os.cpu_count(), "python": platform.python_version()} | ours


ENVIRONMENT = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
) | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}
PROCESSORS = "HALFSEEN_BENCH_PROCESSORS"  # those the run had before it was held to one; set once it is


def processors() -> set[int]:
    return set(json.loads(os.environ.get(PROCESSORS, "[]")))


def restart_single_threaded(arguments: Sequence[str]) -> None:
    """Restart this process as `halfseen` with the arguments, held to one thread and one processor; once.

    A restart, because a BLAS that is loaded already keeps the threads it has, and what a command line loads before its
    command is reached is not for the command to know.
    """
    if PROCESSORS in os.environ:
        return
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if allowed:
        os.sched_setaffinity(0, {max(allowed)})
    sys.stdout.flush()
    command = [sys.executable, "-m", "halfseen", *arguments]
    os.execve(sys.executable, command, os.environ | ENVIRONMENT | {PROCESSORS: json.dumps(sorted(allowed))})
