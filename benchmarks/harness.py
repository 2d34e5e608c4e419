"""Measures the contenders of a job. They must agree on the result. They run in turn, and the best run of each counts.

Times are the processor time of this process, summed over its threads. So they exclude the time of other processes, and
a second thread does not make them shorter. Every run takes at least SHORTEST seconds, because shorter runs mostly
measure cold caches.
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
SHORTEST = 0.03  # the shortest run in seconds. Shorter work is repeated within the run.

OnStep = Callable[[str, float], None]  # called with a description of the step and the finished share of the job


@dataclass
class Contender:
    """One way to do a job, such as a library. `work` is timed and does `units` units of the job."""

    name: str
    work: Callable[[], Any]
    units: int
    note: str = ""
    result: Callable[[], Any] | None = None  # returns the result to compare. None: the return value of `work`.
    seconds: Callable[[Any], float] | None = None  # maps the return value of `work` to its time. None: processor time.
    differs: str = ""  # how its computation differs from the computation of the first contender, if it does
    check: Callable[[Any], None] | None = None  # checks the result. None: it is compared with the first contender's
    at_least: float | None = None  # aim: the least ratio of its time to the first contender's time
    at_most: float | None = None  # aim: the greatest ratio of its time to the first contender's time
    at_most_seconds: float | None = None  # aim: the greatest time


@dataclass
class Job:
    """A task for several contenders. All other contenders are compared with the first one, usually halfseen."""

    title: str
    unit: str
    flops: float  # flops per unit in the most economical form, by the formula in the job's file
    contenders: list[Contender]
    agree: Callable[[Any, Any], None]
    absent: list[str] = field(default_factory=list)  # one line per library that is not measured, with the reason
    repeats: int = REPEATS
    rehearsed: bool = True  # False: only the first run is measured, including compilation
    flop_limit: float | None = None  # aim: the greatest ratio of the time to dgemm's time for the same flops

    def enter(self, package: str, module: str, make: Callable[[Any, str], Contender]) -> None:
        """Add the contender `make(module, "package version")`. If it cannot be made, add the reason to `absent`."""
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
    """Return one row per contender, with microseconds per unit and the ratio to the first contender.

    A contender with a different result stops the run. A contender that raises an exception is left out and listed in
    `job.absent`.
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
                contender.work()  # compiles what `result` did not compile
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
    repetitions = {contender.name: 1 for contender in running}  # how often one run repeats the work
    for _ in range(repeats if job.rehearsed else 0):
        for contender in list(running):
            on_step(contender.name, done / steps)
            try:
                taken = _timed(contender, repetitions)
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


def _timed(contender: Contender, repetitions: dict[str, int]) -> float:
    """Return the seconds that the work takes. `repetitions` is doubled until a run is long enough."""
    if contender.seconds is not None:
        return contender.seconds(contender.work())
    while True:
        count = repetitions[contender.name]
        began = time.process_time()
        for _ in range(count):
            contender.work()
        taken = time.process_time() - began
        if taken >= SHORTEST:
            return taken / count
        repetitions[contender.name] = count * 2


def _compare(job: Job, contender: Contender, ours: Any, result: Any) -> None:
    try:
        if contender.check is not None:
            contender.check(result)
        else:
            job.agree(ours, result)
    except AssertionError as error:
        raise HalfseenError(
            f"The results of '{contender.name}' and '{job.contenders[0].name}' differ in '{job.title}', so the "
            f"benchmark was stopped ({_one_line(error)})"
        ) from None


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


# The other libraries, which `make bench` installs.
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
    """Return the versions of those other libraries that are installed."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


DGEMM_SIZE = 512  # matrices of 2 MB, large enough for dgemm to reach its full rate and small enough for the cache
PRODUCTS = 8  # matrix products per sample
SINGLE_THREAD = 1.2  # upper limit for the ratio of the processor time of all threads to that of this thread


def dgemm_seconds(samples: int = 5) -> list[float]:
    """Return samples of the seconds that dgemm takes for one product.

    Raises if dgemm uses several threads, because all measured times would be wrong.
    """
    rng = np.random.default_rng(0)
    a, b, out = rng.normal(size=(3, DGEMM_SIZE, DGEMM_SIZE))
    np.dot(a, b, out=out)
    taken = []
    this_thread = time.thread_time()
    all_threads = time.process_time()
    for _ in range(samples):
        began = time.process_time()
        for _ in range(PRODUCTS):
            np.dot(a, b, out=out)
        taken.append((time.process_time() - began) / PRODUCTS)
    all_threads, this_thread = time.process_time() - all_threads, time.thread_time() - this_thread
    if all_threads > SINGLE_THREAD * this_thread:
        raise HalfseenError(
            f"BLAS uses {all_threads / this_thread:.1f} threads instead of one. Set OMP_NUM_THREADS and similar "
            "variables to 1 before NumPy is imported."
        )
    return taken


def dgemm_rate(seconds: list[float]) -> float:
    """Return the flops per second of the best sample."""
    return 2.0 * DGEMM_SIZE**3 / min(seconds)


def processor() -> str:
    """Return the name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine_facts() -> dict[str, Any]:
    """Return the processor and the versions of Python and of the numerical packages."""
    packages = {name: version(name) for name in ("numpy", "scipy", "numba")}
    return {"processor": processor(), "cores": os.cpu_count(), "python": platform.python_version()} | packages


ENVIRONMENT = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
) | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}
PROCESSORS = "HALFSEEN_BENCH_PROCESSORS"  # environment variable with the processors available before the restart


def processors() -> set[int]:
    return set(json.loads(os.environ.get(PROCESSORS, "[]")))


def restart_single_threaded(arguments: Sequence[str]) -> None:
    """Restart this process as `halfseen` with the arguments, limited to one thread and one processor.

    A restart is needed because the number of BLAS threads cannot be changed after NumPy was imported. A restarted
    process is not restarted again.
    """
    if PROCESSORS in os.environ:
        return
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if allowed:
        os.sched_setaffinity(0, {max(allowed)})
    sys.stdout.flush()
    command = [sys.executable, "-m", "halfseen", *arguments]
    os.execve(sys.executable, command, os.environ | ENVIRONMENT | {PROCESSORS: json.dumps(sorted(allowed))})
