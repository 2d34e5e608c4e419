"""Processes that are killed under load, share a stream or run out of disk space. No acknowledged request is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from engine_tools import fold_from_journal, loaded_stream, metric, open_engine, same_state

from halfseen.journal import events
from halfseen.journal.journal import open_journal
from halfseen.service.engine.loaded_stream import make_agent
from halfseen.service.schemas import StreamSpec

KILLS = 25  # on each database


class Workers:
    """Worker processes, forked from a process that has loaded all modules and kernels."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self.acknowledged = url, folder / "acknowledged"
        self.acknowledged.touch()
        self._parent = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._parent.stdout.readline() == "loaded\n"

    def start(self, run: object, rounds: int = 100_000, **options: object) -> int:
        task = {"url": self._url, "acknowledged": str(self.acknowledged), "run": str(run), "rounds": rounds} | options
        self._parent.stdin.write(json.dumps(task) + "\n")
        self._parent.stdin.flush()
        return int(self._parent.stdout.readline())

    def lines(self) -> list[list]:
        complete = self.acknowledged.read_text().rpartition("\n")[0]  # a worker may be writing the last line
        return [json.loads(line) for line in complete.splitlines()]

    def callers(self) -> set[str]:
        return {line[4].partition(".")[0] for line in self.lines() if line[0] == "decided"}

    def wait_for(self, state: str, pid: int, seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while [state, pid] not in self.lines():
            assert time.monotonic() < end, f"process {pid} is not {state}"
            time.sleep(0.005)

    def wait_for_more(self, count: int, seconds: float = 60.0) -> None:
        """Wait until `count` more lines are acknowledged."""
        size, end = len(self.lines()), time.monotonic() + seconds
        while len(self.lines()) < size + count:
            assert time.monotonic() < end, "no new lines were acknowledged"
            time.sleep(0.002)

    def close(self) -> None:
        self._parent.stdin.close()
        self._parent.wait(timeout=60)
        self._parent.stdout.close()


@pytest.fixture
def workers(database, tmp_path):
    started = Workers(database, tmp_path)
    yield started
    started.close()


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def check(url: str, lines: list[list]) -> Counter:
    """Check that each acknowledged request is in the journal once, and that the state equals a run without kills."""
    found: Counter = Counter()
    journal = open_journal(url)
    for name in ("one", "two"):
        row = journal.stream(name)
        recorded = list(journal.all_events(row.id))
        assert [event.seq for event in recorded] == list(range(1, row.version + 1))
        decided = {event.id: event.content for event in recorded if event.kind == "decided"}
        rewards = [event.content for event in recorded if event.kind == "rewarded"]
        rewarded = {content.decision: content.value for content in rewards}
        assert len(rewarded) == len(rewards)
        for line in lines:
            if line[0] == "decided" and line[1] == name:
                assert (decided[line[2]].arm, decided[line[2]].key) == (line[3], line[4])
                found["decided"] += 1
            elif line[0] == "rewarded" and line[1] == name:
                assert rewarded[line[2]] == line[3]
                found["rewarded"] += 1
        found["events"] += len(recorded)
        live = run_uninterrupted(msgspec.json.decode(row.spec, type=StreamSpec), recorded)
        folded = fold_from_journal(url, name)
        assert all(live.state()[key].tobytes() == array.tobytes() for key, array in folded.agent.state().items())
    journal.close()
    async with open_engine(url) as engine:
        for name in ("one", "two"):
            await engine.health(name)  # loads the stream from its snapshot
            assert same_state(loaded_stream(engine, name), fold_from_journal(url, name))
        found["snapshots"] = 2 - metric(engine, "loads_without_snapshot_total")
    return found


def run_uninterrupted(spec: StreamSpec, recorded: list[events.Event]):
    """Give an agent the same observations and rewards without interruption. Its decisions must be the same."""
    agent = make_agent(spec)
    for event in recorded:
        content = event.content
        if isinstance(content, events.Decided):
            y = np.array(content.observation, dtype=float)
            decision = agent.decide(y, available=content.available)
            assert (decision.id, decision.arm) == (content.round, content.arm)
            assert decision.propensities.tolist() == content.propensities
        elif isinstance(content, events.Rewarded):
            agent.learn(content.round, content.value)
    return agent


def test_killed_at_random_moments_under_load(workers, database):
    draw = random.Random(1)
    for run in range(KILLS):
        pid = workers.start(run)
        workers.wait_for("ready", pid)
        workers.wait_for_more(draw.randint(1, 40))
        time.sleep(draw.random() * 0.02)
        kill(pid)
    pid = workers.start("last", rounds=3)
    workers.wait_for("done", pid)
    found = asyncio.run(check(database, workers.lines()))
    assert found["decided"] > 10 * KILLS
    assert found["rewarded"] > 5 * KILLS
    assert found["snapshots"] == 2


def test_two_workers_share_a_stream_and_one_is_killed(workers, database):
    pids = [workers.start("a"), workers.start("b", rounds=40)]
    for pid in pids:
        workers.wait_for("ready", pid)
    while workers.callers() != {"a", "b"}:
        workers.wait_for_more(10)
    kill(pids[0])
    workers.wait_for("done", pids[1])
    found = asyncio.run(check(database, workers.lines()))
    assert found["decided"] >= 6 * 40


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_requests_are_refused_while_the_disk_is_full(workers, database):
    pid = workers.start("before", rounds=5)
    workers.wait_for("done", pid)
    pid = workers.start("full", rounds=5, max_file_bytes=Path(database).stat().st_size + 300_000)
    workers.wait_for("done", pid)
    lines = workers.lines()
    (full,) = [line for line in lines if line[0] == "full"]
    assert full[1:] == [20, False]
    after = lines[lines.index(full) :]
    assert sum(line[0] == "decided" for line in after) == 6 * 5
    asyncio.run(check(database, lines))
