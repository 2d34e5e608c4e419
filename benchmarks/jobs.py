"""The jobs by name, in the order in which they are run; and the run of some of them."""

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
    """The names asked for, each once; all where none is."""
    for name in names:
        if name not in JOBS:
            raise invalid("job", f"one of: {', '.join(JOBS)}", f"'{name}'")
    return list(dict.fromkeys(names)) or list(JOBS)


OnJob = Callable[[str, int, int], OnStep]  # name of a job, its number, how many there are


def run_jobs(
    jobs: Mapping[str, Callable[[bool], Job]], names: Sequence[str], on_job: OnJob, *, quick: bool = False
) -> dict[str, Any]:
    """Every job named, in turn. dgemm is timed before each of them and its best counts."""
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
    """How many processes the machine was running on average in the last minute; NaN where it does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def add_shares(entry: dict[str, Any], rate: float) -> None:
    """What the flops of a unit would take in dgemm, and the share of that rate at which each contender does them."""
    entry["limit_microseconds"] = 1e6 * entry["flops"] / rate
    for row in entry["contenders"]:
        row["dgemm_share"] = entry["limit_microseconds"] / row["microseconds"]


@contextmanager
def job_progress() -> Iterator[OnJob]:
    """Show a bar on stderr while jobs run, or a line a job where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[doing]}"))
    bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
    task = bar.add_task("", total=1.0, doing="")
    began = time.perf_counter()

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    def on_job(name: str, number: int, count: int) -> OnStep:
        if bar.disable:
            say(f"{name} ({number + 1} of {count})")

        def on_step(doing: str, share: float) -> None:
            place = f"{name} ({number + 1} of {count})"
            bar.update(task, description=place, doing=doing, completed=(number + share) / count)

        return on_step

    with bar:
        yield on_job
    say(f"done in {duration(time.perf_counter() - began)}")
