"""The start of a process: the import, and the first decision with and without cached kernels.

Every time is the processor time of a whole process, including the interpreter. Flops are not counted.
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
    """Run code in a new process and return its processor time. Raises if the process fails."""
    began = _children_seconds()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HALFSEEN_QUIET": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return _children_seconds() - began


def _children_seconds() -> float:
    """Return the processor time of all finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def warm_up() -> float:
    """Return the elapsed seconds of `halfseen warmup` with an empty cache on all processors."""
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
    """Accept any result, because a failed process has already raised an exception."""


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
            process("import numba, scipy", "import numba, scipy.linalg", "imported by all agents"),
        ],
        ran,
        repeats=3,
    )


def cold(quick: bool = False) -> Job:
    """Return the job that compiles kernels: those of a first decision, and all of them with `halfseen warmup`."""
    note = "all kernels; elapsed time on all cores"
    everything = Contender("halfseen warmup", warm_up, 1, note, seconds=float)
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
