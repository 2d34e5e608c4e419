"""The jobs by name, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks import (
    adaptive,
    em,
    fleet,
    kalman_series,
    kalman_step,
    linear_thompson,
    monte_carlo,
    monte_carlo_parts,
    online,
    start_up,
)
from benchmarks.harness import Job
from halfseen.errors import invalid

JOBS: dict[str, Callable[[bool], Job]] = {
    "linear-thompson": linear_thompson.job,
    "kalman-step": kalman_step.job,
    "kalman-series": kalman_series.job,
    "em-500": partial(em.job, 500),
    "em-2000": partial(em.job, 2000),
    "em-5000": partial(em.job, 5000),
    "monte-carlo-kf": partial(monte_carlo.job, "kf-ts"),
    "monte-carlo-emkf": partial(monte_carlo.job, "emkf-ts"),
    "monte-carlo-parts": monte_carlo_parts.job,
    "online-kf": partial(online.job, "kf-ts"),
    "online-emkf": partial(online.job, "emkf-ts"),
    "online-adaptive": online.adaptive_job,
    "fleet-kf": partial(fleet.job, "kf-ts"),
    "fleet-ts-pco": partial(fleet.job, "ts-pco"),
    "adaptive-1": partial(adaptive.amortised, 1),
    "adaptive-4": partial(adaptive.amortised, 4),
    "adaptive-decide": adaptive.slowest,
    "import": start_up.imports,
    "warm-start": start_up.warm,
    "cold-start": start_up.cold,
}


def chosen(names: Sequence[str]) -> list[str]:
    """The names asked for, each once; all where none is."""
    for name in names:
        if name not in JOBS:
            raise invalid("job", f"'{name}'", f"one of: {', '.join(JOBS)}")
    return list(dict.fromkeys(names)) or list(JOBS)
