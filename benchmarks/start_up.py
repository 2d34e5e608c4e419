"""Start of a process: the import, the first decision from a warm cache of kernels, and from none.

Every time is that of a whole process, interpreter included; no flops are counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from benchmarks.harness import Contender, Job
from benchmarks.settings import ARMS, LATENT, OBSERVED

FIRST = (
    "import halfseen as hs; "
    f"agent = hs.make('{{agent}}', observed={OBSERVED}, arms={ARMS}{{options}}); "
    f"decision = agent.decide([0.1] * {OBSERVED}); agent.learn(decision.id, 1.0)"
)


def run(code: str, **environment: str) -> bool:
    """A process of its own; fails if that does."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HALFSEEN_QUIET": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return True


def run_cold(code: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="halfseen-cold-") as folder:
        return run(code, NUMBA_CACHE_DIR=folder)


def same(one: bool, other: bool) -> None:
    assert one is other


def imports(quick: bool = False) -> Job:
    return Job(
        "Import in a new process",
        "process",
        0,
        [
            Contender("import numpy", lambda: run("import numpy"), 1),
            Contender("import halfseen", lambda: run("import halfseen"), 1, at_most=2.0),
            Contender("Python alone", lambda: run("pass"), 1),
        ],
        same,
    )


def first_decisions(quick: bool = False) -> Job:
    emkf = FIRST.format(agent="emkf-ts", options=f", latent={LATENT}")
    adaptive = FIRST.format(agent="adaptive", options="")
    cold = [] if quick else [("emkf-ts", emkf), ("adaptive", adaptive)]
    return Job(
        "First decide + learn in a new process",
        "process",
        0,
        [
            Contender("emkf-ts, warm cache", lambda: run(emkf), 1, "import, make, decide, learn"),
            Contender("adaptive, warm cache", lambda: run(adaptive), 1, "the same"),
            *(
                Contender(
                    f"{name}, empty cache",
                    lambda code=code: run_cold(code),
                    1,
                    "compiles its kernels",
                    result=lambda: True,
                    at_most_seconds=15.0,
                )
                for name, code in cold
            ),
        ],
        same,
        repeats=2,
    )
