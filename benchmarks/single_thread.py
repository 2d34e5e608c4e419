"""One thread for everybody, settled before NumPy, JAX or any other peer is loaded."""

from __future__ import annotations

import os

ENVIRONMENT = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
) | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}


processors: set[int] = set()  # those this process had before


def settle() -> None:
    """Environment for those who read it, and one processor of this process for those who do not."""
    os.environ.update(ENVIRONMENT)
    if hasattr(os, "sched_setaffinity"):
        processors.update(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {max(processors)})
