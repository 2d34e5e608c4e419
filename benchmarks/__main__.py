"""Run the jobs named, or all; print the table; write results/bench/bench.json."""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import json
import platform
import sys
from pathlib import Path
from typing import Any

from benchmarks import adaptive, em, kalman_series, linear_thompson, monte_carlo, online
from benchmarks.harness import measure
from halfseen.table import Table

JOBS = {
    "linear-thompson": linear_thompson.job,
    "kalman-series": kalman_series.job,
    "em-500": lambda: em.job(500),
    "em-2000": lambda: em.job(2000),
    "em-5000": lambda: em.job(5000),
    "monte-carlo-kf": lambda: monte_carlo.job("kf-ts"),
    "monte-carlo-emkf": lambda: monte_carlo.job("emkf-ts"),
    "online": online.job,
    "adaptive-1": lambda: adaptive.amortised(1),
    "adaptive-4": lambda: adaptive.amortised(4),
    "adaptive-decide": adaptive.slowest,
}


def _wanted(row: dict[str, Any]) -> str:
    bounds = (("≥", row["wanted"]), ("≤", row["at_most"]))
    return ", ".join(f"{sign} {value:g}" for sign, value in bounds if value is not None)


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in JOBS]
    if unknown:
        sys.exit(f"error: job: got '{unknown[0]}'; want one of: {', '.join(JOBS)}")
    rows, missing = [], set()
    for name in names or JOBS:
        print(f"{name} …", file=sys.stderr, flush=True)
        job = JOBS[name]()
        rows += measure(job)
        missing.update(job.missing)
    table = Table(
        [
            {
                "job": row["job"],
                "contender": row["contender"],
                "µs": f"{row['microseconds']:.3g}",
                "per": row["unit"],
                "× ours": f"{row['times_ours']:.1f}",
                "wanted": _wanted(row),
                "note": row["note"],
            }
            for row in rows
        ]
    )
    print(table.markdown())
    print(f"\nd = 20, k = 10, K = 15; {os.cpu_count()} cores, one thread used; Python {platform.python_version()}.")
    if missing:
        print(f"Not installed, so not run: {', '.join(sorted(missing))}.")
    folder = Path("results/bench")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
