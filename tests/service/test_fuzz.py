"""Random requests do not break a running service."""

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from service.fuzz import fuzz
from service.served import environment, until


@pytest.mark.parametrize("requests", [500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_no_random_request_breaks_the_service(tmp_path: Path, requests: int) -> None:
    report = fuzz(tmp_path, requests, seed=requests)
    assert not report.faults, "\n".join([str(report), *report.faults])
    assert sum(report.statuses.values()) == requests
    assert {"200", "201", "204", "400", "401", "403", "404", "405", "409", "413", "422"} <= set(report.statuses)
    assert report.statuses["200"] > requests / 4


@pytest.mark.slow
def test_the_service_ends_if_the_fuzz_is_stopped_by_sigterm(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[1])
    path = environment()["PYTHONPATH"]
    environ = environment() | {"PYTHONPATH": f"{path}:{tests}", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "service.fuzz", "--requests", "1e9"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as process:
        try:
            services: list[psutil.Process] = []
            until(lambda: bool(services.extend(_services(process.pid)) or services))
            process.terminate()
            assert process.wait(30) == 143
        finally:
            process.kill()
    psutil.wait_procs(services, 10)
    assert not [one for one in services if one.is_running()]
    assert not list(tmp_path.iterdir())


def _services(parent: int) -> list[psutil.Process]:
    found = []
    for one in psutil.Process(parent).children():
        with contextlib.suppress(psutil.Error):  # the process has ended
            found += [one] * ("serve" in one.cmdline())
    return found
