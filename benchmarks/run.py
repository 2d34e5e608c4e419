"""Run jobs, and what comes of it: a plain dictionary, which the tables and the chart are made from."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import machine, peers
from benchmarks.harness import Job, Told, measure
from benchmarks.settings import ARMS, LATENT, OBSERVED

Starting = Callable[[str, int, int], Told]  # name of a job, its number, how many there are


def run_jobs(
    jobs: Mapping[str, Callable[[bool], Job]], names: Sequence[str], starting: Starting, *, quick: bool = False
) -> dict[str, Any]:
    """Every job named, in turn. dgemm is timed before each of them and its best counts."""
    products: dict[str, list[float]] = {}
    done = []
    load = [_load()]
    for number, name in enumerate(names):
        told = starting(name, number, len(names))
        told("setting up", 0.0)
        products[f"before {name}"] = machine.dgemm_seconds()
        job = jobs[name](quick)
        rows = measure(job, told, quick=quick)
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
    products["at the end"] = machine.dgemm_seconds()
    rate = machine.dgemm_rate([one for taken in products.values() for one in taken])
    for entry in done:
        add_shares(entry, rate)
    return {
        "sizes": {"latent": LATENT, "observed": OBSERVED, "arms": ARMS},
        "quick": quick,
        "machine": machine.facts() | {"system": platform.system(), "load": [*load, _load()]},
        "dgemm_gflops": rate / 1e9,
        "dgemm_seconds": products,
        "peers": peers.versions(),
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


def aims(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every aim of the jobs that were run: what was wanted, what was measured, whether it is met."""
    found = []
    for entry in results["jobs"]:
        rows = entry["contenders"]
        for row in rows:
            ratio, seconds = row["times_ours"], row["microseconds"] / 1e6
            if row["at_least"] is not None:
                found.append(_aim(entry, row, f"≥ {row['at_least']:g} ×", f"{ratio:.3g} ×", ratio >= row["at_least"]))
            if row["at_most"] is not None:
                found.append(_aim(entry, row, f"≤ {row['at_most']:g} ×", f"{ratio:.2g} ×", ratio <= row["at_most"]))
            if (limit := row["at_most_seconds"]) is not None:
                found.append(_aim(entry, row, f"≤ {limit:.3g} s", f"{seconds:.3g} s", seconds <= limit))
        if (limit := entry["flop_limit"]) is not None:
            times = 1.0 / rows[0]["dgemm_share"]
            aim = f"≤ {limit:g} × the flop limit"
            found.append(_aim(entry, rows[0], aim, f"{times:.1f} ×", times <= limit))
    return found


def _aim(entry: Mapping[str, Any], row: Mapping[str, Any], aim: str, measured: str, met: bool) -> dict[str, Any]:
    return {"job": entry["name"], "contender": row["contender"], "aim": aim, "measured": measured, "met": met}
