"""What the run was made on, and how fast that multiplies matrices."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import best_of

SIZE = 512  # three matrices of 2 MB: large enough for dgemm to reach its rate, small enough for the cache


PRODUCTS = 8  # in one sample, for the same reason as a contender's shortest run


def dgemm_seconds(samples: int = 5) -> list[float]:
    """Seconds of one product by this machine's own dgemm, sampled; in as many threads as BLAS is given."""
    rng = np.random.default_rng(0)
    a, b, out = rng.normal(size=(SIZE, SIZE)), rng.normal(size=(SIZE, SIZE)), np.empty((SIZE, SIZE))
    np.dot(a, b, out=out)
    taken = []
    for _ in range(samples):
        began = time.process_time()
        for _ in range(PRODUCTS):
            np.dot(a, b, out=out)
        taken.append((time.process_time() - began) / PRODUCTS)
    return taken


def dgemm_rate(seconds: list[float]) -> float:
    """Flops a second, by the best of the samples."""
    return 2.0 * SIZE**3 / best_of(seconds)


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
