"""GET /metrics with one worker and with several workers."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import httpx
import pytest
from postgres_server import Server
from service.served import Served, metrics, serving, until, workers_ready

from halfseen.errors import HalfseenError
from halfseen.service import serving as serving_module
from halfseen.service.metrics import Metrics

DECISIONS = 'halfseen_requests_total{route="decisions",status="200"}'
SPEC = {"name": "s", "observed": 2, "arms": 2, "agent": "ts-pco"}


def values(service: Served) -> dict[str, float]:
    """Return all metrics, requested over a new connection, which any worker may accept."""
    with httpx.Client(base_url=service.url, timeout=60) as client:
        return metrics(client)


def decide(service: Served, number: int) -> None:
    """Ask for decisions, each over a new connection, so that every worker makes some of them."""
    for _ in range(number):
        answer = httpx.post(service.url + "/v1/streams/s/decisions", json={"observation": [1, 2]}, timeout=60)
        assert answer.status_code == 200, answer.text


def assert_decisions(service: Served, number: float) -> None:
    """Check that every worker returns the same sums."""
    for _ in range(10):
        found = values(service)
        assert found[DECISIONS] == number
        assert found['halfseen_request_seconds_count{route="decisions"}'] == number
        assert found["halfseen_decides_total"] == number
        assert found["halfseen_decide_seconds_count"] == number


def test_metrics_are_summed_over_all_workers(tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with serving(tmp_path, "--database", postgres.database(), "--workers", "2") as service:
        httpx.post(service.url + "/v1/streams", json=SPEC, timeout=60).raise_for_status()
        until(lambda: sum(workers_ready(service.url).values()) == 2)
        sent = 50
        decide(service, sent)
        while values(service)["halfseen_resident_streams"] < 2 and sent < 5_000:  # until both workers have decided
            decide(service, 10)
            sent += 10
        assert_decisions(service, sent)
        assert values(service)["halfseen_resident_streams"] == 2
        assert values(service)["halfseen_waiting_rows"] == 0

        before, pids = values(service), set(workers_ready(service.url))
        killed = min(pids)
        os.kill(killed, signal.SIGKILL)
        until(lambda: killed not in workers_ready(service.url) and sum(workers_ready(service.url).values()) == 2)
        after = values(service)
        assert after["halfseen_resident_streams"] == 1
        added_up = [name for name in before if name.partition("{")[0].endswith(("_total", "_count", "_sum", "_bucket"))]
        assert len(added_up) > 50
        for name in added_up:
            assert after[name] >= before[name], name
        assert_decisions(service, sent)
        decide(service, 50)
        assert_decisions(service, sent + 50)

        service.process.send_signal(signal.SIGTTOU)  # makes uvicorn end one worker
        until(lambda: len(workers_ready(service.url)) == 1)
        assert_decisions(service, sent + 50)
        assert [path.name.startswith("halfseen-metrics-") for path in temporary.iterdir()] == [True]
        assert service.stop() == 0, service.text
    assert list(temporary.iterdir()) == []


def test_workers_do_not_start_without_a_folder_for_their_metrics(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(HalfseenError, match="Set TMPDIR to a folder"), serving_module._shared_metrics():
        pass


def test_the_histogram_and_the_summary_of_latencies_agree() -> None:
    measured = Metrics()
    for number in range(100):
        measured.latencies["decide"].add(number / 1024)
    summary = measured.latencies["decide"].summary()
    assert summary == {"count": 100, "sum": 4950 / 1024, "p50": 50 / 1024, "p90": 90 / 1024, "p99": 99 / 1024}
    for statistic in ("count", "sum"):
        assert measured.registry.get_sample_value(f"halfseen_decide_seconds_{statistic}") == summary[statistic]
    assert measured.registry.get_sample_value("halfseen_decide_seconds_bucket", {"le": "0.05"}) == 52
