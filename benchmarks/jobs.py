"""The jobs by name, and the function that runs them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks import em, fleet, harness, kalman, linear_thompson, monte_carlo, online, start_up
from benchmarks.harness import Job, OnStep, measure
from benchmarks.problem import ARMS, LATENT, OBSERVED
from halfseen.cli.terminal import duration
from halfseen.errors import invalid

JOBS: dict[str, Callable[[bool], Job]] = {
    "linear-thompson": linear_thompson.job,
    "kalman-step": kalman.step_job,
    "kalman-series": kalman.series_job,
    "em-500": partial(em.job, 500),
    "em-2000": partial(em.job, 2000),
    "em-5000": partial(em.job, 5000),
    "monte-carlo-kf": partial(monte_carlo.job, "kf-ts"),
    "monte-carlo-emkf": partial(monte_carlo.job, "emkf-ts"),
    "monte-carlo-parts": monte_carlo.breakdown_job,
    "online-kf": partial(online.job, "kf-ts"),
    "online-emkf": partial(online.job, "emkf-ts"),
    "online-adaptive": online.adaptive_job,
    "fleet-kf": partial(fleet.job, "kf-ts"),
    "fleet-ts-pco": partial(fleet.job, "ts-pco"),
    "adaptive-1": partial(online.amortised_job, 1),
    "adaptive-4": partial(online.amortised_job, 4),
    "adaptive-decide": online.slowest_job,
    "import": start_up.imports,
    "warm-start": start_up.warm,
    "cold-start": start_up.cold,
}


def chosen(names: Sequence[str]) -> list[str]:
    """Return the given names without duplicates, or the names of all jobs if none are given."""
    for name in names:
        if name not in JOBS:
            raise invalid("job", f"one of: {', '.join(JOBS)}", f"'{name}'")
    return list(dict.fromkeys(names)) or list(JOBS)


OnJob = Callable[[str, int, int], OnStep]  # called with the name of a job, its position and the number of jobs


def run_jobs(
    jobs: Mapping[str, Callable[[bool], Job]], names: Sequence[str], on_job: OnJob, *, quick: bool = False
) -> dict[str, Any]:
    """Run the named jobs. The matrix product dgemm is timed before every job, and its best time counts."""
    products: dict[str, list[float]] = {}
    done = []
    load = [_load()]
    for number, name in enumerate(names):
        on_step = on_job(name, number, len(names))
        on_step("setting up", 0.0)
        products[f"before {name}"] = harness.dgemm_seconds()
        job = jobs[name](quick)
        rows = measure(job, on_step, quick=quick)
        done.append(
            {
                "name": name,
                "title": job.title,
                "unit": job.unit,
                "flops": job.flops,
                "flop_limit": job.flop_limit,
                "absent": job.absent,
                "contenders": rows,
            }
        )
    products["at the end"] = harness.dgemm_seconds()
    rate = harness.dgemm_rate([one for taken in products.values() for one in taken])
    for entry in done:
        add_shares(entry, rate)
    return {
        "sizes": {"latent": LATENT, "observed": OBSERVED, "arms": ARMS},
        "quick": quick,
        "machine": harness.machine_facts() | {"system": platform.system(), "load": [*load, _load()]},
        "dgemm_gflops": rate / 1e9,
        "dgemm_seconds": products,
        "peers": harness.peer_versions(),
        "jobs": done,
    }


def _load() -> float:
    """Return the load average of the last minute, or NaN if the system does not provide it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def add_shares(entry: dict[str, Any], rate: float) -> None:
    """Add the time that dgemm would take for the flops of a unit, and the rate of each contender relative to dgemm."""
    entry["limit_microseconds"] = 1e6 * entry["flops"] / rate
    for row in entry["contenders"]:
        row["dgemm_share"] = entry["limit_microseconds"] / row["microseconds"]


@contextmanager
def job_progress() -> Iterator[OnJob]:
    """Show a bar on stderr while jobs run, or one line per job if stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[doing]}"))
    bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
    task = bar.add_task("", total=1.0, doing="")
    began = time.perf_counter()

    def print_line(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    def on_job(name: str, number: int, count: int) -> OnStep:
        description = f"{name} ({number + 1} of {count})"
        if bar.disable:
            print_line(description)

        def on_step(doing: str, share: float) -> None:
            bar.update(task, description=description, doing=doing, completed=(number + share) / count)

        return on_step

    with bar:
        yield on_job
    print_line(f"done in {duration(time.perf_counter() - began)}")
