"""What the run was made on, and how fast that multiplies matrices."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

SIZE = 512  # three matrices of 2 MB: large enough for dgemm to reach its rate, small enough for the cache


def dgemm_rate(repeats: int = 15) -> float:
    """Flops a second of this machine's own dgemm, the best of several products, in as many threads as BLAS is given."""
    rng = np.random.default_rng(0)
    a, b, out = rng.normal(size=(SIZE, SIZE)), rng.normal(size=(SIZE, SIZE)), np.empty((SIZE, SIZE))
    best = float("inf")
    for _ in range(repeats + 1):
        began = time.process_time()
        np.dot(a, b, out=out)
        best = min(best, time.process_time() - began)
    return 2.0 * SIZE**3 / best


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
