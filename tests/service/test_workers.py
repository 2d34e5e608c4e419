"""Workers that do not start, or are asked to end before they have: nobody is left behind, and it is said."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from service.served import environment

from halfseen.service.app import ServeOptions, running_app
from halfseen.service.auth import Authorizer
from halfseen.service.engine import wait_for_database
from halfseen.service.errors import ServiceError, refusal

TESTS = Path(__file__).parents[1]


@contextmanager
def played(play: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir()
    source = environment()
    process = subprocess.Popen(
        [sys.executable, "-m", "service.workers_play", play, str(folder)],
        env=source | {"PYTHONPATH": os.pathsep.join([str(TESTS), source["PYTHONPATH"]])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def group(process: subprocess.Popen[str]) -> bool:
    """Whether anybody of its process group is there."""
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_first_worker_that_ends_before_it_answers_ends_all(tmp_path: Path) -> None:
    with played("first_dies", tmp_path / "play") as process:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 2, said
        assert "workers: got one that ended before it answered" in said
        end = time.monotonic() + 10
        while group(process):  # the tracker of multiprocessing ends a moment later
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.mark.slow
def test_a_worker_that_cannot_be_started_again_is_no_good_end(tmp_path: Path) -> None:
    with played("third_fails", tmp_path / "play") as process:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        end = time.monotonic() + 30
        while len(list((tmp_path / "play").iterdir())) < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        os.kill(max(workers), signal.SIGKILL)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 2, said
        assert "workers: got one that could not be started" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_its_database_leaves_quietly(tmp_path: Path, number: signal.Signals) -> None:
    with played("waiting", tmp_path / "play") as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert re.fullmatch(r"worker \d+: database: away; it starts when the database is back\n", said)
        process.send_signal(number)
        rest, _ = process.communicate(timeout=30)
        assert process.returncode in (0, -number), rest  # 3 would be a start that failed, which ends all workers
        if number == signal.SIGTERM:
            assert rest == ""


def test_tokens_that_cannot_be_read_at_the_start_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wait_for_database, "_RETRY_SECONDS", 0.01)
    refusals = [refusal("unavailable", "database: away")] * 2 + [refusal("internal", "service: wrong")]
    read = Authorizer.refresh

    async def refresh(self: Authorizer) -> None:
        if refusals:
            raise refusals.pop(0)
        await read(self)

    async def start() -> None:
        async with running_app(ServeOptions(str(tmp_path / "x.db")), wait=True):
            pass

    monkeypatch.setattr(Authorizer, "refresh", refresh)
    with pytest.raises(ServiceError, match="wrong"):  # which no waiting would mend
        asyncio.run(start())
    assert refusals == []
    assert len([1 for record in caplog.records if "it starts when the database is back" in record.message]) == 1
    refusals[:] = [refusal("unavailable", "database: away")]
    asyncio.run(start())
    refusals[:] = [refusal("unavailable", "database: away")]
    with pytest.raises(ServiceError, match="away"):  # a single process says it at once
        asyncio.run(impatient(tmp_path))


async def impatient(folder: Path) -> None:
    async with running_app(ServeOptions(str(folder / "x.db"))):
        pass
