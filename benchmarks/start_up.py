"""Start of a process: the import, the first decision from a warm cache of kernels, and from none.

Every time is what the processor spends on a whole process, interpreter included; no flops are counted.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

from benchmarks.harness import Contender, Job, processors
from benchmarks.problem import ARMS, LATENT, OBSERVED

FIRST = (
    "import halfseen as hs; "
    f"agent = hs.make('{{agent}}', observed={OBSERVED}, arms={ARMS}{{options}}); "
    f"decision = agent.decide([0.1] * {OBSERVED}); agent.learn(decision.id, 1.0)"
)
EMKF = FIRST.format(agent="emkf-ts", options=f", latent={LATENT}")
ADAPTIVE = FIRST.format(agent="adaptive", options="")
KF = FIRST.format(
    agent="kf-ts",
    options=f", model=hs.LinearGaussianModel(transition=[[0.9 * (i == j) for j in range({LATENT})] "
    f"for i in range({LATENT})], process_cov=1.0, observation_cov=[0.1] * {OBSERVED})",
)


def run(code: str, **environment: str) -> float:
    """Seconds of the processor that a process of its own takes; fails if that does."""
    began = _spent()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HALFSEEN_QUIET": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return _spent() - began


def _spent() -> float:
    """Seconds of the processor that children of this process have taken so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def warm_up() -> float:
    """Seconds on the clock of `halfseen warmup` from an empty cache, on all processors there are."""
    with tempfile.TemporaryDirectory(prefix="halfseen-cold-") as folder:
        code = (
            f"import os, sys; getattr(os, 'sched_setaffinity', print)(0, {processors() or {0}}); "
            "from halfseen.cli.app import run_app; sys.exit(run_app(['warmup']))"
        )
        began = time.perf_counter()
        run(code, HALFSEEN_CACHE_DIR=folder)
        return time.perf_counter() - began


def run_cold(code: str) -> float:
    with tempfile.TemporaryDirectory(prefix="halfseen-cold-") as folder:
        return run(code, HALFSEEN_CACHE_DIR=folder)


def process(name: str, code: str, note: str = "", *, compiles: bool = False, **aim: float) -> Contender:
    return Contender(name, lambda: (run_cold if compiles else run)(code), 1, note, seconds=float, **aim)


def ran(one: float, other: float) -> None:
    """There is no result to compare: a process that fails says so itself."""


def imports(quick: bool = False) -> Job:
    return Job(
        "Import in a new process",
        "process",
        0,
        [
            process("import numpy", "import numpy"),
            process("import halfseen", "import halfseen", at_most=2.0),
            process("Python alone", "pass"),
        ],
        ran,
    )


def warm(quick: bool = False) -> Job:
    return Job(
        "First decide + learn in a new process, kernels cached",
        "process",
        0,
        [
            process("kf-ts", KF, "import, make, decide, learn"),
            process("emkf-ts", EMKF),
            process("adaptive", ADAPTIVE),
            process("import llvmlite, scipy", "import llvmlite.binding, scipy.linalg", "what any of them loads"),
        ],
        ran,
        repeats=3,
    )


def cold(quick: bool = False) -> Job:
    """Kernels compiled by the first decision of `emkf-ts` and of `adaptive`; and all there are, ahead of time."""
    note = "every kernel; by the clock, on all cores"
    everything = Contender("halfseen warmup", warm_up, 1, note, seconds=float, at_most_seconds=15.0)
    return Job(
        "First decide + learn in a new process, kernels compiled",
        "process",
        0,
        [
            process("emkf-ts", EMKF, compiles=True, at_most_seconds=15.0),
            *([] if quick else [process("adaptive", ADAPTIVE, compiles=True, at_most_seconds=15.0), everything]),
        ],
        ran,
        repeats=1,
        rehearsed=False,
    )
