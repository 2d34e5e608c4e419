"""Random requests do not break a running service."""

from pathlib import Path

import pytest
from service.fuzz import fuzz


@pytest.mark.parametrize("requests", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_no_random_request_breaks_the_service(tmp_path: Path, requests: int) -> None:
    report = fuzz(tmp_path, requests, seed=requests)
    assert not report.faults, "\n".join([str(report), *report.faults])
    assert sum(report.statuses.values()) == requests
    assert {"200", "201", "204", "400", "401", "403", "404", "405", "409", "413", "422"} <= set(report.statuses)
    assert report.statuses["200"] > requests / 4
