"""What the run was made on, and how fast that multiplies matrices."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from halfseen.errors import HalfseenError

SIZE = 512  # three matrices of 2 MB: large enough for dgemm to reach its rate, small enough for the cache

PRODUCTS = 8  # in one sample
ALONE = 1.2  # the time of all threads, at most, as a multiple of that of the one which asked for the product


def dgemm_seconds(samples: int = 5) -> list[float]:
    """Seconds of one product by this machine's own dgemm, sampled. Refuses to go on if it is not done in one thread:
    the rate would be wrong, and so would the times of all who use BLAS.
    """
    rng = np.random.default_rng(0)
    a, b, out = rng.normal(size=(SIZE, SIZE)), rng.normal(size=(SIZE, SIZE)), np.empty((SIZE, SIZE))
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
            f"bench: got a BLAS that works in {together / alone:.1f} threads; want one: OMP_NUM_THREADS and its like "
            "are to be 1 before NumPy is loaded"
        )
    return taken


def dgemm_rate(seconds: list[float]) -> float:
    """Flops a second, by the best of the samples."""
    return 2.0 * SIZE**3 / min(seconds)


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def facts() -> dict[str, Any]:
    ours = {name: version(name) for name in ("numpy", "scipy", "numba")}
    return {"processor": processor(), "cores": os.cpu_count(), "python": platform.python_version()} | ours
