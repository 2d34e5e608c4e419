"""One thread and one processor for everybody."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

ENVIRONMENT = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
) | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}
PROCESSORS = "HALFSEEN_BENCH_PROCESSORS"  # those the run had before it was held to one; set once all is settled


def processors() -> set[int]:
    return set(json.loads(os.environ.get(PROCESSORS, "[]")))


def settle(arguments: Sequence[str]) -> None:
    """Start this process anew as `halfseen` with the arguments, held to one thread and one processor; once.

    Anew, because a BLAS that is loaded already keeps the threads it has, and what a command line loads before its
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
