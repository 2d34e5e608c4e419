"""The service as a separate process on the loopback interface, started and stopped by a test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import halfseen
from halfseen.cli.app import run_app

COMMAND = [sys.executable, "-m", "halfseen"]
SOURCE = str(Path(halfseen.__file__).parents[1])
START_SECONDS = 120.0  # kernels may have to be compiled


def environment() -> dict[str, str]:
    """Return the environment of the tests without settings of a service."""
    return {name: value for name, value in os.environ.items() if name != "HALFSEEN_DATABASE"} | {
        "PYTHONPATH": SOURCE,
        "COLUMNS": "160",
        "NO_COLOR": "1",
    }


class Served:
    """A running service. `output` has the lines that the service has printed so far."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.output: list[str] = []
        self.process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", *arguments],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        try:
            self.url = self._wait_for_address()
        except BaseException:
            self.kill()
            raise

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)

    def _wait_for_address(self) -> str:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            found = re.search(r"listens on (\S+)", self.text)
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"the service did not start: {self.text}")

    @property
    def text(self) -> str:
        return "".join(self.output)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop the service with a signal and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(30)
        self._reader.join(10)
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self._reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Served]:
    service = Served(folder, *arguments)
    try:
        yield service
    finally:
        service.kill()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service without tokens, shared by the tests of a file."""
    with serving(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=30) as client:
        yield client


def until(done: Callable[[], bool], seconds: float = 90.0) -> None:
    """Wait until `done` returns True."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"not done after {seconds} seconds"
        time.sleep(0.05)


def metrics(client: httpx.Client) -> dict[str, float]:
    """Return the values of all metrics by name and labels."""
    found = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def workers_ready(url: str) -> dict[int, bool]:
    """Return whether each worker is ready, by process id. The process id is 0 if there is only one worker."""
    with httpx.Client(base_url=url) as client:
        ready = {name: value for name, value in metrics(client).items() if name.startswith("halfseen_ready")}
    return {int("0" + re.sub(r"\D", "", name)): value == 1 for name, value in ready.items()}


def run_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def run_here(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which takes less time than a process of its own."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, chdir(folder), redirect_stdout(out), redirect_stderr(err):
        patch.delenv("HALFSEEN_DATABASE", raising=False)
        patch.setenv("COLUMNS", "160")
        patch.setenv("NO_COLOR", "1")
        code = run_app(list(arguments))
    return subprocess.CompletedProcess(list(arguments), code, out.getvalue(), err.getvalue())
