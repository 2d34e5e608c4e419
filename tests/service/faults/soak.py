"""Random faults under mixed load, checked against what the service has acknowledged: `make soak HOURS=1`.

The soak starts a service, sends it requests of all kinds, and meanwhile kills and suspends its processes, fills its
disk, takes away its database and lets its clock jump. It notes every acknowledged request. Now and then it stops, and
checks that the journal contains each of them exactly once with the same content, and that the state of every stream is
the same, bit for bit, whether it is loaded from its snapshot, folded from an export, or decided again from the start.

Everything is drawn from one seed, except for the moments at which the processes run. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine_tools import reward_from_id, same_state, to_json_value
from postgres_server import Server, running_server
from programs import POSTGRES
from service.faults.soak_server import OFFSET
from settings import small_model

from halfseen.journal import events, transfer
from halfseen.journal.journal import Journal, open_journal
from halfseen.service.engine.imported_stream import Importer
from halfseen.service.engine.loaded_stream import LoadedStream, fold_stream, read_spec
from halfseen.service.schemas import Limits, StreamSpec

OBSERVED, LATENT, CALLERS, WORKERS = 2, 3, 6, 2
ARMS, MAX_ARMS = ["a", "b", "c"], 8
STEP, FIRST_TIME = 0.5, datetime(2026, 1, 1, tzinfo=UTC)  # of the stream with time stamps
ELAPSED = [0, 1, 2, 5, 150]  # steps, of which the last is longer than a gap in the history of an agent may be
ROUND_KILLS, ROUND_SECONDS = 40, 180.0  # then the journal is checked, and the next round has a new database
MODEL_SECONDS = 45.0  # the longest wait for the first model of a round
RECOVERY_SECONDS = 60.0  # a service that acknowledges nothing for so long has failed
STREAMS: dict[str, dict[str, Any]] = {
    "ts-pco": {"agent": "ts-pco"},
    "kf-ts": {"agent": "kf-ts", "options": {"model": to_json_value(small_model(0, OBSERVED, LATENT))}},
    "emkf-ts": {"agent": "emkf-ts", "options": {"latent": LATENT}},
    "adaptive": {"agent": "adaptive", "options": {"latent": LATENT, "history": 300}},
    "default": {"agent": "ts-pco", "reward_wait": 0.7, "default_reward": 0.1, "late_rewards": "fold"},
    "expiring": {"agent": "adaptive", "options": {"history": 200}, "reward_wait": 0.5},
    # Only one caller uses it, so that time stamps are in order.
    "timed": {"agent": "kf-ts", "options": {"model": to_json_value(small_model(1, OBSERVED, LATENT))}, "step": STEP},
    "paid": {"agent": "lag-ts", "options": {"budget": [1e9, 100_000]}},  # its arms do not change
}


class SoakFailure(AssertionError):
    """The service has broken a promise."""


# ---------------------------------------------------------------------- what was acknowledged


@dataclass
class Acknowledged:
    """What the service has acknowledged. The journal has to contain it exactly once."""

    decisions: dict[str, dict[str, tuple[dict, dict]]] = field(default_factory=lambda: {name: {} for name in STREAMS})
    """Per stream: the request and the reply by decision id."""
    rewards: dict[str, dict[str, float]] = field(default_factory=lambda: {name: {} for name in STREAMS})
    observations: dict[str, list[dict]] = field(default_factory=lambda: {name: [] for name in STREAMS})
    arms_added: set[tuple[str, str]] = field(default_factory=set)
    arms_retired: set[tuple[str, str]] = field(default_factory=set)

    def decided(self, stream: str, request: dict, reply: dict) -> None:
        before = self.decisions[stream].get(reply["id"])
        if before is not None:
            expected = {**before[1], "repeated": True}
            if before[0] is not request or expected != {**reply, "repeated": True}:
                raise SoakFailure(f"{stream}: decision {reply['id']} was {before}, then {(request, reply)}")
        self.decisions[stream][reply["id"]] = (request, reply)

    def count(self) -> dict[str, int]:
        return {
            "decisions": sum(map(len, self.decisions.values())),
            "rewards": sum(map(len, self.rewards.values())),
            "observations": sum(map(len, self.observations.values())),
            "arms": len(self.arms_added) + len(self.arms_retired),
        }


# ---------------------------------------------------------------------- the load


class Load:
    """Callers that send requests of all kinds, repeat those without an answer, and note what was acknowledged."""

    def __init__(self, url: str, seed: int, requests: Counter) -> None:
        self.url, self._seed, self._requests = url, seed, requests
        self.acknowledged = Acknowledged()
        self.last_sent = 0.0  # when the latest acknowledged request was sent
        self.unavailable_since: float | None = None  # no request that is sent after this time may be acknowledged
        self._running = True
        self.client: httpx.AsyncClient

    async def run(self) -> None:
        limits = httpx.Limits(max_connections=CALLERS, max_keepalive_connections=CALLERS)
        async with httpx.AsyncClient(base_url=self.url, timeout=20.0, limits=limits) as self.client:
            for name, changes in STREAMS.items():
                spec = {"name": name, "observed": OBSERVED, "arms": ARMS, "seed": self._seed, **changes}
                await self._until_answered("create", "POST", "/v1/streams", spec, (200, 201))
            async with asyncio.TaskGroup() as callers:
                for number in range(CALLERS):
                    callers.create_task(self._call(number))

    def stop(self) -> None:
        self._running = False

    async def _request(self, kind: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request once. The status is 0 if there is no answer."""
        sent = time.monotonic()
        try:
            reply = await self.client.request(method, path, json=body)
        except httpx.TransportError:
            self._requests[f"{kind} no answer"] += 1
            return 0, None
        self._requests[f"{kind} {reply.status_code}"] += 1
        if reply.is_success:
            since = self.unavailable_since
            if since is not None and sent >= since and kind != "export":
                raise SoakFailure(f"{kind}: answered with {reply.status_code} without a database: {reply.text[:200]}")
            self.last_sent = max(self.last_sent, sent)
        elif reply.status_code >= 500 and reply.status_code != 503:
            raise SoakFailure(f"{kind}: {reply.status_code} {reply.text}")
        content = reply.headers.get("content-type", "")
        return reply.status_code, reply.json() if "application/json" in content else reply.text

    async def _until_answered(self, kind: str, method: str, path: str, body: Any, expected: tuple[int, ...]) -> Any:
        """Repeat a request until it is answered. Returns None if the load ends before that."""
        while self._running:
            status, reply = await self._request(kind, method, path, body)
            if status in expected:
                return reply
            if status not in (0, 503):
                raise SoakFailure(f"{kind}: expected {expected}, got {status} {reply}")
            await asyncio.sleep(0.05)
        return None

    async def _call(self, number: int) -> None:
        draw = random.Random(f"{self._seed}.{number}")
        context, sequence = np.zeros(OBSERVED), 0
        late: list[tuple[float, str, str]] = []  # when to send the reward of a decision
        while self._running:
            sequence += 1
            stream = draw.choice([name for name in STREAMS if name != "timed" or number == 0])
            context = 0.9 * context + [draw.gauss(0, 1) for _ in range(OBSERVED)]
            observation = [None if draw.random() < 0.05 else float(value) for value in context]
            request = {"observation": observation, "key": f"{number}.{sequence}"}
            if draw.random() < 0.3:
                await self._observe(stream, {"observation": observation[::-1]} | self._passed(stream, draw))
            request |= self._passed(stream, draw)
            if draw.random() < 0.1:
                request["available"] = ["a", "b"]
            if stream == "paid":
                request["costs"] = [draw.random() for _ in ARMS]
            kind = draw.random()
            if kind < 0.1:
                requests = [request] + [request | {"key": f"{request['key']}.{row}"} for row in range(1, 6)]
                ids = await self._decide_batch(stream, requests)
            elif kind < 0.2:
                del request["key"]  # sent once, as it could not be recognised as the same request
                status, reply = await self._request("decide", "POST", f"/v1/streams/{stream}/decisions", request)
                ids = [reply["id"]] if status == 200 else []
                if ids:
                    self.acknowledged.decided(stream, request, reply)
            else:
                ids = await self._decide(stream, request)
            for decision_id in ids:
                fate = draw.random()
                if fate < 0.6:
                    await self._reward(stream, decision_id)
                elif fate < 0.8:
                    late.append((time.monotonic() + draw.uniform(0.3, 3.0), stream, decision_id))
            due = [one for one in late if one[0] < time.monotonic()]
            late = [one for one in late if one not in due]
            for name in {one[1] for one in due}:
                await self._reward_batch(name, [one[2] for one in due if one[1] == name])
            await self._other(draw, number, sequence)

    def _passed(self, stream: str, draw: random.Random) -> dict[str, Any]:
        """Return the fields of a request that say how much time has passed."""
        if stream == "timed":
            return {"time": (FIRST_TIME + timedelta(seconds=time.monotonic())).isoformat()}
        return {"elapsed": draw.choice(ELAPSED)} if draw.random() < 0.2 else {}

    async def _observe(self, stream: str, request: dict) -> None:
        """Send an observation once, as it could not be recognised as the same one, and ask what would be decided."""
        status, _ = await self._request("observe", "POST", f"/v1/streams/{stream}/observations", request)
        if status == 200:
            self.acknowledged.observations[stream].append(request)
        elif status not in (0, 503):
            raise SoakFailure(f"observe: {status}")
        if "costs" not in request and stream != "paid":
            await self._request("preview", "POST", f"/v1/streams/{stream}/preview", request)
        if stream in ("kf-ts", "timed"):
            await self._request("forecast", "GET", f"/v1/streams/{stream}/forecast?horizon=5")

    async def _decide(self, stream: str, request: dict) -> list[str]:
        reply = await self._until_answered("decide", "POST", f"/v1/streams/{stream}/decisions", request, (200,))
        if reply is None:
            return []
        self.acknowledged.decided(stream, request, reply)
        return [reply["id"]]

    async def _decide_batch(self, stream: str, requests: list[dict]) -> list[str]:
        body = {"decisions": requests}
        reply = await self._until_answered("batch", "POST", f"/v1/streams/{stream}/decisions/batch", body, (200,))
        results = [] if reply is None else reply["results"]
        for request, result in zip(requests, results, strict=False):
            if "error" in result:
                raise SoakFailure(f"batch: {result}")
            self.acknowledged.decided(stream, request, result)
        return [result["id"] for result in results]

    async def _reward(self, stream: str, decision_id: str) -> None:
        body = {"decision": decision_id, "value": reward_from_id(decision_id)}
        reply = await self._until_answered("reward", "POST", f"/v1/streams/{stream}/rewards", body, (200,))
        if reply is not None:
            self.acknowledged.rewards[stream][decision_id] = reply["value"]

    async def _reward_batch(self, stream: str, decision_ids: list[str]) -> None:
        body = {"rewards": [{"decision": one, "value": reward_from_id(one)} for one in decision_ids]}
        reply = await self._until_answered("late", "POST", f"/v1/streams/{stream}/rewards/batch", body, (200,))
        for decision_id, result in zip(decision_ids, [] if reply is None else reply["results"], strict=False):
            if "error" in result:
                raise SoakFailure(f"late: {result}")
            self.acknowledged.rewards[stream][decision_id] = result["value"]

    async def _other(self, draw: random.Random, number: int, sequence: int) -> None:
        """Now and then: repeat a reward, contradict it, add or retire an arm, or export the end of a journal."""
        kind, stream = draw.random(), draw.choice(list(STREAMS))
        rewards = self.acknowledged.rewards[stream]
        if kind < 0.06 and rewards:
            decision_id = draw.choice(list(rewards)[-200:])
            value = rewards[decision_id] + (kind < 0.02)
            body, expected = {"decision": decision_id, "value": value}, 409 if kind < 0.02 else 200
            reply = await self._until_answered("repeat", "POST", f"/v1/streams/{stream}/rewards", body, (expected,))
            if reply is not None and expected == 200 and not (reply["repeated"] and reply["value"] == value):
                raise SoakFailure(f"repeat: {reply}")
        elif kind < 0.1 and number == 0 and stream != "paid":
            # One caller, so that no arm is added after it was retired.
            added = [arm for name, arm in self.acknowledged.arms_added if name == stream]
            retired = [arm for name, arm in self.acknowledged.arms_retired if name == stream]
            if len(added) < MAX_ARMS - len(ARMS):
                arm = f"arm {sequence}"
                reply = await self._until_answered(
                    "arm", "POST", f"/v1/streams/{stream}/arms", {"arm": arm}, (200, 201)
                )
                if reply is not None:
                    self.acknowledged.arms_added.add((stream, arm))
            elif len(retired) < len(added) - 1:
                arm = min(set(added) - set(retired))
                reply = await self._until_answered("arm", "DELETE", f"/v1/streams/{stream}/arms/{arm}", None, (200,))
                if reply is not None:
                    self.acknowledged.arms_retired.add((stream, arm))
        elif kind > 0.99:
            known = set(list(self.acknowledged.decisions[stream])[-50:])
            after = max(0, len(self.acknowledged.decisions[stream]) - 200)
            status, text = await self._request("export", "GET", f"/v1/streams/{stream}/journal?after={after}")
            if status == 200:
                lines = [json.loads(line) for line in text.splitlines()]
                if [line["seq"] for line in lines] != list(range(after + 1, after + 1 + len(lines))):
                    raise SoakFailure(f"export: {stream}: the numbers of the events have gaps")
                if not known <= {line["id"] for line in lines if line["kind"] == "decided"}:
                    raise SoakFailure(f"export: {stream}: acknowledged decisions are missing")


# ---------------------------------------------------------------------- the service and its faults


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _is_running(pid: int) -> bool:
    """Return whether a process has a thread that has not ended. Until then its files and its port are open."""
    try:
        threads = [path.name for path in Path(f"/proc/{pid}/task").iterdir()]
        return len(threads) > 1 or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _free_port() -> int:
    """Return a port that is not given to clients: while the service is down, a caller could connect to itself.

    It does not depend on the seed, so that two soaks with the same seed can run at the same time.
    """
    while True:
        port = random.SystemRandom().randint(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Service:
    """The service under test, and the faults that do not depend on its database."""

    workers = 1
    reasons_to_end: tuple[str, ...] = ()  # messages of a service that may end by itself

    def __init__(self, folder: Path, database: str, draw: random.Random) -> None:
        self.folder, self.database, self.draw = folder, database, draw
        self.kills: Counter = Counter()
        self.load: Load
        self._clock = folder / "clock"
        self._clock.write_bytes(OFFSET.pack(0))
        self.port = _free_port()
        self._template = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("soak_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"SOAK_CLOCK": str(self._clock), "TMPDIR": str(folder)},
        )
        if self._template.stdout.readline() != "loaded\n":
            raise SoakFailure("the service cannot be loaded")
        self.pid = 0

    def start(self) -> None:
        task = {
            "database": self.database,
            "port": self.port,
            "workers": self.workers,
            "log": str(self.folder / "service.log"),
        }
        assert self._template.stdin is not None
        self._template.stdin.write(json.dumps(task) + "\n")
        self._template.stdin.flush()
        self.pid = int(self._template.stdout.readline())

    def close(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._template.kill()
        self._template.communicate()

    def processes(self) -> list[int]:
        """Return the processes of the service: first the one that started the others."""
        found = [self.pid] if self._is_up() else []
        for pid in found:
            found += _children(pid)
        return found

    def identification(self) -> list[int]:
        return [pid for pid in self.processes() if "engine.identification" in _command(pid)]

    def _is_up(self) -> bool:
        return self.pid in _children(self._template.pid) and _is_running(self.pid)

    def kill(self, kind: str, pid: int) -> None:
        """Kill a process that was found just now, so that its number cannot belong to another program."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills[kind] += 1

    async def restart(self) -> None:
        """Start the service again when all of its processes have ended."""
        old = self.processes()
        for pid in old[:1]:
            self.kill("server" if self.workers == 1 else "supervisor", pid)
        end = time.monotonic() + 30
        while left := [pid for pid in old if _is_running(pid)]:
            if time.monotonic() > end:
                raise SoakFailure(f"processes {[(pid, _command(pid)) for pid in left]} outlived the service")
            await asyncio.sleep(0.01)
        self.start()

    async def ensure_running(self) -> None:
        """Start a service again that could not start, because a worker was killed or the database was not available."""
        if not self._is_up():
            log = self.folder / "service.log"
            last = log.read_text()[-3000:]
            if not any(reason in log.read_text() for reason in self.reasons_to_end):
                raise SoakFailure(f"the service has ended by itself; the end of its log:\n{last}")
            log.unlink()
            await self.restart()

    # Each fault returns when its cause is gone, and the service has to recover by itself.

    async def kill_identification(self) -> None:
        for pid in self.identification()[:1]:
            self.kill("identification", pid)

    async def _suspend(self, pids: list[int], longest: float) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(self.draw.uniform(0.1, longest))
        for pid in reversed(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    async def suspend_process(self) -> None:
        await self._suspend([self.draw.choice(self.processes() or [self.pid])], 1.0)

    async def jump_clock(self) -> None:
        offset = OFFSET.pack(round(self.draw.uniform(-3600, 3600) * 1e6))
        with self._clock.open("r+b", buffering=0) as file:  # truncating it would end the processes that have it mapped
            file.write(offset)

    def faults(self) -> dict[str, tuple[float, Callable]]:
        return {
            "kill identification": (0.15, self.kill_identification),
            "suspend a process": (0.04, self.suspend_process),
            "clock jump": (0.03, self.jump_clock),
        }


class SqliteService(Service):
    kind = "SQLite, 1 process"

    def __init__(self, folder: Path, draw: random.Random) -> None:
        super().__init__(folder, str(folder / "journal.db"), draw)

    def _files(self) -> list[Path]:
        return [Path(self.database + suffix) for suffix in ("", "-wal", "-shm")]

    @contextlib.contextmanager
    def _unavailable(self) -> Iterator[None]:
        self.load.unavailable_since = time.monotonic()
        yield
        self.load.unavailable_since = None

    async def _take_away(self, files: list[Path], replacement: Path | None = None) -> None:
        """Take files away and bring them back. Meanwhile nothing may be acknowledged, created or changed."""
        away = self.folder / "away"
        away.mkdir()
        for file in files:
            if self.draw.random() < 0.5:
                file.rename(away / file.name)
            else:
                (away / file.name).hardlink_to(file)
                file.unlink()
        content = None if replacement is None else replacement.read_bytes()
        if replacement is not None:
            replacement.rename(files[0])
        with self._unavailable():
            await asyncio.sleep(self.draw.uniform(0.1, 0.7))
        found = files[0].read_bytes() if files[0].exists() else None
        if found != content or any(file.exists() for file in files[1:]):
            raise SoakFailure("the service has created or changed files in the place of its own")
        for file in files:
            (away / file.name).rename(file)
        away.rmdir()

    async def delete_file(self) -> None:
        await self._take_away(self._files())

    async def replace_file(self) -> None:
        other = self.folder / "other.db"
        open_journal(other).close()
        await self._take_away(self._files(), other)

    async def delete_log(self) -> None:
        await self._take_away([self._files()[1]])

    async def fill_disk(self) -> None:
        """Files may not grow any more, so that writing fails as on a full disk."""
        sizes = [file.stat().st_size for file in self._files()[:2]]
        limit = self.draw.choice([4096, *sizes])
        hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (limit, hard))
        await asyncio.sleep(self.draw.uniform(0.1, 1.0))
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (hard, hard))

    def faults(self) -> dict[str, tuple[float, Callable]]:
        return super().faults() | {
            "kill server": (0.6, self.restart),
            "full disk": (0.04, self.fill_disk),
            "database file deleted": (0.04, self.delete_file),
            "database file replaced": (0.04, self.replace_file),
            "write-ahead log deleted": (0.02, self.delete_log),
        }


class PostgresService(Service):
    kind = f"PostgreSQL, {WORKERS} workers"
    workers = WORKERS
    reasons_to_end = ("A worker ended before it was ready", "PostgreSQL cannot be used now")

    def __init__(self, folder: Path, draw: random.Random, server: Server) -> None:
        super().__init__(folder, server.database(), draw)
        self._server = server

    def _workers(self) -> list[int]:
        return [pid for pid in _children(self.pid) if "spawn_main" in _command(pid)]

    async def kill_worker(self) -> None:
        for pid in self.draw.sample(self._workers(), min(1, len(self._workers()))):
            self.kill("worker", pid)

    async def kill_all_workers(self) -> None:
        for pid in self._workers():
            self.kill("worker", pid)

    async def kill_backend(self) -> None:
        """Kill a process of the database server, which then ends all connections and recovers."""
        pids = [pid for pid in self._server.processes()[1:] if "halfseen" in _command(pid)]
        if pids:
            self.kill("database backend", self.draw.choice(pids))

    async def restart_database(self) -> None:
        await asyncio.to_thread(self._server.stop, self.draw.choice(["fast", "immediate"]))
        await asyncio.sleep(self.draw.uniform(0.0, 0.5))
        await asyncio.to_thread(self._server.start)

    async def suspend_database(self) -> None:
        await self._suspend(self._server.processes(), 1.0)

    def faults(self) -> dict[str, tuple[float, Callable]]:
        return super().faults() | {
            "kill worker": (0.35, self.kill_worker),
            "kill all workers": (0.05, self.kill_all_workers),
            "kill supervisor": (0.15, self.restart),
            "kill database backend": (0.04, self.kill_backend),
            "database restart": (0.03, self.restart_database),
            "suspend database": (0.03, self.suspend_database),
        }


# ---------------------------------------------------------------------- the check


def check(database: str, acknowledged: Acknowledged, folder: Path) -> Counter:
    """Compare the journal with what was acknowledged, and the states of all streams with each other."""
    found: Counter = Counter()
    export = folder / "export.ndjson"
    with contextlib.closing(open_journal(database)) as journal:
        transfer.export(journal, export)
        with contextlib.closing(open_journal(folder / "imported.db")) as imported:
            transfer.import_streams(imported, transfer.read_events(export), Importer(Limits(), 0).open_stream)
            for name in STREAMS:
                recorded = list(imported.all_events(imported.stream(name).id))
                found.update(_check_events(name, recorded, acknowledged))
                found.update(_check_state(name, journal, imported, recorded))
    for file in (export, *folder.glob("imported.db*")):
        file.unlink()
    return found


def _check_events(name: str, recorded: list[events.Event], acknowledged: Acknowledged) -> Counter:
    decided = [event for event in recorded if event.kind == "decided"]
    by_id = {event.id: event.content for event in decided}
    keys = [event.key for event in decided if event.key is not None]
    given = [one.content for one in recorded if one.kind == "rewarded" and one.content.how != "default"]
    rewards = {content.decision: content.value for content in given}
    if [event.seq for event in recorded] != list(range(1, len(recorded) + 1)):
        raise SoakFailure(f"{name}: the numbers of the events have gaps")
    if len(by_id) < len(decided) or len(set(keys)) < len(keys) or len(rewards) < len(given):
        raise SoakFailure(f"{name}: a decision, a key or a reward is recorded twice")
    for decision_id, (request, reply) in acknowledged.decisions[name].items():
        content = by_id.get(decision_id)
        if content is None:
            raise SoakFailure(f"{name}: the acknowledged decision {decision_id} is lost")
        same = (
            (content.arm, content.propensity, content.propensities, content.expected)
            == (reply["arm"], reply["propensity"], reply["propensities"], reply["expected"])
            and (content.observation, content.available, content.key, content.costs)
            == (request["observation"], request.get("available"), request.get("key"), request.get("costs"))
            and _same_time(content, request)
        )  # fmt: skip
        if not same:
            raise SoakFailure(f"{name}: decision {decision_id} was acknowledged as {reply}, recorded as {content}")
    for decision_id, value in acknowledged.rewards[name].items():
        if rewards.get(decision_id) != value:
            raise SoakFailure(f"{name}: the reward {value} of {decision_id} is recorded as {rewards.get(decision_id)}")
    unmatched = [event.content for event in recorded if event.kind == "observed"]
    for request in acknowledged.observations[name]:
        found = [one for one in unmatched if one.observation == request["observation"] and _same_time(one, request)]
        if not found:
            raise SoakFailure(f"{name}: the acknowledged observation {request} is lost")
        unmatched.remove(found[0])
    for kind, expected in (("arm_added", acknowledged.arms_added), ("arm_retired", acknowledged.arms_retired)):
        arms = Counter(event.content.arm for event in recorded if event.kind == kind)
        if any(arms[arm] != 1 for stream, arm in expected if stream == name):
            raise SoakFailure(f"{name}: {kind}: expected each arm of {expected} once, got {arms}")
    return Counter(event.kind for event in recorded)


def _same_time(content: events.Decided | events.Observed, request: dict) -> bool:
    if "time" in request:
        return content.tick == events.tick_at(events.microseconds(request["time"]), round(STEP * 1e6))
    return content.elapsed == request.get("elapsed", 1)


def _check_state(name: str, journal: Journal, imported: Journal, recorded: list[events.Event]) -> Counter:
    row = journal.stream(name)
    folded = fold_stream(imported, imported.stream(name))
    recovered, snapshot = LoadedStream(read_spec(row)), journal.snapshot(row.id)
    if snapshot is not None:
        recovered = LoadedStream.from_snapshot(read_spec(row), snapshot[1])
    recovered.fold(journal.all_events(row.id, recovered.version))
    if not same_state(recovered, folded):
        raise SoakFailure(f"{name}: the state after a recovery differs from a fold of the exported journal")
    if not same_state(_decide_again(name, recorded), folded):
        raise SoakFailure(f"{name}: the state after the same decisions differs from a fold of the exported journal")
    return Counter({"streams compared": 1, "snapshots used": int(snapshot is not None)})


def _decide_again(name: str, recorded: list[events.Event]) -> LoadedStream:
    """Make all decisions of a stream again. Arms and propensities have to be those in the journal."""
    assert isinstance(recorded[0].content, events.Created)
    stream = LoadedStream(msgspec.convert(recorded[0].content.spec, StreamSpec))
    for event in recorded:
        content = event.content
        if isinstance(content, events.Decided):
            y = np.array(content.observation, dtype=float)
            made = stream.agent.decide(y, available=content.available, costs=content.costs, elapsed=content.elapsed)
            if (made.arm, made.propensities.tolist()) != (content.arm, content.propensities):
                raise SoakFailure(f"{name}: decision {event.id} is recorded as {content}, made again as {made}")
        else:
            stream._replay(event)
        stream.advance(event)
    return stream


# ---------------------------------------------------------------------- rounds and report


@dataclass
class Results:
    """The sums over all rounds."""

    seconds: float = 0.0
    rounds: Counter = field(default_factory=Counter)
    kills: Counter = field(default_factory=Counter)
    faults: Counter = field(default_factory=Counter)
    requests: Counter = field(default_factory=Counter)
    acknowledged: Counter = field(default_factory=Counter)
    checked: Counter = field(default_factory=Counter)
    recovery: dict[str, list[float]] = field(default_factory=dict)  # by fault: count, sum and longest, in seconds
    failures: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def recovered(self, fault: str, seconds: float) -> None:
        count, total, longest = self.recovery.get(fault, [0, 0.0, 0.0])
        self.recovery[fault] = [count + 1, total + seconds, max(longest, seconds)]

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read the results of earlier runs, to which this run adds its own."""
        if not path.exists():
            return cls()
        stored = json.loads(path.read_text())
        counters = ("rounds", "kills", "faults", "requests", "acknowledged", "checked")
        return cls(**{name: Counter(stored[name]) if name in counters else stored[name] for name in vars(cls())})

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        totals = {"kills_in_all": self.kills.total(), "lost": len(self.failures)}
        (folder / "soak.json").write_text(json.dumps(vars(self) | totals, indent=1) + "\n")
        (folder / "soak.md").write_text(self.markdown())

    def markdown(self) -> str:
        lines = [
            f"{self.kills.total():,} kills in {sum(self.rounds.values())} rounds and {self.seconds / 60:.0f} minutes. "
            f"Lost, duplicated or changed: {len(self.failures)}.",
            "",
            *_table(("database", "rounds"), self.rounds.items()),
            *_table(("process killed with SIGKILL", "times"), self.kills.most_common()),
            *_table(("fault", "times", "mean time to recover", "longest"), self._recovery_rows()),
            *self._request_table(),
            *_table(("acknowledged", "number"), self.acknowledged.items()),
            *_table(("in the journals that were checked", "number"), sorted(self.checked.items())),
        ]
        lines += [f"* FAILED: {failure}" for failure in self.failures]
        return "\n".join(lines).rstrip() + "\n"

    def _request_table(self) -> list[str]:
        """Return the number of requests by kind and status. The keys of the counter are "kind status"."""
        kinds = sorted({name.partition(" ")[0] for name in self.requests})
        statuses = sorted({name.partition(" ")[2] for name in self.requests})
        rows = [(kind, *(self.requests[f"{kind} {status}"] for status in statuses)) for kind in kinds]
        return _table(("request", *statuses), rows)

    def _recovery_rows(self) -> Iterator[tuple[str, int, str, str]]:
        for fault, (count, total, longest) in sorted(self.recovery.items()):
            yield fault, self.faults[fault], f"{total / count:.2f} s", f"{longest:.2f} s"


def _table(heading: tuple[str, ...], rows: Any) -> list[str]:
    body = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (heading, ["---"] * len(heading), *body)] + [""]


async def run_round(service: Service, seed: int, kills: int, seconds: float, results: Results) -> None:
    """Send requests and cause faults until there were enough kills or the time is over, then check the journal."""
    service.start()
    load = service.load = Load(f"http://127.0.0.1:{service.port}", seed, results.requests)
    calling = asyncio.create_task(load.run())
    faults = service.faults()
    end = time.monotonic() + seconds
    try:
        await _acknowledged_since(time.monotonic(), load, calling, service)
        await _wait_for_model(load, calling, min(MODEL_SECONDS, seconds / 2))
        while service.kills.total() < kills and time.monotonic() < end:
            await asyncio.sleep(_pause(service.draw))
            (name,) = service.draw.choices(list(faults), [weight for weight, _ in faults.values()])
            await faults[name][1]()
            results.faults[name] += 1
            began = time.monotonic()
            await _acknowledged_since(began, load, calling, service)
            results.recovered(name, time.monotonic() - began)
        load.stop()
        await calling
        await service.restart()  # the last kill, just after the last answer
    finally:
        load.stop()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        service.close()
    results.kills += service.kills
    results.acknowledged.update(load.acknowledged.count())
    results.checked.update(await asyncio.to_thread(check, service.database, load.acknowledged, service.folder))
    results.rounds[service.kind] += 1


def _pause(draw: random.Random) -> float:
    """Return how long the service runs before the next fault: mostly not long enough to identify a model."""
    kind = draw.random()
    return draw.uniform(0, 0.3) if kind < 0.6 else draw.uniform(0.3, 1.2) if kind < 0.95 else draw.uniform(4, 12)


async def _wait_for_model(load: Load, calling: asyncio.Task, seconds: float) -> None:
    """Wait until a stream has accepted a model, so that recoveries include models. Later ones depend on the pauses."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not calling.done():
        with contextlib.suppress(httpx.TransportError):
            reply = await load.client.get("/metrics")
            if re.search(r"^halfseen_models_accepted_total [1-9]", reply.text, flags=re.M):
                return
        await asyncio.sleep(0.2)


async def _acknowledged_since(moment: float, load: Load, calling: asyncio.Task, service: Service) -> None:
    """Wait until a request is acknowledged that was sent after `moment`."""
    end = time.monotonic() + RECOVERY_SECONDS
    while load.last_sent < moment:
        if calling.done():
            calling.result()
        if time.monotonic() > end:
            raise SoakFailure(f"nothing was acknowledged for {RECOVERY_SECONDS:g} seconds")
        await service.ensure_running()
        await asyncio.sleep(0.01)


def run(databases: list[str], *, seed: int, kills: int, seconds: float, output: Path, command: str = "") -> Results:
    """Run rounds on the databases in turn. The results are added to those in the folder `output`."""
    results = Results.read(output / "soak.json")
    if command:
        results.commands.append(command)
    began, killed = time.monotonic(), results.kills.total()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_server()) if "postgres" in databases else None
        number = 0
        while (left := seconds - (time.monotonic() - began)) > 0 and results.kills.total() - killed < kills:
            database, round_seed = databases[number % len(databases)], seed * 1_000_003 + number
            folder = Path(tempfile.mkdtemp(prefix="halfseen-soak-"))
            draw, start = random.Random(round_seed), time.monotonic()
            service = SqliteService(folder, draw) if server is None or database == "sqlite" else PostgresService(
                folder, draw, server
            )  # fmt: skip
            most = min(ROUND_KILLS, kills - (results.kills.total() - killed))
            try:
                asyncio.run(run_round(service, round_seed, most, min(ROUND_SECONDS, left), results))
                shutil.rmtree(folder)
            except KeyboardInterrupt:
                shutil.rmtree(folder)
                raise
            except BaseException as error:
                failure = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
                results.failures.append(f"{service.kind}, seed {round_seed}: {failure!r}. The files are in {folder}.")
                raise
            finally:
                results.seconds += time.monotonic() - start
                results.write(output)
            print(f"round {number + 1}, {database}: {results.kills.total():,} kills, nothing lost", flush=True)
            number += 1
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Random faults under load, checked against what was acknowledged.")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--kills", type=int, default=1_000_000, help="end after this many kills")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--databases", default="sqlite,postgres")
    parser.add_argument("--output", type=Path, default=Path("results/soak"), help="folder of the report")
    given = parser.parse_args()
    databases = given.databases.split(",")
    if "postgres" in databases and POSTGRES.find() is None:
        sys.exit(POSTGRES.missing_line())
    for number in (signal.SIGINT, signal.SIGTERM):  # also in the background, where a shell ignores SIGINT
        signal.signal(number, signal.default_int_handler)  # ends the processes of the soak too
    command = f"--databases {given.databases} --seed {given.seed} --kills {given.kills} --hours {given.hours:g}"
    seconds = 3600 * given.hours
    try:
        results = run(
            databases, seed=given.seed, kills=given.kills, seconds=seconds, output=given.output, command=command
        )
    except KeyboardInterrupt:
        sys.exit(f"Interrupted. The rounds before are in {given.output}.")
    print(results.markdown())


if __name__ == "__main__":
    main()
