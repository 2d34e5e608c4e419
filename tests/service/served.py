"""The service as a process of its own on the loopback, started and ended by a test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import halfseen

COMMAND = [sys.executable, "-m", "halfseen"]
SOURCE = str(Path(halfseen.__file__).parents[1])
PATIENCE = 120.0  # seconds; kernels may have to be compiled


def environment() -> dict[str, str]:
    """As the tests were started, without what the caller may have set for a service."""
    return {name: value for name, value in os.environ.items() if name != "HALFSEEN_DATABASE"} | {
        "PYTHONPATH": SOURCE,
        "COLUMNS": "160",
        "NO_COLOR": "1",
    }


class Served:
    """A running service; `said` is what it has written so far."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", *arguments],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.url = self._wait_for_address()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)

    def _wait_for_address(self) -> str:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = re.search(r"listens on (\S+)", self.text)
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"the service did not start: {self.text}")

    @property
    def text(self) -> str:
        return "".join(self.said)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code, after it was asked to end."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(30)
        self._listener.join(10)
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self._listener.join(10)
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
    """An open service for all tests of a file that need no other."""
    with serving(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=30) as client:
        yield client


def until(done: Callable[[], bool], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def metrics(client: httpx.Client) -> dict[str, float]:
    """The values of all metrics, by name and labels, as prometheus_client reads them."""
    found = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def workers_ready(url: str) -> dict[int, bool]:
    """Whether each worker is ready, by its process id, which is 0 here if there is only one worker."""
    with httpx.Client(base_url=url) as client:
        ready = {name: value for name, value in metrics(client).items() if name.startswith("halfseen_ready")}
    return {int("0" + re.sub(r"\D", "", name)): value == 1 for name, value in ready.items()}


def run_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
