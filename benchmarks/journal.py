"""The journal and the engine: shared commits, loading a long stream, and the memory of many streams.

    python -m benchmarks.journal [shared] [long] [many]

This takes minutes, prints a table and writes results/bench/journal.json. It is not part of `halfseen bench`, because it
compares halfseen with nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from halfseen.journal import events
from halfseen.journal.decision_ids import next_ids
from halfseen.journal.events import Event
from halfseen.journal.journal import StreamRow, open_journal
from halfseen.journal.sqlite import SqliteJournal
from halfseen.reports.tables import Table
from halfseen.service.engine.engine import Engine
from halfseen.service.engine.loaded_stream import LoadedStream, compress_snapshot
from halfseen.service.schemas import DecisionRequest, EngineSettings, RewardRequest, StreamSpec

OBSERVED, LATENT, ARMS = 10, 20, 15
CALLERS, COMMIT_DELAY = 64, 0.002  # the delay is added to every commit, in seconds
LONG, MANY = 1_000_000, 10_000
SINCE = EngineSettings().snapshot_every - 1  # the largest possible number of events after the last snapshot
SEED = 3


class SlowDisk(SqliteJournal):
    """SQLite on a disk whose sync takes 2 ms longer. The sleep lets other threads run, as a sync does."""

    def commit(self) -> None:
        time.sleep(COMMIT_DELAY)
        super().commit()


def shared() -> list[dict[str, Any]]:
    """Compare the requests per second of 64 callers on one stream with shared commits and without."""
    from halfseen.service.engine.store import StreamStore
    from halfseen.service.metrics import Metrics

    async def rate(batch_rows: int, requests: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            settings = EngineSettings(identify=False, batch_rows=batch_rows)
            path = Path(folder) / "j.db"
            journal = SlowDisk(path, lock_seconds=10.0)
            metrics = Metrics()
            engine = Engine(StreamStore(journal, settings, metrics), journal.new_connection(), settings, metrics)
            await engine.create_stream(StreamSpec(name="s", observed=LATENT, arms=ARMS, agent="ts-pco", seed=SEED))
            rng = np.random.default_rng(SEED)
            ys = rng.normal(size=(requests, LATENT)).tolist()

            async def call(mine: list[list[float]]) -> None:
                for y in mine:
                    await engine.decide("s", DecisionRequest(y))

            await call(ys[:3])
            began = time.perf_counter()
            await asyncio.gather(*[call(ys[caller::CALLERS]) for caller in range(CALLERS)])
            seconds = time.perf_counter() - began
            await engine.close()
            return requests / seconds

    alone, together = [], []
    for _ in range(3):  # shared and single commits in turn; the best run of each counts
        alone.append(asyncio.run(rate(1, 192)))
        together.append(asyncio.run(rate(2_000, 3_200)))
    times = max(together) / max(alone)
    return [
        {
            "measurement": f"one commit per request, {CALLERS} callers, sync + 2 ms",
            "value": f"{max(alone):.0f} /s",
            "aim": "",
        },
        {"measurement": "shared commits", "value": f"{max(together):.0f} /s", "aim": ""},
        {"measurement": "ratio", "value": f"{times:.1f}", "aim": "≥ 10"},
    ]


def _events(spec: StreamSpec, count: int) -> Iterator[Event]:
    """Yield `count` events of a stream whose arms are drawn at random and whose decisions are all rewarded."""
    rng = np.random.default_rng(SEED)
    k = int(spec.observed)  # type: ignore[call-overload]
    yield Event(1, 1, None, events.Created(msgspec.to_builtins(spec)))
    shares, expected = [1 / ARMS] * ARMS, [0.0] * ARMS
    identity, seq, number = None, 1, 0
    while seq < count:
        number += 1
        identity = next_ids(seq, identity, 1)[0]
        y, arm = rng.normal(size=k), int(rng.integers(ARMS))
        seq += 1
        decided = events.Decided(number, y.tolist(), arm, 1 / ARMS, shares, expected)
        yield Event(seq, 1000 * seq, identity, decided)
        if seq < count:
            seq += 1
            reward = events.Rewarded(identity, number, float(y[arm % k] + rng.normal()), "given", True)
            yield Event(seq, 1000 * seq, identity, reward)


def _first_decision(agent: str, observed: int, count: int) -> dict[str, Any]:
    """Measure the time from opening the database to the first decision of a stream with `count` events."""
    spec = StreamSpec(name="s", observed=observed, arms=ARMS, agent=agent, seed=SEED)
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "j.db")
        journal = open_journal(url)
        row = StreamRow(
            0, "s", msgspec.json.encode(spec).decode(), [(arm, True) for arm in range(ARMS)], 0, 0, 0, 1, 1
        )  # fmt: skip
        loaded, unwritten = LoadedStream(spec), []
        with journal.transaction():
            journal.create_stream(row)
            for event in _events(spec, count):
                loaded.fold([event])
                unwritten.append((row.id, event))
                if len(unwritten) == 10_000 or event.seq == count:
                    row.version, row.decisions, row.rewards = event.seq, loaded.decisions, loaded.rewards
                    row.updated = event.time
                    journal.append([row], unwritten)
                    unwritten = []
                if event.seq == count - SINCE:
                    journal.save_snapshot(row.id, event.seq, compress_snapshot(loaded.to_bytes()))
        journal.close()

        async def first_answer() -> tuple[float, float]:
            began, worked = time.perf_counter(), time.process_time()
            engine = await Engine.open(url, EngineSettings(identify=False, snapshot_every=10**9))
            await engine.decide("s", DecisionRequest([0.1] * observed))
            seconds, work = time.perf_counter() - began, time.process_time() - worked
            assert engine.metrics.registry.get_sample_value("halfseen_loads_without_snapshot_total") == 0
            engine._store.loaded.clear()  # so that closing saves no snapshot, and the next repetition is the same
            await engine.close()
            return seconds, work

        seconds, work = min(asyncio.run(first_answer()) for _ in range(3))
    measurement = (
        f"time until the first decision of a {agent} stream with {count:,} events, {SINCE:,} of them after its snapshot"
    )
    value = f"{seconds:.2f} s, of which {work:.2f} s processor time"
    return {"measurement": measurement, "value": value, "aim": "< 2 s"}


def long() -> list[dict[str, Any]]:
    """Measure the first decision of a stream with a million events, and of a shorter stream of `adaptive`."""
    return [_first_decision("ts-pco", LATENT, LONG), _first_decision("adaptive", OBSERVED, 40_000)]


def many() -> list[dict[str, Any]]:
    """Measure the memory of a process with 10,000 loaded streams of `kf-ts`, all with decisions and rewards."""
    rng = np.random.default_rng(SEED)
    model = {
        "transition": (0.9 * np.linalg.qr(rng.normal(size=(LATENT, LATENT)))[0]).tolist(),
        "process_cov": np.eye(LATENT).tolist(),
        "observation_cov": (0.5 * np.eye(OBSERVED)).tolist(),
    }

    async def hold() -> tuple[float, float, int]:
        with tempfile.TemporaryDirectory() as folder:
            engine = await Engine.open(Path(folder) / "j.db", EngineSettings(identify=False))
            empty = _resident_memory()

            async def one(name: str) -> None:
                options = {"model": model}
                spec = StreamSpec(name=name, observed=OBSERVED, arms=ARMS, agent="kf-ts", options=options, seed=SEED)
                await engine.create_stream(spec)
                for _ in range(2):
                    decision = await engine.decide(name, DecisionRequest([0.1] * OBSERVED))
                    await engine.reward(name, RewardRequest(decision.id, 0.5))

            for start in range(0, MANY, 200):
                await asyncio.gather(*[one(f"s{number}") for number in range(start, start + 200)])
            held = len(engine._store.loaded)
            used = _resident_memory()
            await engine.close()
            return empty, used, held

    empty, used, held = asyncio.run(hold())
    adaptive = LoadedStream(StreamSpec(name="s", observed=OBSERVED, arms=ARMS, agent="adaptive", seed=SEED)).nbytes
    streams = f"{held:,} loaded streams of kf-ts (d = 20, k = 10, K = 15)"
    one_adaptive = "memory of one stream of adaptive (k = 10, K = 15)"
    return [
        {"measurement": f"memory with {streams}", "value": f"{used:.2f} GB", "aim": "< 2 GB"},
        {"measurement": "memory before the first stream", "value": f"{empty:.2f} GB", "aim": ""},
        {"measurement": one_adaptive, "value": f"{adaptive / 1e6:.1f} MB", "aim": ""},
    ]


def _resident_memory() -> float:
    """Return the resident memory of this process in gigabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e9


JOBS = {"shared": shared, "long": long, "many": many}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in JOBS]
    if unknown:
        sys.exit(f"error: job: expected some of: {', '.join(JOBS)}, got '{unknown[0]}'")
    rows = [row for name in names or JOBS for row in JOBS[name]()]
    print(Table(rows).markdown())
    folder = Path("results/bench")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "journal.json").write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
