"""A Dask scheduler and Dask workers in separate processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import halfseen

SOURCE = Path(halfseen.__file__).parents[1]


class RealCluster:
    """A `dask scheduler` process and several `dask worker` processes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._processes = folder, list[subprocess.Popen[bytes]]()
        self._file = folder / "scheduler.json"
        words = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--dashboard-address", "127.0.0.1:0")
        self.scheduler = self._start("scheduler", *words, "--scheduler-file", str(self._file))
        while not self._file.exists() or not self._file.read_text():  # the file is empty at first
            time.sleep(0.05)
            assert self.scheduler.poll() is None
        self.address: str = json.loads(self._file.read_text())["address"]

    def add_worker(self, source: Path = SOURCE) -> subprocess.Popen[bytes]:
        """Start a worker that uses the package at `source`. It connects a little later."""
        words = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0", "--host", "127.0.0.1")
        return self._start("worker", self.address, *words, "--local-directory", str(self.folder), source=source)

    def _start(self, *words: str, source: Path = SOURCE) -> subprocess.Popen[bytes]:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "HALFSEEN_QUIET"), "1")
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *words],
            env=os.environ | threads | {"PYTHONPATH": str(source)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@contextlib.contextmanager
def real_cluster(folder: Path, workers: int) -> Iterator[RealCluster]:
    cluster = RealCluster(folder)
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.close()


@contextlib.contextmanager
def dask_client(address: str) -> Iterator[Any]:
    """Yield a Dask client for the tests."""
    import distributed

    client = distributed.Client(address, set_as_default=False)
    try:
        yield client
    finally:
        client.close()
