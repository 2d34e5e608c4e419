"""Models are identified in a separate process and recorded as events."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from engine_tools import (
    assert_matches_journal,
    decide,
    fold_from_journal,
    loaded_stream,
    metric,
    on_engine,
    open_engine,
    reward,
    spec,
    wait_until,
)

import halfseen as hs
from halfseen.service.app import build_app
from halfseen.service.auth import Authorizer
from halfseen.service.engine.identification import IdentificationFailed, IdentificationProcess
from halfseen.service.schemas import Limits

ADAPTIVE = {"agent": "adaptive", "observed": 2, "options": {"latent": 2, "history": 300}}


async def play(engine, name: str, rounds: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    x = 0.0
    for _ in range(rounds):
        x = 0.9 * x + rng.normal()
        made = await decide(engine, [x + 0.1 * rng.normal(), rng.normal()], name=name)
        await reward(engine, made, x if made.arm == "a" else -x, name=name)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@on_engine(identify=True)
async def test_models_are_identified_early_and_recorded_and_fold_exactly(engine, database):
    for name in ("one", "two"):
        await engine.create_stream(spec(name, **ADAPTIVE))
    await asyncio.gather(play(engine, "one", 10), play(engine, "two", 10))
    for name in ("one", "two"):  # the streams take turns
        await wait_until(lambda name=name: loaded_stream(engine, name).model_seq > 0)
    assert loaded_stream(engine).agent.policy.learner.fitted[0]
    await play(engine, "one", 40)
    await wait_until(lambda: loaded_stream(engine).agent.policy.estimator.identified[0])
    await wait_until(lambda: not loaded_stream(engine).agent.refit_due)
    await engine.add_arm("one", "d")
    await play(engine, "one", 3)
    await wait_until(lambda: not loaded_stream(engine).agent.refit_due)
    accepted = [event for event in await engine.events("one") if event.kind == "model_accepted"]
    assert len(accepted) >= 2
    assert all(event.content.seen < event.seq for event in accepted)
    assert all(event.blob for event in accepted)
    assert_matches_journal(engine, database)
    assert (await engine.health("one")).facts["identifications"] >= 1
    pid = engine._identification._process.pid
    await engine.close()
    assert not is_alive(pid)


@on_engine(identify=True)
async def test_the_process_is_started_before_it_is_needed(engine):
    """A stream decides at random until its first model, so it should not have to wait until the process has started."""
    await engine.create_stream(spec("plain", agent="ts-pco"))
    await asyncio.sleep(0.2)
    assert engine._identification._process is None
    await engine.create_stream(spec("other", **ADAPTIVE))
    await wait_until(lambda: engine._identification._process is not None)
    pid = engine._identification._process.pid
    await engine.close()
    assert not is_alive(pid)


@on_engine(identify=True)
async def test_an_idle_process_that_dies_is_started_again(engine):
    await engine.create_stream(spec(**ADAPTIVE))
    await play(engine, "one", 9)
    await wait_until(lambda: loaded_stream(engine).model_seq > 0)
    pid = engine._identification._process.pid
    os.kill(pid, signal.SIGKILL)
    await wait_until(lambda: not is_alive(pid))
    before = loaded_stream(engine).model_seq
    await play(engine, "one", 20)
    await wait_until(lambda: loaded_stream(engine).model_seq > before)
    assert engine._identification._process.pid != pid


@on_engine(identify=True)
async def test_a_task_whose_process_dies_is_repeated_without_new_requests(engine, monkeypatch):
    died = []

    def identify(self, agent, seconds):
        if not died:
            self._ensure_running()
            died.append(self._process.pid)
            self._end()  # before the process can reply
            raise IdentificationFailed("The identification process ended.", process_ended=True)
        return real(self, agent, seconds)

    real = IdentificationProcess.identify
    monkeypatch.setattr(IdentificationProcess, "identify", identify)
    await engine.create_stream(spec(**ADAPTIVE))
    await play(engine, "one", 9)
    await wait_until(lambda: loaded_stream(engine).model_seq > 0, seconds=50.0)  # a claim lasts longer
    assert metric(engine, "identifications_failed_total") == 1
    assert died


@on_engine(identify=True)
async def test_repeated_failures_degrade_the_service_until_a_model_is_identified(engine, monkeypatch, caplog):
    def identify(self, agent, seconds):
        raise IdentificationFailed("The identification process ended with exit code 1.", process_ended=True)

    real = IdentificationProcess.identify
    monkeypatch.setattr(IdentificationProcess, "identify", identify)
    monkeypatch.setattr("halfseen.service.engine.engine._RESTART_SECONDS", 0.05)
    await engine.create_stream(spec(**ADAPTIVE))
    await play(engine, "one", 9)
    await wait_until(lambda: metric(engine, "identifications_failed_total") == 2)
    assert engine.degraded is None
    await wait_until(lambda: engine.degraded is not None)
    assert re.fullmatch(r"The last \d identifications of a model failed, .* ended with exit code 1.", engine.degraded)
    app = build_app(engine, Authorizer(engine.tokens, open_at_first=True, always_open=True), Limits())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        reply = await client.get("/readyz")
        assert (reply.status_code, reply.json()["status"]) == (200, "degraded")
        assert reply.json()["reason"].startswith("The last ")
    assert (await decide(engine, [0.0, 0.0])).arm in ("a", "b", "c")
    monkeypatch.setattr(IdentificationProcess, "identify", real)
    await wait_until(lambda: engine.degraded is None)
    await wait_until(lambda: loaded_stream(engine).model_seq > 0)
    logged = [record.message for record in caplog.records if record.message.startswith("Worker")]
    assert len(logged) == 2, logged
    assert "3 identifications in a row failed" in logged[0]
    assert "identified again" in logged[1]


def test_a_failure_has_a_reason():
    identification = IdentificationProcess()
    try:
        with pytest.raises(IdentificationFailed, match="SaveFileError: ") as failed:
            identification.identify(b"not an agent", 60.0)
        assert not failed.value.process_ended
        os.kill(identification._process.pid, signal.SIGSTOP)
        os.kill(identification._process.pid, signal.SIGKILL)
        with pytest.raises(IdentificationFailed, match="ended with SIGKILL") as failed:
            identification.identify(b"not an agent", 60.0)
        assert failed.value.process_ended
    finally:
        identification.close()


def test_files_in_the_working_directory_are_not_imported(tmp_path, monkeypatch):
    for module in ("token", "queue", "numpy"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    identification = IdentificationProcess()
    try:
        with pytest.raises(IdentificationFailed, match="SaveFileError"):  # the process has started and replied
            identification.identify(b"not an agent", 60.0)
    finally:
        identification.close()


@on_engine(identify=True)
async def test_two_engines_do_not_identify_the_same_model(engine, url):
    one = engine
    async with open_engine(url, identify=True) as other:
        await one.create_stream(spec(**ADAPTIVE))
        for _ in range(4):
            await play(one, "one", 8)
            await play(other, "one", 8)
        await wait_until(lambda: loaded_stream(one, "one").model_seq > 0 or loaded_stream(other, "one").model_seq > 0)
        await one.health("one")
        await other.health("one")
        accepted = metric(one, "models_accepted_total") + metric(other, "models_accepted_total")
        kinds = [event.kind for event in await one.events("one")]
        assert kinds.count("model_accepted") >= accepted > 0
    assert fold_from_journal(url, "one").version >= 2 * 64


@on_engine()
async def test_a_claim_made_while_the_clock_was_ahead_is_void(engine, url, monkeypatch):
    """A process that claimed a stream and died would otherwise block it for as long as the clock was ahead."""
    await engine.create_stream(spec(**ADAPTIVE))
    await play(engine, "one", 9)
    store = engine._store
    now = time.time_ns() // 1000
    for ahead in (3600, 0):
        monkeypatch.setattr("halfseen.service.engine.store._now", lambda ahead=ahead: now + ahead * 1_000_000)
        await decide(engine, [0.0, 0.0])
        task = await engine._on_store_thread(store.claim_identification)
        assert task is not None
        assert task.name == "one"
    await decide(engine, [0.0, 0.0])
    assert await engine._on_store_thread(store.claim_identification) is None  # the claim is valid


def test_an_interrupt_from_the_terminal_does_not_reach_the_process():
    """An interrupt goes to all processes of the parent's process group and would print a traceback."""
    identification = IdentificationProcess()
    identification.start()
    try:
        assert os.getpgid(identification._process.pid) != os.getpgid(0)
    finally:
        identification.close()


def test_the_process_ends_when_its_parent_is_killed(tmp_path):
    script = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from engine_tools import loaded_stream, open_engine, spec, wait_until
from service_play import ADAPTIVE, play

async def main():
    async with open_engine({str(tmp_path / "j.db")!r}, identify=True) as engine:
        await engine.create_stream(spec(**ADAPTIVE))
        await play(engine, "one", 9)
        await wait_until(lambda: loaded_stream(engine).model_seq > 0)
        print(engine._identification._process.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
    (tmp_path / "service_play.py").write_text(Path(__file__).read_text())
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    try:
        child = int(parent.stdout.readline())
        assert is_alive(child)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    end = time.monotonic() + 30
    while is_alive(child):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_an_identification_is_ended_at_its_deadline():
    agent = hs.make("adaptive", observed=2, arms=2, seed=0, refit="manual")
    for y in np.random.default_rng(0).normal(size=(30, 2)):
        agent.learn(agent.decide(y), float(y[0]))
    process = IdentificationProcess()
    try:
        with pytest.raises(IdentificationFailed, match=r"took more than 0\.05 seconds"):  # not even started by then
            process.identify(agent.packed(small=False), 0.05)
        assert process.identify(agent.packed(small=False), 120.0)  # a new process was started
    finally:
        process.close()
